#!/usr/bin/env python3
"""What the disk tier is worth on this machine, as a table: the first token of a restored
conversation against computing it, the speed of reading against the disk's own, the first token of
one that waited for a slot, a busy server with and without a directory, what is written for each
token, and conversations of four times the memory.

    scripts/measure_disk_tier.py [MODEL] [--braid build/release/braid] [--tokens 20000]
        [--minutes 12] [--dir DIR] [--flags "--kv-dtype bf16"] [--only queued]

Without MODEL it makes a random one of 304 M parameters. Everything that is compared alternates
within one run; how often, and how many tokens the busy server and the conversations have, follows
from the time that the first conversation takes."""
import argparse
import http.client
import json
import mmap
import os
import pathlib
import random
import re
import shlex
import shutil
import signal
import statistics
import struct
import subprocess
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

ROOT = pathlib.Path(__file__).resolve().parents[1]


class Server:
    def __init__(self, args, length, *flags):
        command = [args.braid, "serve", args.model, "--port", "0", "--log-level", "error",
                   "--max-model-len", str(length), *shlex.split(args.flags), *flags]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True,
                                        stderr=subprocess.DEVNULL)
        line = self.process.stdout.readline()
        self.port = int(re.search(r":(\d+)\s*$", line)[1])

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()

    def ask(self, prompt, tokens):
        """Seconds to the first token and in all, and the usage."""
        connection = http.client.HTTPConnection("localhost", self.port, timeout=3600)
        body = {"prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": True,
                "stream": True, "stream_options": {"include_usage": True}}
        began, first, usage = time.monotonic(), None, None
        connection.request("POST", "/v1/completions", json.dumps(body),
                           {"Content-Type": "application/json"})
        response = connection.getresponse()
        for line in response:
            if not line.startswith(b"data: {"):
                continue
            first = first or time.monotonic() - began
            usage = json.loads(line[6:]).get("usage") or usage
        return first, time.monotonic() - began, usage

    def metric(self, name):
        connection = http.client.HTTPConnection("localhost", self.port, timeout=60)
        connection.request("GET", "/metrics")
        text = connection.getresponse().read().decode()
        return sum(float(line.rsplit(" ", 1)[1]) for line in text.splitlines()
                   if line.startswith(name))

    def flush_memory(self):
        connection = http.client.HTTPConnection("localhost", self.port, timeout=60)
        connection.request("POST", "/flush_cache", '{"memory_only": true}',
                           {"Content-Type": "application/json"})
        assert connection.getresponse().status == 200

    def cpu_seconds(self):
        stat = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text()
        fields = stat.rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def settle(self):
        before = -1.0
        while (now := self.metric("braid:tier_written_bytes_total")) != before:
            before = now
            time.sleep(0.3)


def tokens(seed, count):
    draw = random.Random(seed)
    return [draw.randrange(300, 1000) for _ in range(count)]


def forget(directory):
    """What the kernel has of the files in memory, so that the disk is read."""
    for path in directory.rglob("*.*"):
        with open(path, "rb") as file:
            os.fdatasync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def read_all(directory, readers):
    """Bytes a second of reading the files: in order with a queue of one, or in parts by several."""
    part = 1 << 20
    places = [(path, at) for path in sorted(directory.rglob("*.pages"))
              for at in range(0, path.stat().st_size, part)]

    def read(place):
        with open(place[0], "rb", buffering=0) as file:
            file.seek(place[1])
            return len(file.read(part))

    began = time.monotonic()
    with ThreadPoolExecutor(readers) as pool:
        size = sum(pool.map(read, places))
    return size / (time.monotonic() - began)


def written_twice(directory):
    """Parts in the indexes of a directory, and those that are there again: entries of 64 bytes
    behind a header of 64, a key of 16 first, a kind before the last 8."""
    parts, seen = 0, set()
    for path in directory.rglob("*.index"):
        for entry in struct.iter_unpack("<16s36sI8s", path.read_bytes()[64:]):
            parts += 1
            seen.add((path.parent, entry[0], entry[2]))
    return parts, parts - len(seen)


