"""`braid bench long-prompt` against servers that let a long prompt stall the rest, or do not."""

import http.server
import json
import threading
import time

import pytest

TOKEN_SECONDS = 0.01
READ_SECONDS = 0.4


class Server(http.server.BaseHTTPRequestHandler):
    """A token each 10 ms; a prompt of 1000 tokens takes 0.4 s and holds the others up, or not."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        free = self.server.free
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        if len(body["prompt"]) >= 1000:
            if self.server.stalls:
                free.clear()
            time.sleep(READ_SECONDS)
            free.set()
        for _ in range(body["max_tokens"]):
            free.wait()
            time.sleep(TOKEN_SECONDS)
            self.chunk(json.dumps({"choices": [{"text": "a"}]}))
        self.chunk("[DONE]")
        self.wfile.write(b"0\r\n\r\n")

    def chunk(self, text):
        data = f"data: {text}\n\n".encode()
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()


@pytest.fixture
def measure(braid):
    servers = []

    def run(stalls, *flags):
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server)
        servers.append(server)
        server.stalls, server.free = stalls, threading.Event()
        server.free.set()
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return braid("bench", "long-prompt", "--base-url", f"http://127.0.0.1:{server.server_port}",
                     "--model", "m", "--long-tokens", 1000, "--streams", 3, *flags)

    yield run
    for server in servers:
        server.shutdown()


def test_a_prompt_that_stalls_the_others_is_seen(measure):
    ratios = {}
    for stalls in (False, True):
        done = measure(stalls, "--output-tokens", 120, "--json")
        assert done.returncode == 0, done.stderr
        found = json.loads(done.stdout)
        assert found["streams_outlived"]
        assert found["long_ttft_ms"] >= READ_SECONDS * 1000
        assert found["without"]["gaps"] > found["beside"]["gaps"] > 0
        assert found["without"]["median_itl_ms"] >= TOKEN_SECONDS * 1000 * 0.9
        ratios[stalls] = found["p99_itl_ratio"]
        if stalls:
            assert found["beside"]["max_itl_ms"] > READ_SECONDS * 1000 * 0.8
    assert ratios[True] > 2 * ratios[False]


def test_streams_that_end_too_early_are_said(measure):
    done = measure(False, "--output-tokens", 12)
    assert done.returncode == 0, done.stderr
    assert "give more --output-tokens" in done.stdout


def test_a_server_that_fails_is_named(braid):
    done = braid("bench", "long-prompt", "--base-url", "http://127.0.0.1:9/v1", "--model", "m")
    assert done.returncode == 1 and done.stderr
