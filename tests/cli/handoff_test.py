"""Prompts computed by one engine and answered by another: the answers of one engine, whoever has
what prefix, and whoever dies."""

import concurrent.futures
import contextlib
import http.client
import json
import os
import pathlib
import re
import signal
import sys
import time

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from serving import serving  # noqa: E402

FLAGS = ["--threads", "1", "--draft", "off", "--max-model-len", "4096", "--memory", "300M",
         "--kv-dtype", "bf16"]  # fmt: skip
# How often a partner is killed or stopped in each phase; the suite takes the least.
TIMES = int(os.environ.get("BRAID_HANDOFF_FAULTS", "1"))


def with_flags(more):
    """FLAGS, but what `more` says otherwise."""
    pairs = list(zip(FLAGS[::2], FLAGS[1::2], strict=True))
    return [word for pair in pairs if pair[0] not in more for word in pair] + list(more)


def post(port, body, timeout=60):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    with contextlib.closing(connection):
        connection.request("POST", "/v1/completions", json.dumps({"max_tokens": 20, **body}),
                           {"Content-Type": "application/json"})
        response = connection.getresponse()
        answer = json.loads(response.read())
        assert response.status == 200, answer
        return answer["choices"]


def metric(served, name, labels=""):
    connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=60)
    with contextlib.closing(connection):
        connection.request("GET", "/metrics")
        text = connection.getresponse().read().decode()
    found = re.findall(rf"^braid:{name}{{[^}}]*{re.escape(labels)}[^}}]*}} (\S+)$", text, re.M)
    return sum(map(float, found))


def until(holds, seconds=30):
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "it did not come to that in time"
        time.sleep(0.05)


def handoff_port(served):
    for line in served.log:
        if match := re.search(r"decode engines may come to port (\d+)", line):
            return int(match[1])
    raise AssertionError("".join(served.log))


def prefilling(*flags, **more):
    return serving("--role", "prefill", "--handoff-listen", "127.0.0.1:0", *with_flags(flags),
                   **more)


@contextlib.contextmanager
def decoding(prefills, *flags, **more):
    where = ",".join(f"127.0.0.1:{handoff_port(p)}" for p in prefills)
    with serving("--role", "decode", "--prefill", where, *with_flags(flags), **more) as served:
        until(lambda: metric(served, "handoff_partners") == len(prefills))
        yield served


def no_pages_are_used(*engines):
    for engine in engines:
        until(lambda e=engine: metric(e, "cache_pages", 'state="used"') == 0)


def prompt(seed, tokens):
    return [(seed * 7919 + i * i * 31 + i) % 900 + 5 for i in range(tokens)]


SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"],
          "additionalProperties": False}  # fmt: skip
REQUESTS = [
    {"prompt": prompt(1, 200), "temperature": 0, "logprobs": 2},
    {"prompt": prompt(1, 200), "temperature": 0.9, "seed": 4},  # the prefix is cached at both
    {"prompt": prompt(1, 330), "temperature": 0.9, "seed": 5, "logprobs": 1},
    {"prompt": prompt(2, 64), "temperature": 0},
    {"prompt": prompt(3, 192), "temperature": 0.8, "seed": 6},
    {"prompt": prompt(4, 63), "temperature": 0},  # less than a block: computed at once
    {"prompt": prompt(5, 3000), "temperature": 0.7, "seed": 7},  # two chunks
    {"prompt": prompt(6, 300), "temperature": 0.9, "seed": 8, "n": 3},
    {"prompt": prompt(7, 250), "temperature": 0, "max_tokens": 1},
    {"prompt": prompt(8, 250), "temperature": 0.9, "seed": 9, "min_tokens": 10, "max_tokens": 40,
     "repetition_penalty": 1.3},
    {"prompt": prompt(9, 150), "temperature": 0, "max_tokens": 40,
     "response_format": {"type": "json_schema", "json_schema": {"name": "s", "schema": SCHEMA}}},
]  # fmt: skip


@pytest.fixture(scope="module")
def wanted():
    with serving(*FLAGS) as alone:
        return [post(alone.port, body) for body in REQUESTS]


@pytest.fixture(scope="module")
def pair():
    with prefilling() as prefill, decoding([prefill]) as decode:
        yield prefill, decode


