"""The network half: framing, sizes, deadlines, keep-alive, connections."""

import contextlib
import json
import socket
import subprocess
import time

import pytest
from conftest import wait_for

HOST = b"Host: localhost\r\n"
USED = r'server_memory_bytes\{[^}]*kind="used"[^}]*\}'


def exchange(server, data, timeout=20):
    """Everything the server sends in answer to raw bytes, until it closes."""
    with server.connect(timeout) as connection:
        connection.sendall(data)
        received = b""
        while True:
            piece = connection.recv(65536)
            if not piece:
                return received
            received += piece


def status_of(answer):
    assert answer.startswith(b"HTTP/1.1 "), answer
    return int(answer[9:12])


def read_response(stream):
    """One response with Content-Length from a socket file: (status, headers, body)."""
    line = stream.readline()
    headers = {}
    while (field := stream.readline()) not in (b"\r\n", b""):
        name, value = field.decode().split(":", 1)
        headers[name.lower()] = value.strip()
    return int(line.split()[1]), headers, stream.read(int(headers["content-length"]))


@pytest.mark.parametrize("head, status", [
    (b"NONSENSE\r\n\r\n", 400),
    (b"GET / HTTP/3.7\r\n" + HOST + b"\r\n", 400),
    (b"GET / HTTP/1.1\r\n\r\n", 400),
    (b"GET / HTTP/1.1\r\n" + HOST + HOST + b"\r\n", 400),
    (b"GET / HTTP/1.1\r\n" + HOST + b"A: b\r\n folded\r\n\r\n", 400),
    (b"GET / HTTP/1.1\r\n" + HOST + b"A: b\0c\r\n\r\n", 400),
    (b"GET / HTTP/1.1\r\n" + HOST + b"A: b\nB: c\r\n\r\n", 400),
    (b"GET / HTTP/1.1\n", 400),
    (b"GET / HTTP/1.1\r\n" + HOST.replace(b"\r", b""), 400),
    (b"\n\n", 400),
    (b"POST / HTTP/1.1\r\n" + HOST + b"Expect: banana\r\nContent-Length: 2\r\n\r\n", 417),
    (b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}", 400),
    (b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: -2\r\n\r\n{}", 400),
    (b"POST / HTTP/1.1\r\n" + HOST
     + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
    (b"POST / HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: gzip\r\n\r\n", 400),
    (b"POST / HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\nZZ\r\n", 400),
    (b"POST / HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n1;"
     + b"x" * 300 + b"\r\na\r\n0\r\n\r\n", 400),
    (b"GET /" + b"a" * 8192 + b" HTTP/1.1\r\n" + HOST + b"\r\n", 414),
    (b"GET /" + b"a" * 20000, 414),
    (b"GET / HTTP/1.1\r\n" + HOST + b"A: " + b"a" * 8192 + b"\r\n\r\n", 431),
    (b"GET / HTTP/1.1\r\n" + HOST + b"A: b\r\n" * 100 + b"\r\n", 431),
    (b"GET / HTTP/1.1\r\n" + b"A: bbbbbbbbbbbb\r\n" * 3000, 431),
    (b"POST /v1/completions HTTP/1.1\r\n" + HOST + b"Content-Length: 99999999\r\n\r\n", 413),
    (b"POST /v1/completions HTTP/1.1\r\n" + HOST + b"Content-Length: 99999999999999999999\r\n\r\n",
     400),
])
def test_bad_heads_get_their_status_and_the_connection_closes(server, head, status):
    answer = exchange(server, head)
    assert status_of(answer) == status, answer
    assert b"Connection: close" in answer
    error = json.loads(answer.split(b"\r\n\r\n", 1)[1])["error"]
    assert error["message"] and error["type"] == "invalid_request_error"


def test_a_chunked_body_above_the_limit_is_refused_while_it_comes(server):
    head = b"POST /v1/completions HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n"
    chunk = b"100000\r\n" + b"x" * 0x100000 + b"\r\n"
    assert status_of(exchange(server, head + chunk * 5)) == 413


def test_sizes_at_their_limits_are_taken(server):
    assert server.request("GET", "/" + "a" * 8191)[0] == 404
    assert server.request("GET", "/health", headers={"A": "a" * 8180})[0] == 200


def test_content_types_and_encodings_other_than_plain_json_are_refused(server):
    for headers in ({"Content-Type": "text/plain"}, {"Content-Encoding": "gzip"},
                    {"Content-Type": "application/x-www-form-urlencoded"}):
        status, _, body = server.request("POST", "/tokenize", '{"prompt": "a"}', headers)
        assert status == 415, body
    for content_type in ("application/json", "application/json; charset=utf-8"):
        status, _, body = server.request("POST", "/tokenize", '{"prompt": "a"}',
                                         {"Content-Type": content_type})
        assert status == 200, body


def test_unknown_paths_and_methods(server):
    assert server.request("GET", "/nothing")[0] == 404
    status, headers, _ = server.request("GET", "/v1/chat/completions")
    assert status == 405 and headers["Allow"] == "POST"
    status, headers, _ = server.request("DELETE", "/metrics")
    assert status == 405 and headers["Allow"] == "GET"


def test_head_has_the_headers_and_no_body(server):
    status, headers, body = server.request("HEAD", "/health")
    assert status == 200 and int(headers["Content-Length"]) > 0 and body == b""


def test_pipelined_requests_are_answered_in_order(server):
    posts = b""
    for text in (b"one", b"two two", b"three three three"):
        body = b'{"prompt": "' + text + b'"}'
        posts += (b"POST /tokenize HTTP/1.1\r\n" + HOST + b"Content-Type: application/json\r\n"
                  b"Content-Length: %d\r\n\r\n" % len(body)) + body
    with server.connect() as connection:
        connection.sendall(posts)
        stream = connection.makefile("rb")
        counts = [json.loads(read_response(stream)[2])["count"] for _ in range(3)]
    assert counts == sorted(counts) and counts[0] < counts[2]


def test_a_request_pipelined_behind_a_stream_waits_for_its_end(slow_server):
    body = json.dumps({"prompt": "a", "max_tokens": 5, "stream": True, "ignore_eos": True}).encode()
    head = (b"POST /v1/completions HTTP/1.1\r\n" + HOST + b"Content-Type: application/json\r\n"
            b"Content-Length: %d\r\n\r\n" % len(body))
    with slow_server.connect() as connection:
        connection.sendall(head + body + b"GET /version HTTP/1.1\r\n" + HOST + b"\r\n")
        received = b""
        while b'"version"' not in received:
            piece = connection.recv(65536)
            assert piece, received
            received += piece
    assert received.index(b"data: [DONE]") < received.index(b'"version"')


def test_http_1_0_gets_a_stream_that_ends_with_the_connection(server):
    body = b'{"prompt": "a", "max_tokens": 3, "stream": true, "ignore_eos": true}'
    answer = exchange(server, b"POST /v1/completions HTTP/1.0\r\nContent-Type: application/json\r\n"
                      b"Content-Length: %d\r\n\r\n" % len(body) + body)
    head, events = answer.split(b"\r\n\r\n", 1)
    assert b"chunked" not in head.lower()
    assert events.startswith(b"data: {") and events.endswith(b"data: [DONE]\n\n")


def test_an_upgrade_is_ignored(server):
    """The JDK's client and curl --http2 offer HTTP/2 with their first request."""
    upgrade = (b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n"
               b"HTTP2-Settings: AAEAAEAAAAIAAAAAAAMAAAAAAAQBAAAAAAUAAEAAAAYABgAA\r\n")
    body = b'{"prompt": "a"}'
    with server.connect() as connection:
        stream = connection.makefile("rb")
        for _ in range(2):
            connection.sendall(b"POST /tokenize HTTP/1.1\r\n" + HOST + upgrade
                               + b"Content-Length: 15\r\n\r\n" + body)
            status, headers, answer = read_response(stream)
            assert status == 200 and json.loads(answer)["count"] > 0 and "upgrade" not in headers
        connection.sendall(b"GET /health HTTP/1.1\r\n" + HOST + b"Connection: Upgrade\r\n"
                           b"Upgrade: websocket\r\n\r\n")
        assert read_response(stream)[0] == 200


def test_http_2_without_an_offer_is_told_to_speak_http_1_1(server):
    def frame(kind, payload=b"", stream=0):
        return (len(payload).to_bytes(3, "big") + bytes([kind, 0]) + stream.to_bytes(4, "big")
                + payload)

    settings, get = frame(4), b"\x82\x86\x84\x41\x01a"
    answer = exchange(server, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + settings + frame(1, get, 1))
    frames = []
    while answer:
        size = int.from_bytes(answer[:3], "big")
        frames.append((answer[3], int.from_bytes(answer[5:9], "big"), answer[9:9 + size]))
        answer = answer[9 + size:]
    assert [frame[:2] for frame in frames] == [(4, 0), (4, 0), (1, 1), (0, 1), (7, 0)]
    assert b"505" in frames[2][2] and "HTTP/1.1" in json.loads(frames[3][2])["error"]["message"]
    assert int.from_bytes(frames[4][2][4:8], "big") == 13  # HTTP_1_1_REQUIRED
    curl = subprocess.run(["curl", "-sS", "--http2-prior-knowledge",
                           f"http://localhost:{server.port}/health"],
                          capture_output=True, text=True, timeout=20, check=False)
    assert "this server speaks HTTP/1.1 only" in curl.stdout, curl.stderr


def test_expect_100_continue(server):
    body = b'{"prompt": "a"}'
    with server.connect() as connection:
        connection.sendall(b"POST /tokenize HTTP/1.1\r\n" + HOST + b"Expect: 100-Continue\r\n"
                           b"Content-Type: application/json\r\nContent-Length: 15\r\n\r\n")
        assert connection.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(body)
        assert read_response(connection.makefile("rb"))[0] == 200


def test_request_ids_come_back_and_bad_ones_are_replaced(server):
    def id_for(sent):
        return server.request("GET", "/health", headers={"X-Request-Id": sent})[1]["X-Request-Id"]

    assert id_for("a-1") == "a-1"
    for bad in ("a b", "x" * 129, "<script>"):
        assert id_for(bad).startswith("req-")


def test_slow_heads_and_bodies_meet_absolute_deadlines(start_server):
    server = start_server(header_seconds_max=1, body_seconds_base=1, idle_seconds_max=1)
    for prefix in (b"GET / HTTP/1.1\r\nX: ",
                   b"POST /tokenize HTTP/1.1\r\n" + HOST + b"Content-Length: 1000\r\n\r\n"):
        start = time.monotonic()
        with server.connect() as connection:
            connection.sendall(prefix)
            connection.settimeout(0.1)
            answer = b""
            while time.monotonic() < start + 5 and not answer:
                try:  # one byte at a time must not move the deadline
                    connection.sendall(b"a")
                    answer = connection.recv(1000)
                except TimeoutError:
                    pass
        assert status_of(answer) == 408
        assert 0.8 < time.monotonic() - start < 3
    start = time.monotonic()
    assert exchange(server, b"") == b"", "an idle connection is closed without a word"
    assert 0.8 < time.monotonic() - start < 3


def test_connections_above_the_limit_are_refused(start_server):
    server = start_server(connections_per_address_max=3)
    held = [server.connect() for _ in range(3)]
    assert status_of(exchange(server, b"")) == 503
    for connection in held:
        connection.close()
    get = b"GET /health HTTP/1.1\r\n" + HOST + b"Connection: close\r\n\r\n"
    wait_for(lambda: status_of(exchange(server, get)) == 200)


def test_probes_are_answered_where_all_connections_are_used_up(start_server):
    server = start_server(connections_per_address_max=3)
    held = [server.connect() for _ in range(203)]
    time.sleep(0.1)
    for path in ("/health", "/ready", "/health?from=probe"):
        status, headers, _ = server.request("GET", path, timeout=2)
        assert status == 200 and headers["Connection"] == "close", path
    assert server.request("HEAD", "/health", timeout=2)[0] == 200
    status, headers, body = server.request("POST", "/tokenize", {"prompt": "a"}, timeout=2)
    assert status == 503 and b"too many connections" in body and headers["Retry-After"]
    assert server.request("GET", "/version", timeout=2)[0] == 503
    # The places kept for probes are not held by those who say nothing.
    held[100].settimeout(10)
    assert held[100].recv(100) == b""
    held[202].settimeout(10)
    assert b" 503 " in held[202].recv(100)
    for connection in held:
        connection.close()


def test_bodies_above_the_memory_for_all_of_them_are_refused(start_server):
    # A body of 4 MiB, its preparation, stored responses and connections.
    server = start_server(memory_bytes=358 << 20)
    head = b"POST /tokenize HTTP/1.1\r\n" + HOST + b"Content-Length: 4000000\r\n\r\n"
    with server.connect() as half:
        half.sendall(head + b"x" * 3_999_999)
        wait_for(lambda: server.metric(USED) == 3_999_999)
        long = {"prompt": "a" * 300_000}
        assert server.post("/tokenize", long)[0] == 503
        assert server.metric("requests_shed_total") == 1
        assert server.request("POST", "/tokenize", long)[1]["Retry-After"]
        assert server.post("/tokenize", {"prompt": "a" * 200})[0] == 200
    assert server.metric("requests_shed_total") == 2
    wait_for(lambda: server.post("/tokenize", long)[0] == 200)


@pytest.mark.parametrize("framing", [b"Content-Length: 4000000\r\n\r\n{",
                                     b"Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n"])
def test_bodies_that_are_announced_and_not_sent_take_no_memory_from_others(start_server, framing):
    server = start_server(memory_bytes=358 << 20)  # as above
    with contextlib.ExitStack() as stack:
        for _ in range(8):
            stack.enter_context(server.connect()).sendall(
                b"POST /tokenize HTTP/1.1\r\n" + HOST + framing)
        wait_for(lambda: server.metric(USED) >= 8)
        assert server.post("/tokenize", {"no_field": "a" * 3_000_000})[0] == 400
    assert server.metric("requests_shed_total") == 0


def test_a_half_sent_request_that_is_given_up_leaves_the_server_well(server):
    body = b"POST /tokenize HTTP/1.1\r\n" + HOST + b"Content-Length: 10\r\n\r\n{"
    for data in (b"", b"GE", body):
        with server.connect() as connection:
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
            assert connection.recv(100) == b""
    assert server.get("/health")[0] == 200
