"""Tool calls through the official `openai` client: whole, streamed, and as a loop to the end."""

import json
import pathlib

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
ITEMS = [json.loads(line) for line in (ROOT / "models/eval/tools.jsonl").open()]
CALLS = [item for item in ITEMS if item["check"] == "tool_call"]
NO_CALLS = [item for item in ITEMS if item["check"] == "no_tool_call" and item.get("tools")]
CALCULATE = {"type": "function", "function": {
    "name": "calculate", "description": "Evaluate an expression.",
    "parameters": {"type": "object", "properties": {"expression": {"type": "string"}},
                   "required": ["expression"]}}}


@pytest.fixture(autouse=True)
def real_model(model):
    if model == "fake":
        pytest.skip("the hash LM calls no tools")


def request_of(item, model):
    thinking = {"chat_template_kwargs": {"enable_thinking": bool(item.get("thinking"))}}
    return dict(model=model, messages=item["messages"], tools=item["tools"], temperature=0,
                max_tokens=300, extra_body=thinking)


def called(message):
    return [{"name": call.function.name, "arguments": json.loads(call.function.arguments)}
            for call in message.tool_calls or []]


def collect(stream):
    """(content, calls by index, finish reasons); checks the shape of every delta."""
    content, calls, finishes = "", {}, []
    for chunk in stream:
        for choice in chunk.choices:
            content += choice.delta.content or ""
            for piece in choice.delta.tool_calls or []:
                if piece.index not in calls:
                    assert piece.id and piece.type == "function" and piece.function.name
                    assert piece.function.arguments == ""
                    calls[piece.index] = {"id": piece.id, "name": piece.function.name, "text": ""}
                else:
                    assert piece.id is None and piece.function.name is None
                calls[piece.index]["text"] += piece.function.arguments
            finishes += [choice.finish_reason] if choice.finish_reason else []
    assert sorted(calls) == list(range(len(calls)))
    return content, list(calls.values()), finishes


def test_the_model_calls_the_tools_that_the_tasks_want(client, model):
    right = 0
    for item in CALLS[:24]:
        choice = client.chat.completions.create(**request_of(item, model)).choices[0]
        answer = item["answer"] if isinstance(item["answer"], list) else [item["answer"]]
        right += called(choice.message) == answer
        if choice.message.tool_calls:
            assert choice.finish_reason == "tool_calls"
            assert all(call.id and call.type == "function" for call in choice.message.tool_calls)
            assert "<tool_call>" not in (choice.message.content or "")
    assert right >= 20, f"{right} of 24"


def test_f5_a_stream_of_calls_says_the_same(client, model):
    parallel = [item for item in CALLS if isinstance(item["answer"], list)][:3]
    assert parallel
    for item in parallel + CALLS[:3]:
        request = request_of(item, model)
        whole = client.chat.completions.create(**request).choices[0]
        content, calls, finishes = collect(client.chat.completions.create(**request, stream=True))
        assert content == (whole.message.content or "")
        assert [(call["name"], call["text"]) for call in calls] == \
            [(call.function.name, call.function.arguments) for call in whole.message.tool_calls]
        assert len({call["id"] for call in calls}) == len(calls)
        assert finishes == [whole.finish_reason] == ["tool_calls"]


def test_parallel_tool_calls_false_ends_after_the_first(client, model):
    item = next(item for item in CALLS if isinstance(item["answer"], list))
    choice = client.chat.completions.create(**request_of(item, model),
                                            parallel_tool_calls=False).choices[0]
    assert called(choice.message) == item["answer"][:1]
    assert choice.finish_reason == "tool_calls"


def test_f6_a_loop_of_asking_calling_and_concluding(client, model):
    concluded = 0
    for left, right in ((12, 30), (706, 778), (41, 5)):
        messages = [{"role": "user", "content": f"What is {left} + {right}? Use the calculator."}]
        for _ in range(4):
            choice = client.chat.completions.create(
                model=model, messages=messages, tools=[CALCULATE], temperature=0, max_tokens=300,
                extra_body={"chat_template_kwargs": {"enable_thinking": False}}).choices[0]
            messages.append(choice.message.model_dump(exclude_none=True))
            if choice.finish_reason != "tool_calls":
                break
            for call in choice.message.tool_calls:
                expression = json.loads(call.function.arguments)["expression"]
                assert expression == f"{left} + {right}"
                messages.append({"role": "tool", "tool_call_id": call.id,
                                 "content": json.dumps({"result": left + right})})
        assert messages[1]["tool_calls"], "it asked for the tool"
        concluded += str(left + right) in (messages[-1].get("content") or "")
    assert concluded == 3


def test_f5_a_call_cut_off_is_an_answer_of_finish_reason_length(client, model):
    request = request_of(CALLS[0], model)
    whole = client.chat.completions.create(**request)
    for tokens in range(1, whole.usage.completion_tokens, 3):
        choice = client.chat.completions.create(**request | {"max_tokens": tokens}).choices[0]
        assert choice.finish_reason == "length"
        for cut, call in zip(choice.message.tool_calls or [],
                             whole.choices[0].message.tool_calls):
            assert cut.function.name == call.function.name
            assert call.function.arguments.startswith(cut.function.arguments)


def test_stop_strings_are_not_looked_for_in_calls(client, model):
    request = request_of(CALLS[0], model)
    whole = client.chat.completions.create(**request).choices[0]
    request["stop"] = ["arguments", "}", "</tool"]
    stopped = client.chat.completions.create(**request).choices[0]
    assert called(stopped.message) == called(whole.message)


def test_no_tool_is_called_where_none_fits_or_none_may(client, model):
    for item in NO_CALLS[:4]:
        message = client.chat.completions.create(**request_of(item, model)).choices[0].message
        assert message.content and not message.tool_calls
    forbidden = client.chat.completions.create(**request_of(CALLS[0], model), tool_choice="none")
    assert not forbidden.choices[0].message.tool_calls
