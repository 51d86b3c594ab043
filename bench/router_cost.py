#!/usr/bin/env python3
"""What `braid router` adds: time to the first token, and CPU time for each streamed token.

    bench/router_cost.py [--requests N] [--streams N] [--tokens N] [--json]

One engine on the hash LM (tests/http/fake_server.cc), so that its own time is small and the same.
Requests go to it and through the router in turns, so both see the same machine. CPU time is that of
the router's process, divided by the tokens that its clients received, by the usage at the end.
"""
import argparse
import http.client
import json
import os
import pathlib
import re
import signal
import subprocess
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent


def start(command):
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True,
                               stderr=subprocess.DEVNULL)
    for line in process.stdout:
        if match := re.search(r"listening on http://\S+:(\d+)", line):
            threading.Thread(target=process.stdout.read, daemon=True).start()
            return process, int(match[1])
    raise SystemExit(f"{' '.join(command)} did not start")


def wait_ready(port):
    while True:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        connection.request("GET", "/ready")
        if connection.getresponse().status == 200:
            return
        time.sleep(0.05)


def first_event_us(connection, number):
    body = {"prompt": f"{number} Once upon a time", "max_tokens": 1, "stream": True}
    begin = time.perf_counter_ns()
    connection.request("POST", "/v1/completions", json.dumps(body),
                       {"Content-Type": "application/json"})
    response = connection.getresponse()
    line = response.readline()
    took = time.perf_counter_ns() - begin
    assert line.startswith(b"data:"), line
    response.read()
    return took / 1000


def stream(port, tokens, counts):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    body = {"prompt": [5, 6, 7], "max_tokens": tokens, "ignore_eos": True, "stream": True,
            "stream_options": {"include_usage": True}}
    connection.request("POST", "/v1/completions", json.dumps(body),
                       {"Content-Type": "application/json"})
    text = connection.getresponse().read().decode()
    counts += map(int, re.findall(r'"completion_tokens":(\d+)', text))
    connection.close()


def cpu_seconds(process):
    fields = pathlib.Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def percentile(values, share):
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def cpu_name():
    match = re.search(r"model name\s*: (.*)", pathlib.Path("/proc/cpuinfo").read_text())
    return match[1] if match else "unknown"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--streams", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=2000)
    parser.add_argument("--step-us", type=int, default=5000)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    build = pathlib.Path(os.environ.get("BRAID_BIN", ROOT / "build/release/braid")).parent
    model = str(ROOT / "models/braid-tiny")
    quick, quick_port = start([str(build / "fake_server"), model])
    paced, paced_port = start([str(build / "fake_server"), model,
                               f"step_us={arguments.step_us}"])
    processes = [quick, paced]
    try:
        with tempfile.TemporaryDirectory() as folder:
            routers = []
            for port in (quick_port, paced_port):
                wait_ready(port)
                file = pathlib.Path(folder) / f"{port}.json"
                file.write_text(json.dumps(
                    {"engines": [{"name": "a", "url": f"http://127.0.0.1:{port}"}]}))
                routers.append(start([str(build / "braid"), "router", str(file), "--port", "0"]))
                processes.append(routers[-1][0])
                wait_ready(routers[-1][1])
        direct = http.client.HTTPConnection("127.0.0.1", quick_port, timeout=60)
        through = http.client.HTTPConnection("127.0.0.1", routers[0][1], timeout=60)
        times = ([], [])
        for number in range(arguments.requests + 50):
            pair = [first_event_us(connection, number) for connection in (direct, through)]
            if number >= 50:
                times[0].append(pair[0])
                times[1].append(pair[1])
        process, port = routers[1]
        counts = []
        threads = [threading.Thread(target=stream, args=(port, arguments.tokens, counts))
                   for _ in range(arguments.streams)]
        before = cpu_seconds(process)
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if counts != [arguments.tokens] * arguments.streams:
            raise SystemExit(f"streams of {arguments.tokens} tokens brought {counts}")
        streamed = sum(counts)
        figures = {
            "cpu": cpu_name(),
            "direct_us": [round(percentile(times[0], share)) for share in (0.5, 0.99)],
            "router_us": [round(percentile(times[1], share)) for share in (0.5, 0.99)],
            "added_us": [round(percentile(times[1], share) - percentile(times[0], share))
                         for share in (0.5, 0.99)],
            "tokens": streamed,
            "router_cpu_us_per_token": round((cpu_seconds(process) - before) / streamed * 1e6, 1)}
    finally:
        for process in processes:
            process.send_signal(signal.SIGKILL)
    if arguments.json:
        print(json.dumps(figures))
        return
    print(f"{figures['cpu']}; {arguments.requests} requests, p50 and p99 in microseconds:")
    for name in ("direct_us", "router_us", "added_us"):
        print(f"  first token, {name[:-3]:7} {figures[name][0]:7} {figures[name][1]:7}")
    print(f"  CPU of the router for each of {streamed} streamed tokens: "
          f"{figures['router_cpu_us_per_token']} us")


if __name__ == "__main__":
    main()
