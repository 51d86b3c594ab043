#!/usr/bin/env python3
"""Many connections, many streams, and clients that leave: what becomes of every request.

    python3 bench/soak.py [--connections 1000] [--streams 200] [--abort 0.1] [--minutes 10]
        [--router]

Serves braid-tiny, keeps `connections` open, of which `streams` always have a stream, and runs in
turns: without clients that leave, and with them. Every answer is checked (its tokens, its end),
and at the end nothing may be left on the server. With --router all connections are to a router in
front of it. Prints one line a turn, then the figures:

* useful tokens/s: tokens that reached a client, also one that left later; the ratio of the turns;
* processor time of the server's network thread, and of the router, for each streamed token;
* pages used, requests running and waiting at the end; resident memory over the turns.

Exit code 1 if an answer was wrong or something was left.
"""
import argparse
import asyncio
import contextlib
import json
import os
import pathlib
import random
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from dataclasses import dataclass

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))
from serving import serving  # noqa: E402

IDLE_SECONDS = 20  # an idle connection asks for /health so often
TURN_SECONDS = 30
TICKS = 100  # of /proc/PID/stat in a second


@dataclass
class Counts:
    tokens: int = 0  # that reached a client
    whole: int = 0
    left: int = 0


def body_of(rng):
    return {"prompt": f"Story {rng.randrange(1000)} about", "max_tokens": rng.randrange(50, 400),
            "temperature": 1, "seed": rng.randrange(1 << 30), "ignore_eos": True, "stream": True,
            "stream_options": {"include_usage": True, "continuous_usage_stats": True}}


async def events_of(reader):
    """The data of the events of a chunked answer, until its last chunk."""
    pending = b""
    while True:
        size = int((await reader.readline()).split(b";")[0], 16)
        pending += (await reader.readexactly(size + 2))[:-2]
        *whole, pending = pending.split(b"\n\n")
        for event in whole:
            if event.startswith(b"data: "):
                yield event[6:]
        if size == 0:
            assert not pending, pending
            return


