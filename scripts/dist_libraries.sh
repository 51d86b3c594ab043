#!/usr/bin/env bash
# Builds the static libraries that Debian does not ship: dist_libraries.sh FOLDER puts them into
# FOLDER/lib. The sources are Debian's source packages of exactly the installed versions, fetched
# with apt (which checks signatures) from DIST_MIRROR, by default the mirror that apt is configured
# with; a second run finds all in place.
set -euo pipefail

[ $# = 1 ] || { echo "usage: $0 FOLDER" >&2; exit 2; }
MIRROR=${DIST_MIRROR:-$("$(dirname "$0")/debian_mirror.sh")}
readonly MIRROR
readonly FLAGS=(-std=c++17 -O2 -DNDEBUG -fPIC -D_FORTIFY_SOURCE=2 -fstack-protector-strong)
mkdir -p "$1"
folder=$(cd "$1" && pwd)

die() {
  echo "$0: $*" >&2
  exit 1
}

# The source package and version of an installed package.
source_of() {
  dpkg-query -W -f='${source:Package}=${source:Version}\n' "$1" 2>/dev/null ||
    die "$1 is not installed; scripts/setup.sh build installs it"
}

# apt-get with folders of our own: the system's lists stay as they are.
own_apt() {
  local apt=$folder/apt
  mkdir -p "$apt"/{parts,lists/partial,cache/archives/partial}
  local suite
  for suite in bookworm bookworm-updates; do
    echo "deb-src [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $MIRROR $suite main"
  done >"$apt/parts/source.list"
  apt-get -q -o APT::Sandbox::User=root -o Dir::Etc::SourceList=/dev/null \
    -o Dir::Etc::SourceParts="$apt/parts" -o Dir::State::Lists="$apt/lists" \
    -o Dir::Cache="$apt/cache" "$@"
}

# build NAME PACKAGE SOURCES INCLUDE FLAGS...: lib/libNAME.a from the files that the pattern SOURCES
# names in the source package of PACKAGE, compiled against its own headers in INCLUDE.
build() {
  local name=$1 sources=$3 include=$4 wanted work objects=() file object
  wanted=$(source_of "$2")
  [ "$(cat "$folder/lib/$name.built" 2>/dev/null)" = "$wanted $*" ] && return
  echo "building lib$name.a from $wanted"
  work=$folder/sources/$name
  rm -rf "$work"
  mkdir -p "$work" "$folder/lib"
  compgen -G "$folder/apt/lists/*Sources*" >/dev/null || own_apt update >"$folder/apt.log" 2>&1 ||
    die "apt-get update failed: $(tail -3 "$folder/apt.log")"
  (cd "$work" && own_apt source "$wanted" >"$folder/apt.log" 2>&1) ||
    die "apt-get source $wanted failed: $(tail -3 "$folder/apt.log")"
  cd "$work"/*/
  for file in $sources; do
    object=$work/$(basename "$file").o
    "${CXX:-c++}" "${FLAGS[@]}" "${@:5}" -I"$include" -c "$file" -o "$object"
    objects+=("$object")
  done
  rm -f "$folder/lib/lib$name.a"
  ar rcsD "$folder/lib/lib$name.a" "${objects[@]}"
  rm -rf "$work"
  echo "$wanted $*" >"$folder/lib/$name.built"
}

build fmt libfmt-dev 'src/format.cc' include
build spdlog libspdlog-dev 'src/*.cpp' include -DSPDLOG_COMPILED_LIB -DSPDLOG_FMT_EXTERNAL
build prometheus-cpp-core prometheus-cpp-dev 'core/src/*.cc core/src/detail/*.cc' core/include
touch "$folder"/lib/*.a  # newer than this script, which the build's rules ask for
