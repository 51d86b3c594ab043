"""The official `openai` client, unchanged, against braid: everything a newcomer tries first."""

import asyncio
import random

import openai
import pytest

QUESTION = [{"role": "user", "content": "Tom has 12 apples and buys 7 more. How many has he?"}]
NO_THINKING = {"chat_template_kwargs": {"enable_thinking": False}}


def text_of(stream):
    """(content, reasoning, finish reasons, usage) of a chat stream."""
    content, reasoning, finishes, usage = "", "", [], None
    for chunk in stream:
        usage = chunk.usage or usage
        for choice in chunk.choices:
            content += choice.delta.content or ""
            reasoning += getattr(choice.delta, "reasoning_content", None) or ""
            finishes += [choice.finish_reason] if choice.finish_reason else []
    return content, reasoning, finishes, usage


def test_models_are_listed_and_found(client, model):
    listed = client.models.list().data
    assert [entry.id for entry in listed] == [model] and listed[0].object == "model"
    assert client.models.retrieve(model).id == model


def test_a_chat_is_answered_whole(client, model):
    answer = client.chat.completions.create(model=model, messages=QUESTION, temperature=0,
                                            max_tokens=400)
    choice = answer.choices[0]
    assert choice.message.role == "assistant" and choice.finish_reason in ("stop", "length")
    assert choice.message.content or choice.message.reasoning_content
    assert "<think>" not in choice.message.content and "</think>" not in choice.message.content
    usage = answer.usage
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens
    assert 0 <= usage.prompt_tokens_details.cached_tokens < usage.prompt_tokens
    assert 0 <= usage.completion_tokens_details.reasoning_tokens <= usage.completion_tokens
    assert answer.id.startswith("chatcmpl-") and answer._request_id


def test_f6_a_chat_stream_says_the_same(client, model):
    request = dict(model=model, messages=QUESTION, temperature=0, max_tokens=300)
    message = client.chat.completions.create(**request).choices[0].message
    content, reasoning, finishes, usage = text_of(client.chat.completions.create(
        **request, stream=True, stream_options={"include_usage": True}))
    assert content == message.content
    assert reasoning == (getattr(message, "reasoning_content", None) or "")
    assert len(finishes) == 1 and usage.completion_tokens > 0


def test_thinking_can_be_turned_off(client, model):
    answer = client.chat.completions.create(model=model, messages=QUESTION, temperature=0,
                                            max_tokens=100, extra_body=NO_THINKING)
    message = answer.choices[0].message
    assert message.content and not getattr(message, "reasoning_content", None)
    assert answer.usage.completion_tokens_details.reasoning_tokens == 0


def test_chat_logprobs_add_up_to_the_text(client, model):
    answer = client.chat.completions.create(model=model, messages=QUESTION, temperature=0,
                                            max_tokens=20, logprobs=True, top_logprobs=3,
                                            extra_body=NO_THINKING | {"ignore_eos": True})
    entries = answer.choices[0].logprobs.content
    assert len(entries) == 20 and all(len(entry.top_logprobs) == 3 for entry in entries)
    for entry in entries:
        assert entry.logprob <= 0
        alternatives = [top.logprob for top in entry.top_logprobs]
        assert alternatives == sorted(alternatives, reverse=True)
        assert entry.logprob == alternatives[0], "greedy takes the most probable"


def test_completions_echo_with_logprobs(client, model):
    prompt = "Once upon a time there was"
    answer = client.completions.create(model=model, prompt=prompt, max_tokens=8, temperature=0,
                                       echo=True, logprobs=2,
                                       extra_body={"return_token_ids": True})
    choice = answer.choices[0]
    logprobs = choice.logprobs
    assert choice.text.startswith(prompt)
    ended = choice.finish_reason == "stop"  # the token that ended it has an entry and no text
    texts = logprobs.tokens[:-1] if ended else logprobs.tokens
    assert "".join(texts) == choice.text
    assert logprobs.token_logprobs[0] is None and logprobs.top_logprobs[0] is None
    assert all(value <= 0 for value in logprobs.token_logprobs[1:])
    assert all(2 <= len(top) <= 3 for top in logprobs.top_logprobs[1:])
    for token, offset in zip(texts, logprobs.text_offset):
        assert choice.text[offset:].startswith(token)
    assert len(logprobs.tokens) == answer.usage.total_tokens

    ids = choice.prompt_token_ids + choice.token_ids
    scored = client.completions.create(model=model, prompt=ids, max_tokens=0, echo=True, logprobs=2)
    assert scored.choices[0].logprobs.token_logprobs == logprobs.token_logprobs, \
        "scored and generated log-probabilities are the same numbers"


