"""Strict tools, and schemas as real clients write them: a promise is kept, or refused by name."""

import json
import urllib.request

import anthropic
import openai
import pytest

QUESTION = [{"role": "user", "content": "What is the weather in Paris on Sunday? And in Rome?"}]
NO_THINKING = {"chat_template_kwargs": {"enable_thinking": False}}
# The model has learnt to fill in what it is asked for; strict leaves it one of three cities only.
PARAMETERS = {"type": "object", "additionalProperties": False, "required": ["city"],
              "properties": {"city": {"type": "string", "enum": ["Oslo", "Lima", "Bonn"]}}}
LOOSE = {"type": "object", "properties": {"city": {"type": "string"}, "day": {"type": "string"}}}


@pytest.fixture(autouse=True)
def real_model(model):
    if model == "fake":
        pytest.skip("the hash LM calls no tools")


@pytest.fixture(scope="module")
def claude(base_url):
    return anthropic.Anthropic(base_url=base_url, api_key="none", max_retries=0, timeout=300)


def tool(name="get_weather", parameters=None, **more):
    return {"type": "function", "function": {"name": name, "description": "The weather of a city.",
                                             "parameters": parameters or PARAMETERS, **more}}


def flat(chat_tool):
    return {"type": "function"} | chat_tool["function"]


def message_tool(chat_tool):
    function = dict(chat_tool["function"])
    return {"input_schema": function.pop("parameters")} | function


def chat_calls(client, model, tools, stream=False, **more):
    request = dict(model=model, messages=QUESTION, tools=tools, temperature=0, max_tokens=200,
                   extra_body=NO_THINKING) | more
    if not stream:
        message = client.chat.completions.create(**request).choices[0].message
        return [(c.function.name, c.function.arguments) for c in message.tool_calls or []]
    calls = {}
    for chunk in client.chat.completions.create(stream=True, **request):
        for choice in chunk.choices:
            for piece in choice.delta.tool_calls or []:
                name, text = calls.get(piece.index, ("", ""))
                calls[piece.index] = (name + (piece.function.name or ""),
                                      text + (piece.function.arguments or ""))
    return list(calls.values())


def check(calls, name="get_weather"):
    assert calls, "the model called nothing"
    for called, arguments in calls:
        assert called == name
        arguments = json.loads(arguments) if isinstance(arguments, str) else arguments
        assert arguments in [{"city": city} for city in ("Oslo", "Lima", "Bonn")], arguments


def test_without_strict_the_model_says_what_it_likes(client, model):
    """What the other tests rest on."""
    (_, arguments), *_ = chat_calls(client, model, [tool()])
    assert json.loads(arguments).get("city") not in ("Oslo", "Lima", "Bonn")


@pytest.mark.parametrize("stream", [False, True])
def test_a_strict_tool_is_held_to_its_schema_in_chats(client, model, stream):
    check(chat_calls(client, model, [tool(strict=True)], stream))


@pytest.mark.parametrize("thinking", [True, False])
def test_thinking_before_a_strict_call_is_free(client, model, thinking):
    choice = client.chat.completions.create(
        model=model, messages=QUESTION, tools=[tool(strict=True)], temperature=0, max_tokens=400,
        extra_body={"chat_template_kwargs": {"enable_thinking": thinking}}).choices[0]
    if choice.finish_reason != "length":
        check([(c.function.name, c.function.arguments) for c in choice.message.tool_calls or []])


def test_a_strict_tool_is_held_to_its_schema_in_responses(client, model):
    request = dict(model=model, input=QUESTION[0]["content"], tools=[flat(tool(strict=True))],
                   temperature=0, max_output_tokens=200, extra_body=NO_THINKING)
    response = client.responses.create(**request)
    check([(item.name, item.arguments) for item in response.output
           if item.type == "function_call"])
    done = [event for event in client.responses.create(stream=True, **request)
            if event.type == "response.function_call_arguments.done"]
    check([("get_weather", event.arguments) for event in done])


