#!/usr/bin/env python3
"""Compares the steps that `braid plan --calibration` predicts with those that the engine takes.

    bench/plan_vs_measured.py [--braid build/release/braid] [--rounds 2] [--quick]
        [--families hybrid,latent,attention,dense] [--formats bf16,fp8,int8,int4]
        [--tables cells,gains,ranks] [--tokens-max 16384] [--run-with COMMAND] [--json FILE]

Makes a small model of each family; dense, which is left out by default, is one that caches do not
hold (1.4 GiB). In each round, format by format, `braid bench ops --model` measures the parts of its
steps, then `braid bench offline` prefill and decode of each cell. The plan takes the medians of the
parts, the table those of the cells. Prints predicted by measured for each cell, the share of cells
within 15 %, and the median of each row: a median away from 1 is a systematic error. Two further
groups of cells are the steps with drafts, and two ranks of one thread each, on two cores of their
own; the links of the latter have the rates that `braid bench dispatch` measures. A second table has
what drafts gain, predicted and measured in the same rounds, if most of them are right. --tables
leaves some of these out. Where a command fails, the cells measured until then are printed. What
the host adds to a step is what traces of the model show between the last operation of a step and
the first one of the next. Cells of more prompt tokens than --tokens-max are left out. --run-with
puts a command before those that measure, for a machine that is busy.
"""

import argparse
import json
import os
import pathlib
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

SMALL = "mid,vocab_size=8192,hidden_size=512,num_experts=32,moe_intermediate_size=256,"
MODELS = {
    "hybrid": ("qwen3_5_moe", SMALL + "num_hidden_layers=4,num_attention_heads=8,"
               "shared_expert_intermediate_size=256,linear_num_key_heads=4,"
               "linear_num_value_heads=8,mtp_num_hidden_layers=1"),
    "latent": ("kimi_linear", SMALL + "num_hidden_layers=4,num_attention_heads=8,"
               "kv_lora_rank=256,intermediate_size=1536,linear_attn_config="
               '{"num_heads":8,"head_dim":128,"short_conv_kernel_size":4,"kda_layers":[1,2,3],'
               '"full_attn_layers":[4]}'),
    "dense": ("qwen3_5", "mid,vocab_size=32768,num_hidden_layers=8,intermediate_size=6144,"
              "mtp_num_hidden_layers=1"),
    "attention": ("qwen3", SMALL + "num_hidden_layers=4,num_attention_heads=8,"
                  "num_key_value_heads=2"),
}  # fmt: skip
DRAFTING = ("hybrid", "dense")
FORMATS = ("bf16", "fp8", "int8", "int4")
TABLES = ("cells", "gains", "ranks")
SEQUENCES, CONTEXTS = (1, 8, 32, 64), (64, 256, 512, 1024)
OUTPUT_TOKENS, DRAFTS, ACCEPTANCE = 128, 2, 0.8


def two_cpus():
    """Two CPUs that this process may use, of two cores if it has so many."""
    of_core, others = {}, []
    for cpu in sorted(os.sched_getaffinity(0)):
        file = pathlib.Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
        core = file.read_text() if file.exists() else cpu
        if of_core.setdefault(core, cpu) != cpu:
            others.append(cpu)
    found = [*of_core.values(), *others][:2]
    if len(found) < 2:
        raise SystemExit("two ranks or engines need two CPUs, and this process may use one")
    return found


