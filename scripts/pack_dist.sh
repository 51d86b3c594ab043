#!/usr/bin/env bash
# Packs the static binary: pack_dist.sh BINARY FOLDER, where FOLDER has NOTICES. Leaves
# FOLDER/braid, stripped, and FOLDER/braid-VERSION-ARCHITECTURE-linux.tar.gz. The same inputs give
# the same bytes: times in the archive are the commit's, or SOURCE_DATE_EPOCH.
set -euo pipefail

[ $# = 2 ] || { echo "usage: $0 BINARY FOLDER" >&2; exit 2; }
cd "$(dirname "$0")/.."

strip -o "$2/braid" "$1"
version=$("$2/braid" version | cut -d' ' -f2)
name=braid-$version-$(uname -m)-linux
epoch=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 0)}

rm -rf "$2/$name"
mkdir "$2/$name"
install -m 755 "$2/braid" "$2/$name/"
install -m 644 LICENSE "$2/NOTICES" deploy/dist/README.md deploy/systemd/braid.service "$2/$name/"
tar --sort=name --owner=0 --group=0 --numeric-owner --mode=u=rwX,go=rX --mtime="@$epoch" \
  -C "$2" -cf - "$name" | gzip -9n >"$2/$name.tar.gz"
rm -r "${2:?}/$name"
ls -l "$2/$name.tar.gz"
