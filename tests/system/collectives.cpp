// One rank of a program that uses all collectives, in several groups that overlap, by the public
// headers only. What comes next is drawn from one sequence of random numbers on all ranks.
//
//   collectives STEPS SEED MODE
//
// MODE: `mixed` does STEPS calls, some started and left in flight; `threads` uses two groups from
// two threads at once; `shared` works on shared buffers and registered memory; `large` broadcasts
// and gathers more than 2^31 bytes; `differ` calls something else on the last rank.
// Prints a JSON line: {"rank": R, "calls": N, "wrong": W}.

#include <sys/mman.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <random>
#include <ranklink/ranklink.hpp>
#include <string>
#include <thread>
#include <vector>

namespace {

using ranklink::Call;
using ranklink::Collective;
using ranklink::DataType;
using ranklink::Group;
using ranklink::ReduceOp;

// Small, so that sums of all ranks' fit every type, and of its own for each rank, call and place.
int value(int rank, std::uint64_t call, std::size_t place) {
  const std::uint64_t mixed =
      (place * 0x9e3779b97f4a7c15u + call * 0xbf58476d1ce4e5b9u + static_cast<unsigned>(rank)) *
      0x94d049bb133111ebu;
  return 1 + static_cast<int>(mixed >> 61);  // 1 to 8
}

double reduced(ReduceOp op, int size, std::uint64_t call, std::size_t place) {
  double result = value(0, call, place);
  for (int rank = 1; rank < size; ++rank) {
    const double next = value(rank, call, place);
    if (op == ReduceOp::min)
      result = std::min(result, next);
    else if (op == ReduceOp::max)
      result = std::max(result, next);
    else
      result += next;
  }
  return result;
}

// Elements of any type, as numbers.
class Elements {
 public:
  Elements(DataType type, std::size_t count)
      : type_(type), bytes_(count * ranklink::size_of(type) + 1) {}

  void* data() { return bytes_.data() + 1; }  // unaligned
  void set(std::size_t place, int number) {
    switch (type_) {
      case DataType::f32:
        return put(place, static_cast<float>(number));
      case DataType::f64:
        return put(place, static_cast<double>(number));
      case DataType::u8:
        return put(place, static_cast<std::uint8_t>(number));
      case DataType::i8:
        return put(place, static_cast<std::int8_t>(number));
      case DataType::i64:
        return put(place, static_cast<std::int64_t>(number));
      default:
        return put(place, static_cast<std::int32_t>(number));
    }
  }
  double get(std::size_t place) const {
    switch (type_) {
      case DataType::f32:
        return take<float>(place);
      case DataType::f64:
        return take<double>(place);
      case DataType::u8:
        return take<std::uint8_t>(place);
      case DataType::i8:
        return take<std::int8_t>(place);
      case DataType::i64:
        return static_cast<double>(take<std::int64_t>(place));
      default:
        return take<std::int32_t>(place);
    }
  }

 private:
  template <typename T>
  void put(std::size_t place, T number) {
    std::memcpy(bytes_.data() + 1 + place * sizeof(T), &number, sizeof number);
  }
  template <typename T>
  T take(std::size_t place) const {
    T number;
    std::memcpy(&number, bytes_.data() + 1 + place * sizeof(T), sizeof number);
    return number;
  }

  DataType type_;
  std::vector<std::byte> bytes_;
};

// A call with its memory, and what it must give.
struct Doing {
  Call call;
  std::uint64_t number;
  Elements input;
  Elements output;
  std::optional<ranklink::Work> work;

