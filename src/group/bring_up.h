#pragma once

#include <memory>

#include "group/group_impl.h"

namespace ranklink {

/// Brings a group up, or throws the Error that all of its ranks throw.
std::unique_ptr<Group::Impl> bring_up(const Options& options);

}  // namespace ranklink
