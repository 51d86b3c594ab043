"""What the HTTP tests share: servers on the hash LM, and requests with the standard library only.

fake_server stands beside $BRAID_BIN, or is named by $BRAID_FAKE_SERVER.
"""

import contextlib
import http.client
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import threading
import time

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
START_SECONDS = 60


class FakeServer:
    """One process of fake_server; `log` grows with what it prints."""

    def __init__(self, **options):
        binary = os.environ.get("BRAID_FAKE_SERVER")
        if not binary:
            beside = os.environ.get("BRAID_BIN", str(ROOT / "build/release/braid"))
            binary = str(pathlib.Path(beside).parent / "fake_server")
        command = [binary, str(ROOT / "models/braid-tiny")]
        command += [f"{key}={value}" for key, value in options.items()]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                        text=True)
        self.log = []
        self.port = None
        started = threading.Event()
        threading.Thread(target=self._read, args=(started,), daemon=True).start()
        if not started.wait(START_SECONDS) or self.port is None:
            self.process.kill()
            pytest.fail(f"{' '.join(command)} did not start:\n{''.join(self.log)}")
        if "loading_ms" not in options:
            wait_for(lambda: self.get("/ready")[0] == 200)

    def _read(self, started):
        for line in self.process.stdout:
            self.log.append(line)
            match = re.search(r"listening on http://127\.0\.0\.1:(\d+)", line)
            if match:
                self.port = int(match[1])
                started.set()
        started.set()

    def connect(self, timeout=20):
        return socket.create_connection(("127.0.0.1", self.port), timeout=timeout)

    def request(self, method, path, body=None, headers=None, timeout=60):
        """(status, headers, body) of one request; a dict as the body is sent as JSON."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        headers = dict(headers or {})
        if isinstance(body, (dict, list)):
            body = json.dumps(body)
            headers.setdefault("Content-Type", "application/json")
        with contextlib.closing(connection):
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            return response.status, response.headers, response.read()

    def post(self, path, body, **more):
        status, _, data = self.request("POST", path, body, **more)
        return status, json.loads(data)

    def get(self, path):
        status, _, data = self.request("GET", path)
        return status, json.loads(data)

    def metric(self, name):
        """The sum of a metric over its labels."""
        text = self.request("GET", "/metrics")[2].decode()
        values = re.findall(rf"^braid:{name}(?:{{[^}}]*}})? (\S+)$", text, re.M)
        assert values, f"no metric {name} in\n{text}"
        return sum(map(float, values))

    def wait_idle(self, seconds=10):
        wait_for(lambda: self.metric("num_requests_running") + self.metric("num_requests_waiting")
                 == 0, seconds)

    def terminate(self):
        self.process.send_signal(signal.SIGTERM)

    def stop(self):
        if self.process.poll() is None:
            self.terminate()
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.process.kill()
                pytest.fail("fake_server did not stop within 20 s")
        assert self.process.returncode == 0, f"exit {self.process.returncode}\n{''.join(self.log)}"


def wait_for(condition, seconds=10):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"did not happen within {seconds} s"
        time.sleep(0.005)


@contextlib.contextmanager
def running(**options):
    server = FakeServer(**options)
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="session")
def server():
    """A server whose steps take no time."""
    with running() as instance:
        yield instance


@pytest.fixture(scope="session")
def slow_server():
    """A server whose steps take 20 ms, so that requests can be watched while they run."""
    with running(step_us=20000, drain_seconds=1) as instance:
        yield instance


@pytest.fixture
def start_server():
    """start_server(**options) for tests that need a server of their own."""
    with contextlib.ExitStack() as stack:
        yield lambda **options: stack.enter_context(running(**options))
