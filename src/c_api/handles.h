#pragma once

#include <optional>

#include "ranklink/error.hpp"
#include "ranklink/group.hpp"
#include "ranklink/ranklink.h"
#include "ranklink/shared_buffer.hpp"
#include "ranklink/work.hpp"

// What the C interface's opaque handles hold.

struct ranklink_group {
  ranklink::Group group;
};

struct ranklink_work {
  std::optional<ranklink::Work> work;  ///< nothing until it is started
};

struct ranklink_shared_buffer {
  ranklink::SharedBuffer buffer;
};

struct ranklink_error {
  ranklink::Error error;
};