class Measurement:
    def __init__(self, args, scratch):
        self.args = args
        self.directory = pathlib.Path(scratch) / "pages"
        self.began = time.monotonic()
        self.rate = 0.0  # tokens of a prompt computed in a second
        self.held = []   # memory

    def left(self):
        """Seconds of those that the run may take."""
        return self.args.minutes * 60 - (time.monotonic() - self.began)

    def fresh(self):
        shutil.rmtree(self.directory, ignore_errors=True)
        return "--cache-dir", str(self.directory)

    def measure_rate(self):
        """From a prompt that is long enough; `restored` does it better."""
        if self.rate == 0:
            with Server(self.args, 4096) as server:
                server.ask(tokens(1, 300), 1)
                self.rate = 2000 / server.ask(tokens(2, 2000), 1)[0]
        return self.rate

    def restored(self):
        count = self.args.tokens
        found = {memory: {"seconds": [], "in order": [], "by 8": []} for memory in ("new", "used")}
        handed_out = []
        turn, took = 0, 0.0
        share = 0.6 if self.args.only is None else 0.1  # of the time, for what comes after it
        while turn == 0 or (turn < self.args.rounds
                            and self.left() - took > share * 60 * self.args.minutes):
            began, flags = time.monotonic(), self.fresh()
            prompt = tokens(turn, count)
            with Server(self.args, count + 64, *flags) as server:
                computed = server.ask(prompt, 1)[0]
                server.settle()
            self.rate = count / computed
            print(f"  {count} tokens computed: first token after {computed:.2f} s")
            for _ in range(5):
                with Server(self.args, count + 64, *flags) as server:
                    handed_out.append(self.speed_of_new_memory())
                    for memory in ("new", "used"):
                        one, eight = self.speed_of_reading(1), self.speed_of_reading(8)
                        forget(self.directory)
                        self.restore(server, prompt, memory, (one, eight), found)
                        found[memory]["seconds"][-1] /= computed
                        server.flush_memory()
            turn, took = turn + 1, time.monotonic() - began
        for memory, of in found.items():
            print(f"into memory that is {memory} to the process:")
            ratios, shares, busiest = of["seconds"], of["in order"], of["by 8"]
            print(f"first token restored / computed: {statistics.median(ratios):.2%} (at most "
                  f"{max(ratios):.2%} of {len(ratios)})")
            print(f"reading pages / reading the same files in order: "
                  f"{statistics.median(shares):.0%} ({min(shares):.0%} to {max(shares):.0%}); "
                  f"by 8 readers: {statistics.median(busiest):.0%} ({min(busiest):.0%} to "
                  f"{max(busiest):.0%})")
        print("memory that is new to a process comes at "
              f"{statistics.median(handed_out) / 1e6:.0f} MB/s ({min(handed_out) / 1e6:.0f} to "
              f"{max(handed_out) / 1e6:.0f})")

    def speed_of_new_memory(self):
        """Bytes a second at which the system hands out as much memory as the pages take. It is kept
        to the end, because the system would hand out the same again."""
        size = sum(path.stat().st_size for path in self.directory.rglob("*.pages"))
        memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        memory.madvise(mmap.MADV_HUGEPAGE)
        self.held.append(memory)
        pages, began = bytes(len(range(0, size, mmap.PAGESIZE))), time.monotonic()
        memory[::mmap.PAGESIZE] = pages
        return size / (time.monotonic() - began)

    def speed_of_reading(self, readers):
        forget(self.directory)
        return read_all(self.directory, readers)

    def restore(self, server, prompt, memory, speeds, found):
        """Asks with the prompt, whose pages are on disk, and appends what it took to `found`."""
        read = server.metric("braid:tier_read_bytes_total")
        wait = server.metric("braid:tier_wait_seconds_total")
        first, _, usage = server.ask(prompt, 1)
        read = server.metric("braid:tier_read_bytes_total") - read
        wait = server.metric("braid:tier_wait_seconds_total") - wait
        disk = usage["prompt_tokens_details"].get("disk_tokens", 0)
        one, eight = speeds
        print(f"  {disk} restored into {memory} memory: {first:.3f} s; {read / 1e6:.1f} MB in "
              f"{wait:.3f} s: {read / wait / 1e6:.0f} MB/s; the same files in order "
              f"{one / 1e6:.0f} MB/s, by 8 readers {eight / 1e6:.0f} MB/s", flush=True)
        found[memory]["seconds"].append(first)
        found[memory]["in order"].append(read / wait / one)
        found[memory]["by 8"].append(read / wait / eight)

    def queued(self):
        """A stored conversation that waits while the only slot is taken, and one that comes when it
        is free: from then on to the first token."""
        count, flags = self.args.tokens, self.fresh()
        prompt = tokens(3, count)
        with Server(self.args, count + 64, *flags) as server:
            server.ask(prompt, 1)
            server.settle()
        found = {"waited": [], "came then": []}
        with Server(self.args, count + 64, "--max-num-seqs", "1", *flags) as server:
            server.ask(prompt, 1)  # into memory that is new to the process
            took = server.ask(tokens(4, 100), 64)[1]
            generated = min(int(64 * self.args.wait / took), count - 100)
            for _ in range(self.args.rounds):
                for how, seconds in found.items():
                    server.flush_memory()
                    forget(self.directory)
                    with ThreadPoolExecutor(2) as clients:
                        began = time.monotonic()
                        running = clients.submit(server.ask, tokens(4, 100), generated)
                        time.sleep(self.args.wait / 10)
                        if how == "came then":
                            running.result()
                        asked = time.monotonic()
                        first, _, usage = clients.submit(server.ask, prompt, 1).result()
                        free = began + running.result()[1]
                    seconds.append(asked + first - free)
                    disk = usage["prompt_tokens_details"].get("disk_tokens", 0)
                    print(f"  {disk} restored for a request that {how}: first token "
                          f"{seconds[-1]:.3f} s after the slot was free, which was taken for "
                          f"{free - began:.1f} s", flush=True)
        for how, seconds in found.items():
            print(f"first token of a request that {how}: {statistics.median(seconds):.3f} s after "
                  f"the slot was free ({min(seconds):.3f} to {max(seconds):.3f})")

    def serve_clients(self, count, *flags):
        """Tokens a second of four clients whose prompts are all new, the processor's seconds for a
        token, and bytes written for each token generated and for each that was computed."""
        length, generated = 700, 32
        with Server(self.args, 4096, *flags) as server:
            server.ask(tokens(0, 200), 8)
            time.sleep(1)
            before = server.metric("braid:tier_written_bytes_total")
            prompts = [tokens(1000 + n, length) for n in range(count)]
            began, cpu = time.monotonic(), server.cpu_seconds()
            with ThreadPoolExecutor(4) as clients:
                list(clients.map(lambda prompt: server.ask(prompt, generated), prompts))
            seconds = time.monotonic() - began
            time.sleep(1.5)  # with a directory or without: what rests is written
            cpu = server.cpu_seconds() - cpu
            written = server.metric("braid:tier_written_bytes_total") - before
        computed = count * (length + generated)
        return (computed / seconds, cpu / computed, written / (count * generated),
                written / computed)

    def busy(self):
        share = 0.4 if self.args.only is None else 0.8
        seconds = self.left() * share / (2 * self.args.rounds + 1) - 6  # a start, pauses, a stop
        count = int(min(max(self.measure_rate() * seconds / 1000, 4), 40))
        ratios, cpu, wear = [], [], (0, 0)
        without = self.serve_clients(count)
        for _ in range(self.args.rounds):
            with_tier = self.serve_clients(count, *self.fresh())
            again = self.serve_clients(count)
            ratios.append(with_tier[0] / ((without[0] + again[0]) / 2))
            cpu.append(with_tier[1] / ((without[1] + again[1]) / 2))
            wear = with_tier[2:]
            print(f"  {count} prompts: {without[0]:.0f} and {again[0]:.0f} tokens/s without, "
                  f"{with_tier[0]:.0f} with a directory", flush=True)
            without = again
        print(f"busy server with / without: {statistics.median(ratios):.1%} of the tokens/s "
              f"({min(ratios):.1%} to {max(ratios):.1%}), {statistics.median(cpu):.1%} of the "
              f"processor's time for a token ({min(cpu):.1%} to {max(cpu):.1%})")
        print(f"written: {wear[0] / 1e3:.1f} kB for each token generated, {wear[1] / 1e3:.1f} kB "
              "for each computed")
        self.tell_written_twice()

    def tell_written_twice(self):
        parts, again = written_twice(self.directory)
        print(f"parts written: {parts}, of them written twice: {again}")

    def agentic(self):
        # A run has two: the first tells how much memory all conversations take.
        seconds = self.left() / 5
        each = self.measure_rate() * seconds * 0.6 / 6
        first = int(min(max(each - 500, 600), 1500))
        shape = ["--conversations", "6", "--turns", "6", "--first-tokens", str(first),
                 "--turn-tokens", "100", "--output-tokens", "16"]
        for flags in ((), self.fresh()):
            command = [self.args.braid, "bench", "agentic", self.args.model, "--cache-share",
                       "0.25", "--json", *shape, *shlex.split(self.args.flags), *flags]
            done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                  check=True, text=True)
            report = json.loads(done.stdout)
            print(f"four times the memory, {'with' if flags else 'without'} a directory: "
                  f"{report['reuse']:.1%} of {report['reusable_tokens']} reusable tokens reused",
                  flush=True)
        self.tell_written_twice()


