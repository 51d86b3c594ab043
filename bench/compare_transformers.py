#!/usr/bin/env python3
"""Measures transformers on a checkpoint, and with --braid our engine in the same run.

    python bench/compare_transformers.py models/braid-tiny --sequences 1 8
    python bench/compare_transformers.py models/braid-tiny --braid build/release/braid

Run it with a Python that has torch and transformers.  Workload: K sequences of N random tokens
are prefilled in one batch, then M tokens each are decoded greedily with a cache, one a step: our
engine runs with --draft off.  transformers is measured in fp32 and in bf16, one after the other
(with a large model both would not fit), with each number of threads asked for.  Within an
arithmetic, rounds alternate between transformers and our engine, so that a change of the machine's
speed meets both.  Medians are printed as JSON; `braid_to_transformers` is the worst ratio, the one
against transformers at its best.

Where both would not fit into the free memory (fp32 of a large model) only one of them holds the
model at a time: rounds of transformers come first, our engine's after them.

Use an otherwise idle machine: transformers with two threads on two busy cores is ten times slower.
"""

import argparse
import gc
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

    def __init__(self, model, threads):
        self.model, self.threads = model, threads
        self.vocabulary = self.model.get_input_embeddings().weight.shape[0]

    @torch.inference_mode()
    def measure(self, work):
        """Rates of one round."""
        torch.set_num_threads(self.threads)
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
        self.command = [binary, "bench", "offline", model, "--json", "--draft", "off"]
        self.command += ["--threads", str(threads), *flags]

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


def medians(programs, work, rounds):
    """Median rates by program; the first round is not counted."""
    samples = {name: [] for name in programs}
    for i in range(rounds + 1):
        for name, program in programs.items():
            rates = program.measure(work)
            speeds = ", ".join(f"{k.split('_')[0]} {v:.1f}" for k, v in rates.items())
            print(f"{vars(work)} round {i}: {name}: {speeds}", file=sys.stderr, flush=True)
            if i > 0:
                samples[name].append(rates)
    return {
        name: {k: round(statistics.median(r[k] for r in rates), 1) for k in KEYS}
        for name, rates in samples.items()
    }


def weight_bytes(folder):
    """Bytes of the checkpoint's files, which are mostly bf16."""
    names = (n for n in os.listdir(folder) if n.endswith(".safetensors"))
    return sum(os.path.getsize(os.path.join(folder, n)) for n in names)


def available_bytes():
    """What the system can still give without swapping."""
    with open("/proc/meminfo", encoding="ascii") as f:
        fields = dict(line.split(":", 1) for line in f)
    return int(fields["MemAvailable"].split()[0]) * 1024


def check_memory(folder, dtype):
    """True when our engine's copy fits beside a loaded model; an end when not even that fits."""
    ours, theirs = weight_bytes(folder), weight_bytes(folder) * (2 if dtype == "float32" else 1)
    room = available_bytes() - (2 << 30)  # activations, caches, the rest of the system
    if theirs > room:
        sys.exit(f"{folder} in {dtype} needs {theirs / 2**30:.1f} GiB, {room / 2**30:.1f} are free:"
                 " leave this arithmetic out (--dtypes) or free memory")  # fmt: skip
    return theirs + ours <= room


def measure_dtype(args, dtype, works):
    """Medians of one arithmetic, a dictionary by program for each workload."""
    together = check_memory(args.model, dtype)
    ours = {}
    if args.braid:
        flags = args.braid_flags.split()
        ours = {"braid": Braid(args.braid, args.model, args.threads, flags)}
    model = load(args.model, DTYPES[dtype])
    theirs = {
        f"transformers, {n} threads": Transformers(model, n) for n in args.transformers_threads
    }
    programs = {**theirs, **ours} if together else theirs
    measured = [medians(programs, work, args.rounds) for work in works]
    # Every reference goes: with a large model the next one would not fit beside it.
    del model, theirs, programs
    gc.collect()
    if not together:
        for by_program, work in zip(measured, works):
            by_program.update(medians(ours, work, args.rounds))
    return measured


def summary(work, by_dtype):
    """One workload: medians by arithmetic, the number to beat, and our ratio to it."""
    result = vars(work) | by_dtype
    theirs = [
        rates for part in by_dtype.values() for name, rates in part.items() if name != "braid"
    ]
    result["to_beat"] = {k: max(t[k] for t in theirs) for k in KEYS}
    if any("braid" in part for part in by_dtype.values()):
        result["braid_to_transformers"] = {
            k: min(
                round(part["braid"][k] / rates[k], 2)
                for part in by_dtype.values()
                for name, rates in part.items()
                if name != "braid"
            )
            for k in KEYS
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
    p.add_argument("--threads", type=int, default=physical_cores(), help="of our engine")
    p.add_argument("--transformers-threads", type=int, nargs="+", help="default: --threads")
    args = p.parse_args()
    if args.output_tokens < 2 or args.input_tokens < 1 or min(args.sequences) < 1:
        p.error("--output-tokens must be at least 2, --input-tokens and --sequences at least 1")
    args.transformers_threads = args.transformers_threads or [args.threads]
    if args.rounds < 1 or min(args.threads, *args.transformers_threads) < 1:
        p.error("--rounds, --threads and --transformers-threads must be at least 1")
    return args


def main():
    """Measure and print one JSON object."""
    args = parse()
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    torch.manual_seed(0)
    works = [Work(args.input_tokens, args.output_tokens, k) for k in args.sequences]
    measured = [{} for _ in works]
    for dtype in args.dtypes:
        for by_dtype, medians_of in zip(measured, measure_dtype(args, dtype, works)):
            by_dtype[dtype] = medians_of
    result = {
        "model": args.model,
        "rounds": args.rounds,
        "versions": {
            "torch": torch.__version__.split("+")[0],
            "transformers": transformers.__version__,
        },
        "runs": [summary(work, by_dtype) for work, by_dtype in zip(works, measured)],
    }
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
