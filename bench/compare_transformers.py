#!/usr/bin/env python3
"""Measures transformers on a checkpoint, and with --braid our engine in the same run.

    python bench/compare_transformers.py models/braid-tiny --sequences 1 8
    python bench/compare_transformers.py models/braid-tiny --braid build/release/braid

Run it with a Python that has torch and transformers.  Workload: K sequences of N random tokens
are prefilled in one batch, then M tokens each are decoded greedily with a cache.  Both fp32 and
bf16 are measured; the better one is the number to beat.  Rounds alternate between all programs,
so that a change of the machine's speed meets all of them; medians are printed as JSON.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time

import torch
import transformers

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
KEYS = ("prefill_tokens_per_second", "decode_tokens_per_second")


def physical_cores():
    """Cores of this machine's share, hyperthreads counted once."""
    allowed = os.sched_getaffinity(0)
    firsts = set()
    for cpu in allowed:
        path = f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"
        try:
            with open(path, encoding="ascii") as f:
                firsts.add(f.read().strip())
        except OSError:
            return len(allowed)
    return len(firsts)


def load(folder, dtype):
    """The checkpoint by the class that its config.json names."""
    with open(os.path.join(folder, "config.json"), encoding="utf-8") as f:
        name = json.load(f)["architectures"][0]
    return getattr(transformers, name).from_pretrained(folder, dtype=dtype).eval()


class Transformers:
    """One model in one arithmetic."""

    def __init__(self, folder, dtype):
        self.model = load(folder, DTYPES[dtype])
        self.vocabulary = self.model.get_input_embeddings().weight.shape[0]

    @torch.inference_mode()
    def measure(self, work):
        """Rates of one round."""
        ids = torch.randint(self.vocabulary, (work.sequences, work.input_tokens))
        start = time.perf_counter()
        out = self.model(input_ids=ids, use_cache=True, logits_to_keep=1)
        token = out.logits[:, -1:].argmax(-1)
        prefilled = time.perf_counter()
        for _ in range(work.output_tokens - 1):
            out = self.model(input_ids=token, past_key_values=out.past_key_values, use_cache=True)
            token = out.logits[:, -1:].argmax(-1)
        end = time.perf_counter()
        return {
            KEYS[0]: work.sequences * work.input_tokens / (prefilled - start),
            KEYS[1]: work.sequences * (work.output_tokens - 1) / (end - prefilled),
        }


class Braid:
    """Our engine through its command line."""

    def __init__(self, binary, model, threads, flags):
        self.command = [binary, "bench", "offline", model, "--json", "--threads", str(threads)]
        self.command += flags

    def measure(self, work):
        """Rates of one round."""
        done = subprocess.run(
            [*self.command, "--input-tokens", str(work.input_tokens),
             "--output-tokens", str(work.output_tokens), "--sequences", str(work.sequences)],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode != 0:
            sys.exit(f"{' '.join(done.args)}: exit code {done.returncode}\n{done.stderr}")
        out = json.loads(done.stdout)
        return {key: out[key] for key in KEYS}


class Work:
    """How much one round does."""

    def __init__(self, input_tokens, output_tokens, sequences):
        self.input_tokens = input_tokens
        self.output_tokens = output_tokens
        self.sequences = sequences


def compare(programs, work, rounds):
    """Medians by program; one round before that is not counted."""
    samples = {name: [] for name in programs}
    for i in range(rounds + 1):
        for name, program in programs.items():
            rates = program.measure(work)
            speeds = ", ".join(f"{k.split('_')[0]} {v:.0f}" for k, v in rates.items())
            print(f"{vars(work)} round {i}: {name}: {speeds}", file=sys.stderr, flush=True)
            if i > 0:
                samples[name].append(rates)
    result = vars(work) | {"rounds": rounds}
    for name, rates in samples.items():
        result[name] = {k: round(statistics.median(r[k] for r in rates), 1) for k in KEYS}
    theirs = [result[name] for name in samples if name != "braid"]
    result["to_beat"] = {k: max(t[k] for t in theirs) for k in KEYS}
    if "braid" in samples:
        ours = result["braid"]
        result["braid_to_transformers"] = {
            "prefill": round(ours[KEYS[0]] / result["to_beat"][KEYS[0]], 2),
            "decode": round(ours[KEYS[1]] / result["to_beat"][KEYS[1]], 2),
        }
    return result


def parse():
    """The command line."""
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("model", help="folder of the checkpoint")
    p.add_argument("--braid", help="our binary; without it only transformers is measured")
    p.add_argument("--braid-flags", default="", help="more flags for it, e.g. '--compute bf16'")
    p.add_argument("--input-tokens", type=int, default=512)
    p.add_argument("--output-tokens", type=int, default=64)
    p.add_argument("--sequences", type=int, nargs="+", default=[1])
    p.add_argument("--dtypes", nargs="+", choices=DTYPES, default=list(DTYPES))
    p.add_argument("--rounds", type=int, default=3, help="counted rounds (default 3)")
    p.add_argument("--threads", type=int, default=physical_cores())
    args = p.parse_args()
    if args.output_tokens < 2 or args.input_tokens < 1 or min(args.sequences) < 1:
        p.error("--output-tokens must be at least 2, --input-tokens and --sequences at least 1")
    if args.rounds < 1 or args.threads < 1:
        p.error("--rounds and --threads must be at least 1")
    return args


def main():
    """Measure and print one JSON object."""
    args = parse()
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    programs = {f"transformers_{d}": Transformers(args.model, d) for d in args.dtypes}
    if args.braid:
        programs["braid"] = Braid(args.braid, args.model, args.threads, args.braid_flags.split())
    result = {
        "model": args.model,
        "threads": args.threads,
        "versions": {
            "torch": torch.__version__.split("+")[0],
            "transformers": transformers.__version__,
        },
        "runs": [
            compare(programs, Work(args.input_tokens, args.output_tokens, k), args.rounds)
            for k in args.sequences
        ],
    }
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
