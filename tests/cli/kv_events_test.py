"""KV events as gateways read them: with the usual libraries of ZeroMQ and MessagePack."""

import collections
import contextlib
import http.client
import json
import pathlib
import re
import sys
import time

import msgpack
import pytest
import zmq

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from serving import serving  # noqa: E402

BLOCK = 64
FLAGS = ["--threads", "1", "--draft", "off", "--max-model-len", "700", "--kv-events",
         "tcp://127.0.0.1:*", "--kv-events-replay", "tcp://127.0.0.1:*",
         "--kv-events-topic", "kv@one@tiny", "--kv-dtype", "bf16"]  # fmt: skip
# The fields of events in their order, as the readers of the array form know them.
STORED = ["block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id", "medium",
          "lora_name", "extra_keys"]  # fmt: skip
REMOVED = ["block_hashes", "medium"]


class Gateway:
    """What a gateway keeps of one engine: its blocks by hash, with the text that each ends."""

    def __init__(self, served):
        self.context = zmq.Context()
        self.events = self.context.socket(zmq.SUB)
        self.events.setsockopt(zmq.SUBSCRIBE, b"kv@")
        self.events.connect(self.address(served, "KV events at"))
        self.again_at = self.address(served, "KV events again at")
        self.texts = {}  # hash: all tokens up to the block's end
        self.next = 0
        self.private = 0
        self.seen = collections.Counter()
        self.catch_up()

    @staticmethod
    def address(served, what):
        for _ in range(200):
            for line in list(served.log):
                if match := re.match(rf"{what} (\S+)", line):
                    return match[1]
            time.sleep(0.05)
        raise AssertionError("".join(served.log))

    def catch_up(self):
        """Asks for all that is missing, from the next number on."""
        asks = self.context.socket(zmq.DEALER)
        with contextlib.closing(asks):
            asks.connect(self.again_at)
            asks.send_multipart((b"", self.next.to_bytes(8, "big")))
            while True:
                assert asks.poll(30000), "no answer to a question about missed events"
                empty, number, payload = asks.recv_multipart()
                assert empty == b""
                if int.from_bytes(number, "big", signed=True) == -1:
                    assert payload == b""
                    return
                self.take(number, payload)

    def read(self, milliseconds=0):
        while self.events.poll(milliseconds):
            topic, number, payload = self.events.recv_multipart()
            assert topic == b"kv@one@tiny"
            if int.from_bytes(number, "big") > self.next:
                self.catch_up()
            self.take(number, payload)

    def take(self, number, payload):
        number = int.from_bytes(number, "big")
        if number < self.next:
            return
        assert number == self.next
        self.next += 1
        seconds, events, dp_rank = msgpack.unpackb(payload)
        assert abs(seconds - time.time()) < 3600 and dp_rank == 0
        for name, *fields in events:
            self.seen[name] += 1
            if name == "AllBlocksCleared":
                self.texts.clear()
            elif name == "BlockRemoved":
                event = dict(zip(REMOVED, fields, strict=True))
                for block in event["block_hashes"]:
                    del self.texts[block]
            else:
                assert name == "BlockStored"
                self.store(dict(zip(STORED, fields)))  # noqa: B905: the last field may be missing

    def store(self, event):
        hashes, tokens = event["block_hashes"], event["token_ids"]
        assert event["block_size"] == BLOCK and len(tokens) == BLOCK * len(hashes)
        assert event["lora_id"] is None and event["lora_name"] is None
        assert event["medium"] == "GPU"
        parent = event["parent_block_hash"]
        text = () if parent is None else self.texts[parent]
        for i, block in enumerate(hashes):
            assert block not in self.texts and 0 <= block < 1 << 64
            text += tuple(tokens[i * BLOCK : (i + 1) * BLOCK])
            self.texts[block] = text
        if "extra_keys" in event:
            assert event["extra_keys"] == [["private"]] * len(hashes)
            self.private += len(hashes)

    def known(self, tokens):
        """How many tokens of a prompt this gateway believes to be stored."""
        texts, count = set(self.texts.values()), 0
        while tuple(tokens[: count + BLOCK]) in texts and len(tokens) > count + BLOCK - 1:
            count += BLOCK
        return count

    def wait(self, holds):
        end = time.monotonic() + 30
        while not holds():
            self.read(100)
            assert time.monotonic() < end, (self.seen, len(self.texts))


