#pragma once

#include <memory>
#include <vector>

#include "group/group_impl.h"
#include "ranklink/shared_buffer.hpp"

namespace ranklink {

class SharedBuffer::Impl {
 public:
  int rank = 0;
  std::size_t size = 0;
  std::unique_ptr<Memory> own;
  std::vector<std::unique_ptr<Memory>> peers;  ///< by rank; empty where no memory is shared
};

/// Makes memory on every rank and maps it into the others by the mechanisms that the group agreed
/// on. Each mapping passes the trial's pattern check before anybody gets it.
std::unique_ptr<SharedBuffer::Impl> share_memory(Group::Impl& group, std::size_t size,
                                                 Deadline deadline);

}  // namespace ranklink
