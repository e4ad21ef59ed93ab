#pragma once

#include <array>
#include <string>
#include <string_view>

namespace ranklink {

/// Which namespaces each rank gets for its own, in the order of kNamespaceKinds.
struct Isolation {
  std::array<bool, 6> own{};  ///< pid, net, ipc, uts, mnt, user

  bool any() const;
  bool has(std::string_view kind) const;
  /// `pid,net`; empty for none.
  std::string text() const;
  /// The same and `kind`, which must be one of kNamespaceKinds.
  Isolation with(std::string_view kind) const;
};

/// Reads `pid,net,ipc,uts,mnt,user`, `all` or nothing. Throws Error(setting_invalid) with the
/// nearest right word.
Isolation parse_isolation(std::string_view text);

}  // namespace ranklink
