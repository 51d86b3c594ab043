"""What a client learns of the prefix cache: the braid object, /metrics, salts."""

import json
import os
import re
import subprocess

import pytest

from conftest import ROOT, wait_for

BLOCK = 64


def ask(server, prompt, **more):
    body = {"prompt": prompt, "max_tokens": 1, "ignore_eos": True, "braid": {"explain": True}}
    status, answer = server.post("/v1/completions", body | more)
    assert status == 200, answer
    return answer


def reuse(server, prompt, **more):
    answer = ask(server, prompt, **more)
    (found,) = answer["braid"]["prompts"]
    assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] == found["reused_tokens"]
    return found


def ids(seed, count):
    return [(seed * 7919 + 31 * i) % 4000 + 3 for i in range(count)]


def by_label(server, name, label):
    text = server.request("GET", "/metrics")[2].decode()
    found = re.findall(rf'^braid:{name}{{[^}}]*{label}="(\w+)"[^}}]*}} (\S+)$', text, re.M)
    assert found, text
    return {key: float(value) for key, value in found}


def test_an_answer_explains_its_reuse_only_when_asked(start_server):
    server = start_server()
    status, plain = server.post("/v1/completions", {"prompt": ids(1, 200), "max_tokens": 1})
    assert status == 200 and "braid" not in plain
    found = reuse(server, ids(1, 200))
    assert found["prompt_tokens"] == 200 and found["reused_tokens"] == 3 * BLOCK
    assert found["stop"] == "complete" and "the last 8 of 200 tokens" in found["explanation"]
    assert "because the last token of a prompt is always recomputed" in found["explanation"]
    assert found["preemptions"] == 0


def test_every_reason_is_told_and_counted(start_server):
    # 20 pages of one block each; a prompt of 320 tokens takes five of keys and one of state.
    server = start_server(pages=20)
    assert reuse(server, ids(1, 320))["stop"] == "never_seen"
    assert reuse(server, ids(1, 320))["stop"] == "complete"
    branch = ids(1, 130) + ids(2, 190)
    found = reuse(server, branch)
    assert found["stop"] == "no_snapshot"
    assert (found["reused_tokens"], found["known_tokens"]) == (0, 2 * BLOCK)
    assert "up to token 128" in found["explanation"]
    for seed in range(3, 9):
        reuse(server, ids(seed, 320))
    assert reuse(server, ids(1, 320))["stop"] == "evicted"
    scored = reuse(server, ids(8, 320), prompt_logprobs=1)
    assert scored["stop"] == "off" and scored["reused_tokens"] == 0

    stops = by_label(server, "prefix_reuse_stops_total", "reason")
    assert stops == {"never_seen": 7, "complete": 1, "no_snapshot": 1, "evicted": 1, "off": 1}
    lost = by_label(server, "prefix_reuse_lost_tokens_total", "reason")
    assert lost["never_seen"] == 7 * 320 + (320 - 128)
    assert lost["complete"] == 64 and lost["no_snapshot"] == 128 and lost["off"] == 320
    queries, hits = server.metric("prefix_cache_queries_total"), server.metric(
        "prefix_cache_hits_total")
    assert queries == 11 * 320 and hits + sum(lost.values()) == queries
    evictions = by_label(server, "prefix_cache_evictions_total", "kind")
    assert evictions["keys_values"] > 0 and evictions["state"] > 0


def common_prefix(a, b):
    return next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))


def test_f2_branching_conversations_reuse_all_but_a_block_and_the_rest_is_told(start_server):
    server = start_server()
    seen = []

    def ask_chat(*messages):
        status, told = server.post("/tokenize", {"messages": messages})
        assert status == 200, told
        common = max((common_prefix(told["tokens"], earlier) for earlier in seen), default=0)
        seen.append(told["tokens"])
        body = {"messages": messages, "max_tokens": 1, "braid": {"explain": True}}
        status, answer = server.post("/v1/chat/completions", body)
        assert status == 200, answer
        (found,) = answer["braid"]["prompts"]
        assert found["prompt_tokens"] == len(told["tokens"])
        assert found["known_tokens"] >= common - BLOCK, "the keys of what is common are known"
        if found["stop"] != "no_snapshot":
            assert found["reused_tokens"] >= common - BLOCK, found["explanation"]
        return common, found

    def user(text):
        return {"role": "user", "content": f"{text} " * 30}

    system = {"role": "system", "content": "Answer in one short sentence. " * 40}
    for session in range(20):
        first = user(f"What is the {session}th number?")
        common, found = ask_chat(system, first)
        assert session < 2 or found["reused_tokens"] >= common - BLOCK > BLOCK
        turn = {"role": "assistant", "content": "It is known. " * 20,
                "reasoning_content": f"The number {session} is asked for. " * 20}
        for edit in range(4):
            common, found = ask_chat(system, first, turn, user(f"{edit} more than that?"))
        assert common > 4 * BLOCK and found["reused_tokens"] >= common - BLOCK

    stops = by_label(server, "prefix_reuse_stops_total", "reason")
    assert sum(stops.values()) == len(seen) == 100
    lost = by_label(server, "prefix_reuse_lost_tokens_total", "reason")
    hits = server.metric("prefix_cache_hits_total")
    assert hits + sum(lost.values()) == sum(map(len, seen))
    assert stops["no_snapshot"] <= 1 + 20, "once at each place where conversations part"
    assert lost["evicted"] == 0


