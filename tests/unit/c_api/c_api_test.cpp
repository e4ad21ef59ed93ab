#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <mutex>
#include <new>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "base/log.h"
#include "c_api/guard.h"
#include "c_handles.h"

// What is there without a group, and joining one.

namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(CNumbers, HaveNames) {
  EXPECT_STREQ(ranklink_status_name(RANKLINK_ERROR_op_timeout), "op_timeout");
  EXPECT_STREQ(ranklink_status_meaning(RANKLINK_ERROR_op_timeout),
               "an operation's deadline passed");
  EXPECT_STREQ(ranklink_data_type_name(RANKLINK_BF16), "bf16");
  EXPECT_STREQ(ranklink_reduce_op_name(RANKLINK_AVG), "avg");
  EXPECT_STREQ(ranklink_collective_name(RANKLINK_COLLECTIVE_ALL_TO_ALL_V), "all_to_all_v");
  EXPECT_STREQ(ranklink_collective_name(RANKLINK_COLLECTIVE_MAKE_SHARED_BUFFER),
               "make_shared_buffer");
  EXPECT_STREQ(ranklink_log_level_name(RANKLINK_LOG_OFF), "off");
  EXPECT_EQ(RANKLINK_ERROR_op_timeout, 1401);
  EXPECT_EQ(ranklink_abi_version(), RANKLINK_ABI_VERSION);
  EXPECT_STREQ(ranklink_version(), RANKLINK_VERSION);
}

TEST(CNumbers, WithoutAMeaningHaveAnEmptyName) {
  for (const int number : {-1, 99, 1 << 16, INT32_MAX, INT32_MIN, 65536 + 1401}) {
    EXPECT_STREQ(ranklink_status_name(number), "");
    EXPECT_STREQ(ranklink_status_meaning(number), "");
    EXPECT_STREQ(ranklink_data_type_name(number), "");
    EXPECT_STREQ(ranklink_reduce_op_name(number), "");
    EXPECT_STREQ(ranklink_collective_name(number), "");
    EXPECT_STREQ(ranklink_log_level_name(number), "");
  }
  EXPECT_STREQ(ranklink_status_name(RANKLINK_OK), "");
}

TEST(CNumbers, OfTypesHaveASize) {
  std::size_t bytes = 0;
  expect_ok([&](auto error) { return ranklink_data_type_size(RANKLINK_F64, &bytes, error); });
  EXPECT_EQ(bytes, 8u);
  for (const int type : {-1, 8}) {
    expect_refused("no data type",
                   [&](auto error) { return ranklink_data_type_size(type, &bytes, error); });
  }
  expect_refused("bytes is NULL",
                 [](auto error) { return ranklink_data_type_size(RANKLINK_F64, nullptr, error); });
}

TEST(CErrors, OfNothingAreEmpty) {
  EXPECT_EQ(ranklink_error_code(nullptr), RANKLINK_OK);
  EXPECT_EQ(ranklink_error_rank(nullptr), -1);
  EXPECT_EQ(ranklink_error_peer(nullptr), -1);
  for (const auto text : {ranklink_error_name, ranklink_error_step, ranklink_error_cause,
                          ranklink_error_remedy, ranklink_error_context, ranklink_error_message}) {
    EXPECT_STREQ(text(nullptr), "");
  }
  ranklink_error_free(nullptr);
  ranklink_string_free(nullptr);
}

TEST(CErrors, TellAllParts) {
  ranklink_error* error = nullptr;
  const int status = ranklink::c_api::guarded("somewhere", &error, [] {
    throw ranklink::Error({.code = ranklink::ErrorCode::no_route,
                           .rank = 3,
                           .peer = 4,
                           .step = "try",
                           .cause = "a wall",
                           .remedy = "a door",
                           .context = "rank 0 was there"});
  });
  const Handle<ranklink_error> owned(error);
  EXPECT_EQ(status, RANKLINK_ERROR_no_route);
  EXPECT_EQ(ranklink_error_code(error), RANKLINK_ERROR_no_route);
  EXPECT_STREQ(ranklink_error_name(error), "no_route");
  EXPECT_EQ(ranklink_error_rank(error), 3);
  EXPECT_EQ(ranklink_error_peer(error), 4);
  EXPECT_STREQ(ranklink_error_step(error), "try");
  EXPECT_STREQ(ranklink_error_cause(error), "a wall");
  EXPECT_STREQ(ranklink_error_remedy(error), "a door");
  EXPECT_STREQ(ranklink_error_context(error), "rank 0 was there");
  EXPECT_THAT(ranklink_error_message(error), HasSubstr("RL1302 no_route: rank 3, peer 4"));
}

