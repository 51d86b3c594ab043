"""What requests promise is kept or refused by name: system messages, choices, calls of the history,
allowed tools, formats of the Messages API, metadata.
"""

import json

import anthropic
import openai
import pytest

QUESTION = [{"role": "user", "content": "Tom has 12 apples and buys 7 more. How many has he?"}]
NO_THINKING = {"chat_template_kwargs": {"enable_thinking": False}}


def system(text, role="system"):
    return {"role": role, "content": text}


def tool(name):
    schema = {"type": "object", "properties": {"word": {"type": "string", "maxLength": 8}},
              "required": ["word"], "additionalProperties": False}
    return {"type": "function", "function": {"name": name, "description": "Notes a word.",
                                             "parameters": schema}}


@pytest.fixture(scope="module")
def claude(base_url):
    return anthropic.Anthropic(base_url=base_url, api_key="none", max_retries=0, timeout=300)


def test_system_messages_at_the_beginning_are_one(client, model):
    def chat(*messages):
        answer = client.chat.completions.create(model=model, messages=[*messages, *QUESTION],
                                                temperature=0, max_tokens=8)
        return answer.usage.prompt_tokens, answer.choices[0].message.content

    joined = chat(system("Be brief.\n\nBe kind."))
    assert chat(system("Be brief."), system("Be kind.")) == joined
    assert chat(system("Be brief.", "developer"), system("Be kind.", "developer")) == joined


def test_developer_messages_follow_the_instructions(client, model):
    def respond(instructions, *messages):
        response = client.responses.create(model=model, instructions=instructions,
                                           input=[*messages, *QUESTION], temperature=0,
                                           max_output_tokens=8)
        return response.usage.input_tokens

    one = respond("A b c.\n\nD e f.\n\nG h i.")
    assert respond("A b c.", system("D e f.", "developer"),
                   {"type": "message", "role": "developer",
                    "content": [{"type": "input_text", "text": "G h i."}]}) == one


def test_a_system_message_that_the_template_cannot_place_is_named(client, claude, model):
    late = [system("Be brief."), *QUESTION, {"role": "assistant", "content": "19"},
            system("Be kind."), *QUESTION]
    with pytest.raises(openai.BadRequestError, match="at the beginning only") as failure:
        client.chat.completions.create(model=model, messages=late, max_tokens=2)
    assert failure.value.param == "messages[3]"
    with pytest.raises(openai.BadRequestError, match="at the beginning only") as failure:
        client.responses.create(model=model, instructions="Hm.", input=late[1:],
                                max_output_tokens=2)
    assert failure.value.param == "input[2]"
    with pytest.raises(anthropic.BadRequestError, match=r"messages\[2\]: this model's chat"):
        claude.messages.create(model=model, max_tokens=2, system="Hm.", messages=late[1:])


def test_n_goes_up_to_128(client, model):
    answer = client.chat.completions.create(model=model, messages=QUESTION, n=128, max_tokens=1)
    assert [choice.index for choice in answer.choices] == list(range(128))
    with pytest.raises(openai.BadRequestError, match="from 1 to 128") as failure:
        client.chat.completions.create(model=model, messages=QUESTION, n=129, max_tokens=1)
    assert failure.value.param == "n"


def test_a_call_that_was_cut_off_can_be_sent_back(client, model):
    history = [*QUESTION,
               {"role": "assistant", "content": None, "tool_calls": [
                   {"id": "c1", "type": "function",
                    "function": {"name": "note", "arguments": '{"word": "nin'}}]},
               {"role": "tool", "tool_call_id": "c1", "content": "The arguments are no JSON."}]
    answer = client.chat.completions.create(model=model, messages=history, tools=[tool("note")],
                                            max_tokens=2)
    assert answer.choices[0].finish_reason == "length"
    items = [*QUESTION,
             {"type": "function_call", "call_id": "c1", "name": "note",
              "arguments": '{"word": "nin'},
             {"type": "function_call_output", "call_id": "c1", "output": "No JSON."}]
    assert client.responses.create(model=model, input=items, max_output_tokens=2).output


