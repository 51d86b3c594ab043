"""What a client gets through the router is what the engine says, byte for byte."""

import http.client
import json
import os
import pathlib
import re
import socket
import threading

import pytest

from conftest import wait_for

CHAT = {"messages": [{"role": "user", "content": "Once upon a time"}], "max_tokens": 12, "seed": 5}
TEXT = {"prompt": "Once upon a time", "max_tokens": 12, "seed": 5}
RESPONSE = {"input": "Once upon a time", "max_output_tokens": 12, "temperature": 0, "store": False}
CALLS = [("POST", "/v1/chat/completions", CHAT), ("POST", "/v1/completions", TEXT),
         ("POST", "/v1/messages", CHAT), ("POST", "/v1/responses", RESPONSE),
         ("POST", "/tokenize", {"prompt": "a b"}), ("GET", "/v1/models", None),
         ("POST", "/v1/messages/count_tokens", {"messages": CHAT["messages"]}),
         ("GET", "/v1/models/other", None), ("POST", "/v1/completions", {"prompt": 7}),
         ("POST", "/v1/messages", {"messages": 7}), ("GET", "/", None)]

# What answers consist of in events of all APIs.
TEXTS = re.compile(rb'"(?:text|(?:reasoning_)?content|delta|thinking)":"((?:[^"\\]|\\.)*)"')


def same(text):
    """An answer without what differs from request to request: ids and times."""
    text = re.sub(rb'"(id|item_id)":"[a-z]+[-_][^"]*"', b'"id":"-"', text)
    return re.sub(rb'"(created|created_at|completed_at)":\d+', b'"at":0', text)


def fields(headers):
    return sorted((name.lower(), value) for name, value in headers.items()
                  if name.lower() != "x-request-id")


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("method,path,body", CALLS)
def test_status_headers_and_body_are_the_engines(start_router, engine, method, path, body, stream):
    if stream and (method == "GET" or "token" in path):
        pytest.skip("does not stream")
    router = start_router({"a": engine.port})
    if stream:
        body = {**body, "stream": True}
    # Twice, so that both find the same in the engine's cache.
    engine.request(method, path, body)
    direct = engine.request(method, path, body)
    through = router.request(method, path, body)
    assert through[0] == direct[0]
    assert fields(through[1]) == fields(direct[1])
    if not stream or direct[0] != 200:
        assert same(through[2]) == same(direct[2])
        return
    # An engine puts as many tokens into an event as have come, so the texts are compared.
    texts = [TEXTS.findall(answer[2]) for answer in (direct, through)]
    assert b"".join(texts[0]) == b"".join(texts[1]) != b""
    ends = [re.sub(rb"\d+", b"", answer[2])[-20:] for answer in (direct, through)]
    assert ends[0] == ends[1]


def test_a_stream_is_passed_on_byte_for_byte_however_it_is_cut(start_router, bad_engine):
    stream = b": ping\n\n" + b"".join(
        b"event: e\ndata: %d %s\n\n" % (i, b"\xc3\xa4" * (i * 37 % 501)) for i in range(300))

    def pour(connection, head, body):
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
                           b"Transfer-Encoding: chunked\r\n\r\n")
        framed, at, step = b"", 0, 1
        while at < len(stream):
            step = step * 31 % 1009 + 1
            piece = stream[at:at + step]
            framed += b"%x;a=b\r\n" % len(piece) + piece + b"\r\n"
            at += len(piece)
        framed += b"0\r\n\r\n"
        for begin in range(0, len(framed), 1777):
            connection.sendall(framed[begin:begin + 1777])
        return True
    router = start_router({"a": bad_engine(pour).port})
    for _ in range(3):
        assert router.request("POST", "/v1/completions", TEXT)[2] == stream


def test_an_event_reaches_the_client_before_the_next_one_exists(start_router, bad_engine):
    seen = threading.Event()

    def pour(connection, head, body):
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
                           b"Transfer-Encoding: chunked\r\n\r\n9\r\ndata: 1\n\n\r\n")
        arrived = seen.wait(10)
        connection.sendall(b"9\r\ndata: %d\n\n\r\n0\r\n\r\n" % arrived)
        return True
    router = start_router({"a": bad_engine(pour).port})
    connection = http.client.HTTPConnection("127.0.0.1", router.port, timeout=30)
    connection.request("POST", "/v1/completions", json.dumps({**TEXT, "stream": True}))
    response = connection.getresponse()
    assert response.readline() == b"data: 1\n"
    seen.set()
    assert response.read() == b"\ndata: 1\n\n"
    connection.close()


