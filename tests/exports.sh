#!/usr/bin/env bash
# Fails when a shared library shows any symbol but those of ranklink's public face.
#   exports.sh LIBRARY [NM]
set -euo pipefail

library=$1
nm=${2:-nm}
classes='(Error|Group|Options|Report|SharedBuffer|Store)'
functions='(to_string|name_of|meaning_of|make_unique_id|set_log_sink|set_log_level|parse_log_level)'
public="^ranklink::($classes::(operator=|[~A-Za-z_]+)|$functions)(\[abi:cxx11\])?\(|^(vtable|typeinfo|typeinfo name) for ranklink::$classes$"

# The type is one letter; the address before it may be missing.
shown=$("$nm" -DC --defined-only "$library" | sed -E 's/^[0-9a-f]* *[A-Za-z] //')
if ! grep -qE "$public" <<<"$shown"; then
  echo "$library shows no public symbol at all:"
  echo "$shown"
  exit 1
fi
if strangers=$(grep -vE "$public" <<<"$shown"); then
  echo "$library shows symbols that aren't public:"
  echo "$strangers"
  exit 1
fi
echo "$(wc -l <<<"$shown") symbols, all of them public"
