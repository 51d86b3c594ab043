"""Engines that register: who may, what does not fit, leases that run out, reload, and `braid serve
--register` itself."""

import contextlib
import itertools
import json
import os
import pathlib
import re
import subprocess
import sys

import pytest

from conftest import ROOT, wait_for
from failure_test import DIALECTS, begin

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from serving import serving  # noqa: E402

class At:
    """The requests of a router's test to an engine itself."""

    def __init__(self, port, router):
        self.port, self._router = port, router

    def request(self, *words, **more):
        return type(self._router).request(self, *words, **more)

    def post(self, *words, **more):
        return type(self._router).post(self, *words, **more)


TEXT = {"prompt": "Once upon a time", "max_tokens": 4}
LONG = DIALECTS["/v1/completions"]
FINGERPRINT = "the model's name: m\nthe weights' digest: 1\n"


def message(port, **more):
    return {"version": 1, "generation": 1, "url": f"http://127.0.0.1:{port}",
            "fingerprint": FINGERPRINT, **more}


def register(router, name, body, key=None):
    headers = {"Authorization": f"Bearer {key}"} if key else None
    status, _, data = router.request("PUT", f"/engines/{name}", body, headers=headers)
    return status, json.loads(data)


def refusal(router, name, body, status=409, **more):
    got, answer = register(router, name, body, **more)
    assert got == status, answer
    return answer["error"]["message"]


@pytest.fixture
def open_router(start_router):
    """A router without engines at which they may register."""
    return start_router({}, registration=True, lease_ms=30000)


def test_an_engine_registers_serves_and_leaves(open_router, start_engine):
    router, engine = open_router, start_engine(step_us=3000)
    assert router.get("/ready")[0] == 503
    status, answer = register(router, "a", message(engine.port, program="9.9"))
    assert status == 200 and answer == {"lease_ms": 30000, "prefills": []}
    wait_for(lambda: router.state("a") == "ready", 30)
    row = router.engines()["a"]
    assert row["registered"] and row["version"] == "9.9" and row["registered_ms_left"] > 20000
    connection, response, _ = begin(router, "/v1/completions", {**LONG, "max_tokens": 100})
    # Another process cannot end it; it can, and finishes what it has.
    register(router, "a", message(engine.port, generation=2, leaves=True))
    assert not router.engines()["a"]["removed"]
    assert register(router, "a", message(engine.port, leaves=True))[0] == 200
    assert router.engines()["a"]["removed"]
    assert router.post("/v1/completions", TEXT)[0] == 503
    text = response.read()
    assert text.endswith(b"data: [DONE]\n\n") and b'"error":' not in text
    connection.close()
    wait_for(lambda: router.engines() == {}, 30)
    assert 'engine="a"' not in router.request("GET", "/metrics")[2].decode()


def test_an_engine_that_does_not_renew_leaves(start_router, engine):
    router = start_router({}, registration=True, lease_ms=1500)

    def renew():
        return register(router, "a", message(engine.port))[0] == 200
    wait_for(lambda: renew() and router.engines().get("a", {}).get("state") == "ready", 30)
    # It answers the router's questions all the time.
    wait_for(lambda: router.engines() == {}, 30)
    assert router.post("/v1/completions", TEXT)[0] == 503
    wait_for(lambda: renew() and router.post("/v1/completions", TEXT)[0] == 200, 30)


def test_one_that_does_not_renew_gets_nothing_new_while_it_answers(start_router, start_engine):
    router, engine = start_router({}, registration=True, lease_ms=3000), start_engine(step_us=5000)
    wait_for(lambda: register(router, "a", message(engine.port))[0] == 200
             and router.engines().get("a", {}).get("state") == "ready", 30)  # fmt: skip
    connection, _, _ = begin(router, "/v1/completions", {**LONG, "max_tokens": 4000})
    wait_for(lambda: router.engines()["a"]["registered_ms_left"] <= 0, 30)
    assert router.post("/v1/completions", TEXT)[0] == 503
    assert router.engines()["a"]["requests"] == 1
    connection.close()
    wait_for(lambda: router.engines() == {}, 30)


def test_only_engines_keys_register_and_keys_rotate(start_router, engine, tmp_path):
    file = tmp_path / "keys.json"

    def keys(*rows):
        file.write_text(json.dumps({"keys": [
            {"name": "root", "key": "key-of-root", "admin": True},
            {"name": "ann", "key": "key-of-ann"}, *rows]}))
    first = {"name": "engines", "key": "first-key-of-engines", "engine": True}
    second = {"name": "engines", "key": "second-key-of-engines", "engine": True}
    keys(first)
    router = start_router({}, "--api-key-file", str(file), registration=True, ready=False)
    body = message(engine.port)
    refusal(router, "a", body, 401)
    refusal(router, "a", body, 401, key="wrong-key-of-nobody")
    assert '"engine": true' in refusal(router, "a", body, 403, key="key-of-ann")
    assert register(router, "a", body, key=first["key"])[0] == 200
    # Both are right while engines get the new one.
    keys(first, second)
    router.hang_up()
    wait_for(lambda: register(router, "a", body, key=second["key"])[0] == 200, 30)
    assert register(router, "a", body, key=first["key"])[0] == 200
    keys(second)
    router.hang_up()
    wait_for(lambda: register(router, "a", body, key=first["key"])[0] == 401, 30)
    assert register(router, "a", body, key=second["key"])[0] == 200


