#pragma once

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "ranklink/group.hpp"

namespace ranklink {

/// Groups whose ranks are threads of this process: what each rank's body threw, if it did.
template <typename Body>
std::vector<std::optional<Error>> run_groups(
    int size, const std::vector<std::pair<std::string, std::string>>& settings, const Body& body) {
  const UniqueId id = make_unique_id();
  std::vector<std::optional<Error>> thrown(static_cast<std::size_t>(size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        Options options;
        options.rank = rank;
        options.size = size;
        options.unique_id = id;
        options.settings = settings;
        Group group = Group::join(options);
        body(group);
      } catch (const Error& error) {
        thrown[static_cast<std::size_t>(rank)] = error;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return thrown;
}

/// As run_groups(), where nobody may throw.
template <typename Body>
void run_groups_well(int size, const std::vector<std::pair<std::string, std::string>>& settings,
                     const Body& body) {
  for (const auto& error : run_groups(size, settings, body)) EXPECT_FALSE(error) << error->what();
}

}  // namespace ranklink
