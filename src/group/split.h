#pragma once

#include <memory>

#include "group/group_impl.h"

namespace ranklink {

/// The part of `group` that gives the same color, ordered by key and rank. Nothing for a negative
/// color. All ranks of the group call it together.
std::unique_ptr<Group::Impl> split_group(Group::Impl& group, int color, int key);

}  // namespace ranklink
