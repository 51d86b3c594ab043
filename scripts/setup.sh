#!/usr/bin/env bash
# Installs what is missing and nothing else: scripts/setup.sh GROUP... with the groups of
# scripts/packages.txt. A second run finds everything in place, needs no network and says nothing.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly RUST_MINIMUM=1.87
readonly RUSTUP_DIST=https://static.rust-lang.org/rustup/dist
readonly REQUIREMENTS="tests/client/requirements.txt tests/formats/requirements.txt
  tests/page/requirements.txt deploy/picker/requirements.txt"
PATH="${CARGO_HOME:-$HOME/.cargo}/bin:$PATH"

say() { echo "setup: $*"; }
die() {
  echo "setup: error: $*" >&2
  exit 1
}

# Packages of the groups named in the arguments, one per line.
packages_of() {
  local group
  for group in "$@"; do
    awk -v group="$group" '$1 == group { print $2; found = 1 } END { exit !found }' \
      scripts/packages.txt || die "scripts/packages.txt has no group '$group'"
  done
}

# Of the packages on standard input, those that are not installed.
missing_packages() {
  local wanted installed
  wanted=$(sort -u)
  # shellcheck disable=SC2086
  installed=$(dpkg-query -W -f='${db:Status-Status} ${Package}\n' $wanted 2>/dev/null |
    awk '$1 == "installed" { print $2 }' | sort -u || true)
  comm -23 <(echo "$wanted") <(echo "$installed")
}

is_debian_12() {
  [ -r /etc/os-release ] && (. /etc/os-release && [ "${ID:-}" = debian ] &&
    [ "${VERSION_ID:-}" = 12 ])
}

install_packages() {
  local wanted missing root=()
  wanted=$(packages_of "$@")
  if ! is_debian_12; then
    echo "setup: this system is not Debian 12. Install the equivalents of these packages" >&2
    echo "and Rust $RUST_MINIMUM or newer by hand, then run make with SETUP=no:" >&2
    # shellcheck disable=SC2086
    printf '  %s\n' $wanted >&2
    exit 1
  fi
  missing=$(missing_packages <<<"$wanted" | tr '\n' ' ')
  [ -z "${missing// /}" ] && return
  if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null || die "not root and no sudo. As root, run:
  apt-get update && apt-get install -y --no-install-recommends $missing"
    root=(sudo)
  fi
  say "installing Debian packages: $missing"
  mkdir -p build
  "${root[@]}" apt-get update -qq || die "apt-get update failed; is there a network?"
  # shellcheck disable=SC2086
  "${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -q -o=Dpkg::Use-Pty=0 \
    --no-install-recommends $missing >build/setup.log 2>&1 || {
    tail -20 build/setup.log >&2
    die "apt-get could not install: $missing"
  }
}

rust_is_new_enough() {
  local version
  command -v cargo >/dev/null || return 1
  version=$(rustc --version 2>/dev/null | cut -d' ' -f2) || return 1
  [ -n "$version" ] && printf '%s\n' "$RUST_MINIMUM" "$version" | sort -V -C
}

download_and_run_rustup_init() (
  folder=$(mktemp -d)
  trap 'rm -rf "$folder"' EXIT
  cd "$folder"
  url="$RUSTUP_DIST/$(uname -m)-unknown-linux-gnu/rustup-init"
  curl --proto '=https' --tlsv1.2 -sSf --retry 3 -o rustup-init "$url" || return
  curl --proto '=https' --tlsv1.2 -sSf --retry 3 "$url.sha256" | cut -c-64 >sum || return
  echo "$(cat sum)  rustup-init" | sha256sum --check --quiet || return
  chmod +x rustup-init
  RUSTUP_INIT_SKIP_PATH_CHECK=yes ./rustup-init -y -q --profile minimal --no-modify-path
)

install_rust() {
  rust_is_new_enough && return
  if command -v rustup >/dev/null; then
    say "updating Rust to $RUST_MINIMUM or newer with rustup"
    rustup toolchain install stable --profile minimal && rustup default stable ||
      die "rustup could not install the stable toolchain"
  else
    say "installing Rust with rustup (in ${CARGO_HOME:-$HOME/.cargo})"
    download_and_run_rustup_init ||
      die "rustup could not install Rust. Install Rust $RUST_MINIMUM or newer by hand: rustup.rs"
    hash -r
  fi
  rust_is_new_enough || die "Rust $RUST_MINIMUM or newer is needed, found $(rustc --version)"
}

# install_venv FOLDER REQUIREMENTS...: Python packages, pinned, in a virtual environment. The marker
# holds the hash of what was asked.
install_venv() {
  local folder=$1 file arguments=() wanted
  shift
  for file in "$@"; do
    arguments+=(-r "$file")
  done
  wanted=$(cat "$@" | sha256sum | cut -d' ' -f1)
  [ "$(cat "$folder/installed" 2>/dev/null)" = "$wanted" ] && return
  say "installing Python packages in $folder"
  rm -rf "$folder"
  /usr/bin/python3 -m venv "$folder" || die "python3 -m venv failed"
  "$folder/bin/pip" install -q --use-pep517 --disable-pip-version-check "${arguments[@]}" ||
    die "pip could not install $*"
  echo "$wanted" >"$folder/installed"
}

# The npm packages of the tests with clients, as their lock says.
install_npm() (
  cd tests/clients/node
  wanted=$(sha256sum <package-lock.json | cut -d' ' -f1)
  [ "$(cat node_modules/installed 2>/dev/null)" = "$wanted" ] && exit
  say "installing npm packages in tests/clients/node"
  npm ci --no-audit --no-fund >/dev/null 2>&1 || die "npm ci failed in tests/clients/node"
  echo "$wanted" >node_modules/installed
)

[ $# -gt 0 ] || die "usage: scripts/setup.sh GROUP... (groups: build, test, clients, fuzz, dist)"
groups=("$@")
if [[ " $* " = *" clients "* ]] && ! command -v npm >/dev/null; then groups+=(node); fi
install_packages "${groups[@]}"
install_rust
for group in "$@"; do
  # shellcheck disable=SC2086
  case "$group" in
    test) install_venv .venv $REQUIREMENTS ;;
    clients)
      install_venv .venv-clients tests/clients/requirements.txt deploy/picker/requirements.txt
      install_venv .venv-openai2 tests/clients/openai2/requirements.txt
      install_npm
      ;;
  esac
done