def test_flags_that_do_not_fit_are_refused(braid, tiny):
    for flags, why in [
        (["--kv-events", "tcp://127.0.0.1:99999"], "has no port of 1 to 65535"),
        (["--kv-events", "5557"], "cannot listen at 5557"),
        (["--kv-events-topic", "x"], "publish some with --kv-events"),
        (["--kv-events-replay", "tcp://*:1"], "publish some with --kv-events"),
        (["--kv-events", "tcp://*:1", "--kv-events-connect", "tcp://a:1"], "not both"),
        (["--kv-events", "tcp://*:1", "--no-prefix-cache"], "there are no prefixes to publish"),
    ]:
        ran = braid("serve", tiny, "--port", "0", *flags, timeout=60)
        assert ran.returncode == 1
        assert why in ran.stderr


@pytest.fixture(scope="module")
def served():
    with serving(*FLAGS, "--memory", "78M") as engine:
        yield engine


def post(port, path, body):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    with contextlib.closing(connection):
        connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        response = connection.getresponse()
        answer = response.read()
        assert response.status == 200, answer
        return json.loads(answer) if answer else None


def complete(port, tokens, **more):
    body = {"prompt": tokens, "max_tokens": 2, "temperature": 0, **more}
    return post(port, "/v1/completions", body)["usage"]


def prompt(seed, tokens):
    return [(seed * 7919 + i * i * 31 + i) % 900 + 5 for i in range(tokens)]


def test_a_gateway_knows_what_can_be_resumed(served):
    gateway = Gateway(served)
    gateway.wait(lambda: gateway.seen["AllBlocksCleared"] == 1)
    first = prompt(1, 5 * BLOCK + 9)
    complete(served.port, first)
    gateway.wait(lambda: gateway.known(first) == 5 * BLOCK)
    # What it knows is what the engine then reuses.
    longer = first[: 5 * BLOCK] + prompt(2, 3 * BLOCK)
    usage = complete(served.port, longer)
    assert usage["prompt_tokens_details"]["cached_tokens"] == 5 * BLOCK
    # The blocks behind name those before, which are not published again.
    gateway.wait(lambda: gateway.known(longer) == 8 * BLOCK)
    assert gateway.private == 0
    # A key of its own for a salt; a gateway that computes keys from tokens is warned.
    complete(served.port, first, cache_salt="mine")
    gateway.wait(lambda: gateway.private == 5)


def test_evicted_blocks_are_removed_and_a_late_gateway_catches_up(served):
    gateway = Gateway(served)
    prompts = [prompt(seed, 9 * BLOCK + 1) for seed in range(10, 18)]
    for tokens in prompts:
        complete(served.port, tokens)
    gateway.wait(lambda: gateway.known(prompts[-1]) == 9 * BLOCK)
    assert gateway.seen["BlockRemoved"] > 0
    late = Gateway(served)
    late.wait(lambda: late.texts == gateway.texts)
    # The deepest that is known of each prompt is what the engine reuses of it.
    for tokens in reversed(prompts):
        gateway.read()
        known = gateway.known(tokens)
        reused = complete(served.port, tokens)["prompt_tokens_details"]["cached_tokens"]
        assert reused == known, tokens[0]
        gateway.wait(lambda t=tokens: gateway.known(t) == 9 * BLOCK)
    post(served.port, "/flush_cache", {})
    gateway.wait(lambda: not gateway.texts)


def test_malformed_questions_change_nothing(served):
    gateway = Gateway(served)
    asks = gateway.context.socket(zmq.DEALER)
    asks.connect(gateway.again_at)
    for frames in [(b"",), (b"", b"1"), (b"x", b"12345678"), (b"", b"12345678", b"")]:
        asks.send_multipart(frames)
    asks.send_multipart((b"", b"\xff" * 8))
    assert asks.poll(30000)
    assert asks.recv_multipart() == [b"", b"\xff" * 8, b""]
    asks.close()
    complete(served.port, prompt(3, 100))
    gateway.wait(lambda: gateway.known(prompt(3, 100)) == BLOCK)


def test_an_engine_connects_to_a_gateway_that_listens():
    context = zmq.Context()
    events = context.socket(zmq.SUB)
    events.setsockopt(zmq.SUBSCRIBE, b"")
    port = events.bind_to_random_port("tcp://127.0.0.1")
    with serving("--threads", "1", "--kv-events-connect", f"tcp://127.0.0.1:{port}") as engine:
        end = time.monotonic() + 60
        stored = False
        while not stored:
            complete(engine.port, prompt(int(time.monotonic()), 100))
            assert time.monotonic() < end
            while events.poll(500):
                topic, _, payload = events.recv_multipart()
                assert topic == b""
                stored = stored or msgpack.unpackb(payload)[1][0][0] == "BlockStored"
        said = "".join(engine.log)
        assert "KV events at " in said and "KV events again at" not in said