async def stream(reader, writer, rng, leave, counts):
    """One stream; False if the client left it."""
    body = body_of(rng)
    text = json.dumps(body).encode()
    writer.write(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
                 b"Content-Type: application/json\r\n"
                 b"Content-Length: %d\r\n\r\n" % len(text) + text)
    head = await reader.readuntil(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200"), head
    stay = rng.randrange(1, body["max_tokens"] // 2) if leave else None
    last, seen = b"", 0
    async for event in events_of(reader):
        seen += 1
        if event != b"[DONE]":
            last = event
        if seen == stay:
            writer.close()
            counts.left += 1
            counts.tokens += json.loads(last)["usage"]["completion_tokens"]
            return False
    usage = json.loads(last)["usage"]
    assert event == b"[DONE]" and usage["completion_tokens"] == body["max_tokens"], last
    counts.tokens += usage["completion_tokens"]
    counts.whole += 1
    return True


async def streamer(port, rng, share, counts, end):
    connection = None
    while time.monotonic() < end:
        if connection is None:
            connection = await asyncio.open_connection("127.0.0.1", port)
        kept = await stream(*connection, rng, rng.random() < share, counts)
        if not kept:
            connection = None
    if connection:
        connection[1].close()


async def idler(port, end):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    while time.monotonic() < end:
        writer.write(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200"), head
        await reader.readexactly(int(re.search(rb"Content-Length: (\d+)", head)[1]))
        await asyncio.sleep(min(IDLE_SECONDS, max(0.0, end - time.monotonic())))
    writer.close()


async def turn(port, options, share, seed):
    counts, begin = Counts(), time.monotonic()
    end = begin + TURN_SECONDS
    tasks = [idler(port, end) for _ in range(options.connections - options.streams)]
    tasks += [streamer(port, random.Random(seed * 10007 + i), share, counts, end)
              for i in range(options.streams)]
    await asyncio.gather(*tasks)
    return counts, time.monotonic() - begin


def thread_seconds(pid, name):
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        if (task / "comm").read_text().strip() == name:
            fields = (task / "stat").read_text().rsplit(")", 1)[1].split()
            return (int(fields[11]) + int(fields[12])) / TICKS
    raise SystemExit(f"there is no thread {name}")


def resident_mib(pid):
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+)", status)[1]) / 1024


def metrics(address):
    with urllib.request.urlopen(f"{address}/metrics") as response:
        lines = [line for line in response.read().decode().splitlines() if line[:1] != "#"]
    return lambda name, label="": sum(
        float(line.rsplit(" ", 1)[1]) for line in lines
        if re.match(rf"braid:{name}(?:{{|\s)", line) and label in line)


def left_over(address):
    """What the server still holds, when it has had a moment."""
    end = time.monotonic() + 10
    while True:
        value = metrics(address)
        left = {"running": value("num_requests_running"), "waiting": value("num_requests_waiting"),
                "used pages": value("cache_pages", 'state="used"'),
                "repairs": value("cache_repairs_total")}
        if not any(left.values()) or time.monotonic() > end:
            return left
        time.sleep(0.1)


@contextlib.contextmanager
def routing(address, wanted):
    """The process and port of a router in front of the server, or none and the server's port."""
    if not wanted:
        yield None, int(address.rsplit(":", 1)[1])
        return
    with tempfile.TemporaryDirectory() as folder:
        config = pathlib.Path(folder) / "router.json"
        config.write_text(json.dumps({"engines": [{"name": "a", "url": address}]}))
        binary = os.environ.get("BRAID_BIN", str(ROOT / "build/release/braid"))
        router = subprocess.Popen([binary, "router", config, "--port", "0"], text=True,
                                  stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)  # fmt: skip
        try:
            line = next(line for line in router.stdout if "listening on" in line)
            threading.Thread(target=router.stdout.read, daemon=True).start()
            port = int(re.search(r"listening on http://\S+:(\d+)", line)[1])
            end = time.monotonic() + 30
            while True:
                with contextlib.suppress(OSError):
                    urllib.request.urlopen(f"http://127.0.0.1:{port}/ready")
                    break
                assert time.monotonic() < end, "the router was not ready within 30 s"
                time.sleep(0.1)
            yield router.pid, port
        finally:
            router.terminate()
            assert router.wait(60) == 0


def process_seconds(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--connections", type=int, default=1000)
    parser.add_argument("--streams", type=int, default=200)
    parser.add_argument("--abort", type=float, default=0.1, help="share of streams that are left")
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--router", action="store_true", help="put a router in front of the server")
    options = parser.parse_args()
    rates, sizes, router_seconds = {False: [], True: []}, [], 0.0
    with (serving("--log-level", "error") as served,
          routing(served.address, options.router) as (router, port)):  # fmt: skip
        pid = served.process.pid
        network, total, begin = thread_seconds(pid, "braid-http"), Counts(), time.monotonic()
        while time.monotonic() - begin < options.minutes * 60 or len(sizes) % 2:
            leave = len(sizes) % 2 == 1
            share = options.abort if leave else 0
            counts, seconds = asyncio.run(turn(port, options, share, len(sizes)))
            rates[leave].append(counts.tokens / seconds)
            sizes.append(resident_mib(pid))
            for name, value in vars(counts).items():
                setattr(total, name, getattr(total, name) + value)
            print(f"{counts.whole:6} whole, {counts.left:5} left by their clients, "
                  f"{rates[leave][-1]:7.0f} useful tokens/s, {sizes[-1]:6.0f} MiB", flush=True)
        network = thread_seconds(pid, "braid-http") - network
        router_seconds = process_seconds(router) if router else 0.0
        streamed = metrics(served.address)("generation_tokens_total")
        left = left_over(served.address)
    ratio = statistics.median(rates[True]) / statistics.median(rates[False])
    print(f"{total.whole} answers whole, {total.left} left; useful tokens/s with clients that "
          f"leave / without: {ratio:.3f}; network thread {network / streamed * 1e6:.1f} us a token"
          + (f", router {router_seconds / streamed * 1e6:.1f}" if options.router else ""))
    print("left at the end: " + ", ".join(f"{value:.0f} {name}" for name, value in left.items()))
    return 1 if any(left.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
