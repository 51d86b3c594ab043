"""Prefix reuse as a user of the openai client sees it, on the real model."""

import json
import urllib.request

QUESTION = "How much is 62 + 12? " * 20


def test_a_conversation_reuses_its_own_turns_and_says_so(client, model, base_url):
    urllib.request.urlopen(
        urllib.request.Request(f"{base_url}/flush_cache", method="POST"), timeout=60).close()
    messages = [{"role": "system", "content": "Answer in one short sentence. " * 12}]
    known = 0
    for turn in range(3):
        messages.append({"role": "user", "content": QUESTION + f"Round {turn}."})
        answer = client.chat.completions.create(
            model=model, messages=messages, max_tokens=40, temperature=0,
            extra_body={"braid": {"explain": True}})
        (explained,) = answer.model_extra["braid"]["prompts"]
        usage = answer.usage
        assert usage.prompt_tokens_details.cached_tokens == explained["reused_tokens"]
        assert explained["prompt_tokens"] == usage.prompt_tokens
        # All whole blocks of the turn before, but for what the template writes after its question.
        assert explained["reused_tokens"] >= known - 2 * 64
        assert (explained["reused_tokens"] > 0) == (turn > 0), explained["explanation"]
        known = usage.prompt_tokens
        messages.append({"role": "assistant", "content": answer.choices[0].message.content or ""})


def test_the_plan_is_part_of_server_info(base_url):
    with urllib.request.urlopen(f"{base_url}/server_info", timeout=60) as response:
        plan = json.load(response)
    assert plan["prefix_cache"] is True
    assert [row["tokens"] for row in plan["capacity"]] == [512, 4096, plan["context_tokens_max"]]
    for row in plan["capacity"]:
        assert row["resumable_conversations"] > row["running_sequences"] // 2 > 0
