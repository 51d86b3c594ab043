#!/usr/bin/env python3
"""What two halves of a batch gain on a slow link: two ranks of one thread each, on two hosts for
which network namespaces stand in, by `braid bench offline` with --two-batch-overlap off, on and
auto, turn by turn. Prints the medians and their ratio to off in the same turn. Needs root.

    bench/overlap_gain.py MODEL [--braid build/release/braid] [--rate 1gbit] [--turns 3]
        [--mesh "--tp 2"] [--weights int8]
"""

import argparse
import json
import os
import statistics
import subprocess

HOSTS = [f"braid-gain-{os.getpid()}-{rank}" for rank in range(2)]
ADDRESSES = ["10.99.8.1", "10.99.8.2"]
FORMS = ("off", "on", "auto")
RATES = ("prefill_tokens_per_second", "decode_tokens_per_second")


def run(*words):
    subprocess.run(words, check=True)


def on(rank, *words):
    return ["ip", "netns", "exec", HOSTS[rank], *words]


def connect(rate):
    ends = [f"bg{os.getpid()}-{rank}" for rank in range(2)]
    for host in HOSTS:
        run("ip", "netns", "add", host)
    run("ip", "link", "add", ends[0], "type", "veth", "peer", "name", ends[1])
    for rank in range(2):
        run("ip", "link", "set", ends[rank], "netns", HOSTS[rank], "name", "eth0")
        run(*on(rank, "ip", "address", "add", f"{ADDRESSES[rank]}/24", "dev", "eth0"))
        run(*on(rank, "ip", "link", "set", "lo", "up"))
        run(*on(rank, "ip", "link", "set", "eth0", "up"))
        run(*on(rank, "tc", "qdisc", "add", "dev", "eth0", "root", "tbf", "rate", rate,
                "burst", "256kb", "latency", "50ms"))  # fmt: skip


def measure(options, form, port):
    command = [options.braid, "bench", "offline", options.model, "--json", "--repeat", "1",
               "--threads", "1", "--draft", "off", "--weights", options.weights,
               "--sequences", str(options.sequences),
               "--input-tokens", str(options.input_tokens),
               "--output-tokens", str(options.output_tokens),
               "--two-batch-overlap", form, *options.mesh.split()]  # fmt: skip
    processes = []
    for rank in range(2):
        environment = {**os.environ, "RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2",
                       "MASTER_ADDR": ADDRESSES[0], "MASTER_PORT": str(port),
                       "BRAID_RANKS_SECRET": "bench"}  # fmt: skip
        pinned = ["taskset", "-c", str(rank % os.cpu_count()), *command]
        processes.append(subprocess.Popen(on(rank, *pinned), env=environment,
                                          stdout=subprocess.PIPE))  # fmt: skip
    said = [process.communicate()[0] for process in processes]
    if processes[0].returncode != 0:
        raise SystemExit("the ranks have failed")
    found = json.loads(said[0])
    return [found[rate] for rate in RATES]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("--braid", default="build/release/braid")
    parser.add_argument("--rate", default="1gbit")
    parser.add_argument("--mesh", default="--tp 2")
    parser.add_argument("--weights", default="int8")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--sequences", type=int, default=4)
    parser.add_argument("--input-tokens", type=int, default=512)
    parser.add_argument("--output-tokens", type=int, default=8)
    options = parser.parse_args()
    rates = {form: [] for form in FORMS}
    try:
        connect(options.rate)
        for turn in range(options.turns):
            for i, form in enumerate(FORMS):
                rates[form].append(measure(options, form, 29500 + 2 * (3 * turn + i)))
                prefill, decode = rates[form][-1]
                print(f"turn {turn}, {form}: {prefill:.1f}, {decode:.1f}", flush=True)
    finally:
        for host in HOSTS:
            subprocess.run(["ip", "netns", "del", host], check=False)
    print(f"{options.mesh}, {options.rate}\n{'':<6}{'prefill':>10}{'of off':>9}"
          f"{'decode':>10}{'of off':>9}")  # fmt: skip
    for form, found in rates.items():
        line = f"{form:<6}"
        for i in range(len(RATES)):
            ratio = statistics.median(mine[i] / off[i] for mine, off in zip(found, rates["off"]))
            line += f"{statistics.median(rate[i] for rate in found):>10.1f}{ratio:>9.2f}"
        print(line)


if __name__ == "__main__":
    main()
