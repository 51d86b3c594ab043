#!/usr/bin/env python3
"""Measures llama.cpp and the engine alternately on the same checkpoint.

    python3 bench/peers/compare_llama_cpp.py --braid build/release/braid --model MODEL \\
        --batched-bench LLAMA_BUILD/bin/llama-batched-bench --gguf MODEL.gguf --sequences 1 8 32

MODEL.gguf is the checkpoint after convert_gguf.py (and llama-quantize); its format stands against
what --braid-flags say of the engine's.  Workload: K sequences of N random tokens are prefilled,
then M tokens each are decoded, one a step: the engine runs with --draft off.  Rounds alternate, so
that a change of the machine's speed meets both; the first round is not counted; medians and their
ratios are printed as JSON.

Prefill and decode rates mean the same in both: K N tokens over the time to the last first token,
K tokens over the time of a decode step.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys

KEYS = ("prefill_tokens_per_second", "decode_tokens_per_second")


def run(command):
    """Standard output, or an end with the program's own message."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit code {done.returncode}\n{done.stderr[-2000:]}")
    return done.stdout


def measure_braid(args, k):
    """Rates of one round of the engine."""
    out = json.loads(run([
        args.braid, "bench", "offline", args.model, "--json", "--repeat", "1", "--draft", "off",
        "--threads", str(args.threads), "--sequences", str(k),
        "--input-tokens", str(args.input_tokens), "--output-tokens", str(args.output_tokens),
        *args.braid_flags.split(),
    ]))  # fmt: skip
    return {key: out[key] for key in KEYS}


def rates_of(text):
    """Rates from the last line of JSON among llama-batched-bench's output."""
    for line in reversed(text.splitlines()):
        if line.startswith("{") and '"speed_pp"' in line:
            row = json.loads(line)
            return {KEYS[0]: row["speed_pp"], KEYS[1]: row["speed_tg"]}
    sys.exit(f"llama-batched-bench printed no rates:\n{text[-2000:]}")


def measure_peer(args, k):
    """Rates of one round of llama.cpp."""
    tokens = k * (args.input_tokens + args.output_tokens)
    # It compiles shaders when a step first needs them: on a GPU, measure the second of two passes.
    passes = f"{k},{k}" if args.peer_layers_on_gpu > 0 else str(k)
    return rates_of(run([
        args.batched_bench, "-m", args.gguf, "-c", str(tokens + 64 * k), "-b", "2048",
        "-ub", str(args.peer_ubatch), "-npp", str(args.input_tokens),
        "-ntg", str(args.output_tokens), "-npl", passes, "-t", str(args.threads),
        "-tb", str(args.threads), "-ngl", str(args.peer_layers_on_gpu),
        "--output-format", "jsonl", *args.peer_flags.split(),
    ]))  # fmt: skip


def main():
    """Measure and print one JSON object."""
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("--braid", required=True, help="our binary")
    p.add_argument("--model", required=True, help="folder of the checkpoint")
    p.add_argument("--braid-flags", default="", help="e.g. '--compute bf16'")
    p.add_argument("--batched-bench", required=True, help="llama-batched-bench")
    p.add_argument("--gguf", required=True, help="the same checkpoint as GGUF")
    p.add_argument("--peer-flags", default="", help="e.g. '-fa on'")
    p.add_argument("--peer-ubatch", type=int, default=512, help="its physical batch")
    p.add_argument(
        "--peer-layers-on-gpu",
        type=int,
        default=0,
        metavar="N",
        help="99: all, beside --braid-flags '--device vulkan' (default: 0, the CPU alone)",
    )
    p.add_argument("--input-tokens", type=int, default=512)
    p.add_argument("--output-tokens", type=int, default=64)
    p.add_argument("--sequences", type=int, nargs="+", default=[1])
    p.add_argument("--rounds", type=int, default=3, help="counted rounds")
    p.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    args = p.parse_args()
    runs = []
    for k in args.sequences:
        samples = {"braid": [], "llama.cpp": []}
        for i in range(args.rounds + 1):
            for name, measure in (("llama.cpp", measure_peer), ("braid", measure_braid)):
                rates = measure(args, k)
                print(f"{k} sequences, round {i}: {name}: {rates}", file=sys.stderr, flush=True)
                if i > 0:
                    samples[name].append(rates)
        median = {
            name: {key: statistics.median(r[key] for r in rates) for key in KEYS}
            for name, rates in samples.items()
        }
        ratio = {key: round(median["braid"][key] / median["llama.cpp"][key], 2) for key in KEYS}
        runs.append({"sequences": k, **median, "braid_to_llama_cpp": ratio})
    print(json.dumps({**vars(args), "runs": runs}, indent=2))


if __name__ == "__main__":
    main()
