// One rank, or a family of forked ranks, as a user's program would be: it uses the public headers
// only. Prints JSON lines on standard output, each with its event's name.
//
//   ranks [OPTION VALUE]...
//
//   --rounds N       all-reduces to run and check (3), --count N elements each (256)
//   --report yes     print the report with the event "done"
//   --buffer BYTES   also make a shared buffer and check it from both sides
//   --hold GATE      stay in the group, after the event "holding", until the file GATE exists
//   --die HOW        end before the last operation: exit:N, SIGNAL's number as signal:N, fail,
//                    exception, leave, or crash:WHAT (call, touch, stack, bus, divide or abort);
//                    done by rank --who R once the file --when GATE exists
//   --early yes      with --die: before the group is joined
//   --operation OP   what the others wait in: all_reduce (the default) or barrier
//   --rank R, --size N                    in place of RANK and WORLD_SIZE
//   --id FILE        join by a unique id: rank 0 makes it and leaves it in FILE
//   --store FOLDER   join by a store whose keys are files of FOLDER
//   --fork WHO       fork --size ranks before anything is joined; WHO makes the unique id: parent,
//                    or rank0, which sends it through pipes
//   --set NAME=VALUE a setting that the program gives
//
// A process that gets an Error prints it as the event "error" and exits with 1.

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <ranklink/ranklink.hpp>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace {

using ranklink::Group;
using namespace std::chrono_literals;

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    char escape[8];
    if (c == '"' || c == '\\') {
      out += {'\\', c};
    } else if (static_cast<unsigned char>(c) < 0x20) {
      std::snprintf(escape, sizeof escape, "\\u%04x", c);
      out += escape;
    } else {
      out += c;
    }
  }
  return out + "\"";
}

// One write a line, so that lines of several processes don't mix.
void say(const std::string& event, const std::string& members = {}) {
  const std::string line =
      "{\"event\": " + quoted(event) + (members.empty() ? "" : ", ") + members + "}\n";
  for (std::size_t sent = 0; sent < line.size();) {
    const ssize_t n = ::write(STDOUT_FILENO, line.data() + sent, line.size() - sent);
    if (n < 0) return;
    sent += static_cast<std::size_t>(n);
  }
}

struct Given {
  std::map<std::string, std::string> values;
  std::vector<std::pair<std::string, std::string>> settings;

  bool has(const std::string& name) const { return values.contains(name); }
  std::string text(const std::string& name, const std::string& otherwise = {}) const {
    const auto found = values.find(name);
    return found == values.end() ? otherwise : found->second;
  }
  long number(const std::string& name, long otherwise) const {
    return has(name) ? std::strtol(text(name).c_str(), nullptr, 10) : otherwise;
  }
};

void await_file(const std::string& path) {
  while (::access(path.c_str(), F_OK) != 0) std::this_thread::sleep_for(2ms);
}

