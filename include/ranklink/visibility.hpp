#pragma once

/// Everything else is hidden: the library is built with -fvisibility=hidden.
#define RANKLINK_PUBLIC __attribute__((visibility("default")))