def test_a_strict_tool_is_held_to_its_schema_in_messages(claude, model):
    request = dict(model=model, messages=QUESTION, max_tokens=200,
                   tools=[message_tool(tool(strict=True))], extra_body={"temperature": 0})
    message = claude.messages.create(**request)
    check([(block.name, block.input) for block in message.content if block.type == "tool_use"])
    with claude.messages.stream(**request) as stream:
        message = stream.get_final_message()
    check([(block.name, block.input) for block in message.content if block.type == "tool_use"])


def test_a_strict_tool_leaves_text_and_other_tools_free(client, model):
    other = tool("add", {"type": "object", "properties": {"a": {"type": "integer"}}}, strict=True)
    choice = client.chat.completions.create(
        model=model, messages=[{"role": "user", "content": "Say hello."}], tools=[other],
        temperature=0, max_tokens=60, extra_body=NO_THINKING).choices[0]
    assert choice.message.content or choice.message.tool_calls
    calls = chat_calls(client, model, [tool(parameters=LOOSE), other])
    assert calls and calls[0][0] == "get_weather" and "Oslo" not in calls[0][1]


UNENFORCEABLE = [
    ({"type": "object", "properties": {"tags": {"type": "array", "items": {"type": "string"},
                                                "uniqueItems": True}}},
     "/properties/tags/uniqueItems"),
    ({"type": "object", "properties": {"a": {"not": {"type": "null"}}}}, "/properties/a/not"),
    ({"type": "object", "if": {"required": ["a"]}, "then": {"required": ["b"]}}, "/if"),
    ({"type": "array", "contains": {"type": "integer"}}, "/contains"),
    ({"type": "object", "propertyNames": {"maxLength": 3}}, "/propertyNames"),
    ({"type": "object", "dependentRequired": {"a": ["b"]}}, "/dependentRequired"),
    ({"allOf": [{"type": "object"}], "unevaluatedProperties": False}, "/unevaluatedProperties"),
    ({"type": "string", "pattern": "^(?=a)[a-z]+$"}, "/pattern"),
]


def format_of(schema, strict):
    return {"type": "json_schema",
            "json_schema": {"name": "x", "schema": schema} | ({} if strict is None else
                                                              {"strict": strict})}


def ask(client, model, **more):
    return client.chat.completions.create(model=model, messages=QUESTION, temperature=0,
                                          max_tokens=40, extra_body=NO_THINKING, **more).choices[0]


@pytest.mark.parametrize("schema, pointer", UNENFORCEABLE)
def test_what_cannot_be_enforced_is_refused_where_strict_was_asked_for(client, model, schema,
                                                                       pointer):
    for request, param in (
            (dict(response_format=format_of(schema, True)), "response_format.json_schema.schema"),
            (dict(tools=[tool(parameters=schema, strict=True)]), "tools[0].function.parameters"),
            (dict(tools=[tool(parameters=schema, strict=True)], tool_choice="required"),
             "tools[0].function.parameters")):
        with pytest.raises(openai.BadRequestError) as refused:
            ask(client, model, **request)
        error = refused.value.body
        assert error["param"] == param
        assert f"{pointer}: {pointer.rsplit('/', 1)[1]} cannot be enforced" in error["message"]
    for strict in (False, None):
        assert ask(client, model, response_format=format_of(schema, strict))
    for choice in ("auto", "required"):
        called = ask(client, model, tools=[tool(parameters=schema)], tool_choice=choice)
        assert choice == "auto" or called.message.tool_calls


@pytest.mark.parametrize("name", ["password", "byte", "binary", "path", "regex", "uri-reference"])
def test_unknown_formats_are_annotations(client, model, name):
    schema = {"type": "object", "properties": {"a": {"type": "string", "format": name,
                                                     "maxLength": 5}},
              "required": ["a"], "additionalProperties": False}
    answer = ask(client, model, response_format=format_of(schema, True)).message.content
    assert len(json.loads(answer)["a"]) <= 5