TEST(CErrors, AreMadeOfEveryException) {
  const auto thrown = [](auto what) {
    return expect_status(RANKLINK_ERROR_rank_failed, [&](ranklink_error** error) {
      return ranklink::c_api::guarded("somewhere", error, [&] { throw what; });
    });
  };
  EXPECT_THAT(thrown(std::runtime_error("bad luck")), HasSubstr("step somewhere: bad luck"));
  EXPECT_THAT(thrown(std::bad_alloc()), HasSubstr("out of memory"));
  EXPECT_THAT(thrown(42), HasSubstr("no std::exception"));
  // Success clears what stood there.
  auto* error = reinterpret_cast<ranklink_error*>(0x10);
  EXPECT_EQ(ranklink::c_api::guarded("somewhere", &error, [] {}), RANKLINK_OK);
  EXPECT_EQ(error, nullptr);
}

TEST(CLog, GoesWhereTheProgramSends) {
  std::vector<std::string> lines;
  const auto sink = [](void* context, int level, const char* line) {
    static_cast<std::vector<std::string>*>(context)->push_back(
        std::string(ranklink_log_level_name(level)) + " " + line);
  };
  expect_ok([&](auto error) { return ranklink_set_log_sink(sink, &lines, error); });
  expect_ok([&](auto error) { return ranklink_set_log_level(RANKLINK_LOG_ERROR, error); });
  ranklink::log(ranklink::LogLevel::warn, "dropped");
  ranklink::log(ranklink::LogLevel::error, "kept");
  expect_ok([&](auto error) { return ranklink_set_log_level(RANKLINK_LOG_WARN, error); });
  ranklink::log(ranklink::LogLevel::warn, "kept {}", "too");
  EXPECT_THAT(lines, ElementsAre("error kept", "warn kept too"));

  const auto thrower = [](void*, int, const char*) { throw 42; };
  expect_ok([&](auto error) { return ranklink_set_log_sink(thrower, nullptr, error); });
  ranklink::log(ranklink::LogLevel::error, "to a sink that throws");
  expect_ok([&](auto error) { return ranklink_set_log_sink(nullptr, nullptr, error); });
}

TEST(CLog, HasLevels) {
  int level = -1;
  expect_ok([&](auto error) { return ranklink_parse_log_level("debug", &level, error); });
  EXPECT_EQ(level, RANKLINK_LOG_DEBUG);
  expect_refused("'loud' is no log level",
                 [&](auto error) { return ranklink_parse_log_level("loud", &level, error); });
  expect_refused("NULL",
                 [&](auto error) { return ranklink_parse_log_level(nullptr, &level, error); });
  expect_refused("NULL",
                 [](auto error) { return ranklink_parse_log_level("warn", nullptr, error); });
  for (const int unknown : {-1, 5}) {
    expect_refused("no log level",
                   [&](auto error) { return ranklink_set_log_level(unknown, error); });
  }
}

// A join that fails leaves no group.
std::string expect_no_group(int status, const ranklink_options* options) {
  return expect_status(status, [&](ranklink_error** error) {
    auto* group = reinterpret_cast<ranklink_group*>(0x10);
    const int got = ranklink_join(options, &group, error);
    EXPECT_EQ(group, nullptr);
    return got;
  });
}

