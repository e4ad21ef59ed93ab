#include "group/shared_buffer.h"

#include <fmt/format.h>

#include <cstring>

#include "exchange/coordinator.h"
#include "exchange/trial.h"
#include "group/connect.h"

namespace ranklink {

SharedBuffer::SharedBuffer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
SharedBuffer::SharedBuffer(SharedBuffer&&) noexcept = default;
SharedBuffer& SharedBuffer::operator=(SharedBuffer&&) noexcept = default;
SharedBuffer::~SharedBuffer() = default;

std::span<std::byte> SharedBuffer::local() const { return {impl_->own->data(), impl_->size}; }

std::span<std::byte> SharedBuffer::peer(int rank) const {
  if (rank == impl_->rank) return local();
  if (rank < 0 || static_cast<std::size_t>(rank) >= impl_->peers.size()) {
    throw Error(
        {.code = ErrorCode::bad_argument,
         .cause = fmt::format("there is no rank {} in a group of {}", rank, impl_->peers.size()),
         .remedy = "use a rank from 0 to size - 1"});
  }
  const auto& memory = impl_->peers[static_cast<std::size_t>(rank)];
  if (!memory) return {};
  return {memory->data(), impl_->size};
}

std::uint32_t resolve(const SharedBuffer& buffer, const Group::Impl& group, std::size_t offset,
                      std::vector<std::byte*>& places) {
  const SharedBuffer::Impl& impl = buffer.impl();
  if (impl.group != group.circle.number || impl.world != group.world.get()) {
    throw Error({.code = ErrorCode::bad_argument,
                 .cause = "the shared buffer was made by another group",
                 .remedy = "use it with the group that made it"});
  }
  for (std::size_t rank = 0; rank < places.size(); ++rank) {
    const auto memory = buffer.peer(static_cast<int>(rank));
    places[rank] = memory.empty() ? nullptr : memory.data() + offset;
  }
  const std::uint64_t mixed = (impl.serial ^ offset << 8) * 0x9e37'79b9'7f4a'7c15u;
  return static_cast<std::uint32_t>(mixed >> 56);
}

namespace {

class Kept {
 public:
  Kept() = default;
  explicit Kept(std::span<std::byte> memory)
      : memory_(memory), copy_(memory.begin(), memory.end()) {}
  Kept(const Kept&) = delete;
  Kept& operator=(Kept&& other) noexcept {
    std::swap(memory_, other.memory_);
    std::swap(copy_, other.copy_);
    return *this;
  }
  ~Kept() { put_back(); }

  void put_back() {
    std::copy(copy_.begin(), copy_.end(), memory_.begin());
    copy_.clear();
  }

 private:
  std::span<std::byte> memory_;
  Bytes copy_;
};

// All ranks find the same one to blame: the first that differs from rank 0.
void need_same_size(Group::Impl& group, std::size_t size, Deadline deadline) {
  Writer row;
  row.put(static_cast<std::uint64_t>(size));
  const Bytes all = group.circle.submit("make_shared_buffer/size", row.take(), deadline);
  Reader reader(all);
  const auto rows = split_rows(reader, group.size());
  const auto size_of_rank = [&](int rank) {
    return Reader(rows[static_cast<std::size_t>(rank)]).get<std::uint64_t>();
  };
  for (int rank = 1; rank < group.size(); ++rank) {
    if (size_of_rank(rank) == size_of_rank(0)) continue;
    throw Error({.code = ErrorCode::bad_argument,
                 .rank = group.rank_in_job(rank),
                 .cause = fmt::format("it asks for a shared buffer of {} bytes, rank {} for {}",
                                      size_of_rank(rank), group.rank_in_job(0), size_of_rank(0)),
                 .remedy = "give the same size on all ranks"});
  }
}

}  // namespace

std::unique_ptr<SharedBuffer::Impl> share_memory(Group::Impl& group, std::size_t size,
                                                 std::byte* place) {
  if (size == 0) {
    throw Error({.code = ErrorCode::bad_argument,
                 .cause = "a shared buffer of no bytes",
                 .remedy = "ask for at least one"});
  }
  // A trial writes patterns: what is in the caller's memory is kept meanwhile, and put back
  // whatever happens, when no peer can reach the memory any more.
  Kept kept;
  auto buffer = std::make_unique<SharedBuffer::Impl>();
  group.operate_alone(Collective::make_shared_buffer, [&](Deadline deadline) {
    World& world = *group.world;
    const std::size_t bytes = std::max(size, trial_bytes(world.around->size()));
    buffer->world = group.world.get();
    buffer->group = group.circle.number;
    buffer->serial = group.next_buffer();
    buffer->rank = group.rank;
    buffer->size = size;
    buffer->peers.resize(group.circle.members.size());
    const std::string name = fmt::format("ranklink-buffer-{}", group.me());
    if (place != nullptr) {
      if (size < bytes) {
        throw Error({.code = ErrorCode::bad_argument,
                     .cause = fmt::format("{} bytes are too few to be registered", size),
                     .remedy = fmt::format("register at least {} bytes", bytes)});
      }
      buffer->own = world.device->adopt(name, {place, size});
      kept = Kept({place, size});
    } else {
      buffer->own = world.device->allocate(name, bytes);
    }
    need_same_size(group, size, deadline);
    Links links = connect_as_decided(
        world, group.circle, buffer->own.get(), [](int, int) { return true; }, false, deadline);
    for (std::size_t i = 0; i < buffer->peers.size(); ++i) {
      const int peer = group.circle.members[i];
      if (peer == group.me()) continue;
      const std::string& mechanism = world.decision.mechanism(group.me(), peer);
      if (!find_mechanism(mechanism).maps) continue;
      buffer->peers[i] = std::move(links[mechanism].at(peer).memory);
    }
    // When all have done this, nobody sees anything but zeros, or what was there.
    if (place == nullptr) std::memset(buffer->own->data(), 0, bytes);
    kept.put_back();
    group.circle.submit("make_shared_buffer/cleared", {}, deadline);
  });
  return buffer;
}

}  // namespace ranklink