  std::size_t wrong(const Group& group) const {
    const int size = group.size();
    const int me = group.rank();
    const bool at_root = me == call.root;
    const std::size_t n = call.count;
    std::size_t bad = 0;
    const auto expect = [&](std::size_t place, double right) { bad += output.get(place) != right; };
    for (std::size_t i = 0; i < n; ++i) {
      switch (call.collective) {
        case Collective::all_reduce:
          expect(i, reduced(call.op, size, number, i));
          break;
        case Collective::reduce:
          if (at_root) expect(i, reduced(call.op, size, number, i));
          break;
        case Collective::reduce_scatter:
          expect(i, reduced(call.op, size, number, static_cast<std::size_t>(me) * n + i));
          break;
        case Collective::broadcast:
          expect(i, value(call.root, number, i));
          break;
        case Collective::scatter:
          expect(i, value(call.root, number, static_cast<std::size_t>(me) * n + i));
          break;
        default:
          break;
      }
      for (int r = 0; r < size; ++r) {
        const std::size_t place = static_cast<std::size_t>(r) * n + i;
        if (call.collective == Collective::all_gather) expect(place, value(r, number, i));
        if (call.collective == Collective::gather && at_root) expect(place, value(r, number, i));
        if (call.collective == Collective::all_to_all) {
          expect(place, value(r, number, static_cast<std::size_t>(me) * n + i));
        }
      }
    }
    return bad;
  }
};

std::unique_ptr<Doing> prepare(const Group& group, std::mt19937& random, std::uint64_t number) {
  constexpr Collective kCollectives[] = {
      Collective::all_reduce, Collective::all_gather, Collective::reduce_scatter,
      Collective::broadcast,  Collective::reduce,     Collective::gather,
      Collective::scatter,    Collective::all_to_all, Collective::barrier};
  constexpr DataType kTypes[] = {DataType::f32, DataType::f64, DataType::i8,
                                 DataType::u8,  DataType::i32, DataType::i64};
  constexpr ReduceOp kOps[] = {ReduceOp::sum, ReduceOp::min, ReduceOp::max};
  constexpr std::size_t kCounts[] = {0, 1, 2, 3, 17, 59, 60, 61, 250, 1000, 8192, 8193, 40'001};
  Call call;
  call.collective = kCollectives[random() % std::size(kCollectives)];
  call.type = kTypes[random() % std::size(kTypes)];
  call.op = kOps[random() % std::size(kOps)];
  call.count = kCounts[random() % std::size(kCounts)];
  call.root = static_cast<int>(random() % static_cast<unsigned>(group.size()));
  if (call.collective == Collective::barrier) call.count = 0;
  const std::size_t all = call.count * static_cast<std::size_t>(group.size());
  auto doing = std::make_unique<Doing>(
      Doing{call, number, Elements(call.type, all), Elements(call.type, all), std::nullopt});
  for (std::size_t i = 0; i < all; ++i) {
    doing->input.set(i, value(group.rank(), number, i));
    doing->output.set(
        i, call.collective == Collective::broadcast ? value(group.rank(), number, i) : 0);
  }
  doing->call.input = doing->input.data();
  doing->call.output = doing->output.data();
  if (call.collective == Collective::broadcast) doing->call.input = doing->call.output;
  return doing;
}

// Calls in one group, some of them in flight while others begin.
class Sequence {
 public:
  Sequence(Group& group, std::uint32_t seed) : group_(group), random_(seed) {}

  void step() {
    auto doing = prepare(group_, random_, ++calls);
    if (random_() % 3 == 0) {
      doing->work = group_.start(doing->call);
      flying_.push_back(std::move(doing));
    } else {
      group_.run(doing->call);
      wrong += doing->wrong(group_);
    }
    if (flying_.size() > 6) land();
  }
  void land() {
    for (const auto& doing : flying_) {
      doing->work->wait();
      wrong += doing->wrong(group_);
    }
    flying_.clear();
  }

  std::size_t wrong = 0;
  std::uint64_t calls = 0;

 private:
  Group& group_;
  std::mt19937 random_;
  std::vector<std::unique_ptr<Doing>> flying_;
};

// The whole, its even and odd ranks, windows of two that overlap, the whole backwards, and halves
// of a part.
std::vector<std::optional<Group>> make_groups(Group& whole) {
  std::vector<std::optional<Group>> groups;
  const int rank = whole.rank();
  groups.push_back(whole.split(rank % 2));
  for (int first = 0; first + 1 < whole.size(); ++first) {
    groups.push_back(whole.split(rank == first || rank == first + 1 ? 0 : -1));
  }
  groups.push_back(whole.split(7, -rank));
  groups.push_back(groups[0]->split(groups[0]->rank() / 2, 3));
  return groups;
}

std::size_t mixed(Group& whole, int steps, std::uint32_t seed, std::uint64_t& calls) {
  auto groups = make_groups(whole);
  std::vector<std::unique_ptr<Sequence>> sequences;
  sequences.push_back(std::make_unique<Sequence>(whole, seed));
  for (std::size_t i = 0; i < groups.size(); ++i) {
    sequences.push_back(groups[i] ? std::make_unique<Sequence>(*groups[i], seed + 1) : nullptr);
  }
  std::mt19937 order(seed);
  for (int i = 0; i < steps; ++i) {
    const auto& sequence = sequences[order() % sequences.size()];
    if (sequence) sequence->step();
  }
  std::size_t wrong = 0;
  for (const auto& sequence : sequences) {
    if (!sequence) continue;
    sequence->land();
    wrong += sequence->wrong;
    calls += sequence->calls;
  }
  return wrong;
}

std::size_t threads(Group& whole, int steps, std::uint32_t seed, std::uint64_t& calls) {
  std::optional<Group> other = whole.split(0, -whole.rank());
  std::size_t wrong[2] = {};
  std::thread thread([&] {
    Sequence sequence(*other, seed + 1);
    for (int i = 0; i < steps; ++i) sequence.step();
    sequence.land();
    wrong[1] = sequence.wrong;
  });
  Sequence sequence(whole, seed);
  for (int i = 0; i < steps; ++i) sequence.step();
  sequence.land();
  thread.join();
  calls = 2 * static_cast<std::uint64_t>(steps);
  return sequence.wrong + wrong[1];
}

std::size_t on_buffer(Group& group, ranklink::SharedBuffer& buffer, std::uint64_t& calls) {
  auto* floats = reinterpret_cast<float*>(buffer.local().data());
  const auto n = static_cast<std::size_t>(group.size());
  const auto me = static_cast<std::size_t>(group.rank());
  std::size_t wrong = 0;
  for (const std::size_t count :
       {std::size_t{1}, std::size_t{100}, std::size_t{513}, std::size_t{20'000}}) {
    const auto fill = [&] {
      ++calls;
      for (std::size_t i = 0; i < count * n; ++i) {
        floats[i] = static_cast<float>(value(group.rank(), calls, i));
      }
    };
    fill();
    group.all_reduce(buffer, count, DataType::f32);
    for (std::size_t i = 0; i < count; ++i) {
      wrong += floats[i] != reduced(ReduceOp::sum, group.size(), calls, i);
    }
    fill();
    group.reduce_scatter(buffer, count, DataType::f32, ReduceOp::max);
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t place = me * count + i;
      wrong += floats[place] != reduced(ReduceOp::max, group.size(), calls, place);
    }
    fill();
    group.all_gather(buffer, count, DataType::f32);
    for (std::size_t i = 0; i < count * n; ++i) {
      wrong += floats[i] != value(static_cast<int>(i / count), calls, i);
    }
    fill();
    group.broadcast(buffer, count, DataType::f32, group.size() - 1);
    for (std::size_t i = 0; i < count; ++i) {
      wrong += floats[i] != value(group.size() - 1, calls, i);
    }
    fill();
    group.all_to_all(buffer, count, DataType::f32);
    for (std::size_t i = 0; i < count * n; ++i) {
      wrong += floats[i] != value(static_cast<int>(i / count), calls, me * count + i % count);
    }
  }
  return wrong;
}

std::size_t shared(Group& whole, std::uint64_t& calls) {
  const std::size_t bytes = 20'000 * sizeof(float) * static_cast<std::size_t>(whole.size());
  std::size_t wrong = 0;
  ranklink::SharedBuffer buffer = whole.make_shared_buffer(bytes);
  wrong += on_buffer(whole, buffer, calls);
  auto part = whole.split(whole.rank() % 2);
  ranklink::SharedBuffer its = part->make_shared_buffer(bytes);
  wrong += on_buffer(*part, its, calls);

  const std::size_t pages = (bytes + 4095) / 4096 * 4096;
  void* memory = ::mmap(nullptr, pages, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  std::memset(memory, 0x11 + whole.rank(), pages);
  {
    ranklink::SharedBuffer mine = whole.register_memory({static_cast<std::byte*>(memory), pages});
    for (const std::byte b : mine.local())
      wrong += b != static_cast<std::byte>(0x11 + whole.rank());
    wrong += mine.local().data() != memory;
    wrong += on_buffer(whole, mine, calls);
    std::memset(memory, 0x22, pages);
  }
  for (std::size_t i = 0; i < pages; ++i) {
    wrong += static_cast<unsigned char*>(memory)[i] != 0x22;
  }
  ::munmap(memory, pages);
  return wrong;
}

std::size_t large(Group& whole, std::uint64_t& calls) {
  const std::size_t bytes = (std::size_t{1} << 31) + 12'345;
  std::vector<std::uint8_t> data(bytes, static_cast<std::uint8_t>(whole.rank()));
  data.back() = 77;
  whole.broadcast(data.data(), bytes, DataType::u8, 1);
  std::size_t wrong = 0;
  for (std::size_t i = 0; i + 1 < bytes; i += 4093) wrong += data[i] != 1;
  wrong += data.back() != 77;
  whole.all_reduce(data.data(), data.data(), bytes, DataType::u8);
  for (std::size_t i = 0; i + 1 < bytes; i += 4093) wrong += data[i] != whole.size();
  wrong += data.back() != static_cast<std::uint8_t>(77 * whole.size());
  calls += 2;
  return wrong;
}

std::size_t differ(Group& whole) {
  std::vector<float> data(1000, 1.0f);
  if (whole.rank() == whole.size() - 1)
    whole.broadcast(data.data(), 1000, DataType::f32, 0);
  else
    whole.all_reduce(data);
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  const int steps = std::atoi(argv[1]);
  const auto seed = static_cast<std::uint32_t>(std::atoi(argv[2]));
  const std::string mode = argv[3];
  try {
    Group whole = Group::join();
    std::uint64_t calls = 0;
    const std::size_t wrong = mode == "threads"  ? threads(whole, steps, seed, calls)
                              : mode == "shared" ? shared(whole, calls)
                              : mode == "large"  ? large(whole, calls)
                              : mode == "differ" ? differ(whole)
                                                 : mixed(whole, steps, seed, calls);
    whole.barrier();
    std::printf("{\"event\": \"done\", \"rank\": %d, \"calls\": %llu, \"wrong\": %zu}\n",
                whole.rank(), static_cast<unsigned long long>(calls), wrong);
    return wrong == 0 ? 0 : 1;
  } catch (const ranklink::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    std::printf("{\"event\": \"error\", \"code\": \"%s\", \"rank\": %d}\n",
                ranklink::to_string(error.code()).c_str(), error.rank());
    return 1;
  }
}
