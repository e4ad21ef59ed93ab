#pragma once

// The part that all drivers of scripts/bench-peers have in common: the commands, the timing loop
// and the check. A driver is one rank of one library's group. It stays up for a whole run and does
// what it reads from its own command pipe, DIRECTORY/command.RANK; answers go to
// DIRECTORY/answer.RANK. Each rank has a pipe of its own, and nothing is passed on through the
// library, since ranks of some libraries spin while they wait: in read() an idle group takes no
// processor from the one measured.
//
// Commands, a line each:               Answers:
//   check NAME BYTES SECONDS             right | wrong TEXT | none
//   time NAME BYTES WARMUP N SECONDS     ok MEAN_SECONDS | none
//   quit
// At first a rank says `ready PID VERSION`; a library's exception is `error TEXT`, and the end.

#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>

namespace bench_peers {

/// What to call: a collective by ranklink's name, perhaps with `:VARIANT` behind it.
struct Operation {
  std::string collective = {};
  std::string variant = {};
  std::size_t count = 0;  ///< elements of a rank's share where shares are put together, else of all
  float* input = nullptr;
  float* output = nullptr;   ///< of broadcast, the data
  std::size_t capacity = 0;  ///< bytes of each
};

constexpr int kRoot = 0;

class Library {
 public:
  virtual ~Library() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual std::string version() const = 0;
  /// One call of the operation, which the loop repeats; nothing if the library doesn't have it.
  /// What a program would do once for many calls is done here. All ranks ask together.
  virtual std::function<void()> prepare(const Operation& operation) = 0;
  /// Where prepare() of this operation will take the data from, if not from `input`.
  virtual float* input_of(const Operation& operation) { return operation.input; }
  /// Where its result is, if not in `output`.
  virtual float* output_of(const Operation& operation) { return operation.output; }
};

class Driver {
 public:
  Driver(Library& library, const std::string& directory, std::size_t capacity)
      : library_(library), capacity_(capacity) {
    const std::string rank = std::to_string(library.rank());
    commands_ = std::fopen((directory + "/command." + rank).c_str(), "re");
    answers_ = std::fopen((directory + "/answer." + rank).c_str(), "we");
    if (!commands_ || !answers_) throw std::runtime_error("can't open the pipes in " + directory);
    input_ = allocate();
    output_ = allocate();
  }

  /// Returns at `quit`, or when whoever commands has gone.
  void serve() {
    answer("ready " + std::to_string(getpid()) + " " + library_.version());
    char line[256];
    while (std::fgets(line, sizeof line, commands_)) {
      std::istringstream words(line);
      std::string command;
      words >> command;
      if (command == "quit") break;
      try {
        answer(command == "check" ? check(words) : time(words));
      } catch (const std::exception& error) {
        answer(std::string("error ") + error.what());
        throw;
      }
      alarm(0);
    }
    alarm(20);  // of what is left, so that leaving can't hang either
  }

 private:
  using Memory = std::unique_ptr<float, decltype(&std::free)>;

  // Pages are touched here, so that no measured loop does it.
  Memory allocate() const {
    constexpr std::size_t kPage = 4096;
    const std::size_t bytes = (capacity_ + kPage - 1) / kPage * kPage;
    Memory memory(static_cast<float*>(std::aligned_alloc(kPage, bytes)), &std::free);
    if (!memory) throw std::bad_alloc();
    std::memset(memory.get(), 0, bytes);
    return memory;
  }

  void answer(std::string text) {
    for (char& c : text) {
      if (c == '\n') c = ' ';
    }
    std::fprintf(answers_, "%s\n", text.substr(0, 1000).c_str());
    std::fflush(answers_);
  }

  Operation read_operation(std::istringstream& words) {
    std::string name;
    std::size_t bytes = 0;
    words >> name >> bytes;
    Operation operation{
        .collective = name.substr(0, name.find(':')),
        .variant = name.find(':') == name.npos ? "" : name.substr(name.find(':') + 1),
        .count = bytes / sizeof(float),
        .input = input_.get(),
        .output = output_.get(),
        .capacity = capacity_};
    if (bytes > capacity_) throw std::length_error("more bytes than the driver was started for");
    static const std::set<std::string> in_shares = {"all_gather", "reduce_scatter", "gather",
                                                    "scatter", "all_to_all"};
    if (in_shares.contains(operation.collective)) operation.count /= library_.size();
    return operation;
  }

  // A rank that hangs in its library is ended by the kernel, whatever becomes of the script.
  static void limit(std::istringstream& words) {
    unsigned seconds = 0;
    words >> seconds;
    if (!seconds) throw std::invalid_argument("a command without a limit");
    alarm(seconds);
  }

  // Of a ping-pong between two, the others' part is to do nothing, and not to spin in a barrier.
  bool stands_by(const Operation& operation) const {
    return operation.collective == "send_recv" && library_.rank() > 1;
  }