TEST(CJoin, MakesAGroupOfOne) {
  const auto group = join_alone();
  int rank = -1;
  int size = -1;
  expect_ok([&](auto error) { return ranklink_group_rank(group.get(), &rank, error); });
  expect_ok([&](auto error) { return ranklink_group_size(group.get(), &size, error); });
  EXPECT_EQ(rank, 0);
  EXPECT_EQ(size, 1);
  char* json = nullptr;
  expect_ok([&](auto error) { return ranklink_group_report(group.get(), &json, error); });
  const Handle<char> owned(json);
  EXPECT_EQ(nlohmann::json::parse(json).at("size"), 1);

  expect_refused("group is NULL",
                 [&](auto error) { return ranklink_group_rank(nullptr, &rank, error); });
  expect_refused("group is NULL",
                 [&](auto error) { return ranklink_group_size(nullptr, &size, error); });
  expect_refused("group is NULL",
                 [&](auto error) { return ranklink_group_report(nullptr, &json, error); });
  expect_refused("rank is NULL",
                 [&](auto error) { return ranklink_group_rank(group.get(), nullptr, error); });
  expect_refused("size is NULL",
                 [&](auto error) { return ranklink_group_size(group.get(), nullptr, error); });
  expect_refused("json is NULL",
                 [&](auto error) { return ranklink_group_report(group.get(), nullptr, error); });
  ranklink_group_free(nullptr);
}

TEST(CJoin, RefusesNull) {
  expect_refused("id is NULL", [](auto error) { return ranklink_make_unique_id(nullptr, error); });
  expect_refused("group is NULL",
                 [](auto error) { return ranklink_join(nullptr, nullptr, error); });
  const ranklink_unique_id id = new_id();
  ranklink_options options = place(id, 0, 1);
  options.settings_count = 1;
  EXPECT_THAT(expect_no_group(RANKLINK_ERROR_bad_argument, &options), HasSubstr("settings"));
  for (const ranklink_setting& setting :
       {ranklink_setting{"RANKLINK_LOG", nullptr}, ranklink_setting{nullptr, "warn"}}) {
    options.settings = &setting;
    EXPECT_THAT(expect_no_group(RANKLINK_ERROR_bad_argument, &options), HasSubstr("a setting's"));
  }
}

TEST(CJoin, TellsTheEnvironmentFromAPlace) {
  ::unsetenv("RANK");
  EXPECT_THAT(expect_no_group(RANKLINK_ERROR_bad_argument, nullptr), HasSubstr("RANK isn't set"));
  const ranklink_unique_id id = new_id();
  ranklink_options options = place(id, -2, 1);
  expect_no_group(RANKLINK_ERROR_rank_out_of_range, &options);
  options = place(id, 0, 0);
  expect_no_group(RANKLINK_ERROR_size_mismatch, &options);
}

TEST(CJoin, ObeysSettings) {
  const ranklink_unique_id id = new_id();
  ranklink_options options = place(id, 0, 1);
  ranklink_setting setting{"RANKLINK_MECHANISM", "telepathy"};
  options.settings = &setting;
  options.settings_count = 1;
  expect_no_group(RANKLINK_ERROR_setting_invalid, &options);
  setting.name = "RANKLINK_MECHANISMS";
  expect_no_group(RANKLINK_ERROR_setting_unknown, &options);
  setting = {"RANKLINK_OP_TIMEOUT", "123s"};
  const auto group = join(options);
  char* json = nullptr;
  expect_ok([&](auto error) { return ranklink_group_report(group.get(), &json, error); });
  const Handle<char> owned(json);
  EXPECT_THAT(json, HasSubstr("123s"));
}

TEST(CJoin, TakesOptionsOfOtherVersions) {
  const ranklink_unique_id id = new_id();
  struct {
    ranklink_options known;
    const void* later = nullptr;
  } options{place(id, 0, 1)};
  options.known.struct_size = sizeof options;
  options.later = &id;
  EXPECT_THAT(expect_no_group(RANKLINK_ERROR_bad_argument, &options.known), HasSubstr("know"));
  options.later = nullptr;
  EXPECT_NE(join(options.known), nullptr);
  for (const std::size_t size : {std::size_t{0}, sizeof(ranklink_options) - 1, SIZE_MAX}) {
    options.known.struct_size = size;
    EXPECT_THAT(expect_no_group(RANKLINK_ERROR_bad_argument, &options.known),
                HasSubstr("RANKLINK_OPTIONS_INIT"));
  }
}

// A store whose callbacks can be made to fail.
struct TestStore {
  std::mutex mutex;
  std::map<std::string, std::string> values;
  int failure = 0;
  void (*thrower)() = nullptr;
  std::size_t excess = 0;  ///< what get says beyond what it was offered

