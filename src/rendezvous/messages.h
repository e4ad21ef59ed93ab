#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/secret.h"

namespace ranklink {

inline constexpr int kMaxRanks = 4096;

/// Random, and the same for the whole life of this process; another one after a fork.
JobId process_token();

/// What a rank says of itself once both sides have proved the secret.
struct Claim {
  std::string version;  ///< of ranklink; all ranks run the same
  std::int32_t rank = 0;
  std::int32_t size = 0;
  std::string host;
  std::int32_t pid = 0;  ///< as the rank sees it
  std::uint64_t start_time = 0;
  JobId process{};                     ///< process_token(): tells the server which rank holds it
  std::uint32_t timeout_ms = 0;        ///< how long it is willing to wait for the others
  std::vector<std::string> successor;  ///< endpoints at which it would take over, if it can
  bool resume = false;                 ///< it was seated before, by a server that is lost

  Bytes encode() const;
  static Claim decode(ByteView bytes);
  /// `rank 3 of 8, pid 1234 (started 5678) on host a`
  std::string text() const;
};

/// One rank as the server seated it.
struct Member {
  bool local = false;   ///< connected by a Unix socket, so descriptors can be passed
  std::string address;  ///< its IP address towards the server; empty for a Unix socket
};

/// What every rank is told when all have come.
struct Seating {
  JobId job{};
  std::int32_t holder = -1;     ///< the rank that serves the rendezvous, or -1
  std::int32_t successor = -1;  ///< the rank that takes over, or -1
  std::vector<std::string> successor_endpoints;
  std::vector<Member> members;  ///< by rank
  bool has_page = false;        ///< the control page comes with it

  Bytes encode() const;
  static Seating decode(ByteView bytes);
};

/// One rank's row of a round.
struct Submission {
  std::uint32_t index = 0;  ///< rounds are counted, so that all ranks are in the same one
  std::string round;
  std::uint32_t timeout_ms = 0;
  Bytes row;

  Bytes encode() const;
  static Submission decode(ByteView bytes);
};

/// `post` and `broker`: for whom.
struct Posting {
  std::uint32_t tag = 0;
  std::vector<std::int32_t> peers;

  Bytes encode() const;
  static Posting decode(ByteView bytes);
};

/// `pass`: from whom; one descriptor each, but for those that are marked lost.
struct Passed {
  struct Item {
    std::int32_t from = 0;
    std::uint32_t tag = 0;
    bool lost = false;      ///< the receiver had no descriptor free for it, even for it alone
    bool withheld = false;  ///< the sender had none to give
  };
  std::vector<Item> items;

  Bytes encode() const;
  static Passed decode(ByteView bytes);
};

/// The proofs of the handshake: a hash keyed with the secret over both fresh nonces.
Digest client_proof(const Secret& secret, const Nonce& server, const Nonce& client);
Digest server_proof(const Secret& secret, const Nonce& server, const Nonce& client);

/// Reads an array of a fixed size.
template <typename Array>
Array read_array(Reader& from) {
  Array array;
  const ByteView bytes = from.raw(array.size());
  std::copy(bytes.begin(), bytes.end(), array.begin());
  return array;
}

}  // namespace ranklink
