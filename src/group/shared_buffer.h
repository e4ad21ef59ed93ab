#pragma once

#include <memory>
#include <vector>

#include "group/group_impl.h"
#include "ranklink/shared_buffer.hpp"

namespace ranklink {

class SharedBuffer::Impl {
 public:
  const void* world = nullptr;  ///< only compared
  std::uint32_t group = 0;      ///< its number
  std::uint64_t serial = 0;     ///< of those that the group made; the same on all ranks
  int rank = 0;
  std::size_t size = 0;
  std::unique_ptr<Memory> own;
  std::vector<std::unique_ptr<Memory>> peers;  ///< by rank; empty where no memory is shared
};

/// Makes memory on every rank, or takes `place`, and maps it into the others by the mechanisms that
/// the job agreed on. Each mapping passes the trial's pattern check before anybody gets it.
std::unique_ptr<SharedBuffer::Impl> share_memory(Group::Impl& group, std::size_t size,
                                                 std::byte* place);

/// Where `offset` of the buffer stands here, by rank of `group`; returns a byte that tells it from
/// other places. Throws Error(bad_argument) if it is of another group.
std::uint32_t resolve(const SharedBuffer& buffer, const Group::Impl& group, std::size_t offset,
                      std::vector<std::byte*>& places);

}  // namespace ranklink
