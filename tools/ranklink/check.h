#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace ranklink {

/// A document of `ranklink check --json`, as text for people.
std::string check_text(const nlohmann::json& document);

}  // namespace ranklink