def test_a_token_that_ends_the_answer_has_its_log_probability(client, model):
    # lm-eval scores a text with one new token and takes the last entry for that token's.
    if model == "fake":
        pytest.skip("the hash LM does not end its answers")
    story = "The round basket stands in the market. It was made in Chicago many years ago."
    prompt = client.completions.create(model=model, prompt=story, max_tokens=400,
                                       temperature=0).choices[0]
    assert prompt.finish_reason == "stop"
    answer = client.completions.create(model=model, prompt=story + prompt.text, max_tokens=1,
                                       temperature=0, echo=True, logprobs=1)
    assert answer.choices[0].finish_reason == "stop"
    assert len(answer.choices[0].logprobs.token_logprobs) == answer.usage.prompt_tokens + 1


def test_completions_stream_and_take_token_ids_and_lists(client, model):
    request = dict(model=model, max_tokens=6, temperature=0)
    whole = client.completions.create(prompt=["One", "Two"], **request).choices
    assert [choice.index for choice in whole] == [0, 1]
    pieces = {0: "", 1: ""}
    for chunk in client.completions.create(prompt=["One", "Two"], stream=True, **request):
        for choice in chunk.choices:
            pieces[choice.index] += choice.text
    assert pieces == {choice.index: choice.text for choice in whole}
    ids = client.post("../tokenize", body={"prompt": "One"}, cast_to=object)["tokens"]
    assert client.completions.create(prompt=ids, **request).choices[0].text == whole[0].text


def test_n_is_three_answers(client, model):
    story = [{"role": "user", "content": "Tell me a story about a dog."}]
    answer = client.chat.completions.create(model=model, messages=story, n=3, max_tokens=30,
                                            temperature=2, top_p=1, seed=1,
                                            extra_body={"top_k": -1})
    said = [choice.message.content + (getattr(choice.message, "reasoning_content", None) or "")
            for choice in answer.choices]
    assert [choice.index for choice in answer.choices] == [0, 1, 2]
    assert len(set(said)) > 1
    assert answer.usage.completion_tokens <= 90


def test_a_stop_string_cuts_the_answer(client, model):
    request = dict(model=model, prompt="Count: 1, 2, 3, 4,", max_tokens=40, temperature=0)
    full = client.completions.create(**request).choices[0].text
    stop = full[6:9]
    assert stop
    choice = client.completions.create(**request, stop=[stop, "never"]).choices[0]
    assert choice.text == full[:full.index(stop)] and choice.finish_reason == "stop"


def test_a_seed_repeats_an_answer(client, model):
    def ask(seed):
        return client.completions.create(model=model, prompt="The", max_tokens=20, temperature=1.5,
                                         seed=seed, extra_body={"top_k": -1}).choices[0].text

    assert ask(7) == ask(7)
    assert len({ask(seed) for seed in range(4)}) > 1


def test_logit_bias_forces_and_forbids(client, model):
    if model == "fake":
        pytest.skip("the hash LM has no logits")
    request = dict(model=model, prompt="The", max_tokens=3, temperature=0)
    ids = client.post("../tokenize", body={"prompt": " apple"}, cast_to=object)["tokens"]
    forced = client.completions.create(**request, logit_bias={str(ids[0]): 100},
                                       extra_body={"return_token_ids": True}).choices[0]
    assert forced.token_ids == [ids[0]] * 3
    usual = client.completions.create(**request, extra_body={"return_token_ids": True}).choices[0]
    first = usual.token_ids[0]
    changed = client.completions.create(**request, logit_bias={str(first): -100},
                                        extra_body={"return_token_ids": True}).choices[0]
    assert first not in changed.token_ids


