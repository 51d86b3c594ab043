"""Schemathesis against /openapi.json: whatever comes, no 5xx but 503, no crash, no leak.

SCHEMATHESIS_REQUESTS says how many requests at least (300); the schema has some 35 operations.
"""

import contextlib
import json
import math
import os
import pathlib
import re
import subprocess
import sys
import threading
import urllib.request

FOLDER = pathlib.Path(__file__).parent
REQUESTS = int(os.environ.get("SCHEMATHESIS_REQUESTS", "300"))
GROWTH_KIB_MAX = 64 * 1024


def resident_kib(pid):
    return int(re.search(r"VmRSS:\s+(\d+)", pathlib.Path(f"/proc/{pid}/status").read_text())[1])


def post(address, path, body=None):
    request = urllib.request.Request(address + path, json.dumps(body or {}).encode(),
                                     {"Content-Type": "application/json"}, method="POST")
    with urllib.request.urlopen(request, timeout=60) as response:
        return json.load(response)


@contextlib.contextmanager
def resumed(address):
    """Whatever pauses the server is undone at once, so that every operation can be asked."""
    done = threading.Event()

    def resume():
        while not done.wait(0.05):
            post(address, "/resume")

    thread = threading.Thread(target=resume)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def fuzz(address, examples, report, seed):
    """Asks every operation; returns how many requests there were and the report of a failure.

    One worker: threads that compile at once trip over a mistake of Python 3.11 (gh-106905).
    """
    command = [pathlib.Path(sys.executable).with_name("schemathesis"), "--config-file",
               FOLDER / "schemathesis.toml", "run", f"{address}/openapi.json",
               "--phases", "fuzzing", "--checks", "not_a_server_error", "--no-shrink",
               "--max-examples", str(examples), "--seed", str(seed), "--workers", "1",
               "--request-timeout", "60", "--continue-on-failure", "--no-color",
               "--suppress-health-check", "all", "--generation-database", "none",
               "--report-ndjson-path", report]
    done = subprocess.run(command, capture_output=True, text=True, cwd=report.parent)
    said = done.stdout + done.stderr
    generated = re.search(r"(\d+) generated", said)
    assert generated, said
    return int(generated[1]), None if done.returncode == 0 else said


def test_whatever_the_schema_allows_and_forbids_is_answered(serve, tmp_path):
    with serve("--request-seconds", "1", "--log-level", "error") as served:
        with urllib.request.urlopen(f"{served.address}/openapi.json") as response:
            operations = sum(len(methods) for methods in json.load(response)["paths"].values())
        asked, sizes = 0, []
        while asked < REQUESTS:
            examples = math.ceil(min(REQUESTS - asked, 2500) / operations)
            with resumed(served.address):
                count, failure = fuzz(served.address, examples, tmp_path / "events.ndjson",
                                      seed=asked + 1)
            assert failure is None, failure
            assert served.process.poll() is None
            asked += count
            sizes.append(resident_kib(served.process.pid))
        print(f"{asked} requests of {operations} operations; resident KiB {sizes}")
        assert sizes[-1] - sizes[0] < GROWTH_KIB_MAX, sizes
        with urllib.request.urlopen(f"{served.address}/metrics") as response:
            metrics = response.read().decode()
        for name in ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc"):
            values = re.findall(rf"^braid:{name}(?:{{[^}}]*}})? (\S+)$", metrics, re.M)
            assert values and sum(map(float, values)) == 0, name
        said = post(served.address, "/v1/completions", {"prompt": "Once", "max_tokens": 3})
        assert said["usage"]["completion_tokens"] > 0