def test_each_side_goes_on_with_its_own_pages_after_a_restart(wanted, tmp_path):
    chosen = (0, 6, 10)
    for turn in range(2):
        with (prefilling("--cache-dir", str(tmp_path / "prefill")) as prefill,
              decoding([prefill], "--cache-dir", str(tmp_path / "decode")) as decode):
            for i in chosen:
                assert post(decode.port, REQUESTS[i]) == wanted[i]
            until(lambda: metric(decode, "handoffs_total", 'end="done"') == len(chosen))
            for engine in (prefill, decode):
                assert (metric(engine, "tier_hits_total") > 3000) == (turn == 1)


def test_one_and_one_answer_as_one(pair, wanted):
    prefill, decode = pair
    for body, answer in zip(REQUESTS, wanted, strict=True):
        assert post(decode.port, body) == answer
    # Not by computing the prompts itself.
    assert metric(decode, "handoffs_total", 'end="failed"') == 0
    # Three of n = 3; two are its own.
    until(lambda: metric(decode, "handoffs_total", 'end="done"') == 11)
    until(lambda: metric(prefill, "handoffs_total", 'end="done"') == 11)
    assert metric(prefill, "handoff_bytes_total", 'when="prefill"') > 0
    no_pages_are_used(prefill, decode)


def test_together_they_answer_as_alone(pair, wanted):
    prefill, decode = pair
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda body: post(decode.port, body), REQUESTS * 3))
    assert answers == wanted * 3
    assert metric(decode, "handoffs_total", 'end="failed"') == 0
    no_pages_are_used(prefill, decode)


def test_two_prefill_engines_share_the_prompts(pair, wanted):
    with prefilling() as second, decoding([pair[0], second]) as decode:
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(lambda body: post(decode.port, body), REQUESTS))
        assert answers == wanted
        until(lambda: metric(second, "handoffs_total", 'end="done"') > 0)
        no_pages_are_used(second, decode)


def test_two_decode_engines_share_a_prefill_engine(pair, wanted):
    prefill, decode = pair
    with decoding([prefill]) as second:
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            both = [*pool.map(lambda body: post(decode.port, body), REQUESTS),
                    *pool.map(lambda body: post(second.port, body), REQUESTS)]
        assert both == wanted * 2
        no_pages_are_used(prefill, decode, second)


@pytest.mark.parametrize("side", ["prefill", "decode"])
def test_little_memory_changes_no_answer(wanted, side):
    """The first cannot hold all at once: it queues and preempts."""
    little = ["--memory", "86M", "--max-model-len", "3100"]
    with prefilling(*(little if side == "prefill" else [])) as prefill, \
            decoding([prefill], *(little if side == "decode" else [])) as decode:  # fmt: skip
        with concurrent.futures.ThreadPoolExecutor(24) as pool:
            answers = list(pool.map(lambda body: post(decode.port, body), REQUESTS * 2))
        assert answers == wanted * 2
        until(lambda: metric(decode, "handoffs_total", 'end="done"') > 0)
        no_pages_are_used(prefill, decode)


@pytest.mark.parametrize("draft", ["ngram", "3"])  # looked up; of the model's head
def test_drafts_change_no_answer(wanted, draft):
    with prefilling("--draft", draft) as prefill, \
            decoding([prefill], "--draft", draft) as decode:  # fmt: skip
        assert [post(decode.port, body) for body in REQUESTS] == wanted
        assert metric(decode, "handoffs_total", 'end="failed"') == 0


@pytest.mark.parametrize("prefill, decode", [
    (["--tp", "2"], []),
    ([], ["--tp", "2"]),
    (["--tp", "2", "--ep", "2", "--draft", "3"], ["--draft", "3"]),
])  # fmt: skip
def test_engines_of_unlike_ranks_answer_as_one(wanted, prefill, decode):
    with prefilling(*prefill) as computes, decoding([computes], *decode) as answers:
        assert [post(answers.port, body) for body in REQUESTS] == wanted
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            assert list(pool.map(lambda body: post(answers.port, body), REQUESTS)) == wanted
        assert metric(answers, "handoffs_total", 'end="failed"') == 0
        assert metric(answers, "handoffs_total", 'end="done"') >= 11
        no_pages_are_used(computes, answers)


