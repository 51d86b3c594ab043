#!/usr/bin/env python3
"""What ranks cost: one rank with N threads against N ranks with one each, turn by turn, by
`braid bench offline`. Prints the medians of each mesh and their ratio to one rank in the same turn.

    bench/rank_cost.py MODEL [--braid build/release/braid] [--turns 5] [--sequences 8]
"""

import argparse
import json
import statistics
import subprocess

MESHES = {"one rank": "", "tp 2": "--tp 2", "dp 2": "--dp 2", "tp 2 ep 2": "--tp 2 --ep 2",
          "dp 2 ep 2": "--dp 2 --ep 2"}  # fmt: skip
RATES = ("prefill_tokens_per_second", "decode_tokens_per_second")


def measure(options, mesh):
    command = [options.braid, "bench", "offline", options.model, "--json", "--repeat", "1",
               "--threads", "2", "--draft", "off", "--sequences", str(options.sequences),
               "--input-tokens", str(options.input_tokens),
               "--output-tokens", str(options.output_tokens), *mesh.split()]  # fmt: skip
    found = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    return [found[rate] for rate in RATES]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("--braid", default="build/release/braid")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--sequences", type=int, default=8)
    parser.add_argument("--input-tokens", type=int, default=256)
    parser.add_argument("--output-tokens", type=int, default=64)
    options = parser.parse_args()
    rates = {mesh: [] for mesh in MESHES}
    for _ in range(options.turns):
        for name, mesh in MESHES.items():
            rates[name].append(measure(options, mesh))
    print(f"{'':<12}{'prefill':>12}{'of one':>9}{'decode':>12}{'of one':>9}")
    for name, found in rates.items():
        line = f"{name:<12}"
        for i in range(len(RATES)):
            ratio = statistics.median(
                mine[i] / one[i] for mine, one in zip(found, rates["one rank"])
            )
            line += f"{statistics.median(rate[i] for rate in found):>12.0f}{ratio:>9.2f}"
        print(line)


if __name__ == "__main__":
    main()
