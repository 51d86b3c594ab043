#!/usr/bin/env python3
"""Compares `braid simulate cluster` with engines that serve the same requests.

    bench/simulate_vs_real.py [--braid build/release/braid] [--model DIR] [--seconds 60]
        [--busy 0.5] [--rounds 1] [--json FILE]

Two fleets of two engines with a thread each: both behind `braid router`, and one that computes
prompts for the other. Requests come at random (Poisson), as many as keep the simulated engines of a
fleet, or the one that computes its prompts, busy for the part --busy of the time, with prompts and
answers of random lengths. The engines and the simulation get the same ones, from one trace. The
simulation's steps last as `braid bench ops` measures the model's parts, on one core while the other
is idle and on both, and pages go as fast as `braid bench handoff` measures. What servers, router
and client add to a step and to each of its tokens is what answers that all grow at once take longer
than planned: of one engine that serves alone, and of two, before and after each fleet. Prints
throughput and latencies of both and their ratio. Each round measures the parts again; medians of
all rounds count. Without --model it makes a small one. On a busy machine give it priority, but no
real-time class, whose threads wait for each other's time slices. The longer engines are busy, the
more waiting multiplies an error of steps. A percentile at which gaps become as long as a prompt
differs more than others: a few requests more or fewer that met a prompt decide it.
"""

import argparse
import asyncio
import atexit
import json
import pathlib
import random
import re
import statistics
import subprocess
import tempfile
import threading
import time

from plan_vs_measured import MODELS, Bench
from streams import token_times

PROMPT_TOKENS, ANSWER_TOKENS = (64, 512), (16, 96)
STEADY_STREAMS, STEADY_TOKENS = (1, 8), 192  # of each engine; of an answer
CONTEXT = 1024
FLEETS = {"router": False, "prefill, decode": True}  # whether pages are handed over
RATIOS = ("output tokens/s", "first token p50", "first token p99", "token p50", "token p99",
          "request p50", "request p99")  # fmt: skip


def percentile(values, share):
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def start(command):
    """A server, which ends with this program at the latest, and its port."""
    process = subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE, text=True,
                               stderr=subprocess.DEVNULL)  # fmt: skip
    atexit.register(process.terminate)
    for line in process.stdout:
        if match := re.search(r"listening on http://\S+:(\d+)", line):
            threading.Thread(target=process.stdout.read, daemon=True).start()
            return process, int(match[1])
    raise SystemExit(f"{' '.join(map(str, command))} did not start")


async def ask(port, number, planned, vocabulary, results):
    at, prompt_tokens, answer_tokens = planned
    draw = random.Random(number)
    prompt = [draw.randrange(1, vocabulary) for _ in range(prompt_tokens)]
    await asyncio.sleep(at - time.monotonic())
    begin = time.monotonic()
    times = [at async for at in token_times(port, prompt=prompt, max_tokens=answer_tokens,
                                            temperature=0)]  # fmt: skip
    if len(times) != answer_tokens:
        raise SystemExit(f"{len(times)} tokens came of {answer_tokens}")
    results.append((begin, times))


async def send(port, requests, vocabulary):
    begin = time.monotonic() + 1
    results = []
    await asyncio.gather(*(ask(port, i, (begin + at, *lengths), vocabulary, results)
                           for i, (at, *lengths) in enumerate(requests)))  # fmt: skip
    gaps = [b - a for _, times in results for a, b in zip(times, times[1:])]
    first = [times[0] - asked for asked, times in results]
    whole = [times[-1] - asked for asked, times in results]
    seconds = max(times[-1] for _, times in results) - begin
    tokens = sum(lengths[1] for _, *lengths in requests)
    figures = [tokens / seconds]
    for values in (first, gaps, whole):
        figures += [percentile(values, 0.5), percentile(values, 0.99)]
    return dict(zip(RATIOS, figures))


def wait_ready(port):
    end = time.monotonic() + 60
    while time.monotonic() < end:
        try:
            text = asyncio.run(get(port, "/ready"))
        except OSError:
            text = b""
        if text.startswith(b"HTTP/1.1 200"):
            return
        time.sleep(0.1)
    raise SystemExit(f"the server at port {port} was not ready within 60 s")


async def get(port, path):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
    text = await reader.read()
    writer.close()
    return text