def test_each_side_places_experts_by_its_own_load(wanted):
    """Prompts and answers may want other experts; the maps of the two engines differ then."""
    flags = ["--tp", "2", "--ep", "2", "--redundant-experts", "2", "--balance-experts",
             "--balance-every", "10", "--balance-below", "1"]  # fmt: skip
    with prefilling(*flags) as prefill, decoding([prefill], *flags) as decode:
        moved = set()
        for turn in range(40):
            for body, answer in zip(REQUESTS, wanted, strict=True):
                assert post(decode.port, {**body, "cache_salt": str(turn)}) == answer, body
            moved |= {side for side, engine in (("prefill", prefill), ("decode", decode))
                      if metric(engine, "expert_moves_total", 'result="done"') > 0}  # fmt: skip
            if len(moved) == 2:
                break
        assert moved == {"prefill", "decode"}
        assert metric(decode, "handoffs_total", 'end="failed"') == 0


def test_clients_that_leave_leave_nothing(pair):
    prefill, decode = pair
    body = json.dumps({"prompt": prompt(20, 3500), "max_tokens": 5})
    for wait in (0.0, 0.05, 0.2, 0.5):
        connection = http.client.HTTPConnection("127.0.0.1", decode.port, timeout=60)
        connection.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
        time.sleep(wait)
        connection.close()
    no_pages_are_used(prefill, decode)
    until(lambda: metric(prefill, "num_requests_running") == 0)


def answers_while(decode, fault, after):
    """What clients get whose prompts are computed while the fault happens."""
    bodies = [{"prompt": prompt(30 + i, 1500 + i), "temperature": 0} for i in range(4)]
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        answers = [pool.submit(post, decode.port, body) for body in bodies]
        time.sleep(after)
        fault()
        return bodies, [a.result() for a in answers]


@pytest.mark.parametrize("sign", [signal.SIGKILL, signal.SIGSTOP])
@pytest.mark.parametrize("after", [0.02, 0.4, 1.2][: 1 + TIMES])
def test_a_prefill_engine_that_is_lost_is_made_up_for(sign, after):
    for _ in range(TIMES):
        with prefilling(may_be_killed=True) as prefill:
            try:
                with decoding([prefill]) as decode:
                    bodies, answers = answers_while(
                        decode, lambda: prefill.process.send_signal(sign), after)  # fmt: skip
                    until(lambda: metric(decode, "handoff_partners") == 0)
                    assert [post(decode.port, body) for body in bodies] == answers
                    no_pages_are_used(decode)
            finally:
                prefill.process.kill()


@pytest.mark.parametrize("sign", [signal.SIGKILL, signal.SIGSTOP])
def test_a_decode_engine_that_is_lost_costs_the_other_nothing(sign):
    with prefilling() as prefill:
        for _ in range(TIMES):
            with decoding([prefill], may_be_killed=True) as decode, \
                    concurrent.futures.ThreadPoolExecutor(4) as pool:  # fmt: skip
                try:
                    for i in range(4):  # nobody asks what became of them
                        body = {"prompt": prompt(40 + i, 2000), "max_tokens": 5}
                        pool.submit(lambda b=body: post(decode.port, b, timeout=10))
                    time.sleep(0.3)
                    decode.process.send_signal(sign)
                    until(lambda: metric(prefill, "handoff_partners") == 0)
                    no_pages_are_used(prefill)
                finally:
                    decode.process.kill()
        with decoding([prefill]) as decode:  # another one is served
            post(decode.port, {"prompt": prompt(50, 200)})
            until(lambda d=decode: metric(d, "handoffs_total", 'end="done"') == 1)


def test_a_stopping_prefill_engine_waits_for_its_room():
    body = {"prompt": prompt(90, 3500), "temperature": 0}
    with prefilling() as prefill:
        with decoding([prefill]) as decode, concurrent.futures.ThreadPoolExecutor(1) as pool:
            answer = pool.submit(post, decode.port, body)
            until(lambda: metric(prefill, "num_requests_running") == 1)
            prefill.process.terminate()
            assert answer.result()
            until(lambda: metric(decode, "handoffs_total") == 1)
            assert metric(decode, "handoffs_total", 'end="done"') == 1
            assert prefill.process.wait(60) == 0
            assert post(decode.port, body) == answer.result()


