"""Placement by what engines say of their caches: `braid serve` itself, and another program's events
by the usual libraries of ZeroMQ and MessagePack."""

import itertools
import json
import pathlib
import re
import sys

import msgpack
import zmq

from conftest import ROOT, wait_for
from registration_test import At, message, register

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from serving import serving  # noqa: E402

BLOCK = 64
FLAGS = ["--threads", "1", "--draft", "off", "--max-model-len", "700", "--kv-events",
         "tcp://127.0.0.1:*", "--kv-events-replay", "tcp://127.0.0.1:*"]  # fmt: skip


def prompt(seed, tokens):
    return [(seed * 7919 + i * i * 31 + i) % 900 + 5 for i in range(tokens)]


def complete(server, tokens):
    """The tokens of a prompt that came from the cache."""
    body = {"prompt": tokens, "max_tokens": 2, "temperature": 0, "ignore_eos": True}
    status, answer = server.post("/v1/completions", body)
    assert status == 200, answer
    return answer["usage"]["prompt_tokens_details"]["cached_tokens"]


def address(served, what):
    found = []
    wait_for(lambda: found.extend(re.findall(rf"{what} (\S+)", "".join(served.log))) or found, 60)
    return found[0]


def test_a_router_knows_prompts_that_it_did_not_send(start_router):
    router = start_router({}, registration=True, lease_ms=20000)
    flags = [*FLAGS, "--register", f"http://127.0.0.1:{router.port}", "--register-name"]
    with serving(*flags, "a") as a, serving(*flags, "b") as b:
        wait_for(lambda: {e["state"] for e in router.engines().values()} == {"ready"}
                 and len(router.engines()) == 2, 60)
        prompts = [prompt(seed, 3 * BLOCK + 9) for seed in range(6)]
        for i, tokens in enumerate(prompts):
            complete(At((a, b)[i % 2].port, router), tokens)
        wait_for(lambda: [router.engines()[n]["held_blocks"] for n in "ab"] == [9, 9], 60)
        # Each goes on where it is, however much work an engine had.
        for tokens in prompts:
            assert complete(router, tokens + prompt(99, BLOCK)) == 3 * BLOCK
        # One that comes late asks for what was.
        late = start_router({}, registration=True, lease_ms=60000)
        where = {"kv_events": address(b, "KV events at"),
                 "kv_events_replay": address(b, "KV events again at")}
        assert register(late, "b", message(b.port, **where))[0] == 200
        wait_for(lambda: late.engines()["b"]["held_blocks"]
                 == router.engines()["b"]["held_blocks"] > 9, 60)
        At(b.port, router).post("/flush_cache", {})
        for one in (router, late):
            wait_for(lambda r=one: r.engines()["b"]["held_blocks"] == 0, 60)
            assert one.engines()["b"]["prefix_blocks"] == 0


def test_a_router_with_the_tokenizer_knows_texts(start_router):
    flags = ["--tokenizer", str(ROOT / "models/braid-tiny")]
    router = start_router({}, *flags, registration=True, lease_ms=20000)
    register_flags = [*FLAGS, "--register", f"http://127.0.0.1:{router.port}", "--register-name"]
    words = " ".join(f"word{i * i % 97}" for i in range(60))
    asked = [{"role": "system", "content": words}, {"role": "user", "content": "Hello!"}]
    bodies = {"/v1/chat/completions": {"messages": asked},
              "/v1/messages": {"messages": asked[1:], "system": "In short: " + words},
              "/v1/responses": {"input": "Say: " + words, "store": False},
              "/v1/completions": {"prompt": "Once " + words}}
    limits = {"/v1/responses": "max_output_tokens"}
    with serving(*register_flags, "a") as a, serving(*register_flags, "b") as b:
        wait_for(lambda: {e["state"] for e in router.engines().values()} == {"ready"}
                 and len(router.engines()) == 2, 60)
        for path, body in bodies.items():
            body[limits.get(path, "max_tokens")] = 2
            assert At(b.port, router).post(path, body)[0] == 200
        for path, body in bodies.items():
            def answer_of(path=path, body=body):
                status, answer = router.post(f"/route{path}", body)
                assert status == 200, answer
                tokens = answer["reused_tokens"] + answer["computed_tokens"]
                whole = answer["reused_tokens"] == tokens // BLOCK * BLOCK > BLOCK
                return whole and (answer["engine"], answer["reason"]) == ("b", "prefix")
            wait_for(answer_of, 30)
        # What engines refuse goes to one of them, which says why.
        assert router.post("/v1/chat/completions", {"messages": 7})[0] == 400
        assert a.process.poll() is None


def test_a_router_reads_other_programs_events(start_router, start_engine):
    """Blocks of 16, events as maps, hashes of bytes, no answers about missed ones."""
    engines = {name: start_engine() for name in "ab"}
    router = start_router({"a": engines["a"].port}, registration=True, lease_ms=60000)
    publisher = zmq.Context.instance().socket(zmq.PUB)
    port = publisher.bind_to_random_port("tcp://127.0.0.1")
    body = message(engines["b"].port, kv_events=f"tcp://127.0.0.1:{port}")
    assert register(router, "b", body)[0] == 200
    wait_for(lambda: router.state("b") == "ready", 30)
    tokens, number = prompt(5, 12 * 16), itertools.count()
    hashes = [bytes([i]) * 32 for i in range(12)]

    def publish(*events):
        publisher.send_multipart([b"kv", next(number).to_bytes(8, "big"),
                                  msgpack.packb([0.0, list(events)])])

    def store():
        publish({"type": "BlockStored", "block_hashes": hashes, "parent_block_hash": None,
                 "token_ids": tokens, "block_size": 16, "lora_id": None})
        return router.engines()["b"]["held_blocks"] == 12
    wait_for(store, 60)  # a subscriber that is not connected yet misses batches
    assert router.engines()["b"]["prefix_blocks"] == 3
    for _ in range(3):
        complete(router, tokens + prompt(6, 40))
    assert engines["b"].metric("request_success_total") == 3
    publish({"type": "BlockRemoved", "block_hashes": hashes[11:], "medium": "GPU"})
    wait_for(lambda: router.engines()["b"]["held_blocks"] == 11, 30)
    publish({"type": "AllBlocksCleared"})
    wait_for(lambda: router.engines()["b"]["held_blocks"] == 0, 30)
    publisher.send_multipart([b"kv", next(number).to_bytes(8, "big"), b"\xc1"])
    wait_for(store, 30)
    # The configuration says where an engine's events are, and a reload that they are elsewhere.
    # What was on its way to the router by then is forgotten too.
    fixed = {"name": "a", "url": f"http://127.0.0.1:{engines['a'].port}"}
    for events, held in [({"kv_events": f"tcp://127.0.0.1:{port}"}, 12), ({}, 0)] * 20:
        router.file.write_text(json.dumps({"engines": [{**fixed, **events}], "probe_ms": 50,
                                           "registration": True, "lease_ms": 60000}))
        assert router.post("/reload", None)[0] == 200
        wait_for(lambda h=held: (store(), router.engines()["a"]["held_blocks"] == h)[1], 30)
    assert router.engines()["a"]["prefix_blocks"] == 0
    publisher.close()
