"""What the router's tests share: a router, engines on the hash LM, and engines of a few lines that
do what real ones should not: break off, refuse, fall silent."""

import contextlib
import importlib.util
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import threading

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
_SPEC = importlib.util.spec_from_file_location("http_tests", ROOT / "tests/http/conftest.py")
http_tests = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(http_tests)
wait_for = http_tests.wait_for
START_SECONDS = 60


class Router(http_tests.FakeServer):
    """One process of `braid router`."""

    def __init__(self, engines, folder, *flags, ready=True, **config):
        self.file = folder / "router.json"
        self.write(engines, **config)
        binary = os.environ.get("BRAID_BIN", str(ROOT / "build/release/braid"))
        self.process = subprocess.Popen(
            [binary, "router", str(self.file), "--port", "0", *flags], stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True)
        self.log, self.port = [], None
        started = threading.Event()
        threading.Thread(target=self._read, args=(started,), daemon=True).start()
        if not started.wait(START_SECONDS) or self.port is None:
            self.process.kill()
            pytest.fail(f"the router did not start:\n{''.join(self.log)}")
        if ready:
            wait_for(lambda: all(e["state"] == "ready" for e in self.engines().values()), 30)

    def write(self, engines, **config):
        rows = [{"name": name, "url": f"http://127.0.0.1:{port}"} for name, port in engines.items()]
        config = {"probe_ms": 50, "lease_ms": 2000, **config}
        self.file.write_text(json.dumps({"engines": rows, **config}))

    def engines(self):
        return {row["name"]: row for row in self.get("/engines")[1]["data"]}

    def state(self, name):
        return self.engines()[name]["state"]

    def hang_up(self):
        self.process.send_signal(signal.SIGHUP)


@pytest.fixture
def start_router(tmp_path):
    """start_router(engines, *flags, **config): engines are ports by name."""
    with contextlib.ExitStack() as stack:
        def start(engines, *flags, **config):
            folder = tmp_path / str(len(list(tmp_path.iterdir())))
            folder.mkdir()
            router = Router(engines, folder, *flags, **config)
            stack.callback(router.stop)
            return router
        yield start


@pytest.fixture(scope="session")
def engine():
    """An engine whose steps take no time."""
    with http_tests.running() as instance:
        yield instance


@pytest.fixture
def start_engine():
    """start_engine(**options): one that the test may kill."""
    started = []

    def start(**options):
        started.append(http_tests.FakeServer(**options))
        return started[-1]
    yield start
    for one in started:
        if one.process.poll() is None:
            one.process.kill()
        one.process.wait(20)


class BadEngine:
    """Says that it is ready; what it does with a request is a function of the test's:
    behave(connection, head, body)."""

    def __init__(self, behave):
        self.behave, self.requests, self.questions = behave, [], []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self.listener.accept()
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection):
        data = b""
        with connection, contextlib.suppress(OSError):
            while True:
                while b"\r\n\r\n" not in data:
                    more = connection.recv(65536)
                    if not more:
                        return
                    data += more
                head, data = data.split(b"\r\n\r\n", 1)
                length = int((re.search(rb"(?i)content-length: (\d+)", head) or [0, 0])[1])
                while len(data) < length:
                    data += connection.recv(65536)
                body, data = data[:length], data[length:]
                if head.startswith((b"GET /ready", b"GET /v1/loads", b"GET /metrics")):
                    self.questions.append(head.decode())
                    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
                    continue
                self.requests.append((head.decode(), body))
                if not self.behave(connection, head, body):
                    return

    def close(self):
        self.listener.close()


@pytest.fixture
def bad_engine():
    started = []

    def start(behave):
        started.append(BadEngine(behave))
        return started[-1]
    yield start
    for one in started:
        one.close()