def test_a_prefill_engine_that_is_not_there_is_named_in_the_log():
    with serving("--role", "decode", "--prefill", "127.0.0.1:1", *FLAGS) as decode:
        until(lambda: "prefill engine 127.0.0.1:1 cannot be reached" in "".join(decode.log))
        for i in range(2):
            post(decode.port, {"prompt": prompt(100 + i, 100)})
        assert "".join(decode.log).count("no prefill engine is connected") == 1


def test_prompts_that_a_stopping_prefill_engine_refuses_go_to_the_other():
    long = [{"prompt": prompt(91 + i, 3500), "temperature": 0} for i in range(2)]
    with prefilling() as first, prefilling() as second, \
            decoding([first, second]) as decode, \
            concurrent.futures.ThreadPoolExecutor(2) as pool:  # fmt: skip
        answers = [pool.submit(post, decode.port, body) for body in long]
        until(lambda: all(metric(e, "num_requests_running") == 1 for e in (first, second)))
        first.process.terminate()
        for i in range(6):
            post(decode.port, {"prompt": prompt(95 + i, 200), "max_tokens": 2})
        assert all(answer.result() for answer in answers)
        until(lambda: metric(decode, "handoffs_total") == 8)
        assert metric(decode, "handoffs_total", 'end="failed"') == 0
        assert first.process.wait(60) == 0


def test_a_prefill_engine_that_comes_back_is_used_again():
    with prefilling() as prefill:
        port = handoff_port(prefill)
        with decoding([prefill]) as decode:
            prefill.process.terminate()
            prefill.process.wait(60)
            until(lambda: metric(decode, "handoff_partners") == 0)
            first = post(decode.port, {"prompt": prompt(60, 200), "temperature": 0})
            with serving("--role", "prefill", "--handoff-listen", f"127.0.0.1:{port}", *FLAGS):
                until(lambda: metric(decode, "handoff_partners") == 1)
                again = post(decode.port, {"prompt": prompt(60, 200), "temperature": 0})
                assert again == first
                # Shown a moment after the answer; one that never comes is seen by its number.
                until(lambda: metric(decode, "handoffs_total", 'end="done"') == 1)
                post(decode.port, {"prompt": prompt(61, 200)})
                until(lambda: metric(decode, "handoffs_total", 'end="done"') == 2)


@pytest.mark.parametrize("flags, why", [
    (["--kv-dtype", "int8"], "--kv-dtype is"),
    (["--state-dtype", "bf16"], "--state-dtype is"),
    (["--weights", "q8_0"], "--weights is"),
])  # fmt: skip
def test_unlike_engines_do_not_pair_and_say_what_differs(pair, flags, why):
    where = f"127.0.0.1:{handoff_port(pair[0])}"
    with serving("--role", "decode", "--prefill", where, *with_flags(flags)) as other:
        until(lambda: why in "".join(other.log))
        post(other.port, {"prompt": prompt(70, 200)})  # computed here
        assert metric(other, "handoff_partners") == 0


def test_partners_need_one_key(tmp_path):
    keys = [tmp_path / "a", tmp_path / "b"]
    for name, key in zip("ab", keys, strict=True):
        key.write_text(name * 32 + "\n")
    with prefilling("--handoff-key-file", str(keys[0])) as prefill:
        with decoding([prefill], "--handoff-key-file", str(keys[0])) as decode:
            post(decode.port, {"prompt": prompt(80, 200)})
            until(lambda d=decode: metric(d, "handoffs_total", 'end="done"') == 1)
        where = f"127.0.0.1:{handoff_port(prefill)}"
        for flags in (["--handoff-key-file", str(keys[1])], []):
            with serving("--role", "decode", "--prefill", where, *with_flags(flags)) as other:
                until(lambda o=other: "--handoff-key-file of the two engines differ" in
                      "".join(o.log))  # fmt: skip
                assert metric(other, "handoff_partners") == 0


