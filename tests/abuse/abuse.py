#!/usr/bin/env python3
"""Attacks a server of its own in random order, beside a bystander that reads one stream.

    tests/abuse/abuse.py [--seconds 60] [--seed 1] [--p99-ms 25] [--max-ms 120] [--small]

Prints a table: for each attack the gaps between the bystander's events, the answers, and the
server's resident memory. Afterwards nothing may be left behind: no request, no page of the cache,
no memory beyond what the server had before. Exits with 1 when a bound is exceeded. Only loopback
addresses are used; attackers run at the lowest priority, since in earnest they have machines of
their own.
"""

import argparse
import array
import collections
import http.client
import json
import multiprocessing
import os
import pathlib
import random
import re
import signal
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import attacks  # noqa: E402
from serving import serving  # noqa: E402

MIB = 1 << 20
IDLE_SHARE = 1.10  # of the memory before, afterwards
SETTLE_SECONDS = 30
NICE = 19
NEIGHBOUR = "127.0.0.2"  # the bystander's address: the attackers' may have no connection left


def bystander(port, out):
    """Reads streams one after the other; sends when its events came, and how many streams broke."""
    stamps, broken, stop = array.array("d"), 0, []
    signal.signal(signal.SIGTERM, lambda *_: stop.append(True))
    while not stop:
        stamps.append(-1)  # the time to a first token is not a gap
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120,
                                                source_address=(NEIGHBOUR, 0))
        body = {"prompt": "Once", "max_tokens": 2000, "ignore_eos": True, "stream": True}
        try:
            connection.request("POST", attacks.TEXT, json.dumps(body),
                               {"Content-Type": "application/json"})
            response = connection.getresponse()
            done = False
            for line in response:
                if line.startswith(b"data: "):
                    stamps.append(time.monotonic())
                    done = line.startswith(b"data: [DONE]")
                if stop:
                    done = True
                    break
            broken += not done or response.status != 200
        except (OSError, http.client.HTTPException):
            broken += 1
        connection.close()
    out.send((stamps.tobytes(), broken))


def attack(port, small, name, seed, out):
    os.nice(NICE)
    target = attacks.Target(port, small)
    try:
        out.send(dict(getattr(attacks, name)(target, random.Random(seed))))
    except Exception as failure:  # noqa: BLE001: whatever it is belongs into the table
        out.send({f"failed: {failure!r}"[:60]: 1})


class Server:
    """What the table shows of the server."""

    def __init__(self, served):
        self.port, self.pid = served.port, served.process.pid

    def memory(self, field="VmRSS"):
        with open(f"/proc/{self.pid}/status", encoding="ascii") as status:
            return int(next(line for line in status if line.startswith(field)).split()[1]) * 1024

    def forget_peak(self):
        with open(f"/proc/{self.pid}/clear_refs", "w", encoding="ascii") as file:
            file.write("5")

    def get(self, path):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        connection.request("GET", path)
        text = connection.getresponse().read().decode()
        connection.close()
        return text

    def metrics(self):
        """Sums over labels, and single values by name{label="value"} of one label."""
        values = collections.Counter()
        for name, labels, value in re.findall(r"^braid:(\w+)(?:{([^}]*)})? (\S+)$",
                                              self.get("/metrics"), re.M):
            values[name] += float(value)
            for label in re.findall(r'\w+="[^"]*"', labels):
                values[f"{name}{{{label}}}"] += float(value)
        return values


def spread(gaps):
    """(median, 99th percentile, maximum) in milliseconds."""
    gaps = sorted(gaps) or [0.0]
    return [1000 * gaps[min(len(gaps) - 1, int(len(gaps) * part))] for part in (0.5, 0.99, 1)]


def run_attacks(server, options, names):
    """(name, begin, end, peak memory, what was seen) of each attack, one after the other."""
    rng, rows = random.Random(options.seed), []
    end = time.monotonic() + options.seconds
    order = rng.sample(names, len(names))
    while order or time.monotonic() < end:  # each at least once
        if not order:
            order = rng.sample(names, len(names))
        name = order.pop()
        receive, send = multiprocessing.Pipe(False)
        server.forget_peak()
        begin = time.monotonic()
        process = multiprocessing.Process(
            target=attack, args=(server.port, options.small, name, rng.random(), send))
        process.start()
        seen = receive.recv() if receive.poll(180) else {"does not end": 1}
        process.kill()
        process.join()
        rows.append((name, begin, time.monotonic(), server.memory("VmHWM"), seen))
        time.sleep(0.3)
    return rows