def serve(options, folder, model, handoff=False, engines=2):
    """Starts a fleet; returns its processes and the port that clients use."""
    flags = ["--port", 0, "--threads", 1, "--memory", "1G", "--draft", "off", "--isa", options.isa,
             "--max-model-len", CONTEXT]  # fmt: skip
    command = [options.braid, "serve", model, *flags]
    if handoff:
        port = 20000 + random.randrange(20000)
        prefill = start([*command, "--role", "prefill", "--handoff-listen", f"127.0.0.1:{port}"])
        decode = start([*command, "--role", "decode", "--prefill", f"127.0.0.1:{port}"])
        for _, ready in (prefill, decode):
            wait_ready(ready)
        time.sleep(2)
        return [prefill[0], decode[0]], decode[1]
    engines = [start(command) for _ in range(engines)]
    config = folder / "engines.json"
    config.write_text(json.dumps({"policy": "round_robin", "probe_ms": 200, "engines": [
        {"name": str(i), "url": f"http://127.0.0.1:{port}"} for i, (_, port) in enumerate(engines)
    ]}))  # fmt: skip
    for _, port in engines:
        wait_ready(port)
    router = start([options.braid, "router", config, "--port", 0])
    wait_ready(router[1])
    return [router[0], *(process for process, _ in engines)], router[1]


async def steady_gap(port, streams, vocabulary):
    """The median time between tokens of answers that all grow at once."""
    results = []
    await asyncio.gather(*(ask(port, i, (time.monotonic(), PROMPT_TOKENS[0], STEADY_TOKENS),
                               vocabulary, results) for i in range(streams)))  # fmt: skip
    begin = max(times[0] for _, times in results)
    end = min(times[-1] for _, times in results)
    return statistics.median(b - a for _, times in results for a, b in zip(times, times[1:])
                             if begin < a and b < end)  # fmt: skip


def steady_gaps(options, folder, model, vocabulary, engines):
    """That of as many answers an engine as STEADY_STREAMS says."""
    processes, port = serve(options, folder, model, engines=engines)
    try:
        return [asyncio.run(steady_gap(port, engines * streams, vocabulary))
                for streams in STEADY_STREAMS]  # fmt: skip
    finally:
        for process in processes:
            process.kill()
            process.wait()


def network_rate(bench):
    """Bytes per second of the hand-over."""
    found = bench.measure("bench", "handoff", "--repeat", 3, "--mib", 128, "--part-kib", 64)
    return found["bytes_per_second"]


def add_hardware(lines, **numbers):
    """Puts numbers into the device of a calibration."""
    first, rest = lines.read_text().split("\n", 1)
    line = json.loads(first)
    for key, value in numbers.items():
        line["hardware"]["numbers"][key] = {"value": value, "source": "bench/simulate_vs_real.py"}
    lines.write_text(json.dumps(line) + "\n" + rest)


def add_host(bench, lines, model, gaps):
    """Adds to the device what served tokens took longer than its calibration plans."""
    planned = []
    add_hardware(lines, host_seconds=1e-9, host_sequence_seconds=1e-9)
    for streams in STEADY_STREAMS:
        found = json.loads(bench.run("plan", model, "--calibration", lines, "--workload",
                                     f"in={PROMPT_TOKENS[0]},out={STEADY_TOKENS},"
                                     f"concurrency={streams}", "--json"))  # fmt: skip
        planned.append(found["without_overlap"]["inter_token_seconds"])
    one, many = (max(0, gap - plan) for gap, plan in zip(gaps, planned))
    each = max(1e-9, (many - one) / (STEADY_STREAMS[1] - STEADY_STREAMS[0]))
    step = max(1e-9, one - each * STEADY_STREAMS[0])
    add_hardware(lines, host_seconds=step, host_sequence_seconds=each)
    for streams, gap, plan in zip(STEADY_STREAMS, gaps, planned):
        print(f"{streams} answers an engine: {gap * 1e3:.2f} ms a token, planned {plan * 1e3:.2f}")
    print(f"so the host takes {step * 1e6:.0f} us a step and {each * 1e6:.0f} us a sequence",
          flush=True)  # fmt: skip


def requests_of(options, rate):
    """Arrival, prompt and answer: `rate` requests a second on average."""
    draw = random.Random(options.seed)
    requests, at = [], 0.0
    while True:
        at += draw.expovariate(rate)
        if at > options.seconds:
            return requests
        requests.append((at, draw.randint(*PROMPT_TOKENS), draw.randint(*ANSWER_TOKENS)))


