#!/usr/bin/env bash
# Exits 0 if a braid server on this machine has its model loaded: is_ready.sh PORT. Asks GET /ready
# with nothing but bash, so that an image needs no HTTP client.
set -euo pipefail

[ $# = 1 ] || { echo "usage: $0 PORT" >&2; exit 2; }

exec 3<>"/dev/tcp/127.0.0.1/$1"
printf 'GET /ready HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n' >&3
read -r -t 4 protocol status rest <&3
if [ "$status" != 200 ]; then
  echo "not ready: $protocol $status $rest"
  exit 1
fi
