"""curl as HTTP/1.0 and 1.1, and HAProxy in front: keep-alive, no buffering, aborts pass through."""

import contextlib
import http.client
import json
import shutil
import socket
import subprocess
import time
import urllib.request

import pytest

STREAM = {"prompt": "Once", "max_tokens": 200, "ignore_eos": True, "stream": True}


def curl(*words):
    done = subprocess.run(["curl", "-sS", "--max-time", "60", *words], capture_output=True,
                          text=True, timeout=90)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("version", ["--http1.0", "--http1.1"])
def test_curl_gets_whole_answers_and_streams(base_url, version):
    assert json.loads(curl(version, f"{base_url}/v1/models"))["data"]
    body = json.dumps({**STREAM, "stream": False, "max_tokens": 3})
    head = ["-H", "Content-Type: application/json"]
    whole = json.loads(curl(version, *head, "-d", body, f"{base_url}/v1/completions"))
    assert whole["usage"]["completion_tokens"] == 3
    events = curl(version, "-N", *head, "-d", json.dumps(STREAM), f"{base_url}/v1/completions")
    assert events.endswith("data: [DONE]\n\n") and events.count("data: ") > 20


def test_curl_sends_a_large_body_with_expect_and_chunks(base_url, tmp_path):
    body = tmp_path / "body.json"
    body.write_text(json.dumps({"prompt": "word " * 400_000}))
    for more in (["-H", "Expect: 100-continue"], ["-H", "Transfer-Encoding: chunked"]):
        said = curl("-H", "Content-Type: application/json", *more, "--data-binary", f"@{body}",
                    f"{base_url}/tokenize")
        assert json.loads(said)["count"] >= 400_000, said[:200]


CONFIG = """
global
  maxconn 500
defaults
  mode http
  option http-keep-alive
  option http-no-delay
  timeout connect 5s
  timeout client 300s
  timeout server 300s
  timeout http-keep-alive 60s
frontend in
  bind 127.0.0.1:{port}
  default_backend braid
backend braid
  http-reuse always
  option httpchk GET /ready
  server one {server} check inter 500ms
"""


@pytest.fixture(scope="module")
def proxy(base_url, tmp_path_factory):
    if not shutil.which("haproxy"):
        pytest.fail("haproxy is missing: make test-clients installs it")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    path = tmp_path_factory.mktemp("proxy") / "haproxy.cfg"
    path.write_text(CONFIG.format(port=port, server=base_url.removeprefix("http://")))
    process = subprocess.Popen(["haproxy", "-db", "-f", path], stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL)
    end = time.monotonic() + 20
    while True:
        with contextlib.suppress(OSError):
            if urllib.request.urlopen(f"http://127.0.0.1:{port}/ready").status == 200:
                break
        assert time.monotonic() < end and process.poll() is None
        time.sleep(0.1)
    yield port
    process.terminate()
    process.wait(20)


def test_a_proxy_passes_streams_on_as_they_come(proxy, base_url):
    connection = http.client.HTTPConnection("127.0.0.1", proxy, timeout=60)
    body = {**STREAM, "max_tokens": 400, "draft_tokens": 0}  # no events of several tokens
    for _ in range(2):  # over one connection
        connection.request("POST", "/v1/completions", json.dumps(body),
                           {"Content-Type": "application/json"})
        response = connection.getresponse()
        assert response.headers["X-Accel-Buffering"] == "no"
        assert sum(line.startswith(b"data: ") for line in response) > 100


def test_events_pass_a_proxy_while_the_model_works_and_a_client_that_leaves_ends_it(proxy,
                                                                                   base_url):
    connection = http.client.HTTPConnection("127.0.0.1", proxy, timeout=60)
    connection.request("POST", "/v1/completions", json.dumps({**STREAM, "max_tokens": 8000}),
                       {"Content-Type": "application/json"})
    assert connection.getresponse().readline().startswith(b"data: ")

    def running():
        return json.load(urllib.request.urlopen(f"{base_url}/v1/running"))["data"]

    # A proxy that kept the events back would send the first when the last is there.
    assert running(), "the model had still to write most of the 8,000 tokens"
    connection.sock.close()
    connection.close()
    end = time.monotonic() + 30
    while running():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_errors_pass_a_proxy_as_they_are(proxy):
    connection = http.client.HTTPConnection("127.0.0.1", proxy, timeout=60)
    connection.request("POST", "/v1/completions", "{", {"Content-Type": "application/json"})
    response = connection.getresponse()
    assert response.status == 400 and json.load(response)["error"]["message"]