def test_what_does_not_fit_is_refused_by_name(start_router, engine, start_engine):
    other = start_engine()
    router = start_router({"fixed": engine.port}, registration=True, lease_ms=30000)
    assert "engine fixed at" in refusal(router, "fixed", message(other.port))
    assert "engine fixed at" in refusal(router, "a", message(engine.port))
    assert register(router, "a", message(other.port, generation=5))[0] == 200
    why = refusal(router, "b", message(1, fingerprint=FINGERPRINT.replace("1", "2")))
    assert "the weights' digest is 2 here and 1 at engine a" in why
    assert "is registered as a" in refusal(router, "a", message(1))
    # A former process at its address is late; a later one takes its place, under whatever name.
    assert "after this engine's start" in refusal(router, "a", message(other.port, generation=4))
    assert register(router, "b", message(other.port, generation=6))[0] == 200
    wait_for(lambda: set(router.engines()) == {"fixed", "b"}, 30)
    for wrong, why in [({**message(1), "version": 2}, "version: must be 1, got 2"),
                       ({**message(1), "url": "http://a"}, "url: must be http://HOST:PORT"),
                       ({**message(1), "x": 1}, "x: must be one of version")]:
        assert why in refusal(router, "c", wrong, 400)
    assert "at most 16384 bytes" in refusal(router, "c", {"x": "y" * 20000}, 413)
    assert "1 to 64 letters" in refusal(router, "%20", message(1), 400)


def test_registration_is_off_unless_the_configuration_allows_it(start_router, engine):
    router = start_router({"fixed": engine.port})
    assert '"registration": true' in refusal(router, "a", message(1), 403)


def test_a_reload_keeps_engines_that_registered(start_router, engine, start_engine):
    other = start_engine()
    config = {"registration": True, "lease_ms": 30000}
    router = start_router({"fixed": engine.port}, **config)
    register(router, "a", message(other.port))
    wait_for(lambda: router.state("a") == "ready", 30)
    router.write({}, **config)
    assert router.post("/reload", None)[0] == 200
    wait_for(lambda: list(router.engines()) == ["a"], 30)
    assert router.post("/v1/completions", TEXT)[0] == 200
    # The configuration's engine takes the place of one with its name or address.
    router.write({"b": other.port}, **config)
    router.post("/reload", None)
    wait_for(lambda: set(router.engines()) == {"b"}, 30)
    assert "in the router's configuration" in refusal(router, "a", message(other.port))
    router.write({"fixed": engine.port})
    router.post("/reload", None)
    assert "registration" in refusal(router, "c", message(1), 403)


def test_engines_that_registered_are_asked_with_the_key_of_engines(start_router, bad_engine):
    engine = bad_engine(lambda *_: False)
    config = {"registration": True, "lease_ms": 30000}
    router = start_router({}, engine_key="key-1", **config)
    assert register(router, "a", message(engine.port))[0] == 200
    for key in ("key-1", "key-2"):
        router.write({}, engine_key=key, **config)
        assert router.post("/reload", None)[0] == 200
        wait_for(lambda k=key: any(q.startswith("GET /v1/loads")
                                   and f"Authorization: Bearer {k}\r\n" in q + "\r\n"
                                   for q in engine.questions), 30)


def test_prefill_engines_get_no_requests_and_are_told_to_others(open_router, engine, start_engine):
    router, prefill = open_router, start_engine()
    body = message(prefill.port, role="prefill", handoff="10.0.0.9:7000")
    assert register(router, "p", body)[0] == 200
    wait_for(lambda: router.state("p") == "ready", 30)
    status, error = router.post("/v1/completions", TEXT)
    assert status == 503 and "computes prompts for other engines only" in error["error"]["message"]
    status, lease = register(router, "d", message(engine.port, role="decode"))
    assert lease["prefills"] == ["10.0.0.9:7000"]
    wait_for(lambda: router.post("/v1/completions", TEXT)[0] == 200, 30)
    assert prefill.metric("request_success_total") == 0


