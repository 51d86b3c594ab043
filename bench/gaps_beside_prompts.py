#!/usr/bin/env python3
"""How long prompts delay running answers: gaps between tokens with and without long prompts that
arrive one after the other, of one engine and of a prefill and a decode engine.

    bench/gaps_beside_prompts.py [--braid build/release/braid] [--model DIR] [--tokens 16000]
        [--streams 4] [--seconds 20] [--rounds 3] [--json]

One engine has two threads. Of the pair each has one thread and a core of its own; the client shares
the prefill engine's core. In each round both fleets are measured without and with prompts. Prints
the medians of p50 and p99, and the ratio of p99 with prompts to that without in the same round.
Without --model it makes a small one.
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

from plan_vs_measured import Bench
from simulate_vs_real import percentile, start, wait_ready
from streams import token_times

ANSWER_TOKENS = 1500


class Load:
    """Streams that run all the time, and prompts one after the other while they are wanted."""

    def __init__(self, port, vocabulary, options, prompts):
        self.port, self.vocabulary, self.options = port, vocabulary, options
        self.prompts, self.draw = prompts, random.Random(time.monotonic_ns())
        self.gaps, self.answered, self.end = [], 0, 0.0

    def ask(self, tokens, answer_tokens):
        prompt = [self.draw.randrange(1, self.vocabulary) for _ in range(tokens)]
        return token_times(self.port, prompt=prompt, max_tokens=answer_tokens, temperature=1)

    async def stream(self):
        while time.monotonic() < self.end:
            before = None
            async for at in self.ask(20, ANSWER_TOKENS):
                if before is not None and before > self.begin and at < self.end:
                    self.gaps.append(at - before)
                before = at
                if at >= self.end:
                    break

    async def prompt(self):
        while time.monotonic() < self.end:
            async for _ in self.ask(self.options.tokens, 2):
                if time.monotonic() >= self.end:
                    return
            self.answered += 1

    async def run(self):
        self.begin = time.monotonic() + 1  # until all streams have begun
        self.end = self.begin + self.options.seconds
        asked = [self.stream() for _ in range(self.options.streams)]
        await asyncio.gather(*asked, *([self.prompt()] if self.prompts else []))
        return self


def serve(options, model, pair):
    """The port of a fleet."""
    flags = ["--port", 0, "--memory", "2G", "--draft", "off", "--max-model-len",
             options.tokens + 64, "--no-prefix-cache"]  # fmt: skip
    command = [options.braid, "serve", model, *flags]
    if not pair:
        _, port = start([*command, "--threads", 2])
        wait_ready(port)
        return port
    handoff = f"127.0.0.1:{20000 + random.randrange(20000)}"
    _, prefill = start(["taskset", "-c", 0, *command, "--threads", 1, "--role", "prefill",
                        "--handoff-listen", handoff])  # fmt: skip
    _, decode = start(["taskset", "-c", 1, *command, "--threads", 1, "--role", "decode",
                       "--prefill", handoff])  # fmt: skip
    for port in (prefill, decode):
        wait_ready(port)
    return decode


def measure(fleets, vocabulary, options):
    """Per fleet, of each round: {prompts: (p50, p99, prompts answered)}."""
    found = {name: [] for name in fleets}
    for _ in range(options.rounds):
        for name, port in fleets.items():
            row = {}
            for prompts in (False, True):
                load = asyncio.run(Load(port, vocabulary, options, prompts).run())
                row[prompts] = (percentile(load.gaps, 0.5), percentile(load.gaps, 0.99),
                                load.answered)  # fmt: skip
            found[name].append(row)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--braid", default="build/release/braid")
    parser.add_argument("--model")
    parser.add_argument("--tokens", type=int, default=16000)
    parser.add_argument("--streams", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    os.sched_setaffinity(0, {0})
    with tempfile.TemporaryDirectory() as temporary:
        bench = Bench(options.braid, "", pathlib.Path(temporary))
        model = pathlib.Path(options.model) if options.model else bench.model("hybrid")
        vocabulary = json.loads((model / "config.json").read_text())["vocab_size"]
        os.sched_setaffinity(0, range(os.cpu_count()))  # for the engines
        fleets = {name: serve(options, model, pair)
                  for name, pair in (("one engine", False), ("a pair", True))}
        os.sched_setaffinity(0, {0})
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
            "prompts_answered": sum(row[True][2] for row in rows),
        }  # fmt: skip
    if options.json:
        print(json.dumps(figures))
        return
    print(f"{options.streams} streams, prompts of {options.tokens} tokens; milliseconds")
    print(f"{'':12} {'idle p50':>9} {'p99':>7} {'beside p50':>11} {'p99':>7} {'p99 ratio':>10} "
          f"{'prompts':>8}")  # fmt: skip
    for name, row in figures.items():
        print(f"{name:12} {row['p50_ms']:9.2f} {row['p99_ms']:7.2f} "
              f"{row['p50_beside_prompts_ms']:11.2f} {row['p99_beside_prompts_ms']:7.2f} "
              f"{row['p99_ratio']:10.2f} {row['prompts_answered']:8}")  # fmt: skip


if __name__ == "__main__":
    main()