def test_a_stream_ends_with_the_explanation(server):
    body = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 2, "stream": True,
            "braid": {"explain": True}}
    status, _, data = server.request("POST", "/v1/chat/completions", body)
    events = [line[6:] for line in data.decode().splitlines() if line.startswith("data: ")]
    assert status == 200 and events[-1] == "[DONE]"
    last = json.loads(events[-2])
    assert last["choices"] == [] and last["usage"]["completion_tokens"] == 2
    assert last["braid"]["prompts"][0]["prompt_tokens"] == last["usage"]["prompt_tokens"]
    assert all("braid" not in json.loads(event) for event in events[:-2])


def test_each_prompt_of_a_request_has_its_entry(server):
    answer = ask(server, [ids(40, 70), ids(41, 200)], n=2)
    assert [p["prompt_tokens"] for p in answer["braid"]["prompts"]] == [70, 200]


def test_a_salt_shares_with_nobody_else(start_server):
    server = start_server()
    reuse(server, ids(1, 200), cache_salt="a")
    for other in ({}, {"cache_salt": "b"}):
        assert reuse(server, ids(1, 200), **other)["stop"] == "never_seen"
    assert reuse(server, ids(1, 200), cache_salt="a")["reused_tokens"] == 3 * BLOCK


def test_flushing_forgets_and_says_so_in_the_pages(start_server):
    server = start_server(pages=100)
    reuse(server, ids(1, 320))
    wait_for(lambda: by_label(server, "cache_pages", "state")["used"] == 0)
    pages = by_label(server, "cache_pages", "state")
    assert pages["cached"] > 4
    assert sum(pages.values()) == 99  # without the sink
    status, _, body = server.request("POST", "/flush_cache")
    assert status == 200 and json.loads(body) == {"status": "ok"}
    wait_for(lambda: by_label(server, "cache_pages", "state")["cached"] == 0)
    found = reuse(server, ids(1, 320))
    assert found["reused_tokens"] == 0
    assert server.request("GET", "/flush_cache")[0] == 405


@pytest.mark.parametrize("first, common, second", (
    (200, 200, 300), (320, 320, 400), (320, 320, 320), (310, 130, 300), (5000, 4500, 4600),
    (5000, 2100, 4600), (4000, 50, 100)))
def test_the_doctor_foretells_what_the_server_reuses(start_server, tmp_path, first, common, second):
    server = start_server()
    paths = [tmp_path / "a.json", tmp_path / "b.json"]
    before, after = ids(1, first), ids(1, first)[:common] + ids(2, second - common)
    for path, prompt in zip(paths, (before, after)):
        path.write_text(json.dumps({"prompt": prompt}))
    binary = os.environ.get("BRAID_BIN", str(ROOT / "build/release/braid"))
    done = subprocess.run([binary, "doctor", "prefix", *paths, "--json", "--model",
                           ROOT / "models/braid-tiny"], capture_output=True, check=True)
    told = json.loads(done.stdout)
    reuse(server, before)
    assert reuse(server, after)["reused_tokens"] == told["reusable_tokens_next"]
    # The third shares what is common and nothing else.
    third = after[:common] + ids(3, second - common)
    assert reuse(server, third)["reused_tokens"] == told["reusable_tokens_later"]


def test_wrong_options_are_named(server):
    for extra, word in ((
            {"braid": 3}, "braid: must be an object"), (
            {"braid": {"explain": 1}}, "braid.explain: must be true or false"), (
            {"braid": {"explian": True}}, "braid.explian: is unknown"), (
            {"cache_salt": ""}, "cache_salt: must be a string of 1 to 256 bytes"), (
            {"cache_salt": 5}, "cache_salt: must be a string")):
        status, answer = server.post("/v1/completions", {"prompt": "a"} | extra)
        assert status == 400 and word in answer["error"]["message"], answer
