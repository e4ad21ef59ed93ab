#!/usr/bin/env bash
# Fails when a shared library shows any symbol but those of ranklink's public face, or lacks a
# function of the C interface's header.
#   exports.sh LIBRARY [NM]
set -euo pipefail

library=$1
nm=${2:-nm}
header=$(dirname "$0")/../include/ranklink/ranklink.h
classes='(Error|Group|Options|Report|SharedBuffer|Store|Work)'
functions='(to_string|name_of|meaning_of|make_unique_id|set_log_sink|set_log_level|parse_log_level)'
public="^ranklink::($classes::(operator=|[~A-Za-z_]+)|$functions)(\[abi:cxx11\])?\(|^(vtable|typeinfo|typeinfo name) for ranklink::$classes$"

# The type is one letter; the address before it may be missing.
shown=$("$nm" -DC --defined-only "$library" | sed -E 's/^[0-9a-f]* *[A-Za-z] //')
if ! grep -qE "$public" <<<"$shown"; then
  echo "$library shows no public symbol at all:"
  echo "$shown"
  exit 1
fi

# What the header declares, without its comments, is what is shown in C.
declared=$(sed 's|//.*||' "$header" | grep -oE '\<ranklink_[a-z_]+\(' | tr -d '(' | sort)
shown_in_c=$(sed '/::/d' <<<"$shown" | sort)
if difference=$(diff <(echo "$declared") <(echo "$shown_in_c")); then :; else
  echo "$header (<) and $library (>) differ in the functions of the C interface:"
  echo "$difference"
  exit 1
fi
if strangers=$(grep '::' <<<"$shown" | grep -vE "$public"); then
  echo "$library shows symbols that aren't public:"
  echo "$strangers"
  exit 1
fi
echo "$(wc -l <<<"$shown") symbols, all of them public"
