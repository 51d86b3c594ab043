"""The Responses API through the official `openai` client: items, streams, tools, formats."""

import json

import openai
import pytest

QUESTION = "Tom has 12 apples and buys 7 more. How many has he?"
CALCULATE = {"type": "function", "name": "calculate", "description": "Evaluate an expression.",
             "parameters": {"type": "object", "properties": {"expression": {"type": "string"}},
                            "required": ["expression"]}}
NO_THINKING = {"chat_template_kwargs": {"enable_thinking": False}}


def needs_the_real_model(model):
    if model == "fake":
        pytest.skip("the hash LM calls no tools")


def shown(items):
    """What items say, without their ids."""
    out = []
    for item in items:
        if item.type == "function_call":
            out.append((item.type, item.name, item.arguments))
        else:
            out.append((item.type, "".join(part.text for part in item.content)))
    return out


def test_a_response_is_whole(client, model):
    response = client.responses.create(model=model, input=QUESTION, instructions="Be brief.",
                                       max_output_tokens=300, temperature=0)
    assert response.object == "response" and response.id.startswith("resp_")
    assert response.status in ("completed", "incomplete")
    assert response.instructions == "Be brief." and response.max_output_tokens == 300
    usage = response.usage
    assert usage.total_tokens == usage.input_tokens + usage.output_tokens
    assert 0 <= usage.output_tokens_details.reasoning_tokens <= usage.output_tokens
    assert 0 <= usage.input_tokens_details.cached_tokens < usage.input_tokens
    if model != "fake":
        assert [item.type for item in response.output] == ["reasoning", "message"]
        assert "19" in response.output_text


def test_f6_a_stream_has_every_event_of_every_item(client, model):
    request = dict(model=model, input=QUESTION, max_output_tokens=300, temperature=0)
    whole = client.responses.create(**request)
    events = list(client.responses.create(**request, stream=True))
    assert [event.sequence_number for event in events] == list(range(len(events)))
    names = [event.type for event in events]
    assert names[:2] == ["response.created", "response.in_progress"]
    assert names[-1] == f"response.{whole.status}"
    final = events[-1].response
    assert shown(final.output) == shown(whole.output)
    assert final.usage.output_tokens == whole.usage.output_tokens
    for index, item in enumerate(final.output):
        of_item = [event for event in events if getattr(event, "output_index", -1) == index]
        kind = "reasoning_text" if item.type == "reasoning" else "output_text"
        assert [event.type for event in of_item if ".delta" not in event.type] == [
            "response.output_item.added", "response.content_part.added",
            f"response.{kind}.done", "response.content_part.done", "response.output_item.done"]
        text = "".join(event.delta for event in of_item if event.type == f"response.{kind}.delta")
        assert text == item.content[0].text
        assert {event.item_id for event in of_item if hasattr(event, "item_id")} == {item.id}


def test_a_response_cut_off_is_incomplete(client, model):
    request = dict(model=model, input=QUESTION, max_output_tokens=2)
    response = client.responses.create(**request)
    assert response.status == "incomplete"
    assert response.incomplete_details.reason == "max_output_tokens"
    assert {item.status for item in response.output[-1:]} <= {"incomplete"}
    last = list(client.responses.create(**request, stream=True))[-1]
    assert last.type == "response.incomplete"


def test_a_loop_with_a_tool_through_streams(client, model):
    needs_the_real_model(model)
    items = [{"role": "user", "content": "What is 706 + 778? Use the calculator."}]
    called = 0
    for _ in range(4):
        events = list(client.responses.create(model=model, input=items, tools=[CALCULATE],
                                              temperature=0, max_output_tokens=300, stream=True,
                                              extra_body=NO_THINKING))
        response = events[-1].response
        items += [item.model_dump(exclude_none=True) for item in response.output]
        calls = [item for item in response.output if item.type == "function_call"]
        if not calls:
            break
        for call in calls:
            called += 1
            pieces = "".join(event.delta for event in events
                             if event.type == "response.function_call_arguments.delta"
                             and event.item_id == call.id)
            assert pieces == call.arguments and json.loads(pieces) == {"expression": "706 + 778"}
            items.append({"type": "function_call_output", "call_id": call.call_id,
                          "output": json.dumps({"result": 1484})})
    assert called == 1 and "1484" in response.output_text


def test_tools_of_other_types_are_no_error(client, model):
    tools = [{"type": "web_search"}, {"type": "custom", "name": "patch"}, CALCULATE]
    response = client.responses.create(model=model, input=QUESTION, tools=tools,
                                       max_output_tokens=3)
    assert [tool.name for tool in response.tools] == ["calculate"]


def test_forced_calls_and_schemas(client, model):
    needs_the_real_model(model)
    response = client.responses.create(
        model=model, input=QUESTION, tools=[CALCULATE], max_output_tokens=300, temperature=0,
        tool_choice={"type": "function", "name": "calculate"}, parallel_tool_calls=False,
        extra_body=NO_THINKING)
    assert [item.type for item in response.output] == ["function_call"]
    schema = {"type": "object", "properties": {"sum": {"type": "integer", "minimum": 0,
                                                       "maximum": 99}}, "required": ["sum"],
              "additionalProperties": False}
    response = client.responses.create(
        model=model, input=QUESTION, max_output_tokens=300, temperature=0, extra_body=NO_THINKING,
        text={"format": {"type": "json_schema", "name": "sum", "strict": True, "schema": schema}})
    assert isinstance(json.loads(response.output_text)["sum"], int)


def test_what_is_not_text_is_said(client, model):
    with pytest.raises(openai.BadRequestError) as failure:
        client.responses.create(model=model, input=[{"role": "user", "content": [
            {"type": "input_image", "image_url": "http://localhost/x.png"}]}])
    assert failure.value.param == "input[0].content[0]"
