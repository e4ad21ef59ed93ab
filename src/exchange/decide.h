#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/secret.h"
#include "ranklink/report.hpp"

namespace ranklink {

/// Verdicts of all ordered pairs on one mechanism, each text held once.
class VerdictMatrix {
 public:
  VerdictMatrix() = default;
  VerdictMatrix(std::string mechanism, int size);

  const std::string& mechanism() const { return mechanism_; }
  int size() const { return size_; }
  const Verdict& at(int from, int to) const { return book_[ids_[index(from, to)]]; }
  bool yes(int from, int to) const { return ids_[index(from, to)] == kYes; }
  void set(int from, int to, const Verdict& verdict);

  void encode(Writer& to) const;
  /// Throws Error(protocol_violation).
  static VerdictMatrix decode(Reader& from, int size);

 private:
  static constexpr std::uint16_t kUntried = 0;
  static constexpr std::uint16_t kYes = 1;
  std::size_t index(int from, int to) const {
    return static_cast<std::size_t>(from) * static_cast<std::size_t>(size_) +
           static_cast<std::size_t>(to);
  }
  std::uint16_t id_of(const Verdict& verdict);

  std::string mechanism_;
  int size_ = 0;
  std::vector<std::uint16_t> ids_;              // into the book, by from, then to
  std::vector<Verdict> book_;                   // 0: not tried, 1: yes, then each distinct no
  std::map<std::string, std::uint16_t> known_;  // encoded, of the noes
};

void encode(const Verdict& verdict, Writer& to);
Verdict decode_verdict(Reader& from);

/// The mechanisms that a setting allows, fastest first.
std::vector<std::string> ladder_for(const std::string& mechanism_setting);

/// Unordered pairs of ranks, as a bitmap.
class PairSet {
 public:
  explicit PairSet(int size = 0);
  static PairSet all(int size);

  bool has(int a, int b) const { return bits_[index(a, b)]; }
  void add(int a, int b) { bits_[index(a, b)] = true; }
  bool empty() const;
  /// The ranks with which `rank` forms a pair of the set, ascending.
  std::vector<int> peers_of(int rank) const;

  void encode(Writer& to) const;
  static PairSet decode(Reader& from, int size);

 private:
  std::size_t index(int a, int b) const;
  int size_;
  std::vector<bool> bits_;
};

/// The pairs that the next mechanism is to be tried on: all, or those that no earlier one has
/// joined in both directions.
PairSet pairs_to_try(int size, const std::vector<VerdictMatrix>& so_far, bool try_all);

/// Who reaches whom by what: the same on every rank.
struct Decision {
  static constexpr std::uint8_t kSelf = 0xfe;

  int size = 0;
  std::vector<VerdictMatrix> verdicts;  ///< by mechanism that was tried, fastest first
  std::vector<std::uint8_t> routes;     ///< index into verdicts, or kSelf; by from, then to

  std::uint8_t route(int from, int to) const {
    return routes[static_cast<std::size_t>(from) * static_cast<std::size_t>(size) +
                  static_cast<std::size_t>(to)];
  }
  /// The name of the mechanism that `from` uses to get at `to`, another rank.
  const std::string& mechanism(int from, int to) const {
    return verdicts[route(from, to)].mechanism();
  }
  Bytes encode() const;
  static Decision decode(ByteView bytes);
  Digest digest() const { return digest_of(encode()); }
};

/// Picks each ordered pair's fastest mechanism that worked. Pure: the answer depends on nothing
/// but its arguments. Throws Error(mechanism_unavailable) if a mechanism asked for by name fails
/// somewhere, Error(no_route) if nothing works for some pair.
Decision decide(int size, const std::vector<VerdictMatrix>& verdicts,
                const std::string& mechanism_setting);

}  // namespace ranklink
