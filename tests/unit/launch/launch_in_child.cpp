#include "launch_in_child.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <grp.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <thread>

#include "base/error.h"

namespace ranklink {
namespace {

std::string whole(int fd) {
  std::string text;
  char buffer[4096];
  ssize_t n;
  while ((n = ::pread(fd, buffer, sizeof buffer, static_cast<off_t>(text.size()))) > 0) {
    text.append(buffer, static_cast<std::size_t>(n));
  }
  return text;
}

// What a launch must leave as it was.
std::string own_state() {
  rlimit files{};
  ::getrlimit(RLIMIT_NOFILE, &files);
  sigset_t mask, pending;
  ::pthread_sigmask(SIG_SETMASK, nullptr, &mask);
  ::sigpending(&pending);
  std::string signals;
  for (int s = 1; s < 65; ++s) {
    if (::sigismember(&mask, s) == 1) signals += fmt::format(" blocked {}", s);
    if (::sigismember(&pending, s) == 1) signals += fmt::format(" pending {}", s);
  }
  struct sigaction child {};
  ::sigaction(SIGCHLD, nullptr, &child);
  int subreaper = 0;
  ::prctl(PR_GET_CHILD_SUBREAPER, &subreaper, 0, 0, 0);
  const auto entries = [](const char* path) {
    const std::filesystem::directory_iterator all(path);
    return std::distance(begin(all), end(all));
  };
  std::ifstream children(fmt::format("/proc/self/task/{}/children", ::getpid()));
  const std::string pids{std::istreambuf_iterator<char>(children), {}};
  return fmt::format("limit {} descriptors {} threads {} children '{}' subreaper {} SIGCHLD {}{}",
                     files.rlim_cur, entries("/proc/self/fd"), entries("/proc/self/task"), pids,
                     subreaper, child.sa_handler == SIG_IGN, signals);
}

void describe(std::ostream& to, const Error& error) {
  to << name_of(error.code()) << '\n'
     << error.rank() << '\n'
     << error.cause() << '\n'
     << error.remedy() << '\n';
}

[[noreturn]] void run_launcher(const LaunchTest& test, int out, int err, int result) {
  ::alarm(60);
  for (const int signal : {SIGINT, SIGQUIT, SIGHUP, SIGTERM}) std::signal(signal, SIG_DFL);
  ::dup2(out, 1);
  ::dup2(err, 2);
  const Fd nothing(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  ::dup2(nothing.get(), 0);
  if (test.before) test.before();
  std::ostringstream text;
  const std::string before = own_state();
  std::ostringstream told;
  try {
    const LaunchResult launched = launch(test.options);
    told << "0\n" << launched.exit_code << '\n';
    if (launched.failure) describe(told, *launched.failure);
  } catch (const Error& error) {
    told << "1\n-1\n";
    describe(told, error);
  } catch (const std::exception& error) {
    told << "1\n-1\n" << error.what() << '\n';
  }
  const std::string after = own_state();
  text << (before == after ? "" : before + " became " + after) << '\n' << told.str();
  const std::string bytes = text.str();
  if (::write(result, bytes.data(), bytes.size()) < 0) ::_exit(1);
  ::_exit(0);
}

}  // namespace

LaunchTest script(int size, const std::string& text) {
  LaunchTest test;
  test.options.size = size;
  test.options.argv = {"sh", "-c", text};
  return test;
}

Outcome launch_in_child(const LaunchTest& test) {
  const Fd out(::memfd_create("out", MFD_CLOEXEC)), err(::memfd_create("err", MFD_CLOEXEC)),
      result(::memfd_create("result", MFD_CLOEXEC));
  // Memory files don't guard their offset, so that writes of two ranks could land on each other.
  for (const Fd* file : {&out, &err}) ::fcntl(file->get(), F_SETFL, O_APPEND);
  const auto started = std::chrono::steady_clock::now();
  const auto since_start = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
  };
  const pid_t pid = ::fork();
  if (pid == 0) run_launcher(test, out.get(), err.get(), result.get());
  if (test.meddle) {
    const auto ready = [&] {
      const std::string text = whole(out.get());
      std::size_t count = 0;
      for (auto at = text.find("ready"); at != std::string::npos; at = text.find("ready", at + 1)) {
        ++count;
      }
      return count >= static_cast<std::size_t>(test.options.size);
    };
    while (!ready() && since_start() < 20) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    test.meddle(pid);
  }
  int status = 0;
  ::waitpid(pid, &status, 0);
  Outcome outcome;
  outcome.seconds = since_start();
  outcome.out = whole(out.get());
  outcome.err = whole(err.get());
  EXPECT_EQ(status, 0) << "the launcher itself ended badly; stderr: " << outcome.err;
  std::istringstream text(whole(result.get()));
  std::string line;
  std::getline(text, outcome.leaks);
  std::getline(text, line);
  outcome.threw = line == "1";
  std::getline(text, line);
  outcome.exit_code = std::atoi(line.c_str());
  std::getline(text, outcome.code);
  std::getline(text, line);
  outcome.rank = line.empty() ? -1 : std::atoi(line.c_str());
  std::getline(text, outcome.cause);
  std::getline(text, outcome.remedy);
  EXPECT_EQ(outcome.leaks, "");
  return outcome;
}

std::vector<pid_t> processes_with(const std::string& mark) {
  std::vector<pid_t> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const pid_t pid = std::atoi(entry.path().filename().c_str());
    if (pid <= 0 || pid == ::getpid()) continue;
    std::ifstream file(entry.path() / "cmdline");
    const std::string words{std::istreambuf_iterator<char>(file), {}};
    if (words.find(mark) != std::string::npos) found.push_back(pid);
  }
  return found;
}

void become_ordinary_user() {
  constexpr id_t kNobody = 65534;
  if (::setgroups(0, nullptr) != 0 || ::setresgid(kNobody, kNobody, kNobody) != 0 ||
      ::setresuid(kNobody, kNobody, kNobody) != 0) {
    ::_exit(99);
  }
}

}  // namespace ranklink
