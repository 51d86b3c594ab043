#!/usr/bin/env bash
# Prints the address of the Debian 12 mirror that apt is configured with.
set -euo pipefail
mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Identifier: Packages' 'Codename: bookworm' \
  'Component: main' | head -n 1)
[ -n "$mirror" ] || { echo "$0: apt has no mirror of Debian 12; set DIST_MIRROR" >&2; exit 1; }
echo "$mirror"