def test_only_allowed_tools_are_called(client, model):
    if model == "fake":
        pytest.skip("the hash LM calls no tools")
    tools = [tool("first"), tool("second"), tool("third")]
    allowed = [{"type": "function", "function": {"name": "third"}}]
    answer = client.chat.completions.create(
        model=model, messages=QUESTION, tools=tools, temperature=0, max_tokens=200,
        extra_body=NO_THINKING, parallel_tool_calls=False,
        tool_choice={"type": "allowed_tools",
                     "allowed_tools": {"mode": "required", "tools": allowed}})
    assert [call.function.name for call in answer.choices[0].message.tool_calls] == ["third"]
    choice = {"type": "allowed_tools", "mode": "required",
              "tools": [{"type": "function", "name": "second"}]}
    response = client.responses.create(
        model=model, input=QUESTION, temperature=0, max_output_tokens=200,
        parallel_tool_calls=False, extra_body=NO_THINKING, tool_choice=choice,
        tools=[{"type": "function", **entry["function"]} for entry in tools])
    assert [item.name for item in response.output] == ["second"]
    assert response.tool_choice.model_dump(exclude_none=True) == choice
    weather = [{"role": "user", "content": "What is the weather in Paris?"}]
    for only in ("get_weather", "third"):
        allowed = [{"type": "function", "function": {"name": only}}]
        answer = client.chat.completions.create(
            model=model, messages=weather, tools=[tool("get_weather"), *tools], temperature=0,
            max_tokens=100, extra_body=NO_THINKING,
            tool_choice={"type": "allowed_tools",
                         "allowed_tools": {"mode": "auto", "tools": allowed}})
        calls = answer.choices[0].message.tool_calls or []
        assert {call.function.name for call in calls} <= {only}
        assert calls or only != "get_weather", "a model that knows this question calls nothing"
    with pytest.raises(openai.BadRequestError, match="no tool named \"fourth\""):
        client.chat.completions.create(
            model=model, messages=QUESTION, tools=tools, max_tokens=2,
            tool_choice={"type": "allowed_tools", "allowed_tools": {
                "mode": "auto", "tools": [{"type": "function", "function": {"name": "fourth"}}]}})


def test_a_whole_number_may_be_written_as_a_float(client, model):
    answer = client.completions.create(model=model, prompt="One", max_tokens=5.0,
                                       extra_body={"ignore_eos": True, "seed": 3.0})
    assert answer.usage.completion_tokens == 5
    with pytest.raises(openai.BadRequestError, match=r"got 5\.5"):
        client.completions.create(model=model, prompt="One", max_tokens=5.5)


def test_a_response_repeats_its_metadata(client, model):
    notes = {"run": "7", "purpose": "test"}
    response = client.responses.create(model=model, input="One", max_output_tokens=2,
                                       metadata=notes)
    assert response.metadata == notes


def test_parts_of_the_api_that_are_not_here_are_named(client, model):
    with pytest.raises(openai.NotFoundError, match="not supported: embeddings"):
        client.embeddings.create(model=model, input="x")
    with pytest.raises(openai.NotFoundError, match="not supported: moderation"):
        client.moderations.create(input="x")
    with pytest.raises(openai.NotFoundError, match="not supported: images"):
        client.images.generate(prompt="x")
    with pytest.raises(openai.NotFoundError, match="use /v1/models"):
        client.get("../models", cast_to=object)


def test_the_format_of_a_message_is_enforced(claude, model):
    if model == "fake":
        pytest.skip("the hash LM writes no JSON")
    schema = {"type": "object", "properties": {"sum": {"type": "integer", "minimum": 0,
                                                       "maximum": 99}},
              "required": ["sum"], "additionalProperties": False}
    output = {"type": "json_schema", "schema": schema}
    request = dict(model=model, max_tokens=200, messages=QUESTION)
    message = claude.messages.create(**request, output_config={"format": output})
    assert list(json.loads(message.content[0].text)) == ["sum"]
    with claude.messages.stream(**request, output_config={"format": output}) as stream:
        assert list(json.loads(stream.get_final_text())) == ["sum"]
    beta = claude.beta.messages.create(**request, extra_body={"output_format": output})
    assert list(json.loads(beta.content[0].text)) == ["sum"]
    with pytest.raises(anthropic.BadRequestError, match=r"output_config\.format"):
        claude.messages.create(**request, extra_body={"output_config": {
            "format": {"type": "poem"}}})


def test_thinking_can_be_left_out_of_a_message(claude, model):
    if model == "fake":
        pytest.skip("the hash LM does not think")
    request = dict(model=model, max_tokens=300, messages=QUESTION, extra_body={"temperature": 0})
    shown = claude.messages.create(**request, thinking={"type": "adaptive"})
    left_out = claude.messages.create(**request,
                                      thinking={"type": "adaptive", "display": "omitted"})
    assert [block.type for block in shown.content] == ["thinking", "text"]
    assert [block.type for block in left_out.content] == ["text"]
    assert left_out.content[0].text == shown.content[1].text
