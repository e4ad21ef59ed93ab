#include "ranklink/group.hpp"

#include "group/bring_up.h"
#include "group/group_impl.h"
#include "group/report.h"
#include "group/shared_buffer.h"
#include "group/split.h"

namespace ranklink {
namespace {

Call on_buffer(Collective collective, SharedBuffer& buffer, std::size_t count, DataType type,
               std::size_t offset) {
  return {.collective = collective,
          .count = count,
          .type = type,
          .shared = &buffer,
          .shared_offset = offset};
}

}  // namespace

Store::~Store() = default;

Group Group::join(const Options& options) { return Group(bring_up(options)); }

Group::Group(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Group::Group(Group&&) noexcept = default;
Group& Group::operator=(Group&& other) noexcept {
  const Group gone(std::move(*this));  // its destructor knows what to do after a fork
  impl_ = std::move(other.impl_);
  return *this;
}
Group::~Group() {
  if (impl_ && impl_->world->forked()) {
    static_cast<void>(impl_.release());  // all of it is the parent's
  }
}

int Group::rank() const { return impl_->rank; }
int Group::size() const { return impl_->size(); }
const Report& Group::report() const {
  if (!impl_->report) impl_->report = make_report(*impl_);
  return *impl_->report;
}

void Group::run(const Call& call) { impl_->run(call); }
Work Group::start(const Call& call) { return impl_->start(call); }

void Group::all_to_all_v(const void* input, std::span<const std::size_t> send_counts,
                         std::span<const std::size_t> send_offsets, void* output,
                         std::span<const std::size_t> recv_counts,
                         std::span<const std::size_t> recv_offsets, DataType type) {
  for (const auto& numbers : {send_counts, send_offsets, recv_counts, recv_offsets}) {
    if (numbers.size() == static_cast<std::size_t>(size())) continue;
    throw Error({.code = ErrorCode::bad_argument,
                 .rank = rank(),
                 .step = "all_to_all_v",
                 .cause = "counts and offsets are not as many as ranks",
                 .remedy = "give one count and one offset for each rank, in both directions"});
  }
  Call call{Collective::all_to_all_v, input, output, 0, type};
  call.send_counts = send_counts.data();
  call.send_offsets = send_offsets.data();
  call.recv_counts = recv_counts.data();
  call.recv_offsets = recv_offsets.data();
  run(call);
}

void Group::send(const void* data, std::size_t count, DataType type, int to) {
  // Only a receive writes into it.
  const Transfer transfer{Transfer::Kind::send, to, const_cast<void*>(data),
                          bytes_of_message(count, type)};
  exchange({&transfer, 1});
}

void Group::recv(void* data, std::size_t count, DataType type, int from) {
  const Transfer transfer{Transfer::Kind::recv, from, data, bytes_of_message(count, type)};
  exchange({&transfer, 1});
}

void Group::exchange(std::span<const Transfer> transfers) {
  Call call{.collective = Collective::exchange, .count = transfers.size()};
  call.transfers = transfers.data();
  run(call);
}

std::optional<Group> Group::split(int color, int key) {
  auto part = split_group(*impl_, color, key);
  if (!part) return std::nullopt;
  return Group(std::move(part));
}

SharedBuffer Group::make_shared_buffer(std::size_t size) {
  return SharedBuffer(share_memory(*impl_, size, nullptr));
}

SharedBuffer Group::register_memory(std::span<std::byte> memory) {
  return SharedBuffer(share_memory(*impl_, memory.size(), memory.data()));
}

void Group::all_reduce(SharedBuffer& buffer, std::size_t count, DataType type, ReduceOp op,
                       std::size_t offset) {
  Call call = on_buffer(Collective::all_reduce, buffer, count, type, offset);
  call.op = op;
  run(call);
}

void Group::all_gather(SharedBuffer& buffer, std::size_t count, DataType type, std::size_t offset) {
  run(on_buffer(Collective::all_gather, buffer, count, type, offset));
}

void Group::reduce_scatter(SharedBuffer& buffer, std::size_t count, DataType type, ReduceOp op,
                           std::size_t offset) {
  Call call = on_buffer(Collective::reduce_scatter, buffer, count, type, offset);
  call.op = op;
  run(call);
}

void Group::broadcast(SharedBuffer& buffer, std::size_t count, DataType type, int root,
                      std::size_t offset) {
  Call call = on_buffer(Collective::broadcast, buffer, count, type, offset);
  call.root = root;
  run(call);
}

void Group::all_to_all(SharedBuffer& buffer, std::size_t count, DataType type, std::size_t offset) {
  run(on_buffer(Collective::all_to_all, buffer, count, type, offset));
}

void Group::fail(const std::string& cause, const std::string& remedy) {
  World& world = *impl_->world;
  if (world.forked() || world.page().failed()) return;
  const int me = impl_->me();
  const Error error({.code = ErrorCode::rank_failed,
                     .rank = me,
                     .step = world.page().step(me),
                     .cause = cause,
                     .remedy = remedy});
  // Another thread may hold the client until it sees this.
  world.page().publish_failure(me, error);
  const std::lock_guard lock(world.mutex);
  world.client->fail(error);
}

}  // namespace ranklink