def raw(port, text):
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        connection.sendall(text)
        data = b""
        while more := connection.recv(65536):
            data += more
        return data


def test_the_engine_sees_the_request_as_it_was_sent(start_router, bad_engine):
    def answer(connection, head, body):
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nX-Of-Engine: 1\r\n"
                           b"Connection: close, X-Hop\r\nX-Hop: 2\r\n\r\n{ }")
        return True
    engine = bad_engine(answer)
    router = start_router({"a": engine.port})
    body = b'{ "prompt":\t"\xc3\xa4\\u00e4", "x": 1.50 }'
    got = raw(router.port, b"POST /v1/completions?a=%20b HTTP/1.1\r\nHost: localhost\r\n"
              b"Authorization: Bearer key\r\nX-Api-Key: other\r\nX-Mine: 1\r\nTraceparent: 00-1\r\n"
              b"Connection: close, X-Mine\r\nX-Request-Id: mine-7\r\n"
              b"Transfer-Encoding: chunked\r\n\r\n" +
              b"5\r\n" + body[:5] + b"\r\n%x\r\n" % (len(body) - 5) + body[5:] + b"\r\n0\r\n\r\n")
    head, sent = engine.requests[0]
    assert sent == body
    lines = head.split("\r\n")
    assert lines[0] == "POST /v1/completions?a=%20b HTTP/1.1"
    assert f"Host: 127.0.0.1:{engine.port}" in lines and "X-Request-Id: mine-7" in lines
    assert "Authorization: Bearer key" in lines and "X-Api-Key: other" in lines
    assert "Traceparent: 00-1" in lines and "Via: 1.1 braid-router" in lines
    assert not any(line.lower().startswith(("x-mine", "transfer-enc", "connection"))
                   for line in lines)
    assert b"X-Of-Engine: 1\r\n" in got and b"X-Hop" not in got and got.endswith(b"\r\n\r\n{ }")


