#!/usr/bin/env python3
"""How long prompts delay running answers: gaps between tokens with and without long prompts that
arrive one after the other, of one engine and of a prefill and a decode engine.

    bench/gaps_beside_prompts.py [--braid build/release/braid] [--model DIR] [--tokens 16000]
        [--streams 4] [--seconds 20] [--prompts 2] [--seconds-max 120] [--rounds 3] [--json]

One engine has two threads and two cores. Of the pair each has one thread and one of these cores;
the client shares the prefill engine's core. In each round both fleets are measured without and with
prompts: for --seconds, and with prompts until so many of them are answered as --prompts says, so
that the ends of hand-offs are among what is measured. Prints the medians of p50 and p99, the ratio
of p99 with prompts to that without in the same round, and the longest gap beside the end of a
prompt. Without --model it makes a small one.
"""

import argparse
import asyncio
import json
import os
import pathlib
import random
import statistics
import tempfile
import time

from plan_vs_measured import Bench, two_cpus
from simulate_vs_real import percentile, start, wait_ready
from streams import token_times

ANSWER_TOKENS = 1500
END_SECONDS = 0.5


class Load:
    """Streams that run all the time, and prompts one after the other while they are wanted."""

    def __init__(self, port, vocabulary, options, prompts):
        self.port, self.vocabulary, self.options = port, vocabulary, options
        self.prompts, self.draw = prompts, random.Random(time.monotonic_ns())
        self.gaps, self.answers = [], []

    def ask(self, tokens, answer_tokens):
        prompt = [self.draw.randrange(1, self.vocabulary) for _ in range(tokens)]
        return token_times(self.port, prompt=prompt, max_tokens=answer_tokens, temperature=1)

    def over(self):
        passed = time.monotonic() - self.begin
        if passed >= self.options.seconds_max:
            raise SystemExit(f"{len(self.answers)} prompts were answered within {passed:.0f} s")
        wanted = self.options.prompts if self.prompts else 0
        return passed >= self.options.seconds and len(self.answers) >= wanted

    async def stream(self):
        while not self.over():
            before = None
            async for at in self.ask(20, ANSWER_TOKENS):
                if before is not None and before > self.begin:
                    self.gaps.append((before, at))
                before = at
                if self.over():
                    break

    async def prompt(self):
        while True:
            first = None
            async for at in self.ask(self.options.tokens, 2):
                first = first or at
            self.answers.append(first)

    # The last pages of a prompt come shortly before its first token.
    def longest_at_ends(self):
        return max((b - a for a, b in self.gaps for at in self.answers
                    if b > at - END_SECONDS and a < at), default=0)  # fmt: skip

    async def run(self):
        self.begin = time.monotonic() + 1  # until all streams have begun
        prompt = asyncio.create_task(self.prompt()) if self.prompts else None
        await asyncio.gather(*(self.stream() for _ in range(self.options.streams)))
        if prompt is not None:
            prompt.cancel()
        return self


def serve(options, model, pair, cpus):
    """The port of a fleet, which inherits the CPUs of this process: these two."""
    flags = ["--port", 0, "--memory", "2G", "--draft", "off", "--max-model-len",
             options.tokens + 64, "--no-prefix-cache"]  # fmt: skip
    command = [options.braid, "serve", model, *flags]
    if not pair:
        _, port = start([*command, "--threads", 2])
        wait_ready(port)
        return port
    handoff = f"127.0.0.1:{20000 + random.randrange(20000)}"
    _, prefill = start(["taskset", "-c", cpus[0], *command, "--threads", 1, "--role", "prefill",
                        "--handoff-listen", handoff])  # fmt: skip
    _, decode = start(["taskset", "-c", cpus[1], *command, "--threads", 1, "--role", "decode",
                       "--prefill", handoff])  # fmt: skip
    for port in (prefill, decode):
        wait_ready(port)
    return decode


def measure(fleets, vocabulary, options):
    """Per fleet, of each round: {prompts: (p50, p99, longest at ends, prompts answered)}."""
    found = {name: [] for name in fleets}
    for _ in range(options.rounds):
        for name, port in fleets.items():
            row = {}
            for prompts in (False, True):
                load = asyncio.run(Load(port, vocabulary, options, prompts).run())
                gaps = [b - a for a, b in load.gaps]
                row[prompts] = (percentile(gaps, 0.5), percentile(gaps, 0.99),
                                load.longest_at_ends(), len(load.answers))  # fmt: skip
            found[name].append(row)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--braid", default="build/release/braid")
    parser.add_argument("--model")
    parser.add_argument("--tokens", type=int, default=16000)
    parser.add_argument("--streams", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--prompts", type=int, default=2)
    parser.add_argument("--seconds-max", type=float, default=120)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    cpus = two_cpus()
    with tempfile.TemporaryDirectory() as temporary:
        bench = Bench(options.braid, "", pathlib.Path(temporary))
        model = pathlib.Path(options.model) if options.model else bench.model("hybrid")
        vocabulary = json.loads((model / "config.json").read_text())["vocab_size"]
        os.sched_setaffinity(0, cpus)
        fleets = {name: serve(options, model, pair, cpus)
                  for name, pair in (("one engine", False), ("a pair", True))}
        os.sched_setaffinity(0, cpus[:1])
        time.sleep(2)
        found = measure(fleets, vocabulary, options)
    figures = {}
    for name, rows in found.items():
        median = lambda prompts, i: statistics.median(row[prompts][i] for row in rows)  # noqa: E731
        figures[name] = {
            "p50_ms": 1e3 * median(False, 0), "p99_ms": 1e3 * median(False, 1),
            "p50_beside_prompts_ms": 1e3 * median(True, 0),
            "p99_beside_prompts_ms": 1e3 * median(True, 1),
            "p99_ratio": statistics.median(row[True][1] / row[False][1] for row in rows),
            "longest_at_ends_ms": 1e3 * max(row[True][2] for row in rows),
            "prompts_answered": sum(row[True][3] for row in rows),
        }  # fmt: skip
    if options.json:
        print(json.dumps(figures))
        return
    print(f"{options.streams} streams, prompts of {options.tokens} tokens; milliseconds")
    print(f"{'':12} {'idle p50':>9} {'p99':>7} {'beside p50':>11} {'p99':>7} {'p99 ratio':>10} "
          f"{'at ends':>8} {'prompts':>8}")  # fmt: skip
    for name, row in figures.items():
        print(f"{name:12} {row['p50_ms']:9.2f} {row['p99_ms']:7.2f} "
              f"{row['p50_beside_prompts_ms']:11.2f} {row['p99_beside_prompts_ms']:7.2f} "
              f"{row['p99_ratio']:10.2f} {row['longest_at_ends_ms']:8.1f} "
              f"{row['prompts_answered']:8}")  # fmt: skip


if __name__ == "__main__":
    main()