void write_whole(const std::string& path, std::span<const std::byte> bytes) {
  const std::string scratch = path + ".new";
  std::ofstream(scratch, std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
  if (std::rename(scratch.c_str(), path.c_str()) != 0) throw std::runtime_error("rename " + path);
}

std::vector<std::byte> read_whole(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  const auto* bytes = reinterpret_cast<const std::byte*>(text.data());
  return {bytes, bytes + text.size()};
}

class FolderStore : public ranklink::Store {
 public:
  explicit FolderStore(std::string folder) : folder_(std::move(folder)) {}
  void set(const std::string& key, std::span<const std::byte> value) override {
    write_whole(path(key), value);
  }
  std::vector<std::byte> get(const std::string& key, std::chrono::milliseconds timeout) override {
    const auto until = std::chrono::steady_clock::now() + timeout;
    while (::access(path(key).c_str(), F_OK) != 0) {
      if (std::chrono::steady_clock::now() > until) throw std::runtime_error("no key " + key);
      std::this_thread::sleep_for(2ms);
    }
    return read_whole(path(key));
  }

 private:
  std::string path(std::string key) const {
    for (char& c : key) {
      if (c == '/') c = '_';
    }
    return folder_ + "/" + key;
  }
  std::string folder_;
};

ranklink::UniqueId id_from(std::span<const std::byte> bytes) {
  ranklink::UniqueId id;
  if (bytes.size() != id.bytes.size()) throw std::runtime_error("an id of another length");
  std::copy(bytes.begin(), bytes.end(), id.bytes.begin());
  return id;
}

extern "C" __attribute__((weak)) void ranks_function_that_is_nowhere();

// What a compiler would see through.
template <typename T>
T* hidden(T* pointer) {
  asm volatile("" : "+r"(pointer));
  return pointer;
}

// A sanitizer would see all of this coming.
#define RANKS_UNCHECKED __attribute__((no_sanitize("address", "undefined")))

RANKS_UNCHECKED int use_up_the_stack(int depth) {
  volatile char room[4096];
  room[0] = static_cast<char>(depth);
  return depth < 0 ? 0 : use_up_the_stack(depth + 1) + room[0];
}

RANKS_UNCHECKED void crash(const std::string& what) {
  if (what == "call") hidden (&ranks_function_that_is_nowhere)();
  if (what == "touch") *hidden(reinterpret_cast<volatile int*>(0x123450)) = 1;
  if (what == "stack") std::printf("%d", use_up_the_stack(0));
  if (what == "divide") {
    volatile int zero = 0;
    volatile int seven = 7;
    std::printf("%d", seven / zero);
  }
  if (what == "bus") {
    std::FILE* file = std::tmpfile();
    void* page = ::mmap(nullptr, 4096, PROT_READ, MAP_PRIVATE, ::fileno(file), 0);
    std::printf("%d", *static_cast<volatile char*>(page));
  }
  std::abort();
}

[[noreturn]] void die(const std::string& how, std::optional<Group>& group) {
  const auto colon = how.find(':');
  const std::string kind = how.substr(0, colon);
  const int number = colon == std::string::npos ? 0 : std::atoi(how.c_str() + colon + 1);
  if (kind == "exit") std::_Exit(number);
  if (kind == "crash") crash(how.substr(colon + 1));
  if (kind == "signal") {
    std::signal(number, SIG_DFL);
    ::raise(number);
  }
  if (kind == "exception") throw std::runtime_error("thrown by the program");
  if (kind == "fail") group->fail("the program's own cause", "the program's own remedy");
  group.reset();  // leave
  std::exit(kind == "fail" ? 1 : 0);
}

void check_buffer(Group& group, std::size_t size) {
  ranklink::SharedBuffer buffer = group.make_shared_buffer(size);
  const auto mark = [](int writer, int owner) {
    return static_cast<std::byte>(1 + writer * 16 + owner);
  };
  std::size_t wrong = 0;
  int mapped = 0;
  for (const std::byte b : buffer.local()) wrong += b != std::byte{0};
  group.barrier();
  // The first half is written by its owner, the second by the owner's peers, an equal part each.
  const std::size_t half = size / 2;
  const std::size_t part = half / static_cast<std::size_t>(group.size());
  std::memset(buffer.local().data(), static_cast<int>(mark(group.rank(), group.rank())), half);
  for (int peer = 0; peer < group.size(); ++peer) {
    const auto memory = buffer.peer(peer);
    if (peer == group.rank() || memory.empty()) continue;
    ++mapped;
    std::memset(memory.data() + half + part * static_cast<std::size_t>(group.rank()),
                static_cast<int>(mark(group.rank(), peer)), part);
  }
  group.barrier();
  for (int peer = 0; peer < group.size(); ++peer) {
    const auto memory = buffer.peer(peer);
    if (peer == group.rank() || memory.empty()) continue;
    for (std::size_t i = 0; i < half; ++i) wrong += memory[i] != mark(peer, peer);
    const auto own = buffer.local().subspan(half + part * static_cast<std::size_t>(peer), part);
    for (const std::byte b : own) wrong += b != mark(peer, group.rank());
  }
  say("buffer", "\"rank\": " + std::to_string(group.rank()) + ", \"wrong\": " +
                    std::to_string(wrong) + ", \"mapped\": " + std::to_string(mapped));
}

int use(std::optional<Group>& group, const Given& given) {
  const auto count = static_cast<std::size_t>(given.number("count", 256));
  const int size = group->size();
  std::size_t wrong = 0;
  const auto reduce = [&](float step) {
    std::vector<float> data(count);
    for (std::size_t i = 0; i < count; ++i) {
      data[i] = step + static_cast<float>(i % 100) + static_cast<float>(group->rank());
    }
    group->all_reduce(data);
    const float ranks = static_cast<float>(size * (size - 1) / 2);
    for (std::size_t i = 0; i < count; ++i) {
      const float right = ranks + (step + static_cast<float>(i % 100)) * static_cast<float>(size);
      if (data[i] != right) ++wrong;
    }
  };
  for (long round = 0; round < given.number("rounds", 3); ++round) {
    reduce(static_cast<float>(round));
  }
  const std::string who = "\"rank\": " + std::to_string(group->rank());
  if (given.has("buffer")) {
    check_buffer(*group, static_cast<std::size_t>(given.number("buffer", 0)));
  }
  if (given.has("die")) {
    say("waiting", who);
    if (given.number("who", 0) == group->rank()) {
      await_file(given.text("when"));
      die(given.text("die"), group);
    }
    given.text("operation") == "barrier" ? group->barrier() : reduce(0);
  }
  std::string members = who + ", \"size\": " + std::to_string(size) +
                        ", \"pid\": " + std::to_string(::getpid()) +
                        ", \"wrong\": " + std::to_string(wrong);
  if (given.has("report")) members += ", \"report\": " + group->report().to_json();
  if (given.has("hold")) {
    say("holding", members);
    await_file(given.text("hold"));
    group->barrier();
  }
  say("done", members);
  return wrong == 0 ? 0 : 1;
}

int one_rank(const Given& given, ranklink::Options options) {
  std::optional<Group> group;
  try {
    if (given.has("early")) {
      await_file(given.text("when"));
      const char* rank = std::getenv("RANK");
      if (rank != nullptr && std::atoi(rank) == given.number("who", 0)) {
        die(given.text("die"), group);
      }
    }
    if (given.has("id")) {
      const std::string file = given.text("id");
      if (options.rank == 0) write_whole(file, ranklink::make_unique_id().bytes);
      // Rank 0 reads its own file too: what counts is what was carried.
      await_file(file);
      options.unique_id = id_from(read_whole(file));
    }
    if (given.has("store")) options.store = std::make_shared<FolderStore>(given.text("store"));
    say("joining", "\"pid\": " + std::to_string(::getpid()));
    group.emplace(Group::join(options));
    return use(group, given);
  } catch (const ranklink::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    say("error",
        "\"code\": " + quoted(ranklink::to_string(error.code())) +
            ", \"name\": " + quoted(std::string(ranklink::name_of(error.code()))) +
            ", \"rank\": " + std::to_string(error.rank()) +
            ", \"peer\": " + std::to_string(error.peer()) + ", \"step\": " + quoted(error.step()) +
            ", \"cause\": " + quoted(error.cause()) + ", \"remedy\": " + quoted(error.remedy()) +
            ", \"context\": " + quoted(error.context()) + ", \"what\": " + quoted(error.what()) +
            ", \"reporter\": " + (group ? std::to_string(group->rank()) : "null"));
    return 1;
  }
}

int forked_ranks(const Given& given, ranklink::Options options) {
  const int size = *options.size;
  const bool by_parent = given.text("fork") == "parent";
  if (by_parent) options.unique_id = ranklink::make_unique_id();
  std::vector<int> ends(2 * static_cast<std::size_t>(size));
  for (std::size_t i = 0; i < ends.size(); i += 2) {
    if (::pipe(&ends[i]) != 0) return 1;
  }
  for (int rank = 0; rank < size; ++rank) {
    const pid_t child = ::fork();
    if (child < 0) return 1;
    if (child != 0) continue;
    options.rank = rank;
    if (!by_parent && rank == 0) {
      options.unique_id = ranklink::make_unique_id();
      for (std::size_t i = 3; i < ends.size(); i += 2) {
        const auto& bytes = options.unique_id->bytes;
        if (::write(ends[i], bytes.data(), bytes.size()) < 0) std::_Exit(9);
      }
    } else if (!by_parent) {
      std::vector<std::byte> bytes(options.unique_id.emplace().bytes.size());
      const int end = ends[2 * static_cast<std::size_t>(rank)];
      if (::read(end, bytes.data(), bytes.size()) < 0) std::_Exit(9);
      options.unique_id = id_from(bytes);
    }
    std::exit(one_rank(given, options));
  }
  int worst = 0;
  for (int status = 0; ::wait(&status) > 0;) {
    worst = std::max(worst, WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
  }
  return worst;
}

}  // namespace

int main(int argc, char** argv) {
  Given given;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i];
    const std::string value = argv[i + 1];
    if (name == "--set") {
      const auto equals = value.find('=');
      given.settings.emplace_back(value.substr(0, equals), value.substr(equals + 1));
    } else {
      given.values[name.substr(2)] = value;
    }
  }
  ranklink::Options options;
  options.settings = given.settings;
  if (given.has("rank")) options.rank = static_cast<int>(given.number("rank", 0));
  if (given.has("size")) options.size = static_cast<int>(given.number("size", 1));
  if (given.has("prefix")) options.store_prefix = given.text("prefix");
  return given.has("fork") ? forked_ranks(given, options) : one_rank(given, options);
}
