"""The official `anthropic` client, unchanged: whole and streamed, tools, counting, errors."""

import json

import anthropic
import pytest

QUESTION = [{"role": "user", "content": "Tom has 12 apples and buys 7 more. How many has he?"}]
GREEDY = {"temperature": 0}  # the client has no argument for it
CALCULATE = {"name": "calculate", "description": "Evaluate an expression.",
             "input_schema": {"type": "object", "properties": {"expression": {"type": "string"}},
                              "required": ["expression"]}}


@pytest.fixture(scope="module")
def claude(base_url):
    return anthropic.Anthropic(base_url=base_url, api_key="none", max_retries=0, timeout=300)


def needs_the_real_model(model):
    if model == "fake":
        pytest.skip("the hash LM calls no tools")


def test_a_message_is_answered_whole(claude, model):
    message = claude.messages.create(model=model, max_tokens=300, messages=QUESTION,
                                     extra_body=GREEDY)
    assert message.type == "message" and message.role == "assistant"
    assert message.id.startswith("msg_") and message.model == model
    assert message.stop_reason in ("end_turn", "max_tokens")
    assert [block.type for block in message.content] == ["text"], "no thinking unless asked for"
    usage = message.usage
    assert usage.input_tokens + usage.cache_read_input_tokens > 5 and usage.output_tokens > 0


def test_f6_a_stream_says_the_same_in_well_formed_events(claude, model):
    request = dict(model=model, max_tokens=300, messages=QUESTION, extra_body=GREEDY,
                   thinking={"type": "enabled", "budget_tokens": 1024})
    whole = claude.messages.create(**request)
    seen, open_block = [], None
    with claude.messages.stream(**request) as stream:
        for event in stream:
            if event.type == "content_block_start":
                assert open_block is None
                open_block = event.index
            if event.type == "content_block_delta":
                assert event.index == open_block
            if event.type == "content_block_stop":
                assert event.index == open_block
                open_block = None
            seen.append(event.type)
        final = stream.get_final_message()
    assert seen[0] == "message_start" and seen[-1] == "message_stop" and open_block is None
    assert [block.model_dump() for block in final.content] == \
        [block.model_dump() for block in whole.content]
    assert final.stop_reason == whole.stop_reason
    assert final.usage.output_tokens == whole.usage.output_tokens
    if model != "fake":
        assert [block.type for block in whole.content] == ["thinking", "text"]


def test_system_stop_sequences_and_max_tokens(claude, model):
    request = dict(model=model, messages=QUESTION, extra_body=GREEDY, system="Be brief.")
    whole = claude.messages.create(**request, max_tokens=60)
    text = whole.content[0].text
    cut = claude.messages.create(**request, max_tokens=2)
    assert cut.stop_reason == "max_tokens" and cut.usage.output_tokens == 2
    stop = text[3:6]
    stopped = claude.messages.create(**request, max_tokens=60, stop_sequences=[stop])
    assert stopped.stop_reason == "stop_sequence" and stopped.stop_sequence == stop
    assert (stopped.content[0].text if stopped.content else "") == text[:text.index(stop)]


def test_tokens_are_counted(claude, model):
    plain = claude.messages.count_tokens(model=model, messages=QUESTION).input_tokens
    more = claude.messages.count_tokens(model=model, messages=QUESTION, system="Be brief.",
                                        tools=[CALCULATE]).input_tokens
    usage = claude.messages.create(model=model, messages=QUESTION, max_tokens=1).usage
    assert usage.input_tokens + usage.cache_read_input_tokens == plain
    assert more > plain + 20


def test_f6_a_loop_of_asking_calling_and_concluding(claude, model):
    needs_the_real_model(model)
    messages = [{"role": "user", "content": "What is 706 + 778? Use the calculator."}]
    called = 0
    for _ in range(4):
        message = claude.messages.create(model=model, max_tokens=300, messages=messages,
                                         tools=[CALCULATE], extra_body=GREEDY)
        messages.append({"role": "assistant", "content": message.content})
        if message.stop_reason != "tool_use":
            break
        results = []
        for block in message.content:
            if block.type == "tool_use":
                called += 1
                assert block.input == {"expression": "706 + 778"}
                results.append({"type": "tool_result", "tool_use_id": block.id,
                                "content": json.dumps({"result": 1484})})
        messages.append({"role": "user", "content": results})
    assert called == 1
    assert "1484" in message.content[-1].text


def test_a_streamed_call_is_the_whole_one(claude, model):
    needs_the_real_model(model)
    request = dict(model=model, max_tokens=300, extra_body=GREEDY, tools=[CALCULATE],
                   messages=[{"role": "user", "content": "What is 41 + 5? Use the calculator."}])
    whole = claude.messages.create(**request)
    with claude.messages.stream(**request) as stream:
        final = stream.get_final_message()
    calls = [block for block in final.content if block.type == "tool_use"]
    assert calls[0].input == {"expression": "41 + 5"}
    assert [(b.type, getattr(b, "input", None)) for b in final.content] == \
        [(b.type, getattr(b, "input", None)) for b in whole.content]
    assert final.stop_reason == whole.stop_reason == "tool_use"


def test_a_tool_can_be_forced(claude, model):
    needs_the_real_model(model)
    schema = {"type": "object", "properties": {"word": {"type": "string", "maxLength": 10}},
              "required": ["word"], "additionalProperties": False}
    # What is forced may be text that the model was not trained for: bound it.
    bounded = {"type": "object", "required": ["expression"],
               "properties": {"expression": {"type": "string", "maxLength": 20}}}
    tools = [{"name": "note", "input_schema": schema}, CALCULATE | {"input_schema": bounded}]
    for choice in ({"type": "tool", "name": "note"}, {"type": "any"}):
        message = claude.messages.create(
            model=model, max_tokens=200, messages=QUESTION, tools=tools, extra_body=GREEDY,
            tool_choice=choice | {"disable_parallel_tool_use": True})
        assert message.stop_reason == "tool_use"
        assert [block.type for block in message.content] == ["tool_use"]
        assert message.content[0].name == "note" or choice["type"] == "any"


def test_f6_errors_are_the_clients_exceptions(claude, model):
    with pytest.raises(anthropic.BadRequestError) as failure:
        claude.messages.create(model=model, max_tokens=5, messages=QUESTION,
                               extra_body={"temperature": 9})
    assert failure.value.body["error"]["type"] == "invalid_request_error"
    assert "temperature" in failure.value.body["error"]["message"]
    with pytest.raises(anthropic.NotFoundError):
        claude.messages.create(model="nobody", max_tokens=5, messages=QUESTION)
    with pytest.raises(anthropic.BadRequestError, match="messages\\[0\\].content\\[0\\]"):
        claude.messages.create(model=model, max_tokens=5, messages=[
            {"role": "user", "content": [{"type": "image", "source": {
                "type": "url", "url": "http://localhost/x.png"}}]}])
    with pytest.raises(anthropic.BadRequestError, match="maximum context length"):
        claude.messages.create(model=model, max_tokens=5,
                               messages=[{"role": "user", "content": "word " * 20000}])
