"""Limits of time and of what waits: the queue, idle connections, requests of one connection."""

import contextlib
import json
import threading
import time

from conftest import wait_for

TEXT = {"prompt": "a", "max_tokens": 2, "ignore_eos": True}
LONG = {"prompt": "a", "max_tokens": 400, "ignore_eos": True}


def in_threads(server, bodies):
    """Sends all at once; the list of answers fills as they come."""
    answers = []
    threads = [threading.Thread(target=lambda body=body: answers.append(
        server.post("/v1/completions", body))) for body in bodies]
    for thread in threads:
        thread.start()
    return threads, answers


def test_what_waits_too_long_is_refused(start_server):
    server = start_server(running=1, step_us=10000, queue_seconds_max=1)
    threads, answers = in_threads(server, [LONG])
    wait_for(lambda: server.metric("num_requests_running") == 1)
    begin = time.monotonic()
    status, error = server.post("/v1/completions", TEXT)
    assert status == 503 and error["error"]["code"] == "queue_timeout"
    assert 0.8 < time.monotonic() - begin < 3
    status, headers, data = server.request("POST", "/v1/completions", {**TEXT, "stream": True})
    assert status == 200 and b'"code":"queue_timeout"' in data and data.endswith(b"[DONE]\n\n")
    for thread in threads:
        thread.join(30)
    assert answers[0][0] == 200, "what runs goes on"
    assert server.metric("request_queue_time_seconds_count") >= 1
    server.wait_idle()


def test_a_long_prompt_that_runs_is_not_said_to_wait(start_server):
    server = start_server(step_us=1500000, queue_seconds_max=1)
    assert server.post("/v1/completions", {**TEXT, "max_tokens": 1})[0] == 200


def test_more_prompt_tokens_than_may_wait_are_refused(start_server):
    server = start_server(running=1, step_us=10000, pages=140, waiting=4096)
    row = next(row for row in server.get("/server_info")[1]["limits"]
               if row["name"] == "waiting_prompt_tokens")
    prompt = [1] * 4000
    count = row["value"] // len(prompt)
    threads, _ = in_threads(server, [{**LONG, "max_tokens": 8000}])
    wait_for(lambda: server.metric("num_requests_running") == 1)
    more, answers = in_threads(server, [{**TEXT, "prompt": prompt}] * (count + 8))
    threads += more
    wait_for(lambda: answers, 20)
    refused = [body for status, body in answers if status == 503]
    assert refused and all(body["error"]["code"] == "overloaded" for body in refused)
    assert "prompt tokens are waiting" in refused[0]["error"]["message"]
    assert server.post("/abort_request", {"abort_all": True})[0] == 200
    for thread in threads:
        thread.join(30)
    server.wait_idle()


def test_an_idle_connection_is_closed(start_server):
    server = start_server(idle_seconds_max=1)
    with server.connect() as connection:
        begin = time.monotonic()
        assert connection.recv(1) == b""
        assert 0.8 < time.monotonic() - begin < 3


def test_a_connection_serves_so_many_requests(server):
    row = next(row for row in server.get("/server_info")[1]["limits"]
               if row["name"] == "requests_per_connection")
    one = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with server.connect(60) as connection:
        def send():
            with contextlib.suppress(OSError):  # the server closes before it has read all
                connection.sendall(one * (row["value"] + 5))

        threading.Thread(target=send, daemon=True).start()
        received, last = 0, b""
        while piece := connection.recv(1 << 16):
            received += (last[-15:] + piece).count(b"HTTP/1.1 200 OK") - last[-15:].count(
                b"HTTP/1.1 200 OK")
            last = last[-400:] + piece
    assert received == row["value"]
    assert b"Connection: close" in last[-400:]


def test_what_is_being_answered_is_listed_without_its_text(slow_server):
    threads, _ = in_threads(slow_server, [{**LONG, "prompt": "a secret fox", "max_tokens": 50}])
    deadline = time.monotonic() + 10
    while True:
        data = slow_server.get("/v1/running")[1]["data"]
        if data and data[0]["phase"] == "decode":
            break
        assert time.monotonic() < deadline
    (entry,) = data
    assert entry["path"] == "/v1/completions" and entry["prompt_tokens"] > 0
    assert 0 <= entry["queue_ms"] <= entry["first_token_ms"] <= entry["total_ms"]
    assert "secret" not in json.dumps(data)
    for thread in threads:
        thread.join(30)
    assert slow_server.get("/v1/running")[1]["data"] == []
