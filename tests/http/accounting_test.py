"""What an answer counts, and when its connection ends."""

import json
import socket
import time

import pytest

TEXT = "/v1/completions"


@pytest.mark.parametrize("n", [1, 3])
def test_usage_counts_every_prompt_once(server, n):
    prompts = [[10 + i for i in range(200)], [20 + i for i in range(70)]]
    body = {"prompt": prompts, "n": n, "max_tokens": 2, "ignore_eos": True}
    status, answer = server.post(TEXT, body)
    assert status == 200, answer
    assert answer["usage"]["prompt_tokens"] == 270
    assert answer["usage"]["completion_tokens"] == 2 * 2 * n


def test_usage_adds_up_the_cached_tokens_of_every_prompt(start_server):
    server = start_server()
    prompts = [[100 + i for i in range(200)], [400 + i for i in range(140)]]
    for prompt in prompts:
        server.post(TEXT, {"prompt": prompt, "max_tokens": 1, "ignore_eos": True})
    usage = server.post(TEXT, {"prompt": prompts, "max_tokens": 1, "ignore_eos": True})[1]["usage"]
    assert usage["prompt_tokens_details"]["cached_tokens"] == 192 + 128


@pytest.mark.parametrize("header, closes", [(b"Connection: close\r\n", True), (b"", False)])
def test_a_stream_ends_its_connection_when_asked_to(server, header, closes):
    body = json.dumps({"prompt": "a", "max_tokens": 3, "stream": True, "ignore_eos": True}).encode()
    with server.connect() as connection:
        connection.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n" + header
                           + b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n"
                           % len(body) + body)
        received = b""
        while not received.endswith(b"0\r\n\r\n"):
            piece = connection.recv(65536)
            assert piece, received
            received += piece
        started = time.monotonic()
        connection.settimeout(5 if closes else 0.5)
        if closes:
            assert connection.recv(1) == b""
            assert time.monotonic() - started < 5
        else:
            with pytest.raises(socket.timeout):
                connection.recv(1)
