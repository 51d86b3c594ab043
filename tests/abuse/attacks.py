"""What a hostile or careless client does to a server. Each attack is a function of a Target and a
random generator; it ends by itself within some seconds and returns what it saw as a Counter."""

import collections
import concurrent.futures
import contextlib
import http.client
import json
import socket
import time

TIMEOUT = 60
WORDS = "the quick brown fox jumps over 12 lazy dogs. "
CHAT = "/v1/chat/completions"
TEXT = "/v1/completions"


class Target:
    """A server at a loopback address; `small` attacks are a tenth of the full ones."""

    def __init__(self, port, small):
        self.port, self.small = port, small

    def count(self, number):
        return max(2, number // 10) if self.small else number

    def connect(self, timeout=TIMEOUT):
        return socket.create_connection(("127.0.0.1", self.port), timeout=timeout)

    def send(self, method, path, body=None, headers=None):
        """The status of one request, 0 if no answer came."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=TIMEOUT)
        data = body if isinstance(body, (bytes, type(None))) else json.dumps(body).encode()
        try:
            with contextlib.closing(connection):
                connection.request(method, path, data,
                                   {"Content-Type": "application/json", **(headers or {})})
                response = connection.getresponse()
                response.read()
                return response.status
        except TimeoutError:
            return 0
        except (OSError, http.client.HTTPException):
            return -1  # closed, as a refused body may be before it was sent

    def send_all(self, requests, at_once):
        with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
            return collections.Counter(pool.map(lambda request: self.send(*request), requests))

    def head(self, path, length):
        return (f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                f"Content-Length: {length}\r\n\r\n").encode()

    def hold(self, count, first_bytes, seconds, drip=None):
        """Opens connections, sends the same bytes on each, keeps them and closes them."""
        seen, held = collections.Counter(), []
        try:
            for _ in range(count):
                with contextlib.suppress(OSError):
                    connection = self.connect(5)
                    held.append(connection)
                    connection.sendall(first_bytes)
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                time.sleep(0.1)
                for connection in held if drip else ():
                    with contextlib.suppress(OSError):
                        connection.sendall(drip)
        finally:
            for connection in held:
                connection.close()
        seen["held"] = len(held)
        return seen


def idle_connections(target, rng):
    return target.hold(target.count(3000), b"", 2)


def slow_heads(target, rng):
    head = b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: "
    return target.hold(target.count(500), head, 3, b"a")


def half_bodies(target, rng):
    size = 3_900_000
    return target.hold(target.count(200), target.head("/tokenize", size) + b"x" * (size // 2), 2)


def body_beyond_the_limit(target, rng):
    seen = collections.Counter()
    with target.connect() as connection, contextlib.suppress(OSError):
        connection.sendall(target.head(TEXT, 100_000_000))
        seen[int(connection.recv(12)[9:12] or 0)] += 1
    return seen


def long_texts_to_tokenize(target, rng):
    letters = "abcdefghijklmnopqrstuvwxyz     \n0123456789"
    texts = [WORDS * (3_900_000 // len(WORDS)), "a" * 3_900_000,
             "".join(rng.choices(letters, k=390_000)) * 10]
    return target.send_all([("POST", "/tokenize", {"prompt": text})
                            for text in texts[:1 if target.small else 3]], 2)


def large_json(target, rng):
    bodies = [b'{"prompt": "a", "max_tokens": 1, "x": [' + b"1," * 1_000_000 + b"1]}",
              b'{"prompt": "a", "max_tokens": 1, "x": ' + b"[" * 1_000_000,
              b'{"prompt": "a", "max_tokens": 1, "x": [' + b'{"a":1},' * 300_000 + b"1]}"]
    return target.send_all([("POST", TEXT, body) for body in bodies], 3)


def flood(target, rng):
    return target.send_all([("POST", TEXT, {"prompt": f"{rng.random()} " * rng.randint(1, 20),
                                            "max_tokens": rng.randint(1, 16)})
                            for _ in range(target.count(500))], target.count(250))


def many_choices(target, rng):
    return target.send_all([("POST", TEXT, {"prompt": f"{rng.random()}", "n": 8, "max_tokens": 16})
                            for _ in range(target.count(64))], 64)


def long_prompts(target, rng):
    return target.send_all([("POST", TEXT, {"prompt": [rng.randrange(4000) for _ in range(8000)],
                                            "max_tokens": 4})
                            for _ in range(target.count(16))], 16)


def abort_storm(target, rng):
    def leave(delay):
        body = json.dumps({"prompt": f"{delay}", "max_tokens": 500, "ignore_eos": True,
                           "stream": True, "n": 2}).encode()
        with contextlib.suppress(OSError), target.connect() as connection:
            connection.sendall(target.head(TEXT, len(body)) + body)
            time.sleep(delay)
        return "left"

    delays = [rng.random() * 0.3 for _ in range(target.count(400))]
    with concurrent.futures.ThreadPoolExecutor(50) as pool:
        return collections.Counter(pool.map(leave, delays))


def readers_that_stop(target, rng):
    body = json.dumps({"prompt": "a", "max_tokens": 4000, "ignore_eos": True, "stream": True,
                       "logprobs": 20}).encode()
    return target.hold(target.count(40), target.head(TEXT, len(body)) + body, 3)


def grammar_bombs(target, rng):
    schemas = [{"type": "integer", "multipleOf": rng.choice((9999991, 9999989, 9999973))},
               {"allOf": [{"type": "string", "pattern": f"[a-z]*{letter}"}
                          for letter in "abcdefghijklmnopqrstuvwxyz"[:rng.randint(18, 26)]]}]
    return target.send_all([("POST", CHAT, {
        "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4,
        "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}},
    }) for schema in schemas], 2)


def foreign_pages(target, rng):
    headers = {"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"}
    paths = ("/pause", "/pause_generation", "/flush_cache", "/abort_request", TEXT)
    seen = target.send_all([("POST", path, {"prompt": "a"}, headers) for path in paths], 2)
    seen += target.send_all([("GET", "/v1/models", None, {"Host": "evil.example"})], 1)
    assert set(seen) == {403}, seen
    return seen


def broken_framing(target, rng):
    seen = collections.Counter()
    starts = (b"GET / HTTP/1.1\nHost: a\n\n", b"\x16\x03\x01" + rng.randbytes(200), b"\0" * 100,
              b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", rng.randbytes(40_000), b"GET / HTTP/9\r\n\r\n",
              target.head(TEXT, 5) + b"{", b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: "
              b"chunked\r\n\r\nffffffffffffffff\r\n")
    for _ in range(target.count(100)):
        with contextlib.suppress(OSError), target.connect(5) as connection:
            connection.sendall(rng.choice(starts))
            connection.shutdown(socket.SHUT_WR)
            answer = connection.recv(100)
            seen[int(answer[9:12]) if answer.startswith(b"HTTP") else "-"] += 1
    return seen


ATTACKS = (idle_connections, slow_heads, half_bodies, body_beyond_the_limit,
           long_texts_to_tokenize, large_json, flood, many_choices, long_prompts, abort_storm,
           readers_that_stop, grammar_bombs, foreign_pages, broken_framing)