def test_clients_of_http_1_0_and_head_are_served(start_router, engine):
    router = start_router({"a": engine.port})
    old = raw(router.port, b"GET /v1/models HTTP/1.0\r\nHost: localhost\r\n\r\n")
    assert b"Content-Length:" in old and b'"object":"list"' in old
    body = json.dumps({**TEXT, "stream": True}).encode()
    old = raw(router.port, b"POST /v1/completions HTTP/1.0\r\nHost: localhost\r\n"
              b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    assert b"Transfer-Encoding" not in old and old.endswith(b"data: [DONE]\n\n")
    head = raw(router.port, b"HEAD /v1/models HTTP/1.1\r\nHost: a.localhost\r\nHost: b\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400")
    head = raw(router.port,
               b"HEAD /v1/models HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200") and head.endswith(b"\r\n\r\n")


def test_one_connection_takes_many_requests(start_router, engine):
    router = start_router({"a": engine.port})
    connection = http.client.HTTPConnection("127.0.0.1", router.port, timeout=30)
    for i in range(30):
        connection.request("POST", "/v1/completions", json.dumps({**TEXT, "stream": i % 2 == 0}),
                           {"Content-Type": "application/json"})
        response = connection.getresponse()
        assert response.status == 200 and len(response.read()) > 50
    assert router.engines()["a"]["idle_connections"] == 1
    connection.close()


def test_a_stored_response_is_asked_for_where_it_is(start_router, start_engine):
    engines = {name: start_engine().port for name in "abc"}
    router = start_router(engines, policy="round_robin")
    first = router.post("/v1/responses", {"input": "Once", "max_output_tokens": 4})[1]
    for _ in range(4):
        status, second = router.post("/v1/responses", {
            "input": "more", "previous_response_id": first["id"], "max_output_tokens": 4})
        assert status == 200, second
        assert router.get(f"/v1/responses/{first['id']}")[0] == 200
    # A router that was started since does not know where it is, and looks.
    other = start_router(engines, policy="round_robin")
    for _ in range(3):
        assert other.get(f"/v1/responses/{first['id']}")[0] == 200
    assert other.get("/v1/responses/resp_none")[0] == 404
    status, error = other.post("/v1/responses", {"input": "a", "previous_response_id": "resp_no"})
    assert status == 400 and "resp_no" in error["error"]["message"]
    streamed = router.request("POST", "/v1/responses", {
        "input": "Once", "max_output_tokens": 4, "stream": True})[2]
    name = re.search(rb'"id":"(resp_[^"]+)"', streamed)[1].decode()
    assert router.get(f"/v1/responses/{name}")[0] == 200
    assert router.metric("router_retries_total") == 0


def test_conversations_stay_and_spread(start_router, start_engine):
    engines = {name: start_engine() for name in "ab"}
    router = start_router({name: one.port for name, one in engines.items()})
    for i in range(8):
        text = f"{i} word " * 800
        for turn in range(3):
            messages = [{"role": "user", "content": text + "more " * 50 * turn}]
            assert router.post("/v1/chat/completions", {"messages": messages, "max_tokens": 2})[0] \
                == 200
    for one in engines.values():
        assert one.metric("prefix_cache_hits_total") > 0
    sent = [one.metric("request_success_total") for one in engines.values()]
    assert sorted(sent) == [12, 12], "each conversation stays where it began"
    assert router.metric("router_placements_total") == 24


def test_the_router_keeps_1000_idle_connections(start_router, engine):
    router = start_router({"a": engine.port})
    connections = [router.connect() for _ in range(1000)]
    try:
        assert router.post("/v1/completions", TEXT)[0] in (200, 503)
        ask = (b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n")
        for connection in connections[::10]:
            connection.sendall(ask)
        for connection in connections[::10]:
            assert connection.recv(65536).startswith(b"HTTP/1.1 200")
    finally:
        for connection in connections:
            connection.close()


@pytest.mark.skipif(os.environ.get("BRAID_PRESET", "release") != "release",
                    reason="a sanitizer keeps freed memory")
def test_a_body_is_freed_when_its_answer_begins(start_router, bad_engine):
    ended = threading.Event()

    def stream(connection, head, body):
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
                           b"Transfer-Encoding: chunked\r\n\r\n9\r\ndata: 1\n\n\r\n")
        ended.wait(30)
        connection.sendall(b"0\r\n\r\n")
        return True
    router = start_router({"a": bad_engine(stream).port})

    def resident():
        status = pathlib.Path(f"/proc/{router.process.pid}/status").read_text("ascii")
        return int(re.search(r"VmRSS:\s+(\d+)", status)[1]) / 1024
    before = resident()
    body = json.dumps({"prompt": "a" * (20 << 20), "stream": True})
    connection = http.client.HTTPConnection("127.0.0.1", router.port, timeout=30)
    connection.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
    response = connection.getresponse()
    assert response.readline() == b"data: 1\n"
    wait_for(lambda: resident() < before + 10)
    ended.set()
    response.read()
    connection.close()


def test_a_slow_client_slows_its_engine_down(start_router, bad_engine):
    sent = []
    full = threading.Event()

    def pour(connection, head, body):
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
                           b"Transfer-Encoding: chunked\r\n\r\n")
        event = b"data: " + b"a" * 1000 + b"\n\n"
        connection.settimeout(2)
        try:
            for _ in range(200_000):
                connection.sendall(b"%x\r\n" % len(event) + event + b"\r\n")
                sent.append(1)
        except TimeoutError:
            full.set()
        return False
    router = start_router({"a": bad_engine(pour).port})
    with router.connect() as connection:
        body = b'{"prompt": "a", "stream": true}'
        connection.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
                           b"Content-Length: %d\r\n\r\n" % len(body) + body)
        assert full.wait(20), "the engine is never held up"
    assert len(sent) < 40_000, "more than the sockets hold was taken"


def test_the_cache_of_a_process_that_is_gone_is_forgotten(start_router, start_engine):
    engine = start_engine()
    router = start_router({"a": engine.port})
    text = {"prompt": "Once upon a time " * 100, "max_tokens": 2}
    assert router.post("/v1/completions", text)[0] == 200
    assert router.engines()["a"]["prefix_blocks"] > 0
    engine.process.kill()
    wait_for(lambda: router.engines()["a"]["prefix_blocks"] == 0, 30)
