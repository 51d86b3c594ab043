"""The process stays within --memory and --server-memory during a storm, refuses what does not fit,
and returns the memory afterwards."""

import concurrent.futures
import contextlib
import http.client
import json
import os
import pathlib
import re
import socket
import subprocess
import sys
import time

import pytest
from conftest import wait_for

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from serving import ROOT, serving  # noqa: E402

MIB = 1 << 20
SANITIZED = os.environ.get("BRAID_PRESET", "release") != "release"
BODY = 3_900_000


class Measured:
    """A server with what the process takes."""

    def __init__(self, served):
        self.port, self.pid, self.log = served.port, served.process.pid, served.log

    def memory(self, field):
        with open(f"/proc/{self.pid}/status", encoding="ascii") as status:
            return int(next(line for line in status if line.startswith(field)).split()[1]) / 1024

    def post(self, path, body):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=300)
        with contextlib.closing(connection):
            connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
            response = connection.getresponse()
            response.read()
            return response.status, response.headers

    def metric(self, name, label=""):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        with contextlib.closing(connection):
            connection.request("GET", "/metrics")
            text = connection.getresponse().read().decode()
        return float(re.search(rf"^braid:{name}{{.*{label}.*}} (\S+)$", text, re.M)[1])

    def half_body(self):
        connection = socket.create_connection(("127.0.0.1", self.port), timeout=10)
        connection.sendall(b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\n"
                           b"Content-Length: %d\r\n\r\n" % BODY)
        with contextlib.suppress(OSError):  # a refused one is closed
            connection.sendall(b"x" * (BODY // 2))
        return connection


@pytest.fixture(scope="module")
def server():
    with serving("--memory", "200M", "--server-memory", "400M") as served:
        yield Measured(served)


def process_limit(server):
    return server.metric("server_memory_bytes", 'kind="process_limit"') / MIB


def test_the_plan_says_what_all_takes(server):
    limit = process_limit(server)
    assert 400 < limit <= 600
    plan = next(line for line in server.log if "server 400 MiB beside that" in line)
    assert float(re.search(r"that, (\S+) MiB in all", plan)[1]) == pytest.approx(limit, abs=1)


def test_pages_beside_the_cache_count_too(server):
    with serving("--memory", "200M", "--server-memory", "400M", "--cache-host", "64M") as served:
        more = process_limit(Measured(served)) - process_limit(server)
        assert more == pytest.approx(64, abs=4)


def test_ranks_that_are_threads_count_too():
    with serving("--memory", "300M", "--server-memory", "400M", "--tp", "2", "--threads",
                 "2") as served:
        text = "".join(served.log)
        parts = re.search(r"weights ([\d.]+) MiB.*workspace ([\d.]+) MiB, cache ([\d.]+) MiB", text)
        of_each = sum(float(part) for part in parts.groups())
        assert process_limit(Measured(served)) == pytest.approx(400 + 2 * of_each, abs=4)


@pytest.mark.skipif(SANITIZED, reason="a sanitizer's memory is not the server's")
def test_storms_stay_within_the_memory_and_give_it_back(server):
    for _ in range(2):  # what the first request of each kind makes is there afterwards
        assert server.post("/tokenize", {"prompt": "the quick brown fox " * 50_000})[0] == 200
    with concurrent.futures.ThreadPoolExecutor(50) as pool:  # and the cache's pages, all of them,
        full = [pool.submit(server.post, "/v1/completions", {"prompt": f"{i} " * 30,  # and large
                                                             "max_tokens": 4})  # steps' workspace
                for i in range(300)]
        assert {future.result()[0] for future in full} == {200}
    time.sleep(2)
    idle = server.memory("VmRSS")
    held = [server.half_body() for _ in range(200)]
    wait_for(lambda: server.metric("requests_shed_total") > 100)
    assert server.metric("server_memory_bytes", 'kind="used"') > 28 * MIB
    status, headers = server.post("/tokenize", {"prompt": "a" * BODY})
    assert status == 503 and headers["Retry-After"]
    assert server.post("/tokenize", {"prompt": "a"})[0] == 200
    for connection in held:
        connection.close()
    wait_for(lambda: server.metric("server_memory_bytes", 'kind="used"') == 0)
    texts = ["a quick brown fox jumps. " * (BODY // 25), "a" * (BODY // 4),
             "1 2-3 " * (BODY // 6)]
    with concurrent.futures.ThreadPoolExecutor(50) as pool:
        long = [pool.submit(server.post, "/tokenize", {"prompt": text}) for text in texts]
        flood = [pool.submit(server.post, "/v1/completions", {"prompt": f"{i} " * 20,
                                                              "max_tokens": 4}) for i in range(300)]
        statuses = {future.result()[0] for future in long + flood}
    assert statuses <= {200, 503}
    limit = server.metric("server_memory_bytes", 'kind="process_limit"') / MIB
    assert server.memory("VmHWM") <= limit
    wait_for(lambda: server.memory("VmRSS") <= 1.1 * idle)
    assert server.metric("server_memory_bytes", 'kind="used"') == 0


def heaps(pid):
    """How many heaps the process has beside the first: 64 MiB each, most of them only reserved."""
    text = pathlib.Path(f"/proc/{pid}/maps").read_text(encoding="ascii")
    maps = [(int(begin, 16), int(end, 16), access) for begin, end, access
            in re.findall(r"^(\w+)-(\w+) (\S+) \S+ \S+ 0 *$", text, re.M)]
    return sum(used[:2] == (begin, rest[0]) and rest[1] == begin + 64 * MIB
               and (used[2], rest[2]) == ("rw-p", "---p")
               for used, rest in zip(maps, maps[1:])
               for begin in [used[0] // (64 * MIB) * 64 * MIB])


# A thread waits while the allocator trims a heap that it shares, up to half a second.
@pytest.mark.skipif(SANITIZED, reason="a sanitizer has an allocator of its own")
def test_threads_have_heaps_of_their_own(server):
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        for text in ("small", "large " * 50_000):
            list(pool.map(lambda _: server.post("/tokenize", {"prompt": text}), range(8)))
    names = {path.read_text() for path in pathlib.Path(f"/proc/{server.pid}/task").glob("*/comm")}
    assert heaps(server.pid) >= len(names) - 1, names  # the main thread has the first heap


def test_less_memory_than_one_request_needs_is_refused():
    binary = os.environ.get("BRAID_BIN", str(ROOT / "build/release/braid"))
    done = subprocess.run([binary, "serve", "models/braid-tiny", "--port", "0", "--memory", "200M",
                           "--server-memory", "100M"], cwd=ROOT, capture_output=True, text=True,
                          timeout=120, check=False)
    assert done.returncode == 1 and "--server-memory" in done.stderr