def test_tools_reach_the_template(client, model, base_url):
    tools = [{"type": "function",
              "function": {"name": "add", "description": "Adds.",
                           "parameters": {"type": "object", "properties": {}}}}]
    request = dict(model=model, messages=QUESTION, max_tokens=1)
    plain = client.chat.completions.create(**request).usage.prompt_tokens
    with_tools = client.chat.completions.create(**request, tools=tools).usage.prompt_tokens
    none = client.chat.completions.create(**request, tools=tools, tool_choice="none")
    assert with_tools > plain + 20
    assert none.usage.prompt_tokens == plain
    turns = QUESTION + [
        {"role": "assistant", "content": None, "tool_calls": [
            {"id": "c1", "type": "function",
             "function": {"name": "add", "arguments": '{"a": 12, "b": 7}'}}]},
        {"role": "tool", "tool_call_id": "c1", "content": "19"}]
    assert client.chat.completions.create(model=model, messages=turns, tools=tools,
                                          max_tokens=2).choices


def test_f6_errors_are_the_clients_exceptions(client, model):
    def chat(**more):
        return client.chat.completions.create(**{"model": model, "messages": QUESTION,
                                                 "max_tokens": 1, **more})

    with pytest.raises(openai.BadRequestError) as failure:
        chat(temperature=9)
    assert failure.value.param == "temperature" and failure.value.type == "invalid_request_error"
    with pytest.raises(openai.BadRequestError) as failure:
        chat(messages=[{"role": "user", "content": "word " * 20000}])
    assert failure.value.code == "context_length_exceeded"
    with pytest.raises(openai.NotFoundError) as failure:
        chat(model="nobody")
    assert failure.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError) as failure:
        client.chat.completions.create(model=model, messages=[], stream=True)
    assert failure.value.param == "messages"
    with pytest.raises(openai.NotFoundError):
        client.embeddings.create(model=model, input="x")


def test_cancelling_a_stream_frees_its_request_within_a_step(client, model, metric, wait_for):
    wait_for(lambda: metric("num_requests_running") == 0)
    stream = client.completions.create(model=model, prompt="Once", max_tokens=7000, stream=True,
                                       extra_body={"ignore_eos": True})
    next(iter(stream))
    assert metric("num_requests_running") == 1
    before = metric("scheduler_steps_total")
    stream.close()
    wait_for(lambda: metric("num_requests_running") == 0, 5)
    after = metric("scheduler_steps_total")
    # The step in flight and the one that the abort met, and those between the two questions.
    assert after - before <= 50
    assert metric("kv_cache_usage_perc") == 0


def test_64_streams_at_once_equal_each_alone(async_client, client, model):
    rng = random.Random(64)
    words = "one two three red green blue apple river stone house cloud music".split()
    requests = []
    for i in range(64):
        text = " ".join(rng.choice(words) for _ in range(rng.choice([1, 5, 30, 64, 150, 400])))
        requests.append(dict(model=model, temperature=0, max_tokens=rng.choice([1, 8, 20, 48]),
                             messages=[{"role": "user", "content": text}],
                             extra_body={"chat_template_kwargs": {"enable_thinking": i % 2 == 0}}))

    async def ask(shared, request):
        stream = await shared.chat.completions.create(**request, stream=True)
        content, reasoning, finishes = "", "", []
        async for chunk in stream:
            for choice in chunk.choices:
                content += choice.delta.content or ""
                reasoning += getattr(choice.delta, "reasoning_content", None) or ""
                finishes += [choice.finish_reason] if choice.finish_reason else []
        return content, reasoning, finishes

    async def ask_all():
        async with async_client() as shared:
            return await asyncio.gather(*(ask(shared, request) for request in requests))

    together = asyncio.run(ask_all())
    assert len(together) == 64
    for request, (content, reasoning, finishes) in zip(requests, together):
        choice = client.chat.completions.create(**request).choices[0]
        assert content == choice.message.content
        assert reasoning == (getattr(choice.message, "reasoning_content", None) or "")
        assert finishes == [choice.finish_reason]