class Bench:
    def __init__(self, braid, run_with, folder):
        self.braid, self.run_with, self.folder = braid, shlex.split(run_with), folder

    def run(self, *words, before=()):
        command = [*before, self.braid, *map(str, words)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            raise SystemExit(f"{' '.join(command)}: {done.stderr}")
        return done.stdout

    def measure(self, *words):
        return json.loads(self.run(*words, "--json", before=self.run_with))

    def model(self, name):
        family, shape = MODELS[name]
        path = self.folder / name
        if not path.exists():
            self.run("make-model", path, "--family", family, "--shape", shape)
        return path

    def new_lines(self, name):
        """A file for the parts that a run measures, without those of an earlier run."""
        lines = self.folder / f"{name}.jsonl"
        lines.unlink(missing_ok=True)
        return lines

    def calibrate(self, lines, model, weights, only_weights=False, both_cores=False, threads=0):
        """Appends the parts of the model in this format, or only those that read weights."""
        words = ["bench", "ops", "--model", model, "--weights", weights, "--json"]
        words += ["--filter", " row"] if only_weights else []
        words += ["--threads", threads] if threads > 0 else []
        if not both_cores:
            found = [self.run(*words, before=self.run_with)]
        else:
            # Ranks share the memory: measure one thread while another core does the same.
            with ThreadPoolExecutor() as pool:
                runs = [pool.submit(self.run, *words, "--threads", 1,
                                    before=[*self.run_with, "taskset", "-c", str(cpu)])
                        for cpu in two_cpus()]  # fmt: skip
            found = [run.result() for run in runs]
        with open(lines, "a") as file:
            file.write("".join(found))

    def offline(self, model, weights, sequences, context, *words):
        found = self.measure("bench", "offline", model, "--weights", weights, "--repeat", 1,
                             "--sequences", sequences, "--input-tokens", context,
                             "--output-tokens", OUTPUT_TOKENS, *words)  # fmt: skip
        return {"prefill": found["time_to_first_token_ms"] / 1e3,
                "decode": sequences / found["decode_tokens_per_second"],
                "right": found["drafts_accepted"] / max(1, found["drafts"])}  # fmt: skip

    def gain(self, model, weights, sequences, context):
        return self.measure("bench", "drafts", model, "--weights", weights, "--repeat", 1,
                            "--sequences", sequences, "--input-tokens", context,
                            "--output-tokens", OUTPUT_TOKENS, "--draft", DRAFTS,
                            "--draft-acceptance", ACCEPTANCE)  # fmt: skip

    def host_seconds(self, model, sequences):
        """From a decode step's last operation to the next step's first one, by a trace."""
        file = self.folder / "trace.json"
        self.offline(model, "bf16", sequences, CONTEXTS[0], "--draft", "off", "--trace", file)
        spans = [e for e in json.loads(file.read_text())["traceEvents"]
                 if e["ph"] == "X" and e["tid"] == 0]  # fmt: skip
        spans.sort(key=lambda e: (e["ts"], -e["dur"]))
        steps = []
        for e in spans:
            if e["name"] == "step":
                steps.append({"tokens": e["args"]["count"], "first": None, "end": 0})
            elif steps:
                steps[-1]["first"] = steps[-1]["first"] or e["ts"]
                steps[-1]["end"] = max(steps[-1]["end"], e["ts"] + e["dur"])
        return statistics.median((after["first"] - step["end"]) / 1e6
                                 for step, after in zip(steps, steps[1:])
                                 if step["tokens"] == after["tokens"] == sequences
                                 and step["first"] and after["first"])  # fmt: skip

    def host(self, lines, model):
        """The device of a calibration, with the host's time that traces of the model show."""
        one, many = (self.host_seconds(model, n) for n in (1, 64))
        device = json.loads(open(lines).readline())["hardware"]
        each = max(1e-9, (many - one) / 63)
        step = max(1e-9, one - each)
        for key, value in (("host_seconds", step), ("host_sequence_seconds", each)):
            source = "`braid bench offline --trace`"
            device["numbers"][key] = {"value": value, "source": source}
        file = lines.with_suffix(".hardware.json")
        file.write_text(json.dumps(device))
        return file

    def plan(self, lines, device, model, weights, sequences, context, *words):
        found = json.loads(self.run("plan", model, "--calibration", lines,
                                    "--hardware", device, "--weights", weights,
                                    "--workload", f"in={context},out={OUTPUT_TOKENS},"
                                    f"concurrency={sequences}", "--json", *words))  # fmt: skip
        speed = found["without_overlap"]
        return {"prefill": speed["first_token_seconds"], "decode": speed["inter_token_seconds"]}


def median_of(samples, key):
    return statistics.median(sample[key] for sample in samples)


def with_links(bench, lines, model):
    """The device of a calibration with links as `braid bench dispatch` measures them."""
    found = bench.measure("bench", "dispatch", "--ranks", 2, "--hidden", 512, "--repeat", 5)
    least, most = found["results"][0]["throughput"], found["results"][-1]["throughput"]
    path = bench.host(lines, model)
    device = json.loads(path.read_text())
    source = "`braid bench dispatch`"
    device["numbers"] |= {
        "link_bytes_per_second": {"value": most["bytes"] / most["ns"] * 1e9, "source": source},
        "link_devices": {"value": 2, "source": source},
        "exchange_seconds": {"value": least["ns"] / least["messages"] / 1e9, "source": source},
    }
    path.write_text(json.dumps(device))
    return path


def show_progress(text):
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def cells_of(options):
    sequences, contexts = (SEQUENCES[:2], CONTEXTS[:2]) if options.quick else (SEQUENCES, CONTEXTS)
    return [(s, c) for c in contexts for s in sequences if s * c <= options.tokens_max]


def one_rank(bench, name, options):
    formats, cells = options.formats, cells_of(options)
    drafts = [cell for cell in cells if cell[1] == CONTEXTS[1]] if name in DRAFTING else []
    gains = drafts if "gains" in options.tables else []
    cells, drafts = (cells, drafts) if "cells" in options.tables else ([], [])
    if not cells and not gains:
        return [], []
    model, lines = bench.model(name), bench.new_lines(name)
    measured, gained = {}, {}
    for round_ in range(options.rounds):
        for weights in formats:
            show_progress(f"round {round_ + 1} of {options.rounds}: {name}, {weights}")
            bench.calibrate(lines, model, weights, only_weights=weights != formats[0])
            for cell in gains:
                found = bench.gain(model, weights, *cell)
                gained.setdefault((weights, *cell), []).append(found)
            for cell in cells:
                key = (name, weights, "", *cell)
                found = bench.offline(model, weights, *cell, "--draft", "off")
                measured.setdefault(key, []).append(found)
            for cell in drafts:
                key = (name, weights, "drafts", *cell)
                found = bench.offline(model, weights, *cell, "--draft", DRAFTS)
                measured.setdefault(key, []).append(found)
    device, rows = bench.host(lines, model), []
    for (_, weights, kind, *cell), samples in measured.items():
        # Of the drafts behind a wrong one none is right, so fewer are than the plan's acceptance.
        right = acceptance_of(1 + DRAFTS * median_of(samples, "right"), DRAFTS)
        words = ["--drafts", DRAFTS, "--draft-acceptance", right]
        rows.append(((name, weights, kind, *cell), samples, bench.plan(
            lines, device, model, weights, *cell, *(words if kind else []))))  # fmt: skip
    return rows, [speed_up(bench, lines, device, model, *key, samples)
                  for key, samples in gained.items()]  # fmt: skip


def two_ranks(bench, name, options):
    # The CPUs that calibrate() measures, and no others: each rank computes with one thread.
    cpus = ",".join(map(str, two_cpus()))
    bench = Bench(options.braid, f"{options.run_with} taskset -c {cpus}", bench.folder)
    model, lines = bench.model(name), bench.new_lines(f"{name}.ranks")
    weights, measured = "bf16", {}
    for round_ in range(options.rounds):
        show_progress(f"round {round_ + 1} of {options.rounds}: {name}, two ranks")
        bench.calibrate(lines, model, weights, both_cores=True)
        for cell in [cell for cell in cells_of(options) if cell[1] == CONTEXTS[1]]:
            found = bench.offline(model, weights, *cell, "--draft", "off", "--tp", 2,
                                  "--threads", 2)  # fmt: skip
            measured.setdefault(cell, []).append(found)
    device = with_links(bench, lines, model)
    for cell, samples in measured.items():
        yield (name, weights, "tp 2", *cell), samples, bench.plan(
            lines, device, model, weights, *cell, "--mesh", "tp=2"
        )


def acceptance_of(tokens_per_step, drafts):
    """a of 1 + a + a^2 + ... up to `drafts` terms = tokens_per_step, by halving."""
    least, most = 0.0, 1.0
    for _ in range(40):
        middle = (least + most) / 2
        few = sum(middle**i for i in range(drafts + 1)) < tokens_per_step
        least, most = (middle, most) if few else (least, middle)
    return least


def speed_up(bench, lines, device, model, weights, sequences, context, samples):
    """(weights, sequences, predicted, measured) of drafts of an artificial acceptance.

    Predicted are steps that bring as many tokens as the measured ones, whose answers end among
    drafts.
    """
    right = acceptance_of(median_of(samples, "tokens_per_step"), DRAFTS)
    without, with_drafts = (
        bench.plan(lines, device, model, weights, sequences, context, *words)["decode"]
        for words in ((), ("--drafts", DRAFTS, "--draft-acceptance", right)))  # fmt: skip
    return weights, sequences, without / with_drafts, median_of(samples, "speed_up")


def show_speed_ups(name, found):
    if not found:
        return
    print(f"\n{DRAFTS} drafts a step of the {name} model, {ACCEPTANCE} of them right (artificial):")
    print("| weights | sequences | speed-up predicted | measured | ratio |")
    print("|---" * 5 + "|")
    for weights, sequences, predicted, measured in found:
        print(f"| {weights} | {sequences} | {predicted:.2f} | {measured:.2f} | "
              f"{predicted / measured:.2f} |")  # fmt: skip


def show(rows):
    """One line for each family, format and kind; returns all ratios of predicted by measured."""
    everything, groups = [], {}
    for (name, weights, kind, sequences, context), samples, predicted in rows:
        group = groups.setdefault((name, weights, kind), {})
        for key in ("prefill", "decode"):
            if key == "prefill" and (sequences > 1 or kind == "drafts"):
                continue
            ratio = predicted[key] / median_of(samples, key)
            group[(key, sequences, context)] = ratio
            everything.append(ratio)
    columns = sorted({column for group in groups.values() for column in group},
                     key=lambda c: (c[0] == "decode", c[2], c[1]))  # fmt: skip
    names = ["model", "weights", ""] + [
        f"prefill {c}" if key == "prefill" else f"{s} at {c}" for key, s, c in columns
    ]
    print("| " + " | ".join([*names, "median"]) + " |")
    print("|---" * (len(names) + 1) + "|")
    for key, group in groups.items():
        cells = [f"{group[c]:.2f}" if c in group else "" for c in columns]
        middle = f"{statistics.median(group.values()):.2f}"
        print("| " + " | ".join([*key, *cells, middle]) + " |")
    return everything


def report(rows, gains, options):
    if rows:
        ratios = show(rows)
        within = sum(1 / 1.15 <= ratio <= 1.15 for ratio in ratios)
        print(f"\nwithin 15 %: {within} of {len(ratios)} cells ({within / len(ratios):.0%})")
    for name, found in gains.items():
        show_speed_ups(name, found)
    if options.json:
        with open(options.json, "w") as file:
            json.dump([{"cell": cell, "measured": samples, "predicted": predicted}
                       for cell, samples, predicted in rows], file)  # fmt: skip


def main():
    def some_of(known):
        def read(text):
            if unknown := set(text.split(",")) - set(known):
                raise argparse.ArgumentTypeError(
                    f"{', '.join(sorted(unknown))}: it names some of {', '.join(known)}")
            return text.split(",")

        return read

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--braid", default="build/release/braid")
    parser.add_argument("--families", default="hybrid,latent,attention", type=some_of(MODELS))
    parser.add_argument("--formats", default=",".join(FORMATS), type=some_of(FORMATS))
    parser.add_argument("--tables", default=",".join(TABLES), type=some_of(TABLES))
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--tokens-max", type=int, default=16384)
    parser.add_argument("--quick", action="store_true", help="few cells, no ranks")
    parser.add_argument("--run-with", default="")
    parser.add_argument("--models", help="keep models and measurements in this folder")
    parser.add_argument("--json", help="write measured and predicted seconds to this file")
    options = parser.parse_args()
    ranks = "ranks" in options.tables and not options.quick
    if ranks:
        two_cpus()  # to fail before an hour of measuring, not after it
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(options.models or temporary)
        folder.mkdir(parents=True, exist_ok=True)
        bench = Bench(options.braid, options.run_with, folder)
        rows, gains = [], {}
        try:
            for name in options.families:
                found, gains[name] = one_rank(bench, name, options)
                rows += found
            if ranks:
                rows += two_ranks(bench, options.families[0], options)
        finally:
            report(rows, gains, options)


if __name__ == "__main__":
    main()