def test_what_is_enforceable_beside_what_is_not_is_enforced(client, model):
    schema = {"type": "array", "uniqueItems": True, "minItems": 1, "maxItems": 2,
              "items": {"enum": ["a", "b", "c"]}}
    answer = ask(client, model, response_format=format_of(schema, False)).message.content
    assert set(json.loads(answer)) <= {"a", "b", "c"}


def test_the_schema_true_is_any_json(client, model):
    answer = client.chat.completions.create(
        model=model, messages=QUESTION, max_tokens=200, temperature=0,
        extra_body=NO_THINKING | {"guided_json": True, "logit_bias": {}}).choices[0]
    if answer.finish_reason == "stop":
        json.loads(answer.message.content)


@pytest.mark.parametrize("schema, what", [
    ({"$ref": "#"}, "leads back to itself"),
    ({"type": "object", "properties": {"a": {"$ref": "#/properties/a"}}}, "leads back to itself"),
    ({"allOf": [{"type": "string"}, {"type": "integer"}]}, "incompatible types"),
])
def test_a_schema_without_values_gets_a_clear_message(client, model, schema, what):
    with pytest.raises(openai.BadRequestError) as refused:
        ask(client, model, response_format=format_of(schema, True))
    message = refused.value.body["message"]
    assert what in message and "NoExtension" not in message and "\n" not in message


def test_errors_do_not_print_the_grammar(client, model):
    broken = {"type": "object", "properties": {"a": {"type": "shape"}}}
    with pytest.raises(openai.BadRequestError) as refused:
        ask(client, model, tools=[tool(parameters=broken)], tool_choice="required")
    message = refused.value.body["message"]
    assert "shape" in message and "%json" not in message and "start:" not in message


def schema_of(name, value):
    """A schema of such a size."""
    if name == "schema_bytes":
        return {"type": "string", "description": "x" * (value - len(
            json.dumps({"type": "string", "description": ""}, separators=(",", ":"))))}
    if name == "schema_depth":
        schema = {"type": "null"}
        for _ in range(value - 1):
            schema = {"items": schema}
        return schema
    if name == "schema_properties":
        part = {"type": "object", "properties": {f"p{i}": True for i in range(1000)}}
        rest = {"type": "object", "properties": {f"p{i}": True for i in range(value - 4005)}}
        return {"type": "object", "properties": dict.fromkeys("abcd", part) | {"e": rest}}
    if name == "schema_optional_properties":
        return {"type": "object", "properties": {f"p{i}": True for i in range(value)}}
    if name == "schema_enum_values":
        return {"enum": [f"v{i}" for i in range(value)]}
    return {"type": "string", "maxLength": value}


def test_limits_of_grammars_are_those_of_the_table(base_url, client, model):
    with urllib.request.urlopen(f"{base_url}/server_info", timeout=60) as response:
        limits = {row["name"]: row["value"] for row in json.load(response)["limits"]}
    for name in ("schema_bytes", "schema_depth", "schema_properties", "schema_optional_properties",
                 "schema_enum_values", "repetitions"):
        assert ask(client, model, response_format=format_of(schema_of(name, limits[name]), True))
        with pytest.raises(openai.BadRequestError) as refused:
            ask(client, model, response_format=format_of(schema_of(name, limits[name] + 1), True))
        message = refused.value.body["message"]
        assert "at most" in message or "nested deeper" in message, message
    for name, fields in (("regex_bytes", lambda n: {"regex": "a" * n}),
                         ("grammar_choices", lambda n: {"structured_outputs": {
                             "choice": [f"choice {i}" for i in range(n)]}})):
        request = dict(model=model, messages=QUESTION, max_tokens=4)
        client.chat.completions.create(extra_body=fields(limits[name]), **request)
        with pytest.raises(openai.BadRequestError, match="at most"):
            client.chat.completions.create(extra_body=fields(limits[name] + 1), **request)