def requests_that_keep_busy(options, simulate_these, handoff):
    """As many requests as keep the engines of a simulation busy for options.busy."""
    rate, requests = 2.0, []
    for _ in range(8):
        requests = requests_of(options, rate)
        _, busy = simulate_these(requests, handoff)
        if abs(busy / options.busy - 1) < 0.03:
            break
        rate *= options.busy / busy
    return requests


def simulate(bench, folder, model, calibrations, requests, handoff):
    trace = folder / "trace.csv"
    rows = []
    for at, prompt, answer in requests:
        stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(1_700_000_000 + int(at)))
        rows.append(f"{stamp}.{int(at % 1 * 1e7):07d},{prompt},{answer}\n")
    trace.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n" + "".join(rows))
    words = ["simulate", "cluster", model, "--engines", 2, "--calibration", calibrations[0],
             "--machine-engines", 2, "--calibration-shared", calibrations[1],
             "--trace-file", trace, "--minutes", 100, "--no-overlap",
             "--max-num-seqs", 64, "--max-batch-tokens", 2048, "--decode-latency-ms", 12, "--json",
             "--route", "round-robin"]  # fmt: skip
    (run,) = json.loads(bench.run(*words, *(["--prefill-engines", 1] if handoff else [])))["runs"]
    figures = [run["output_tokens_per_second"]]
    for key in ("first_token_seconds", "inter_token_seconds", "request_seconds"):
        figures += [run[key]["p50"], run[key]["p99"]]
    return dict(zip(RATIOS, figures)), max(run["busy"], run["prefill_busy"])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--braid", default="build/release/braid")
    parser.add_argument("--model")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--busy", type=float, default=0.5)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--isa", default="auto")
    parser.add_argument("--json", help="write the figures to this file")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        bench = Bench(options.braid, "", folder)
        model = pathlib.Path(options.model) if options.model else bench.model("attention")
        calibrations = folder / "alone.jsonl", folder / "shared.jsonl"  # one engine computes, two
        vocabulary = json.loads((model / "config.json").read_text())["vocab_size"]
        requests, gaps, measured = {}, ([], []), {name: [] for name in FLEETS}

        def simulate_these(requests, handoff):
            return simulate(bench, folder, model, calibrations, requests, handoff)

        def add_hosts():
            for lines, runs in zip(calibrations, gaps):
                add_host(bench, lines, model, [statistics.median(gap) for gap in zip(*runs)])

        def measure_gaps():
            for engines, runs in enumerate(gaps, 1):
                runs.append(steady_gaps(options, folder, model, vocabulary, engines))

        for _ in range(options.rounds):
            bench.calibrate(calibrations[0], model, "bf16", threads=1)
            bench.calibrate(calibrations[1], model, "bf16", both_cores=True)
            measure_gaps()
            if not requests:
                rate = network_rate(bench)
                for lines in calibrations:
                    add_hardware(lines, memory_bytes=2e9, network_bytes_per_second=rate)
                add_hosts()
                for name, handoff in FLEETS.items():
                    requests[name] = requests_that_keep_busy(options, simulate_these, handoff)
            for name, handoff in FLEETS.items():
                processes, port = serve(options, folder, model, handoff)
                try:
                    measured[name].append(asyncio.run(send(port, requests[name], vocabulary)))
                finally:
                    for process in processes:
                        process.kill()
                        process.wait()
                measure_gaps()
        add_hosts()
        found = {}
        for name, handoff in FLEETS.items():
            real = {key: statistics.median(run[key] for run in measured[name]) for key in RATIOS}
            simulated, busy = simulate_these(requests[name], handoff)
            found[name] = {"real": real, "simulated": simulated, "rounds": measured[name]}
            print(f"{name}: {len(requests[name])} requests in {options.seconds:g} s, busy for "
                  f"{busy:.0%} in the simulation\n{'':18}{'real':>12}{'simulated':>12}{'ratio':>8}")
            for key in RATIOS:
                scale, unit = (1, "/s") if key.endswith("/s") else (1e3, "ms")
                print(f"{key:18}{real[key] * scale:>9.1f} {unit}{simulated[key] * scale:>9.1f} "
                      f"{unit}{simulated[key] / real[key]:>8.2f}")
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(found))


if __name__ == "__main__":
    main()
