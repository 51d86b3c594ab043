#!/usr/bin/env python3
"""How long a short prompt waits behind a long one, and how long both delay a running answer.

    bench/short_prompts.py [--braid build/release/braid ...] [--model models/braid-tiny]
        [--long 7500] [--short 100] [--rounds 3] [--flags="--decode-latency-ms 12"]

While an answer runs, a prompt of --long tokens comes, and 0.3 s later one of --short tokens. Prints
the time to each one's first token and the gaps of the running answer meanwhile, the medians of the
rounds, by program: with several, each has its turn in every round.
"""

import argparse
import asyncio
import json
import pathlib
import random
import shlex
import statistics
import time

from simulate_vs_real import percentile, start, wait_ready
from streams import token_times

ANSWER_TOKENS = 2000  # more than run while the prompts are read


async def first_token(port, prompt):
    begin = time.monotonic()
    async for at in token_times(port, prompt=prompt, max_tokens=1):
        return at - begin


async def measure(port, vocabulary, options):
    """Seconds: to the long prompt's first token, to the short one's, gaps p50, p99 and longest."""
    def draw(tokens):
        return [random.randrange(1, vocabulary) for _ in range(tokens)]

    stamps = []

    async def answer():
        async for at in token_times(port, prompt=draw(20), max_tokens=ANSWER_TOKENS):
            stamps.append(at)

    running = asyncio.create_task(answer())
    while len(stamps) < 5:
        await asyncio.sleep(0.01)
    begin = time.monotonic()
    late = asyncio.create_task(first_token(port, draw(options.long)))
    await asyncio.sleep(0.3)
    if late.done():
        raise SystemExit("the long prompt was read before the short one came; make --long longer")
    early = await first_token(port, draw(options.short))
    late, end = await late, time.monotonic()
    if running.done():
        raise SystemExit("the answer ended before the prompts were read; make --long shorter")
    running.cancel()
    gaps = [b - a for a, b in zip(stamps, stamps[1:]) if b > begin and a < end]
    return late, early, percentile(gaps, 0.5), percentile(gaps, 0.99), max(gaps)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--braid", nargs="+", default=["build/release/braid"])
    parser.add_argument("--model", default="models/braid-tiny")
    parser.add_argument("--long", type=int, default=7500)
    parser.add_argument("--short", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--flags", default="", help="more flags of `braid serve`")
    options = parser.parse_args()
    config = json.loads((pathlib.Path(options.model) / "config.json").read_text())
    vocabulary = config.get("text_config", config)["vocab_size"]
    rows = {braid: [] for braid in options.braid}
    for _ in range(options.rounds):
        for braid, found in rows.items():
            process, port = start([braid, "serve", options.model, "--port", 0, "--draft", "off",
                                   "--no-prefix-cache", *shlex.split(options.flags)])  # fmt: skip
            wait_ready(port)
            found.append(asyncio.run(measure(port, vocabulary, options)))
            process.terminate()
            process.wait()
    print(f"{options.long} and {options.short} tokens beside an answer; milliseconds")
    print(f"{'long':>9} {'short':>9} {'gaps p50':>9} {'p99':>9} {'longest':>9}")
    for braid, found in rows.items():
        medians = [1e3 * statistics.median(values) for values in zip(*found)]
        print("".join(f"{value:9.1f} " for value in medians) + f" {braid}")


if __name__ == "__main__":
    main()
