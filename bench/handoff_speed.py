#!/usr/bin/env python3
"""Compares the rate at which pages go between engines with UCX's own bandwidth test.

    bench/handoff_speed.py build/release/braid [--part-kib 64,1024] [--tls tcp] [--rounds 3]
        [--rate 10gbit]

Alternates `braid bench handoff` with `ucx_perftest -t ucp_am_bw` (package ucx-utils) for parts of
the same size, and prints the medians and their ratio. Two of UCX's rates are shown: of connections
that notice when the other side dies (-e), which engines need, and of those that do not. With --rate
all three run on a link of that rate: the loopback device of a network namespace, which `tc` slows
down (needs root), by TCP.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time


def perftest(part_bytes, mib, environment, *flags):
    port = str(20000 + os.getpid() % 20000)
    messages = max(100, mib * 2**20 // part_bytes)
    test = ["ucx_perftest", "-p", port]
    server = subprocess.Popen(test, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                              env=environment)  # fmt: skip
    time.sleep(0.5)
    run = subprocess.run([*test, "127.0.0.1", "-t", "ucp_am_bw", "-s", str(part_bytes),
                          "-n", str(messages), "-w", "20", "-f", *flags],
                         capture_output=True, text=True, env=environment, timeout=300)  # fmt: skip
    server.wait(60)
    # Iterations, three overheads, then MB/s on average and overall.
    return float(run.stdout.splitlines()[-1].split()[5]) * 2**20


def braid(program, part_bytes, mib, environment):
    run = subprocess.run([program, "bench", "handoff", "--json", "--repeat", "1", "--mib", str(mib),
                          "--part-kib", str(part_bytes // 1024)],
                         capture_output=True, text=True, check=True, env=environment)  # fmt: skip
    return json.loads(run.stdout)["bytes_per_second"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("braid")
    parser.add_argument("--part-kib", default="64,1024")
    parser.add_argument("--mib", type=int, default=1024)
    parser.add_argument("--tls", help="UCX_TLS of all three")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rate", help="of the link, as tc reads it: 10gbit")
    args = parser.parse_args()
    if args.rate and "BRAID_SLOWED" not in os.environ:
        slowed = ("ip link set lo up && tc qdisc add dev lo root tbf rate $0 burst 4mb"
                  ' latency 50ms && exec "$@"')  # fmt: skip
        os.execvpe("unshare", ["unshare", "--net", "sh", "-c", slowed, args.rate, sys.executable,
                               *sys.argv],
                   dict(os.environ, BRAID_SLOWED="1", UCX_TLS="tcp"))  # fmt: skip
    environment = dict(os.environ, **({"UCX_TLS": args.tls} if args.tls else {}))
    for part_kib in map(int, args.part_kib.split(",")):
        size = part_kib * 1024
        rates = {"braid": [], "ucx -e": [], "ucx": []}
        for _ in range(args.rounds):
            rates["braid"].append(braid(args.braid, size, args.mib, environment))
            rates["ucx -e"].append(perftest(size, args.mib, environment, "-e"))
            rates["ucx"].append(perftest(size, args.mib, environment))
        medians = {name: statistics.median(values) for name, values in rates.items()}
        print(f"{part_kib:6} KiB  " + "  ".join(f"{name} {rate / 1e9:.2f} GB/s"
                                               for name, rate in medians.items())
              + f"  braid by ucx -e: {medians['braid'] / medians['ucx -e']:.2f}")  # fmt: skip


if __name__ == "__main__":
    main()
