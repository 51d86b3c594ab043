#!/usr/bin/env python3
"""How much of a hand-off is hidden behind the prompt's computation.

    bench/handoff_hidden.py [--braid build/release/braid] [--model DIR] [--chunks 8]
        [--chunk-tokens 2048] [--rounds 5] [--json]

A prefill and a decode engine with a thread and a core each take prompts of --chunks chunks, one
after the other; every second one is computed by an engine alone, on the prefill engine's core.
Prints the share of the pages' bytes that left while their prompt was computed, and the medians of
the time to the first token of both. Without --model it makes a small one.
"""

import argparse
import asyncio
import json
import pathlib
import random
import re
import statistics
import tempfile
import time

from plan_vs_measured import Bench, two_cpus
from simulate_vs_real import get, start, wait_ready
from streams import token_times


def sent(port):
    """Bytes of pages that an engine has sent: while the prompts were computed, and later."""
    text = asyncio.run(get(port, "/metrics")).decode()
    rows = re.findall(r'^braid:handoff_bytes_total\{.*when="(\w+)".*\} (\S+)$', text, re.M)
    return {when: float(count) for when, count in rows}


async def first_token(port, prompt):
    begin = time.monotonic()
    times = [at async for at in token_times(port, prompt=prompt, max_tokens=2, temperature=0)]
    return times[0] - begin


def measure(options, model):
    vocabulary = json.loads((model / "config.json").read_text())["vocab_size"]
    tokens = options.chunks * options.chunk_tokens
    command = [options.braid, "serve", model, "--port", 0, "--memory", "2G", "--draft", "off",
               "--threads", 1, "--max-model-len", tokens + 64, "--no-prefix-cache",
               "--chunk-tokens", options.chunk_tokens]  # fmt: skip
    on = [["taskset", "-c", core] for core in two_cpus()]
    handoff = f"127.0.0.1:{20000 + random.randrange(20000)}"
    _, prefill = start([*on[0], *command, "--role", "prefill", "--handoff-listen", handoff])
    _, decode = start([*on[1], *command, "--role", "decode", "--prefill", handoff])
    _, alone = start([*on[0], *command])
    for port in (prefill, decode, alone):
        wait_ready(port)
    time.sleep(2)
    seconds = {"pair": [], "alone": []}
    for i in range(options.rounds + 1):
        draw = random.Random(i)
        prompt = [draw.randrange(1, vocabulary) for _ in range(tokens)]
        if i == 1:  # the first warms up
            before = sent(prefill)
        for name, port in (("pair", decode), ("alone", alone)):
            took = asyncio.run(first_token(port, prompt))
            seconds[name] += [took] if i > 0 else []
    bytes_sent = {when: count - before[when] for when, count in sent(prefill).items()}
    return bytes_sent, {name: statistics.median(took) for name, took in seconds.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--braid", default="build/release/braid")
    parser.add_argument("--model")
    parser.add_argument("--chunks", type=int, default=8)
    parser.add_argument("--chunk-tokens", type=int, default=2048)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        bench = Bench(options.braid, "", pathlib.Path(temporary))
        model = pathlib.Path(options.model) if options.model else bench.model("hybrid")
        bytes_sent, seconds = measure(options, model)
    whole = sum(bytes_sent.values())
    if whole == 0:
        raise SystemExit("no page went from the prefill engine to the decode engine")
    figures = {"bytes_a_prompt": whole / options.rounds, "hidden": bytes_sent["prefill"] / whole,
               "first_token_pair_s": seconds["pair"], "first_token_alone_s": seconds["alone"]}
    if options.json:
        print(json.dumps(figures))
        return
    print(f"{options.chunks} chunks of {options.chunk_tokens} tokens, "
          f"{figures['bytes_a_prompt'] / 2**20:.1f} MiB of pages: {figures['hidden']:.1%} left "
          f"while their prompt was computed")  # fmt: skip
    print(f"first token: {seconds['pair']:.3f} s of the pair, {seconds['alone']:.3f} s alone")


if __name__ == "__main__":
    main()