def settle(server, memory_before, limit):
    """Waits until nothing runs and the memory is back; what is still there after the time."""
    end = time.monotonic() + limit
    while True:
        metrics = server.metrics()
        left = {
            "requests": metrics["num_requests_running"] + metrics["num_requests_waiting"],
            "listed requests": len(json.loads(server.get("/v1/running"))["data"]),
            "used pages": metrics['cache_pages{state="used"}'],
            "repairs of the cache": metrics["cache_repairs_total"],
            "held bytes": metrics['server_memory_bytes{kind="used"}'],
            "MiB above the idle level":
                max(0, server.memory() - IDLE_SHARE * memory_before) // MIB if memory_before else 0,
        }
        left = {name: value for name, value in left.items() if value}
        if not left or time.monotonic() > end:
            return left
        time.sleep(0.5)


def warm_up(server):
    """Fills the cache's arena, so that its pages count as the idle level."""
    target, rng = attacks.Target(server.port, False), random.Random(0)
    before = -1
    while (used := server.metrics()['cache_pages{state="cached"}']) != before:
        before = used
        target.send_all([("POST", attacks.TEXT, {
            "prompt": [rng.randrange(4000) for _ in range(2000)], "max_tokens": 2,
        }) for _ in range(16)], 8)
    time.sleep(3)
    return server.memory()


def report(rows, stamps, budget, options):
    """Prints the table; the names of the bounds that were exceeded."""
    wrong = []
    pairs = [(a, b) for a, b in zip(stamps, stamps[1:]) if a > 0 and b > 0]
    print(f"\n{'attack':<24} {'runs':>4} {'p50 ms':>7} {'p99 ms':>7} {'max ms':>7} {'peak MiB':>8}"
          "  answers")
    every = []
    for name in sorted({row[0] for row in rows}):
        of_name = [row for row in rows if row[0] == name]
        gaps = [b - a for a, b in pairs
                if any(begin <= b and a <= end for _, begin, end, _, _ in of_name)]
        every += gaps
        median, p99, most = spread(gaps)
        seen = collections.Counter()
        for row in of_name:
            seen.update(row[4])
        peak = max(row[3] for row in of_name)
        answers = " ".join(f"{key}:{count}" for key, count in sorted(seen.items(), key=str))
        print(f"{name:<24} {len(of_name):>4} {median:>7.1f} {p99:>7.1f} {most:>7.1f} "
              f"{peak / MIB:>8.0f}  {answers}")
        if p99 > options.p99_ms or most > options.max_ms:
            wrong.append(f"{name}: gaps of the bystander")
        if budget and peak > budget and not options.no_memory:
            wrong.append(f"{name}: {peak / MIB:.0f} MiB of memory")
        wrong += [f"{name}: {key}" for key in seen
                  if key in (0, 500) or "does not end" in str(key) or "failed" in str(key)]
    median, p99, most = spread(every)
    print(f"{'all':<24} {len(rows):>4} {median:>7.1f} {p99:>7.1f} {most:>7.1f} "
          f"{max(row[3] for row in rows) / MIB:>8.0f}")
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--p99-ms", type=float, default=25)
    parser.add_argument("--max-ms", type=float, default=120)
    parser.add_argument("--memory", default="1G", help="--memory of the server")
    parser.add_argument("--no-memory", action="store_true", help="bound no memory")
    parser.add_argument("--small", action="store_true", help="a tenth of each attack")
    parser.add_argument("--only", action="append", help="an attack by name; may be repeated")
    parser.add_argument("--skip", action="append", default=[], help="leave an attack out")
    options = parser.parse_args()
    names = options.only or [function.__name__ for function in attacks.ATTACKS]
    names = [name for name in names if name not in options.skip]
    with serving("--memory", options.memory, "--log-level", "off") as served:
        server = Server(served)
        idle = warm_up(server)
        budget = int(server.metrics()['server_memory_bytes{kind="process_limit"}'])
        print(f"seed {options.seed}, idle {idle / MIB:.0f} MiB, budget {budget / MIB:.0f} MiB",
              flush=True)
        receive, send = multiprocessing.Pipe(False)
        watcher = multiprocessing.Process(target=bystander, args=(server.port, send))
        watcher.start()
        time.sleep(1)
        rows = run_attacks(server, options, names)
        watcher.terminate()
        data, broken = receive.recv()
        watcher.join()
        left = settle(server, 0 if options.no_memory else idle, SETTLE_SECONDS)
        stamps = array.array("d")
        stamps.frombytes(data)
        wrong = report(rows, stamps, budget, options)
        wrong += [f"{value:.0f} {name} left" for name, value in left.items()]
        wrong += [f"{broken} streams of the bystander broke"] if broken else []
        print(f"afterwards: {server.memory() / MIB:.0f} MiB, "
              f"shed {server.metrics()['requests_shed_total']:.0f}")
    for line in wrong:
        print(f"EXCEEDED: {line}")
    print("held" if not wrong else f"{len(wrong)} bounds exceeded")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
