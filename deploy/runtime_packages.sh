#!/usr/bin/env bash
# Prints the Debian packages that hold the shared libraries of a binary, one per line:
# runtime_packages.sh BINARY. The image installs these, so the list cannot fall behind the build.
set -euo pipefail

[ $# = 1 ] || { echo "usage: $0 BINARY" >&2; exit 2; }

libraries=$(ldd "$1")
if grep "not found" <<<"$libraries" >&2; then
  echo "$0: $1 needs libraries that are not installed here" >&2
  exit 1
fi
# dpkg knows a library by one of two paths (/lib or /usr/lib), so it is asked for the name.
awk '$2 == "=>" { print $1 }' <<<"$libraries" | while read -r name; do
  dpkg-query -S "*/$name" | cut -d: -f1 | grep -v -- '-dev$' | head -1
done | sort -u
