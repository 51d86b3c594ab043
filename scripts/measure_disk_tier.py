#!/usr/bin/env python3
"""What the disk tier is worth on this machine, as a table: the first token of a restored
conversation against computing it, the speed of reading against the disk's own, a busy server with
and without a directory, and conversations of four times the memory.

    scripts/measure_disk_tier.py MODEL [--braid build/release/braid] [--tokens 20000]
        [--dir DIR] [--rounds 3] [--flags "--kv-dtype bf16"]

Everything that is compared alternates within one run."""
import argparse
import http.client
import json
import os
import pathlib
import random
import re
import shlex
import shutil
import signal
import statistics
import subprocess
import tempfile
import threading
import time

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


def read_all(directory):
    """Bytes a second of reading the files one after the other, with a queue of one."""
    began, size = time.monotonic(), 0
    for path in directory.rglob("*.pages"):
        with open(path, "rb", buffering=0) as file:
            while part := file.read(1 << 20):
                size += len(part)
    return size / (time.monotonic() - began)


def restored(args, directory):
    ratios, speeds = [], []
    for turn in range(args.rounds):
        shutil.rmtree(directory, ignore_errors=True)
        prompt = tokens(turn, args.tokens)
        with Server(args, args.tokens + 64, "--cache-dir", str(directory)) as server:
            computed = server.ask(prompt, 1)[0]
            server.settle()
        forget(directory)
        raw = read_all(directory)
        forget(directory)
        with Server(args, args.tokens + 64, "--cache-dir", str(directory)) as server:
            first, _, usage = server.ask(prompt, 1)
            read = server.metric("braid:tier_read_bytes_total")
            wait = server.metric("braid:tier_wait_seconds_total")
        disk = usage["prompt_tokens_details"].get("disk_tokens", 0)
        print(f"  {args.tokens} tokens computed: first after {computed:.3f} s; {disk} restored: "
              f"{first:.3f} s, {read / 1e6:.1f} MB in {wait:.3f} s ({read / wait / 1e6:.0f} MB/s, "
              f"the files one after the other {raw / 1e6:.0f} MB/s)")
        ratios.append(first / computed)
        speeds.append(read / wait / raw)
    print(f"first token restored / computed: {statistics.median(ratios):.1%}")
    print(f"reading pages / reading files: {statistics.median(speeds):.0%}")


def busy(args, directory):
    """Tokens a second of four clients whose prompts are all new; and the processor's time for a
    token, which other programs disturb less."""
    def run(*flags):
        with Server(args, 2048, *flags) as server:
            server.ask(tokens(0, 600), 8)
            made = [0] * 4

            def client(number):
                for i in range(6):
                    server.ask(tokens(1000 * number + i, 700), 48)
                    made[number] += 748

            threads = [threading.Thread(target=client, args=(n,)) for n in range(4)]
            began, cpu = time.monotonic(), server.cpu_seconds()
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            seconds = time.monotonic() - began
            cpu = server.cpu_seconds() - cpu
            written = server.metric("braid:tier_written_bytes_total")
        return sum(made) / seconds, cpu / sum(made), written / sum(made)

    ratios, cpu, wear = [], [], 0
    for _ in range(args.rounds):
        shutil.rmtree(directory, ignore_errors=True)
        without, spent, _ = run()
        with_tier, spent_with, wear = run("--cache-dir", str(directory))
        again, spent_again, _ = run()
        ratios.append(with_tier / ((without + again) / 2))
        cpu.append(spent_with / ((spent + spent_again) / 2))
        print(f"  {without:.0f} and {again:.0f} tokens/s without, {with_tier:.0f} with a directory")
    print(f"busy server with / without: {statistics.median(ratios):.1%} of the tokens/s, "
          f"{statistics.median(cpu):.1%} of the processor's time for a token; "
          f"{wear / 1e3:.1f} kB written for each token computed")


def agentic(args, directory):
    for flags in ([], ["--cache-dir", str(directory)]):
        shutil.rmtree(directory, ignore_errors=True)
        command = [args.braid, "bench", "agentic", args.model, "--cache-share", "0.25", "--json",
                   *shlex.split(args.flags), *flags]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                              check=True, text=True)
        report = json.loads(done.stdout)
        print(f"four times the memory, {'with' if flags else 'without'} a directory: "
              f"{report['reuse']:.1%} of {report['reusable_tokens']} reusable tokens reused")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("model")
    parser.add_argument("--braid", default=str(ROOT / "build/release/braid"))
    parser.add_argument("--tokens", type=int, default=20000)
    parser.add_argument("--dir", help="on the disk to measure (default: a temporary one)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--flags", default="", help="further flags of the engine")
    parser.add_argument("--only", choices=["restored", "busy", "agentic"])
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=args.dir) as scratch:
        directory = pathlib.Path(scratch) / "pages"
        for part in (restored, busy, agentic):
            if args.only in (None, part.__name__):
                part(args, directory)


if __name__ == "__main__":
    main()