  static int set(void* context, const char* key, const void* value, std::size_t bytes) {
    auto& self = *static_cast<TestStore*>(context);
    if (self.thrower != nullptr) self.thrower();
    const std::lock_guard lock(self.mutex);
    self.values[key] = std::string(static_cast<const char*>(value), bytes);
    return self.failure;
  }
  static int get(void* context, const char* key, std::int64_t timeout_ms, void* value,
                 std::size_t capacity, std::size_t* bytes) {
    auto& self = *static_cast<TestStore*>(context);
    if (self.thrower != nullptr) self.thrower();
    if (self.failure != 0) return self.failure;
    *bytes = capacity + self.excess;
    if (self.excess != 0) return 0;
    for (std::int64_t waited = 0; waited < timeout_ms; ++waited) {
      {
        const std::lock_guard lock(self.mutex);
        const auto found = self.values.find(key);
        if (found != self.values.end()) {
          *bytes = found->second.size();
          std::memcpy(value, found->second.data(), std::min(*bytes, capacity));
          return 0;
        }
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return 1;
  }
  ranklink_store callbacks() { return {this, &set, &get}; }
};

ranklink_options place(const ranklink_store& store, int rank, int size) {
  ranklink_options options = RANKLINK_OPTIONS_INIT;
  options.rank = rank;
  options.size = size;
  options.store = &store;
  return options;
}

TEST(CStore, BringsRanksTogether) {
  TestStore store;
  const ranklink_store callbacks = store.callbacks();
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      ranklink_options options = place(callbacks, rank, 2);
      options.store_prefix = "apart";
      const auto group = join(options);
      expect_ok([&](auto error) { return ranklink_barrier(group.get(), nullptr, error); });
    });
  }
  for (std::thread& thread : threads) thread.join();
  ASSERT_EQ(store.values.size(), 1u);
  EXPECT_THAT(store.values.begin()->first, testing::StartsWith("apart"));
}

TEST(CStore, MayFail) {
  TestStore store;
  const ranklink_store callbacks = store.callbacks();
  for (const int rank : {0, 1}) {  // of which one sets and one gets
    const ranklink_options options = place(callbacks, rank, 2);
    const auto fails = [&] {
      return expect_no_group(RANKLINK_ERROR_rendezvous_unreachable, &options);
    };
    store.failure = 5;
    EXPECT_THAT(fails(), HasSubstr("the callback returned 5"));
    store.failure = 0;
    store.thrower = [] { throw std::runtime_error("no such luck"); };
    EXPECT_THAT(fails(), HasSubstr("no such luck"));
    store.thrower = [] { throw 42; };
    EXPECT_THAT(fails(), HasSubstr("no std::exception"));
    store.thrower = nullptr;
  }
}

TEST(CStore, MayHoldAnything) {
  TestStore store;
  const ranklink_store callbacks = store.callbacks();
  const ranklink_options options = place(callbacks, 1, 2);
  for (const std::size_t size : {0, 1, 255, 257, 100'000}) {
    store.values["ranklink/unique_id"] = std::string(size, 'x');
    expect_no_group(RANKLINK_ERROR_protocol_violation, &options);
  }
  store.excess = 1;  // each time
  EXPECT_THAT(expect_no_group(RANKLINK_ERROR_rendezvous_unreachable, &options), HasSubstr("grows"));
  store.excess = SIZE_MAX / 2;
  expect_no_group(RANKLINK_ERROR_rendezvous_unreachable, &options);
}

TEST(CStore, NeedsCallbacks) {
  TestStore store;
  for (const bool set : {false, true}) {
    ranklink_store callbacks = store.callbacks();
    if (set) {
      callbacks.set = nullptr;
    } else {
      callbacks.get = nullptr;
    }
    const ranklink_options options = place(callbacks, 0, 1);
    EXPECT_THAT(expect_no_group(RANKLINK_ERROR_bad_argument, &options), HasSubstr("callback"));
  }
  const ranklink_unique_id id = new_id();
  const ranklink_store callbacks = store.callbacks();
  ranklink_options options = place(callbacks, 0, 1);
  options.unique_id = &id;
  EXPECT_THAT(expect_no_group(RANKLINK_ERROR_bad_argument, &options), HasSubstr("both"));
}

}  // namespace
