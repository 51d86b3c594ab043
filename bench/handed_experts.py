#!/usr/bin/env python3
"""What --experts cpu costs: the CPU alone, a device alone, and the device with experts on the CPU,
turn by turn, by `braid bench offline`. Then the steps of the last taken apart, by its trace: the
device's ops, the CPU's experts, and the time in which neither ran, which is what handing over
costs. The CPU computes in fp32, as a device does. Beside measured decoding of one sequence stands
the rate that the start-up plan expects on the device.

    bench/handed_experts.py MODEL [--braid build/release/braid] [--turns 3] [--threads 2]
"""

import argparse
import json
import statistics
import subprocess
import tempfile

WAYS = {"cpu": "--compute fp32", "device": "--device DEVICE --experts device",
        "experts cpu": "--device DEVICE --experts cpu"}  # fmt: skip
RATES = ("prefill_tokens_per_second", "decode_tokens_per_second")
EXPECTED = "expected_tokens_per_second"  # by the engine's start-up plan; 0: of the CPU alone
WAIT = "experts of the host"


def measure(options, way, *more):
    command = [options.braid, "bench", "offline", options.model, "--json", "--repeat", "1",
               "--threads", str(options.threads), "--draft", "off",
               "--sequences", str(options.sequences),
               "--input-tokens", str(options.input_tokens),
               "--output-tokens", str(options.output_tokens),
               "--weights", options.weights, "--max-model-len", "4096",
               *way.replace("DEVICE", options.device).split(), *more]  # fmt: skip
    found = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    return [*(found[rate] for rate in RATES), found["engine"][EXPECTED]]


def take_apart(options):
    """Medians over decode steps, in milliseconds: the step, device, experts, the rest."""
    with tempfile.NamedTemporaryFile(suffix=".json") as trace:
        measure(options, WAYS["experts cpu"], "--trace", trace.name)
        with open(trace.name, encoding="utf-8") as file:
            events = json.load(file)["traceEvents"]
    lanes = {e["args"]["name"]: e["tid"] for e in events if e["ph"] == "M"}
    spans = sorted((e for e in events if e["ph"] == "X"), key=lambda e: e["ts"])
    there = [e for e in spans if e["tid"] == lanes["device"] and e["name"] != WAIT]
    here = [e for e in spans if e["tid"] == lanes["engine"] and e["name"] == "experts"]
    # After decode of several sequences, bench offline measures their prompts once more.
    steps = [e for e in spans
             if e["name"] == "step" and e["args"]["count"] == options.sequences]  # fmt: skip
    if not here:
        raise SystemExit("no experts ran on the CPU")

    def busy(step, parts):
        """Milliseconds in which some of them ran."""
        end, covered, total = step["ts"] + step["dur"], step["ts"], 0
        for part in sorted(parts, key=lambda p: p["ts"]):
            if step["ts"] <= part["ts"] < end:
                last = part["ts"] + part["dur"]
                total += max(0, last - max(covered, part["ts"]))
                covered = max(covered, last)
        return total / 1e3

    rows = []
    for step in steps[-options.output_tokens // 2 :]:
        whole = step["dur"] / 1e3
        rest = whole - busy(step, there + here)
        rows.append((whole, busy(step, there), busy(step, here), rest))
    return [statistics.median(column) for column in zip(*rows)]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("--braid", default="build/release/braid")
    parser.add_argument("--device", default="vulkan")
    parser.add_argument("--weights", default="auto")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--sequences", type=int, default=1)
    parser.add_argument("--input-tokens", type=int, default=64)
    parser.add_argument("--output-tokens", type=int, default=32)
    options = parser.parse_args()
    rates = {way: [] for way in WAYS}
    for _ in range(options.turns):
        for name, way in WAYS.items():
            rates[name].append(measure(options, way))
    print(f"{'':<12}{'prefill':>12}{'of cpu':>9}{'decode':>12}{'of cpu':>9}{'expected':>12}"
          f"{'by measured':>13}")  # fmt: skip
    for name, found in rates.items():
        line = f"{name:<12}"
        for i in range(len(RATES)):
            ratio = statistics.median(mine[i] / cpu[i] for mine, cpu in zip(found, rates["cpu"]))
            line += f"{statistics.median(rate[i] for rate in found):>12.1f}{ratio:>9.2f}"
        if options.sequences == 1 and all(mine[2] > 0 for mine in found):
            ratio = statistics.median(mine[2] / mine[1] for mine in found)
            line += f"{statistics.median(mine[2] for mine in found):>12.1f}{ratio:>13.2f}"
        print(line)
    whole, device, experts, rest = take_apart(options)
    print(f"decode step {whole:.2f} ms: device {device:.2f}, experts {experts:.2f}, "
          f"handing over {rest:.2f} ({100 * rest / whole:.1f} %)")  # fmt: skip


if __name__ == "__main__":
    main()
