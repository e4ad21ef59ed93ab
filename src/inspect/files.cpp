#include "inspect/files.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <system_error>

#include "base/fd.h"

namespace ranklink {
namespace {

constexpr std::size_t kLargest = std::size_t{64} * 1024;
constexpr std::string_view kBlank = " \t\n";

}  // namespace

std::string read_text(const std::string& path) {
  // Non-blocking, so that a fifo in the place of a file can't hold a rank up.
  const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  std::string text;
  if (!fd) return text;
  std::array<char, 4096> piece;
  while (text.size() < kLargest) {
    const ssize_t n = ::read(fd.get(), piece.data(), piece.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    text.append(piece.data(), static_cast<std::size_t>(n));
  }
  text.resize(text.find_last_not_of(kBlank) + 1);
  return text;
}

std::string read_link(const std::string& path) {
  std::array<char, 256> text;
  const ssize_t n = ::readlink(path.c_str(), text.data(), text.size());
  return n < 0 ? std::string{} : std::string(text.data(), static_cast<std::size_t>(n));
}

std::string_view field(std::string_view text, std::string_view key) {
  for (std::size_t at = text.find(key); at != std::string_view::npos; at = text.find(key, at + 1)) {
    if (at != 0 && text[at - 1] != '\n') continue;
    std::string_view rest = text.substr(at + key.size());
    rest = rest.substr(0, rest.find('\n'));
    const std::size_t first = rest.find_first_not_of(kBlank);
    if (first == std::string_view::npos) return {};
    return rest.substr(first, rest.find_last_not_of(kBlank) + 1 - first);
  }
  return {};
}

}  // namespace ranklink
