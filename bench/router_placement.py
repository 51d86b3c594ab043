#!/usr/bin/env python3
"""How much of an agentic load the engines behind `braid router` reuse, against one engine that has
the memory of all of them.

    bench/router_placement.py [--engines N] [--conversations N] [--turns N] [--kill] [--no-events]
                              [--json]

Conversations share the beginnings of a few agents; each turn sends the last one's prompt, its
answer and something new, some at once. The engines serve models/braid-tiny. Printed: the share of
prompt tokens that came from the cache, alone and behind the router, and the fullest engine's
computed tokens over the mean. --kill ends one engine in the middle of a second run, starts it
again half a second later, and counts requests that failed before their first byte. The router reads
the engines' KV events; --no-events leaves it what it sent.
"""
import argparse
import concurrent.futures
import contextlib
import http.client
import json
import os
import pathlib
import random
import re
import subprocess
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
BINARY = os.environ.get("BRAID_BIN", str(ROOT / "build/release/braid"))
MODEL = str(ROOT / "models/braid-tiny")
AGENTS, AGENT_TOKENS = 3, 384
# Of an engine: weights and workspace, which each has, and its share of the cache.
FIXED_MIB, CACHE_MIB = 72, 48


class Process:
    def __init__(self, *words):
        self.process = subprocess.Popen([BINARY, *words], stdout=subprocess.PIPE, text=True,
                                        stderr=subprocess.DEVNULL)
        self.port, self.events = None, {}
        last = "KV events again at" if "--kv-events" in words else "listening on"
        for line in self.process.stdout:
            if match := re.search(r"listening on http://\S+:(\d+)", line):
                self.port = int(match[1])
            if match := re.match(r"KV events (again )?at (\S+)", line):
                self.events["kv_events_replay" if match[1] else "kv_events"] = match[2]
            if line.startswith(last):
                break
        else:
            raise SystemExit(f"braid {' '.join(words)} did not start")
        threading.Thread(target=self.process.stdout.read, daemon=True).start()

    def metric(self, name):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        with contextlib.closing(connection):
            connection.request("GET", "/metrics")
            text = connection.getresponse().read().decode()
        return sum(map(float, re.findall(rf"^braid:{name}(?:{{[^}}]*}})? (\S+)$", text, re.M)))

    def kill(self):
        self.process.kill()
        self.process.wait()


def engine(cache_mib, port=0, events=()):
    return Process("serve", MODEL, "--port", str(port), "--threads", "1", "--draft", "off",
                   "--max-model-len", "4096", "--memory", f"{FIXED_MIB + cache_mib}M", *events)


def event_flags(options, before=None):
    """Flags for an engine that publishes; one that is started again does it at the same ports."""
    if options.no_events:
        return []
    at = before.events if before else {name: "tcp://127.0.0.1:*"
                                       for name in ("kv_events", "kv_events_replay")}
    return [word for name, url in at.items() for word in (f"--{name.replace('_', '-')}", url)]


def ready(port):
    while True:
        with contextlib.suppress(OSError):
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            connection.request("GET", "/ready")
            if connection.getresponse().status == 200:
                return
        time.sleep(0.05)


class Load:
    """The same conversations on each run: what is new in a turn comes from a seed."""

    def __init__(self, options):
        self.options = options
        self.lock = threading.Lock()

    def run(self, port, midway=None):
        self.prompt = self.cached = self.failed = self.turns = 0
        self.midway = midway
        with concurrent.futures.ThreadPoolExecutor(self.options.at_once) as pool:
            list(pool.map(lambda number: self.converse(port, number),
                          range(self.options.conversations)))
        if midway is None and self.failed > 0:
            raise SystemExit(f"{self.failed} requests failed while all engines ran")
        return self.cached / max(1, self.prompt)

    def converse(self, port, number):
        draw = random.Random(number)
        agent = random.Random(1000 + number % AGENTS)
        tokens = [agent.randrange(5, 900) for _ in range(AGENT_TOKENS)]
        for _ in range(self.options.turns):
            tokens += [draw.randrange(5, 900) for _ in range(draw.randrange(40, 200))]
            answer = self.ask(port, number, tokens)
            if answer is None:
                return
            tokens += answer

    def ask(self, port, number, tokens):
        body = {"prompt": tokens, "max_tokens": 16, "temperature": 0, "ignore_eos": True,
                "return_token_ids": True, "user": str(number)}
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
        with contextlib.closing(connection):
            connection.request("POST", "/v1/completions", json.dumps(body),
                               {"Content-Type": "application/json"})
            response = connection.getresponse()
            answer = json.loads(response.read())
        with self.lock:
            self.turns += 1
            midway = self.midway
            if self.turns * 2 >= self.options.conversations * self.options.turns:
                self.midway = None
            else:
                midway = None
            if response.status != 200:
                self.failed += 1
                return None
            usage = answer["usage"]
            self.prompt += usage["prompt_tokens"]
            self.cached += usage["prompt_tokens_details"]["cached_tokens"]
        if midway:
            midway()
        choice = answer["choices"][0]
        return choice.get("token_ids") or [7] * 16


def behind_router(options, load, folder):
    engines = [engine(CACHE_MIB, events=event_flags(options)) for _ in range(options.engines)]
    router = None
    try:
        for each in engines:
            ready(each.port)
        file = pathlib.Path(folder) / "engines.json"
        file.write_text(json.dumps({"engines": [
            {"name": str(i), "url": f"http://127.0.0.1:{each.port}", **each.events}
            for i, each in enumerate(engines)]}))
        router = Process("router", str(file), "--port", "0")
        ready(router.port)
        before = [each.metric("prefill_tokens_computed_total") for each in engines]
        figures = {"reuse": load.run(router.port)}
        computed = [each.metric("prefill_tokens_computed_total") - b
                    for each, b in zip(engines, before, strict=True)]
        figures["imbalance"] = max(computed) * len(engines) / sum(computed)
        if options.kill:
            def midway():
                port = engines[1].port
                engines[1].kill()
                time.sleep(0.5)
                engines[1] = engine(CACHE_MIB, port, event_flags(options, engines[1]))
            for each in engines:
                flush(each.port)
            figures["reuse_with_a_kill"] = load.run(router.port, midway)
            figures["failed_with_a_kill"] = load.failed
        return figures
    finally:
        for process in [*engines, *([router] if router else [])]:
            process.kill()


def flush(port):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    with contextlib.closing(connection):
        connection.request("POST", "/flush_cache")
        response = connection.getresponse()
        text = response.read().decode()
    if response.status != 200:
        raise SystemExit(f"the cache was not dropped before the next run: {text}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--engines", type=int, default=4)
    parser.add_argument("--conversations", type=int, default=48)
    parser.add_argument("--turns", type=int, default=6)
    parser.add_argument("--at-once", type=int, default=12)
    parser.add_argument("--kill", action="store_true")
    parser.add_argument("--no-events", action="store_true")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    load = Load(options)
    alone = engine(CACHE_MIB * options.engines)
    try:
        ready(alone.port)
        figures = {"reuse_alone": load.run(alone.port)}
    finally:
        alone.kill()
    with tempfile.TemporaryDirectory() as folder:
        figures |= behind_router(options, load, folder)
    figures["share"] = figures["reuse"] / figures["reuse_alone"]
    figures = {name: round(value, 3) for name, value in figures.items()}
    if options.json:
        print(json.dumps(figures))
        return
    for name, value in figures.items():
        print(f"{name.replace('_', ' '):20} {value}")


if __name__ == "__main__":
    main()