def machine():
    text = pathlib.Path("/proc/cpuinfo").read_text()

    def first(name):
        found = re.search(rf"^{name}\s*: (.*)", text, re.MULTILINE)
        return found[1] if found else "?"

    wide = [flag for flag in ("amx_bf16", "avx512_bf16", "avx512f", "avx2")
            if flag in first("flags").split()]
    return (f"{first('model name')}, family {first('cpu family')} model {first('model')}, "
            f"{', '.join(wide)}; {os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("model", nargs="?")
    parser.add_argument("--braid", default=str(ROOT / "build/release/braid"))
    parser.add_argument("--tokens", type=int, default=20000)
    parser.add_argument("--dir", help="on the disk to measure (default: a temporary one)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--minutes", type=float, default=12, help="that the run may take, about")
    parser.add_argument("--flags", default="", help="further flags of the engine")
    parser.add_argument("--wait", type=float, default=3, help="seconds for which a slot is taken")
    parser.add_argument("--only", choices=["restored", "queued", "busy", "agentic"])
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=args.dir) as scratch:
        run = Measurement(args, scratch)
        print(machine(), flush=True)
        if args.model is None:
            args.model = str(pathlib.Path(scratch) / "mid")
            subprocess.run([args.braid, "make-model", args.model, "--shape",
                            "mid,num_hidden_layers=4,hidden_size=512"], check=True,
                           stdout=subprocess.DEVNULL)
        for part in (run.restored, run.queued, run.busy, run.agentic):
            if args.only in (None, part.__name__):
                part()
        print(f"{(time.monotonic() - run.began) / 60:.1f} minutes")


if __name__ == "__main__":
    main()