def test_serve_registers_renews_and_leaves(start_router, tmp_path):
    keys, key = tmp_path / "keys.json", tmp_path / "engine.key"
    keys.write_text(json.dumps({"keys": [
        {"name": "root", "key": "key-of-root", "admin": True},
        {"name": "engines", "key": "key-of-engines", "engine": True}]}))
    key.write_text("wrong-key\n")
    router = start_router({}, "--api-key-file", str(keys), registration=True, ready=False,
                          lease_ms=3000)
    root = {"Authorization": "Bearer key-of-root"}

    def engines():
        data = json.loads(router.request("GET", "/engines", headers=root)[2])["data"]
        return {row["name"]: row for row in data}
    flags = ["--threads", "1", "--draft", "off", "--register", f"http://127.0.0.1:{router.port}",
             "--register-key-file", str(key), "--register-name"]
    # Events that routers cannot read are not told to them.
    local = ["--kv-events", f"ipc://{tmp_path}/events"]
    with serving(*flags, "one", *local) as served:
        wait_for(lambda: any("not registered there: the API key is missing or wrong" in line
                             for line in served.log), 60)
        key.write_text("key-of-engines\n")
        wait_for(lambda: engines().get("one", {}).get("state") == "ready", 60)
        wait_for(lambda: engines().get("one", {}).get("url")
                 == f"http://127.0.0.1:{served.port}", 60)
        # Another model of the same name does not fit.
        with serving(*flags, "two", "--kv-dtype", "int8") as other:
            wait_for(lambda: any("--kv-dtype is" in line for line in other.log), 60)
        wait_for(lambda: router.request("POST", "/v1/completions", TEXT, headers=root)[0] == 200,
                 60)
        # It renews: what is left of its lease grows again and again.
        left = [0]

        def renewed():
            left.append(engines().get("one", {}).get("registered_ms_left", 0))
            return sum(b > a for a, b in itertools.pairwise(left)) >= 4
        wait_for(renewed, 60)
    wait_for(lambda: engines() == {}, 30)


def test_decode_engines_find_prefill_engines_at_the_router(start_router):
    router = start_router({}, registration=True, lease_ms=6000)
    flags = ["--threads", "1", "--draft", "off", "--max-model-len", "700", "--register",
             f"http://127.0.0.1:{router.port}", "--register-name"]  # fmt: skip
    tokens = [(i * i * 31 + i) % 900 + 5 for i in range(200)]
    with serving(*flags, "d", "--role", "decode") as decode:
        wait_for(lambda: router.engines().get("d", {}).get("state") == "ready", 60)
        with serving(*flags, "p", "--role", "prefill", "--handoff-listen", "127.0.0.1:0"):
            wait_for(lambda: any("paired with the prefill engine" in line for line in decode.log),
                     60)
            body = {"prompt": tokens, "max_tokens": 2, "temperature": 0}
            assert router.post("/v1/completions", body)[0] == 200
            at = At(decode.port, router)
            wait_for(lambda: re.search(r'handoffs_total{[^}]*end="done"[^}]*} 1',
                                       at.request("GET", "/metrics")[2].decode()), 60)
        # Without it, prompts are computed here, and nobody is asked for pages again.
        body["prompt"] = tokens[::-1]
        assert router.post("/v1/completions", body)[0] == 200
        wait_for(lambda: list(router.engines()) == ["d"], 60)


def test_a_prefill_engine_of_the_flag_stays_and_a_stop_ends_the_registration(start_router):
    router = start_router({}, registration=True, lease_ms=15000)
    flags = ["--threads", "1", "--draft", "off", "--max-model-len", "700"]
    prefill = ["--role", "prefill", "--handoff-listen"]
    register_at = ["--register", f"http://127.0.0.1:{router.port}", "--register-name"]
    with contextlib.ExitStack() as both:
        with serving(*flags, *prefill, "127.0.0.1:0") as first:
            def port():
                return re.search(r"decode engines may come to port (\d+)", "".join(first.log))
            wait_for(port, 60)
            listens = f"127.0.0.1:{port()[1]}"
            decode = both.enter_context(serving(*flags, "--role", "decode", "--prefill", listens,
                                                *register_at, "d"))  # fmt: skip

            def pairs():
                return sum("paired with the prefill engine" in line for line in decode.log)
            wait_for(lambda: pairs() == 1, 60)
            both.enter_context(serving(*flags, *prefill, "127.0.0.1:0", *register_at, "p"))
            wait_for(lambda: pairs() == 2, 60)
        # The router does not know the one of the flag, which is looked for again nevertheless.
        with serving(*flags, *prefill, listens):
            wait_for(lambda: pairs() == 3, 60)
    # Before the leases are over.
    wait_for(lambda: router.engines() == {}, 10)


def test_wrong_flags_are_refused(tmp_path):
    binary = os.environ.get("BRAID_BIN", str(ROOT / "build/release/braid"))
    for flags, why in [(["--register", "router:8080"], "--register: must be http://HOST:PORT"),
                       (["--register-name", "a"], "need --register"),
                       (["--register", "http://a:1", "--register-name", "a b"], "1 to 64 letters"),
                       (["--register", "http://a:1", "--register-key-file", "/no/such"],
                        "cannot be read")]:
        ran = subprocess.run([binary, "serve", str(ROOT / "models/braid-tiny"), "--port", "0",
                              *flags], capture_output=True, text=True, timeout=60, check=False)
        assert ran.returncode == 1 and why in ran.stderr, ran.stderr
