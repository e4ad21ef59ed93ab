#pragma once

/// Everything that programs use. docs/report.md describes reports, docs/joining.md the ways to
/// join.
#include "ranklink/collective.hpp"
#include "ranklink/error.hpp"
#include "ranklink/group.hpp"
#include "ranklink/log.hpp"
#include "ranklink/options.hpp"
#include "ranklink/report.hpp"
#include "ranklink/shared_buffer.hpp"
#include "ranklink/store.hpp"
#include "ranklink/unique_id.hpp"
#include "ranklink/work.hpp"
