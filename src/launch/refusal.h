#pragma once

#include <string>

#include "launch/child.h"
#include "launch/isolation.h"
#include "ranklink/error.hpp"

namespace ranklink {

/// The error of a clone that the kernel refused. `isolation` is what was asked of the kernel.
Error clone_refused(int rank, int error, const Isolation& isolation);

/// The error of a child that could not become its rank's program.
Error child_failed(const ChildFailure& failure, const std::string& program,
                   const Isolation& isolation);

/// What a person can do about namespaces that the kernel refused with `error`. Reads the kernel's
/// switches below `root`; `filtered` says that a seccomp filter is on this process.
std::string isolation_remedy(const std::string& root, int error, const Isolation& isolation,
                             bool filtered);

}  // namespace ranklink