@pytest.mark.parametrize("first, second, pairs", [
    ("o", "no", True), ("o", "on", True), ("no", "on", True), ("no", "n", True), ("n", "no", True),
    ("no", "o", False),  # a prefill engine uses the first one
])  # fmt: skip
def test_a_key_is_replaced_while_both_are_in_use(tmp_path, first, second, pairs):
    files = [tmp_path / "prefill", tmp_path / "decode"]
    for file, names in zip(files, (first, second), strict=True):
        file.write_text("".join(name * 32 + "\n" for name in names))
    with prefilling("--handoff-key-file", str(files[0])) as prefill:
        where = f"127.0.0.1:{handoff_port(prefill)}"
        flags = with_flags(["--handoff-key-file", str(files[1])])
        with serving("--role", "decode", "--prefill", where, *flags) as decode:
            if not pairs:
                until(lambda: "--handoff-key-file of the two engines differ" in "".join(decode.log))
                return
            until(lambda: metric(decode, "handoff_partners") == 1)
            post(decode.port, {"prompt": prompt(80, 200)})
            until(lambda: metric(decode, "handoffs_total", 'end="done"') == 1)
        assert "nnnn" not in "".join(prefill.log) and "oooo" not in "".join(prefill.log)


def test_a_key_is_replaced_without_a_restart(tmp_path):
    file = tmp_path / "keys"
    decodes = {name: tmp_path / name for name in "on"}
    for name, key in (*decodes.items(), ("o", file)):
        key.write_text(name * 32 + "\n")

    def read_again(text, engine, wanted):
        file.write_text(text)
        lines = "".join(engine.log).count(wanted)
        engine.process.send_signal(signal.SIGHUP)
        until(lambda: "".join(engine.log).count(wanted) == lines + 1)

    def decoding_with(prefill, name):
        return decoding([prefill], "--handoff-key-file", str(decodes[name]))

    with prefilling("--handoff-key-file", str(file)) as prefill, \
            decoding_with(prefill, "o") as stays:  # fmt: skip
        read_again("n" * 32 + "\n" + "o" * 32, prefill, "secrets were read again")
        read_again("short", prefill, "secrets stay as they were: --handoff-key-file")
        with decoding_with(prefill, "n"):
            pass
        where = f"127.0.0.1:{handoff_port(prefill)}"
        flags = with_flags(["--handoff-key-file", str(decodes["o"])])
        with serving("--role", "decode", "--prefill", where, *flags) as late:
            until(lambda: "--handoff-key-file of the two engines differ" in "".join(late.log))
            decodes["o"].write_text("o" * 32 + "\n" + "n" * 32 + "\n")
            late.process.send_signal(signal.SIGHUP)
            until(lambda: metric(late, "handoff_partners") == 1)
        assert metric(stays, "handoff_partners") == 1
        post(stays.port, {"prompt": prompt(80, 200)})
        until(lambda: metric(stays, "handoffs_total", 'end="done"') == 1)


def test_a_key_file_without_usable_secrets_is_refused(braid, tiny, tmp_path):
    for text, why in (("\n", "holds no secret"), ("a" * 32 + "\nshort\n", "line 2 has 5 bytes"),
                      (("a" * 32 + "\n") * 9, "more than 8 lines")):  # fmt: skip
        file = tmp_path / "keys"
        file.write_text(text)
        ran = braid("serve", tiny, "--port", "0", "--role", "decode", "--prefill", "a:1",
                    "--handoff-key-file", str(file), timeout=60)  # fmt: skip
        assert ran.returncode == 1 and why in ran.stderr and "short" not in ran.stderr


@pytest.mark.parametrize("flags, why", [
    ("--role prefill", "--role prefill and --handoff-listen HOST:PORT go together"),
    ("--role decode", "--role decode and --prefill HOST:PORT,… go together"),
    ("--prefill a:1", "--role decode and --prefill HOST:PORT,… go together"),
    ("--role decode --prefill a", "a is not HOST:PORT"),
    ("--role prefill --handoff-listen 0.0.0.0:0", "give all partners a --handoff-key-file"),
    ("--role decode --prefill a:1 --tp 2 --memory 50M",
     "memory of 50.0 MiB is too small: copies of pages between engines take 64.0 MiB"),
    ("--role decode --prefill a:1 --dp 2", "--role prefill and decode need one group of ranks"),
    ("--role decode --prefill a:1 --draft off --event-log /tmp/x", "--event-log holds no pages"),
])  # fmt: skip
def test_flags_that_do_not_fit_are_refused(braid, tiny, flags, why):
    ran = braid("serve", tiny, "--port", "0", *flags.split(), timeout=60)
    assert ran.returncode == 1
    assert why in ran.stderr
