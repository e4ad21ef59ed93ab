#include "group/split.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "base/secret.h"
#include "exchange/coordinator.h"
#include "exchange/trial.h"
#include "group/connect.h"

namespace ranklink {
namespace {

struct Choice {
  std::int32_t color = -1;
  std::int32_t key = 0;
};

std::vector<Choice> exchange_choices(Group::Impl& group, Choice mine, Deadline deadline) {
  Writer row;
  row.put(mine.color);
  row.put(mine.key);
  const Bytes all = group.circle.submit("split/colors", row.take(), deadline);
  Reader reader(all);
  std::vector<Choice> choices;
  for (const Bytes& bytes : split_rows(reader, group.size())) {
    Reader one(bytes);
    Choice& choice = choices.emplace_back();
    choice.color = one.get<std::int32_t>();
    choice.key = one.get<std::int32_t>();
    one.end();
  }
  return choices;
}

// The rows of a subgroup go by messages of its own: first their sizes, then they.
Bytes submit_by_messages(Group::Impl& group, const std::string& round, Bytes row,
                         Deadline deadline) {
  const auto ranks = static_cast<std::size_t>(group.size());
  Workspace& work = *group.work;
  const auto do_call = [&](const Call& call, const Algorithm& algorithm) {
    // Who hands in a row of another round is told so.
    const auto name =
        static_cast<std::uint32_t>(std::accumulate(round.begin(), round.end(), 0) & 0xff);
    work.routes.begin(tag_of(call) ^ name, std::chrono::ceil<Milliseconds>(deadline.left()));
    algorithm.run(work, call);
    work.routes.end();
  };
  const std::int64_t mine = static_cast<std::int64_t>(row.size());
  std::vector<std::int64_t> sizes(ranks);
  do_call({Collective::all_gather, &mine, sizes.data(), 1, DataType::i64}, kAllGatherFlat);

  constexpr std::int64_t kMost = 16 << 20;
  std::vector<std::size_t> counts(ranks);
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    if (sizes[rank] < 0 || sizes[rank] > kMost) Reader::fail("a row of an absurd size");
    counts[rank] = static_cast<std::size_t>(sizes[rank]);
  }
  std::vector<std::size_t> offsets(ranks);
  std::exclusive_scan(counts.begin(), counts.end(), offsets.begin(), std::size_t{0});
  const std::vector<std::size_t> same(ranks, row.size());
  const std::vector<std::size_t> zero(ranks, 0);
  Bytes all(offsets.back() + counts.back());
  Call call{Collective::all_to_all_v, row.data(), all.data(), 0, DataType::u8};
  call.send_counts = same.data();
  call.send_offsets = zero.data();
  call.recv_counts = counts.data();
  call.recv_offsets = offsets.data();
  do_call(call, kAllToAllV);

  std::vector<Bytes> rows;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const auto begin = all.begin() + static_cast<std::ptrdiff_t>(offsets[rank]);
    rows.emplace_back(begin, begin + static_cast<std::ptrdiff_t>(counts[rank]));
  }
  return join_rows(rows);
}

// Tells groups of one job apart; 0 is the job's first.
std::uint32_t number_of(std::uint32_t parent, std::uint64_t sequence, int color) {
  std::uint64_t mixed = parent;
  for (const std::uint64_t part : {sequence, static_cast<std::uint64_t>(color)}) {
    mixed = (mixed ^ part) * 0x9e37'79b9'7f4a'7c15u;
    mixed ^= mixed >> 29;
  }
  const auto number = static_cast<std::uint32_t>(mixed >> 16);
  return (number & 0xffff) == 0 ? number | 1 : number;  // on the control page it has 16 bits
}

}  // namespace

std::unique_ptr<Group::Impl> split_group(Group::Impl& group, int color, int key) {
  std::unique_ptr<Group::Impl> part;
  group.operate_alone(Collective::split, [&](Deadline deadline) {
    World& world = *group.world;
    const auto choices = exchange_choices(group, {std::max(color, -1), key}, deadline);
    const auto color_of = [&](int rank_in_job) {
      const auto found =
          std::find(group.circle.members.begin(), group.circle.members.end(), rank_in_job);
      return choices[static_cast<std::size_t>(found - group.circle.members.begin())].color;
    };
    if (color >= 0) {
      std::vector<int> ranks;
      for (int rank = 0; rank < group.size(); ++rank) {
        if (choices[static_cast<std::size_t>(rank)].color == color) ranks.push_back(rank);
      }
      std::stable_sort(ranks.begin(), ranks.end(), [&](int a, int b) {
        return choices[static_cast<std::size_t>(a)].key < choices[static_cast<std::size_t>(b)].key;
      });
      Circle circle{.number = number_of(group.circle.number, group.sequence(), color)};
      for (const int rank : ranks) circle.members.push_back(group.rank_in_job(rank));
      const auto mine = std::find(ranks.begin(), ranks.end(), group.rank) - ranks.begin();
      part = std::make_unique<Group::Impl>(group.world, std::move(circle), static_cast<int>(mine));
      part->circle.submit = [impl = part.get()](const std::string& round, Bytes row,
                                                Deadline until) {
        return submit_by_messages(*impl, round, std::move(row), until);
      };
      const std::size_t bytes =
          std::max(SegmentLayout(part->size()).bytes(), trial_bytes(world.around->size()));
      part->segment = world.device->allocate(fmt::format("ranklink-segment-{}", part->me()), bytes);
    }
    const auto paired = [&](int a, int b) {
      return color_of(a) >= 0 && color_of(a) == color_of(b);
    };
    Links links = connect_as_decided(world, group.circle, part ? part->segment.get() : nullptr,
                                     paired, true, deadline);
    if (part) {
      part->links = std::move(links);
      Routes::prepare(part->segment->data(), part->size());
      part->make_routes();
      part->choose_algorithms();
    }
    // Nobody sends before all segments are prepared.
    group.circle.submit("split/prepared", {}, deadline);
  });
  return part;
}

}  // namespace ranklink
