#include "autopsy/crash.h"

#include <cxxabi.h>
#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <memory>
#include <string_view>

#include "base/printable.h"

namespace ranklink {
namespace {

constexpr std::size_t kLongestMangled = 256;
constexpr std::size_t kLongestName = 80;
// A function that finds no room on its stack misses it by less than this.
constexpr std::uint64_t kStackReach = 64 * 1024;

template <std::size_t Size>
std::string text_of(const std::array<char, Size>& bytes) {
  return printable({bytes.data(), std::find(bytes.begin(), bytes.end(), '\0')});
}

// What C++ made of a function's name back to how it was written, without its parameters.
std::string demangle(std::string_view word) {
  if (!word.starts_with("_Z") || word.size() > kLongestMangled) return std::string(word);
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> plain(
      abi::__cxa_demangle(std::string(word).c_str(), nullptr, nullptr, &status), std::free);
  if (status != 0 || !plain) return std::string(word);
  std::string_view name = plain.get();
  if (const auto parameters = name.find('(', 1);
      parameters != std::string_view::npos && !name.starts_with("(anonymous")) {
    name = name.substr(0, parameters);
  }
  return name.size() <= kLongestName ? std::string(name)
                                     : fmt::format("{}...", name.substr(0, kLongestName));
}

std::string demangle_all(std::string_view text) {
  std::string plain;
  while (!text.empty()) {
    const auto end = std::min(text.find_first_of("+ ,("), text.size());
    plain += demangle(text.substr(0, end));
    text.remove_prefix(end);
    const auto next = std::min(text.find_first_not_of("+ ,("), text.size());
    plain += text.substr(0, next);
    text.remove_prefix(next);
  }
  return plain;
}

}  // namespace

bool Crash::is_bad_call() const {
  return facts.signal == SIGSEGV && (facts.code == SEGV_MAPERR || facts.code == SEGV_ACCERR) &&
         facts.pc == facts.address;
}

std::string Crash::text() const {
  std::string text;
  if (facts.sender != 0) {
    text = fmt::format("sent by process {}", facts.sender);
  } else if (is_bad_call()) {
    text = facts.address == 0
               ? "it called a function that it doesn't have (address 0)"
               : fmt::format("it jumped to address {:#x}, where no code is", facts.address);
  } else if (facts.code > 0) {
    switch (facts.signal) {
      case SIGSEGV:
        text =
            facts.code == SI_KERNEL  // which then doesn't tell the address
                ? "it used an address that can't exist"
                : facts.address - facts.stack + kStackReach < 2 * kStackReach
                      ? fmt::format("its stack is used up (address {:#x})", facts.address)
                  : facts.code == SEGV_ACCERR
                      ? fmt::format("the memory at address {:#x} doesn't allow what it did",
                                    facts.address)
                      : fmt::format("it touched address {:#x}, where no memory is", facts.address);
        break;
      case SIGBUS:
        text =
            fmt::format("what is mapped at address {:#x} has no memory behind it", facts.address);
        break;
      case SIGFPE:
        text = facts.code == FPE_INTDIV ? "it divided an integer by 0" : "";
        break;
      case SIGILL:
        text = fmt::format("no instruction that this processor knows is at {:#x}", facts.address);
        break;
      default:
        break;
    }
  }
  if (const std::string thread = text_of(facts.thread); !thread.empty()) {
    text += fmt::format("{}in thread {}", text.empty() ? "" : ", ", thread);
  }
  return text;
}

std::optional<Crash> CrashSlot::read() const {
  const std::uint32_t seen = stage.load(std::memory_order_acquire);
  if (seen == none) return std::nullopt;
  Crash crash{.facts = facts, .backtrace = {}};
  if (crash.facts.signal < 1 || crash.facts.signal >= NSIG) return std::nullopt;
  if (seen == complete) crash.backtrace = demangle_all(text_of(backtrace));
  return crash;
}

}  // namespace ranklink
