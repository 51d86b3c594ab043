"""`braid doctor prefix`: the place where two requests part, and the advice for each bad habit."""

import json

import pytest

RULES = "Answer briefly and clearly, in plain words. " * 20
ASK = {"role": "user", "content": "How much is 62 + 12?"}
ANSWER = {"role": "assistant", "content": "It is 74.", "reasoning_content": "62 + 12 = 74"}
MORE = {"role": "user", "content": "And three more than that?"}


def system(text):
    return {"role": "system", "content": text}


def tool(name, **extra):
    function = {"name": name, "parameters": {"type": "object"}} | extra
    return {"type": "function", "function": function}


def chat(*messages, **more):
    return {"messages": list(messages)} | more


@pytest.fixture
def doctor(braid, tiny, tmp_path):
    def run(first, second, *flags):
        paths = []
        for name, body in (("a.json", first), ("b.json", second)):
            paths.append(tmp_path / name)
            paths[-1].write_text(json.dumps(body))
        done = braid("doctor", "prefix", *paths, "--model", tiny, *flags)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout) if "--json" in flags else done.stdout

    return run


TALK = [system(RULES), ASK, ANSWER, MORE]
SWAPPED = {"function": {"parameters": {"type": "object"}, "name": "a"}, "type": "function"}
CASES = {
    "the same": (chat(*TALK), chat(*TALK), "the same: nothing to change", None),
    "a clock": (
        chat(system(RULES + "Now it is 10:00:01."), ASK),
        chat(system(RULES + "Now it is 10:07:45."), ASK),
        'a time, date or counter ("10:00:01.", then "10:07:45.")', "messages[0].content (system)"),
    "an identifier": (
        chat(system(RULES + "Session 3fa94c21-77aa."), ASK),
        chat(system(RULES + "Session 3fa9d0e5-1bcd."), ASK), "changes between the requests",
        "messages[0].content (system)"),
    "thinking": (
        chat(system(RULES), ASK), chat(*TALK), "one prompt has thinking here", "messages[2]"),
    "white space": (
        chat(system(RULES + "One line.\n\nAnother line of rules."), ASK),
        chat(system(RULES + "One line.\nAnother line of rules."), ASK), "only white space differs",
        "messages[0].content (system)"),
    "order of tools": (
        chat(system(RULES), ASK, tools=[tool("a"), tool("b")]),
        chat(system(RULES), ASK, tools=[tool("b"), tool("a")]),
        "the same tools come in another order", "tools included"),
    "order of keys": (
        chat(system(RULES), ASK, tools=[tool("a")]), chat(system(RULES), ASK, tools=[SWAPPED]),
        "their JSON keys in another order", "tools included"),
    "other tools": (
        chat(ASK, tools=[tool("a")]), chat(ASK, tools=[tool("a"), tool("b")]),
        "the list of tools differs", "tools included"),
    "template values": (
        chat(system(RULES), ASK, ANSWER, MORE),
        chat(system(RULES), ASK, ANSWER, MORE, chat_template_kwargs={"enable_thinking": False}),
        "chat_template_kwargs differ in enable_thinking", "what the template writes after"),
    "a cut history": (
        chat(system(RULES), ASK, ANSWER, MORE, ANSWER, ASK), chat(system(RULES), MORE, ANSWER, ASK),
        "messages[1] to messages[2] of the first request are missing", "messages[1].content"),
    "an edit": (
        chat(system(RULES), ASK, ANSWER, MORE),
        chat(system(RULES), ASK | {"content": "What is seven times eight?"}, ANSWER, MORE),
        "messages[1] (user) is not what it was", "messages[1].content (user)"),
    "a new question": (
        chat(system(RULES), ASK), chat(system(RULES), MORE), "the messages before are the same",
        "messages[1].content (user)"),
    "salts": (chat(*TALK), chat(*TALK, cache_salt="x"), "cache_salt differs", None),
    "texts": ({"prompt": "Once upon"}, {"prompt": "Twice upon"}, "different texts", "prompt"),
    "ids": ({"prompt": [5, 6, 7]}, {"prompt": [5, 6, 7, 8]}, "goes on where the first ends", None),
}


@pytest.mark.parametrize("case", CASES)
def test_each_habit_that_breaks_a_prefix_is_named(doctor, case):
    first, second, advice, where = CASES[case]
    found = doctor(first, second, "--json")
    assert any(advice in line for line in found["advice"]), found["advice"]
    if where:
        assert where in found["b"]["where"]
        assert found["common_tokens"] < found["b"]["tokens"]


def test_f3_a_nonce_near_the_front_of_an_agents_prompt_is_named(doctor):
    def agent(nonce):
        front = system(f"x-billing-header: version=2.1.4; request={nonce};\n" + RULES * 10)
        return chat(front, *[ASK, ANSWER] * 8, MORE)

    found = doctor(agent("3fa94c21-77aa"), agent("9bd0e5c1-1bcd"), "--json")
    assert found["b"]["where"].endswith("messages[0].content (system)")
    assert found["b"]["after"].startswith("9bd0e5c1")
    assert found["common_tokens"] < 64 and found["b"]["tokens"] > 1500
    assert found["reusable_tokens_next"] == found["reusable_tokens_later"] == 0
    assert any("changes between the requests" in line for line in found["advice"]), found


def test_the_place_is_shown_with_its_surroundings(doctor):
    first, second, _, _ = CASES["a clock"]
    found = doctor(first, second, "--json")
    a, b = found["a"], found["b"]
    assert a["before"] == b["before"] and a["before"].endswith("Now it is 10:0")
    assert a["after"].startswith("0:01") and b["after"].startswith("7:45")
    assert (a["token"], b["token"]) == ("0", "7")
    text = doctor(first, second)
    assert f"the first {found['common_tokens']} tokens are the same" in text
    assert "Now it is 10:0⟦7:45." in text


@pytest.mark.parametrize("common, second, chunk, next_, later", (
    (300, 310, 2048, 256, 256),  # the first prompt's last boundary is before the place
    (130, 300, 2048, 0, 128),  # states at the end of the only chunk: after the place
    (200, 300, 128, 128, 192),  # a chunk ended before the place
    (310, 128, 2048, 0, 64),  # one token at least is computed
))
def test_reuse_is_told_in_whole_blocks(doctor, common, second, chunk, next_, later):
    ids = list(range(1000, 1310))
    other = ids[:common] + list(range(2000, 2400))
    flags = ("--json", "--max-batch-tokens", chunk)
    found = doctor({"prompt": ids}, {"prompt": other[:second]}, *flags)
    assert (found["reusable_tokens_next"], found["reusable_tokens_later"]) == (next_, later)


def test_what_cannot_be_compared_is_refused(braid, tiny, tmp_path):
    good, bad = tmp_path / "good.json", tmp_path / "bad.json"
    good.write_text(json.dumps({"prompt": "a"}))
    for body, word in (('{"prompt": ["a", "b"]}', "has 2 prompts"),
                       ("[1]", "must be a JSON object"),
                       ('{"messages": []}', "messages: must have 1 to"), ("{", "bad.json")):
        bad.write_text(body)
        done = braid("doctor", "prefix", good, bad, "--model", tiny)
        assert done.returncode == 1 and word in done.stderr, done.stderr
    done = braid("doctor", "prefix", good, good)
    assert done.returncode == 1 and "--model is needed" in done.stderr
