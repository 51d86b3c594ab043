#!/usr/bin/env python3
"""What moving experts to where the load is saves in an engine whose tokens choose experts by Zipf's
law, and what it costs on the way: `braid bench rebalance` with and without replicas, of prompts,
of decode, and of decode in tiny batches, where the balancer judges by time as always, and for
comparison by rows alone. Makes the model if the directory has none.

    bench/balance_gain.py skewed [--braid build/release/braid] [--skew 1.2] [--rounds 3]
        [--redundant 0,8] [--json]
"""

import argparse
import json
import pathlib
import subprocess
import sys

# 64 experts of width 512 in each of two layers, 8 a token.
SHAPE = ("mid,num_hidden_layers=2,hidden_size=1024,first_k_dense_replace=0,vocab_size=8192,"
         "n_group=1,topk_group=1")  # fmt: skip
CASES = {
    "prompts": "--prompts --sequences 16 --input-tokens 64 --steps 20 --balance-step-bytes 8M",
    "decode": "--sequences 256 --input-tokens 4 --output-tokens 200 --steps 40",
    "tiny": "--sequences 8 --input-tokens 8 --output-tokens 400 --steps 100",
    "tiny by rows": "--sequences 8 --input-tokens 8 --output-tokens 400 --steps 100 --by-rows",
}


def made(options):
    if not (pathlib.Path(options.model) / "config.json").exists():
        subprocess.run([options.braid, "make-model", options.model, "--family", "ling_2", "--shape",
                        SHAPE, "--expert-skew", str(options.skew)],
                       check=True, stdout=sys.stderr)  # fmt: skip


def measure(options, case, redundant):
    command = [options.braid, "bench", "rebalance", options.model, "--json", "--ep", "4",
               "--dp", "4", "--redundant-experts", redundant, "--rounds", str(options.rounds),
               *CASES[case].split()]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: {done.stderr}")
    return json.loads(done.stdout)


def line(case, found):
    text = f"{case:<14}{found['redundant_experts']:>9}{found['step_ms_in_order']:>10.2f}"
    if not found["placed"]:
        return text + "   the balancer leaves the experts in order"
    return text + (
        f"{found['step_ms_placed']:>10.2f}{found['step_ms_predicted']:>11.2f}"
        f"{found['placed_over_predicted']:>9.3f}"
        f"{found['experts_ms_placed'] / found['experts_ms_predicted']:>9.3f}{found['gain']:>8.3f}"
        f"{found['predicted_gain']:>11.3f}{found['longest_moving_over_median']:>9.2f}"
        f"{found['longest_still_over_median']:>8.2f}"
    )


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("--braid", default="build/release/braid")
    parser.add_argument("--skew", type=float, default=1.2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--redundant", default="0,8")
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    made(options)
    all_found = []
    if not options.json:
        print(f"{'steps of':<14}{'replicas':>9}{'in order':>10}{'placed':>10}{'predicted':>11}"
              f"{'ratio':>9}{'experts':>9}{'gain':>8}{'predicted':>11}{'moving':>9}"
              f"{'still':>8}")  # fmt: skip
    for case in options.cases.split(","):
        for redundant in options.redundant.split(","):
            found = measure(options, case, redundant)
            all_found.append({"case": case, **found})
            if not options.json:
                print(line(case, found), flush=True)
    if options.json:
        print(json.dumps(all_found))
    else:
        print("\nMilliseconds of a step; ratio: placed over predicted; experts: the same of the "
              "experts' part, which does not grow with the context; moving, still: the longest "
              "step with and without moves over the median")  # fmt: skip


if __name__ == "__main__":
    main()