  void barrier(const Operation& operation) {
    if (operation.collective == "send_recv")
      return;  // the first ones to warm up meet by themselves
    if (!barrier_) barrier_ = library_.prepare({.collective = "barrier"});
    barrier_();
  }

  std::string time(std::istringstream& words) {
    const Operation operation = read_operation(words);
    long warmup = 0, iterations = 0;
    words >> warmup >> iterations;
    limit(words);
    const std::function<void()> call = library_.prepare(operation);
    if (!call) return "none";
    if (stands_by(operation)) return "ok 0";
    barrier(operation);
    for (long i = 0; i < warmup; ++i) call();
    barrier(operation);
    const auto start = std::chrono::steady_clock::now();
    for (long i = 0; i < iterations; ++i) call();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    // Some libraries finish what a call left behind only while they are in another.
    barrier(operation);
    // A ping-pong is two messages, one after the other.
    const double calls =
        static_cast<double>(iterations) * (operation.collective == "send_recv" ? 2.0 : 1.0);
    char text[64];
    std::snprintf(text, sizeof text, "ok %.9g", took.count() / calls);
    return text;
  }

  // Small whole numbers, of which f32 holds every sum exactly.
  static float pattern(int rank, std::size_t i) {
    return static_cast<float>((i * 7 + static_cast<std::size_t>(rank) * 13 + 1) % 251);
  }

  std::string check(std::istringstream& words) {
    const Operation operation = read_operation(words);
    limit(words);
    if (stands_by(operation)) return "right";
    const std::string& name = operation.collective;
    const int rank = library_.rank(), size = library_.size();
    const std::size_t count = operation.count;
    float* const input = library_.input_of(operation);
    float* const output = library_.output_of(operation);
    const bool blocks = name == "reduce_scatter" || name == "scatter" || name == "all_to_all";
    const std::size_t inputs = blocks ? count * static_cast<std::size_t>(size) : count;
    const bool whole = name == "all_gather" || name == "gather" || name == "all_to_all";
    const std::size_t outputs = whole ? count * static_cast<std::size_t>(size) : count;
    if (input && output && name != "barrier") {
      std::memset(output, 0xff, outputs * sizeof(float));  // NaN, in case nothing is written
      float* const filled = name == "broadcast" ? output : input;
      if (name != "broadcast" || rank == kRoot) {
        for (std::size_t i = 0; i < inputs; ++i) filled[i] = pattern(rank, i);
      }
    }
    const std::function<void()> call = library_.prepare(operation);
    if (!call) return "none";
    barrier(operation);
    call();
    barrier(operation);
    const bool at_root = name == "reduce" || name == "gather";
    if (name == "barrier" || (at_root && rank != kRoot)) return "right";
    for (std::size_t i = 0; i < outputs; ++i) {
      const float want = expected(name, i, count);
      if (output[i] == want) continue;
      std::ostringstream text;
      text << "wrong element " << i << " of " << outputs << ": " << output[i] << ", not " << want;
      return text.str();
    }
    return "right";
  }

  float expected(const std::string& name, std::size_t i, std::size_t count) const {
    const auto rank = static_cast<std::size_t>(library_.rank());
    if (name == "broadcast") return pattern(kRoot, i);
    if (name == "scatter") return pattern(kRoot, rank * count + i);
    if (name == "send_recv") return pattern(1 - library_.rank(), i);
    if (name == "all_gather" || name == "gather") {
      return pattern(static_cast<int>(i / count), i % count);
    }
    if (name == "all_to_all") {
      return pattern(static_cast<int>(i / count), rank * count + i % count);
    }
    const std::size_t at = name == "reduce_scatter" ? rank * count + i : i;
    float sum = 0;
    for (int r = 0; r < library_.size(); ++r) sum += pattern(r, at);
    return sum;
  }

  Library& library_;
  std::size_t capacity_;
  std::FILE* commands_ = nullptr;  // open as long as the process
  std::FILE* answers_ = nullptr;
  Memory input_{nullptr, &std::free};
  Memory output_{nullptr, &std::free};
  std::function<void()> barrier_;
};

/// What a driver's main does: `make` joins the group, from the arguments behind DIRECTORY BYTES.
template <typename Make>
int run_driver(int argc, char** argv, Make make) {
  try {
    if (argc < 3) throw std::invalid_argument("usage: DRIVER DIRECTORY BYTES [RANK SIZE]");
    alarm(60);  // for the start
    const std::unique_ptr<Library> library = make(argc, argv);
    Driver driver(*library, argv[1], std::strtoull(argv[2], nullptr, 10));
    alarm(0);
    driver.serve();
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", argc ? argv[0] : "driver", error.what());
    return 1;
  }
}

}  // namespace bench_peers
