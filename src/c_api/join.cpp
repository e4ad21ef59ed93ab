#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <span>
#include <stdexcept>
#include <vector>

#include "c_api/guard.h"
#include "c_api/handles.h"
#include "ranklink/options.hpp"

namespace ranklink::c_api {
namespace {

class CallbackStore : public Store {
 public:
  explicit CallbackStore(const ranklink_store& store) : store_(store) {
    if (store.set == nullptr || store.get == nullptr) {
      throw bad_argument("the store lacks a callback", "give both set and get");
    }
  }

  void set(const std::string& key, std::span<const std::byte> value) override {
    check([&] { return store_.set(store_.context, key.c_str(), value.data(), value.size()); });
  }

  std::vector<std::byte> get(const std::string& key, std::chrono::milliseconds timeout) override {
    std::vector<std::byte> value(sizeof(UniqueId));
    std::size_t bytes = read(key, timeout, value);
    if (bytes > value.size()) {
      value.resize(bytes);
      bytes = read(key, timeout, value);
      if (bytes > value.size()) throw std::runtime_error("the value grows while it is read");
    }
    value.resize(bytes);
    return value;
  }

 private:
  std::size_t read(const std::string& key, std::chrono::milliseconds timeout,
                   std::span<std::byte> value) {
    std::size_t bytes = 0;
    check([&] {
      return store_.get(store_.context, key.c_str(), timeout.count(), value.data(), value.size(),
                        &bytes);
    });
    return bytes;
  }

  template <typename Callback>
  static void check(const Callback& callback) {
    int result = 0;
    try {
      result = callback();
    } catch (const std::exception&) {
      throw;
    } catch (...) {  // of a callback that is C++
      throw std::runtime_error("the callback threw what is no std::exception");
    }
    if (result != 0) throw std::runtime_error(fmt::format("the callback returned {}", result));
  }

  ranklink_store store_;
};

// The caller may have been built with another version's struct: what is missing has its default,
// and what isn't known here must not be set.
ranklink_options known_options(const ranklink_options* given) {
  ranklink_options options = RANKLINK_OPTIONS_INIT;
  if (given == nullptr) return options;
  constexpr std::size_t kFirstVersion =  // its last member was this
      offsetof(ranklink_options, settings_count) + sizeof options.settings_count;
  const std::size_t size = given->struct_size;
  constexpr std::size_t kNoVersion = 4096;  // what isn't initialised says such numbers
  if (size < kFirstVersion || size > kNoVersion) {
    throw bad_argument(fmt::format("options of struct_size {}", size),
                       "begin with RANKLINK_OPTIONS_INIT");
  }
  const std::span all(reinterpret_cast<const unsigned char*>(given), size);
  const auto later = all.subspan(std::min(size, sizeof options));
  if (std::any_of(later.begin(), later.end(), [](unsigned char byte) { return byte != 0; })) {
    throw bad_argument(fmt::format("options that this version ({}) doesn't know", RANKLINK_VERSION),
                       "use the library of the header that the program was built with");
  }
  std::memcpy(&options, given, std::min(size, sizeof options));
  return options;
}

Options to_options(const ranklink_options& given) {
  Options options;
  if (given.rank != RANKLINK_FROM_ENVIRONMENT) options.rank = given.rank;
  if (given.size != RANKLINK_FROM_ENVIRONMENT) options.size = given.size;
  if (given.unique_id != nullptr) {
    std::memcpy(options.unique_id.emplace().bytes.data(), given.unique_id, sizeof(UniqueId));
  }
  if (given.store != nullptr) options.store = std::make_shared<CallbackStore>(*given.store);
  if (given.store_prefix != nullptr) options.store_prefix = given.store_prefix;
  if (given.settings_count != 0) need(given.settings, "settings");
  for (const auto& [name, value] : std::span(given.settings, given.settings_count)) {
    options.settings.emplace_back(&need(name, "a setting's name"),
                                  &need(value, "a setting's value"));
  }
  return options;
}

}  // namespace
}  // namespace ranklink::c_api

using namespace ranklink::c_api;

static_assert(sizeof(ranklink_unique_id) == sizeof(ranklink::UniqueId));

int ranklink_make_unique_id(ranklink_unique_id* id, ranklink_error** error) {
  return guarded(__func__, error, [&] {
    need(id, "id");
    const ranklink::UniqueId made = ranklink::make_unique_id();
    std::memcpy(id, &made, sizeof made);
  });
}

int ranklink_join(const ranklink_options* options, ranklink_group** group, ranklink_error** error) {
  return guarded(__func__, error, [&] {
    need(group, "group") = nullptr;
    *group = new ranklink_group{ranklink::Group::join(to_options(known_options(options)))};
  });
}

void ranklink_group_free(ranklink_group* group) { delete group; }
