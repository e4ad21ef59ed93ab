#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "ranklink/ranklink.h"

// Owners of the C interface's handles, and groups of ranks that are threads.

struct FreeHandle {
  void operator()(ranklink_group* group) const { ranklink_group_free(group); }
  void operator()(ranklink_work* work) const { ranklink_work_free(work); }
  void operator()(ranklink_shared_buffer* buffer) const { ranklink_shared_buffer_free(buffer); }
  void operator()(ranklink_error* error) const { ranklink_error_free(error); }
  void operator()(char* string) const { ranklink_string_free(string); }
};
template <typename T>
using Handle = std::unique_ptr<T, FreeHandle>;

/// `call` takes a `ranklink_error**` and must return RANKLINK_OK.
template <typename Call>
void expect_ok(const Call& call) {
  ranklink_error* error = nullptr;
  const int status = call(&error);
  const Handle<ranklink_error> owned(error);
  EXPECT_EQ(status, RANKLINK_OK) << ranklink_error_message(error);
  EXPECT_EQ(error, nullptr);
}

/// `call` must return `status`, with an error of it; its message comes back. Where `call` is told
/// not to make an error, the status must be the same.
template <typename Call>
std::string expect_status(int status, const Call& call) {
  ranklink_error* error = nullptr;
  EXPECT_EQ(call(&error), status);
  const Handle<ranklink_error> owned(error);
  EXPECT_NE(error, nullptr);
  EXPECT_EQ(ranklink_error_code(error), status) << ranklink_error_message(error);
  EXPECT_EQ(call(nullptr), status);
  return ranklink_error_message(error);
}

template <typename Call>
void expect_refused(const std::string& text, const Call& call) {
  EXPECT_THAT(expect_status(RANKLINK_ERROR_bad_argument, call), testing::HasSubstr(text));
}

inline ranklink_unique_id new_id() {
  ranklink_unique_id id;
  expect_ok([&](auto error) { return ranklink_make_unique_id(&id, error); });
  return id;
}

inline ranklink_options place(const ranklink_unique_id& id, int rank, int size) {
  ranklink_options options = RANKLINK_OPTIONS_INIT;
  options.rank = rank;
  options.size = size;
  options.unique_id = &id;
  return options;
}

inline Handle<ranklink_group> join(const ranklink_options& options) {
  ranklink_group* group = nullptr;
  expect_ok([&](auto error) { return ranklink_join(&options, &group, error); });
  return Handle<ranklink_group>(group);
}

inline Handle<ranklink_group> join_alone() {
  const ranklink_unique_id id = new_id();
  return join(place(id, 0, 1));
}

/// Runs `body(group, rank)` in `size` ranks.
template <typename Body>
void run_ranks(int size, const Body& body) {
  const ranklink_unique_id id = new_id();
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      const auto group = join(place(id, rank, size));
      if (group) body(group.get(), rank);
    });
  }
  for (std::thread& thread : threads) thread.join();
}
