#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace ranklink {

/// The parts of a document of `ranklink bench --json`, as text for people: what stands before the
/// first row, a row, and what stands behind the last.
std::string bench_header_text(const nlohmann::json& document);
std::string bench_row_text(const nlohmann::json& row);
std::string bench_footer_text(const nlohmann::json& document);

}  // namespace ranklink
