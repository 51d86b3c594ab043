"""Structured output through the official `openai` client: what comes is what was asked for."""

import asyncio
import json
import random
import re

import jsonschema
import openai
import pytest

QUESTION = [{"role": "user", "content": "Tell me about a person called Ella who is 30."}]
PERSON = {"type": "object", "additionalProperties": False, "required": ["name", "age", "tags"],
          "properties": {"name": {"type": "string", "maxLength": 30},
                         "age": {"type": "integer", "minimum": 0, "maximum": 150},
                         "tags": {"type": "array", "maxItems": 3,
                                  "items": {"type": "string", "enum": ["a", "b", "c"]}},
                         "friend": {"$ref": "#/$defs/friend"}},
          "$defs": {"friend": {"type": "object", "additionalProperties": False,
                               "properties": {"name": {"type": "string", "maxLength": 8}}}}}
NO_THINKING = {"chat_template_kwargs": {"enable_thinking": False}}
TOOLS = [{"type": "function", "function": {
    "name": name, "parameters": {"type": "object", "additionalProperties": False,
                                 "properties": {"text": {"type": "string", "maxLength": 20},
                                                "times": {"type": "integer", "minimum": 0,
                                                          "maximum": 9}},
                                 "required": ["text", "times"]}}} for name in ("say", "sing")]


@pytest.fixture(autouse=True)
def real_model(model):
    if model == "fake":
        pytest.skip("the hash LM has no grammars")


def schema_format(schema):
    return {"type": "json_schema",
            "json_schema": {"name": "answer", "strict": True, "schema": schema}}


def ask(client, model, extra=None, **more):
    request = dict(model=model, messages=QUESTION, max_tokens=300, temperature=0,
                   extra_body=NO_THINKING | (extra or {}))
    return client.chat.completions.create(**request | more).choices[0]


SCHEMAS = [
    PERSON,
    {"type": "array", "minItems": 1, "maxItems": 4, "items": {"anyOf": [
        {"type": "number", "minimum": -10, "maximum": 10}, {"type": "boolean"}, {"type": "null"},
        {"type": "string", "pattern": "^[a-c]{2,4}$"}]}},
    {"type": "object", "additionalProperties": False, "required": ["when", "where"],
     "properties": {"when": {"type": "string", "format": "date"},
                    "where": {"type": "object", "additionalProperties": False,
                              "required": ["x", "y"],
                              "properties": {"x": {"type": "integer", "multipleOf": 5,
                                                   "minimum": 0, "maximum": 95},
                                             "y": {"const": "north"}}}}},
    {"$ref": "#/$defs/tree", "$defs": {"tree": {
        "type": "object", "additionalProperties": False, "required": ["name"],
        "properties": {"name": {"enum": ["oak", "elm", "ash"]},
                       "left": {"$ref": "#/$defs/tree"}, "right": {"$ref": "#/$defs/tree"}}}}},
]


def test_each_of_500_answers_validates_however_it_was_sampled(client, model):
    ended = 0
    for seed in range(25):
        for schema in SCHEMAS:
            answer = client.chat.completions.create(
                model=model, messages=QUESTION, max_tokens=200, n=8, temperature=1.3, seed=seed,
                response_format=schema_format(schema), extra_body=NO_THINKING | {"top_k": -1})
            for choice in answer.choices:
                if choice.finish_reason == "length":
                    continue
                ended += 1
                jsonschema.validate(json.loads(choice.message.content), schema,
                                    format_checker=jsonschema.FormatChecker())
        if ended >= 500:
            return
    pytest.fail(f"only {ended} of 800 came to an end")


def test_f16_thinking_is_free_and_the_json_is_behind_it(client, model):
    for effort in (True, False):
        choice = ask(client, model, {"chat_template_kwargs": {"enable_thinking": effort}},
                     response_format=schema_format(PERSON))
        assert choice.finish_reason == "stop"
        jsonschema.validate(json.loads(choice.message.content), PERSON)
        reasoning = getattr(choice.message, "reasoning_content", None) or ""
        assert "{" not in reasoning
        assert bool(reasoning) <= effort


def test_a_json_object_is_one(client, model):
    text = ask(client, model, response_format={"type": "json_object"}).message.content
    assert text.startswith("{")
    choice = ask(client, model, response_format={"type": "text"})
    assert not choice.message.content.startswith("{")


SPELLINGS = [
    ({"guided_regex": r"[0-9]{2}-(red|blue)"}, r"[0-9]{2}-(red|blue)"),
    ({"regex": r"[0-9]{2}-(red|blue)"}, r"[0-9]{2}-(red|blue)"),
    ({"structured_outputs": {"regex": r"w{3}"}}, r"www"),
    ({"guided_choice": ["apple", "banana split"]}, r"apple|banana split"),
    ({"structured_outputs": {"choice": ["yes", "no"]}}, r"yes|no"),
    ({"grammar": 'root ::= "<" [a-b]{2} ">"'}, r"<[ab]{2}>"),
    ({"ebnf": 'root ::= number\nnumber ::= [0-9] [0-9]'}, r"[0-9]{2}"),
    ({"guided_grammar": 'start: "a" | "b"'}, r"a|b"),
    ({"structured_outputs": {"grammar": 'start: /[x-z]{4}/'}}, r"[x-z]{4}"),
]


@pytest.mark.parametrize("field,expected", SPELLINGS, ids=lambda value: str(value)[:40])
def test_other_servers_spellings_are_understood(client, model, field, expected):
    choice = ask(client, model, field)
    assert choice.finish_reason == "stop"
    assert re.fullmatch(expected, choice.message.content), choice.message.content


@pytest.mark.parametrize("name", ["guided_json", "json_schema"])
def test_a_schema_may_come_as_a_text(client, model, name):
    schema = {"type": "array", "items": {"type": "boolean"}, "minItems": 2, "maxItems": 2}
    for value in (schema, json.dumps(schema)):
        jsonschema.validate(json.loads(ask(client, model, {name: value}).message.content), schema)
    text = client.completions.create(model=model, prompt="Two words:", max_tokens=40,
                                     extra_body={name: schema}).choices[0].text
    jsonschema.validate(json.loads(text), schema)


def test_a_call_can_be_forced(client, model):
    for choice, names in (("required", {"say", "sing"}),
                          ({"type": "function", "function": {"name": "sing"}}, {"sing"})):
        for thinking in (True, False):
            for temperature in (0, 1.2):
                answer = ask(client, model, {"chat_template_kwargs": {"enable_thinking": thinking}},
                             tools=TOOLS, tool_choice=choice, parallel_tool_calls=False,
                             temperature=temperature, seed=1, max_tokens=400)
                assert answer.finish_reason == "tool_calls", answer
                for call in answer.message.tool_calls:
                    assert call.function.name in names
                    jsonschema.validate(json.loads(call.function.arguments),
                                        TOOLS[0]["function"]["parameters"])
                assert not answer.message.content


def test_beside_tools_the_answer_is_a_call_or_the_schema(client, model):
    choice = ask(client, model, tools=TOOLS, response_format=schema_format(PERSON),
                 parallel_tool_calls=False)
    if choice.finish_reason == "tool_calls":
        assert all(call.function.name in ("say", "sing") for call in choice.message.tool_calls)
    else:
        jsonschema.validate(json.loads(choice.message.content), PERSON)


def test_a_stream_and_logprobs_are_those_of_the_whole(client, model):
    request = dict(response_format=schema_format(PERSON), logprobs=True, top_logprobs=2)
    whole = ask(client, model, **request)
    text, logprobs = "", []
    for chunk in client.chat.completions.create(
            model=model, messages=QUESTION, max_tokens=300, temperature=0, stream=True,
            extra_body=NO_THINKING, **request):
        text += chunk.choices[0].delta.content or ""
        logprobs += chunk.choices[0].logprobs.content if chunk.choices[0].logprobs else []
    assert text == whole.message.content
    assert [entry.logprob for entry in logprobs] == \
        [entry.logprob for entry in whole.logprobs.content]


def test_constrained_answers_do_not_depend_on_what_else_runs(async_client, client, model):
    rng = random.Random(8)
    regexes = ["[0-9]{4}-[0-9]{2}", "(red|green|blue)( [a-z]{2,9}){3}", "[A-Z][a-z ]{30}[.]"]
    requests = []
    for i in range(24):
        words = " ".join(rng.choice(["apple", "river", "seven", "dog"]) for _ in range(1 + i * 7))
        form = dict(response_format=schema_format(PERSON)) if i % 4 == 0 else {}
        extra = {} if i % 4 == 0 else {"regex": regexes[i % 4 - 1]}
        requests.append(dict(model=model, messages=[{"role": "user", "content": words}],
                             max_tokens=80, temperature=i % 3 * 0.6, seed=i, logprobs=True,
                             extra_body=NO_THINKING | extra, **form))

    async def ask_all():
        async with async_client() as shared:
            return await asyncio.gather(*(shared.chat.completions.create(**request)
                                          for request in requests))

    def numbers(answer):
        choice = answer.choices[0]
        return choice.message.content, [entry.logprob for entry in choice.logprobs.content]

    together = [numbers(answer) for answer in asyncio.run(ask_all())]
    alone = [numbers(client.chat.completions.create(**request)) for request in requests]
    assert together == alone, "neither the batch nor what the cache held changes them"


def tag_of(begin, trigger, end=";"):
    schema = {"type": "object", "properties": {"n": {"type": "integer", "maximum": 99}},
              "required": ["n"], "additionalProperties": False}
    return {"structures": [{"begin": begin, "schema": schema, "end": end},
                           {"begin": "never" + begin, "schema": schema, "end": end}],
            "triggers": [trigger, "never"]}


def spellings_of(tag):
    return ({"response_format": {"type": "structural_tag", **tag}},
            {"structural_tag": json.dumps(tag)}, {"structural_tag": tag},
            {"structured_outputs": {"structural_tag": json.dumps(tag)}})


def test_a_structural_tag_holds_where_its_trigger_was_written_and_nowhere_else(client, model):
    free = ask(client, model).message.content
    word = re.findall(r"[A-Za-z]{3,}", free)[1]
    contents = set()
    for extra in spellings_of(tag_of(word + "=", word)):
        answer = ask(client, model, extra)
        contents.add(answer.message.content)
    assert len(contents) == 1, "every spelling means the same"
    content = contents.pop()
    before = free[:free.index(word)]
    assert content.startswith(before + word + "="), content
    for rest in content.split(word)[1:]:
        match = re.match(r'=(\{"n": -?\d+\});', rest)
        assert match or answer.finish_reason == "length", content
        if match:
            assert json.loads(match[1])["n"] <= 99


def test_a_structural_tag_may_begin_with_a_special_token(client, model):
    tag = tag_of("<tool_call>", "<tool_call>", "</tool_call>")
    ids = client.post("/tokenize", cast_to=object, body={"prompt": "<tool_call>",
                                                         "add_special_tokens": False})["tokens"]
    answer = ask(client, model, {"structural_tag": tag, "skip_special_tokens": False},
                 logit_bias={str(ids[0]): 3}, max_tokens=60)
    free = ask(client, model, {"skip_special_tokens": False}, logit_bias={str(ids[0]): 100},
               max_tokens=3)
    assert len(ids) == 1 and free.message.content.startswith("<tool_call>")
    forced = ask(client, model, {"structural_tag": tag, "skip_special_tokens": False},
                 logit_bias={str(ids[0]): 100}, max_tokens=60)
    assert re.match(r'<tool_call>\{"n": -?\d+\}</tool_call>', forced.message.content) or \
        forced.finish_reason == "length", forced.message.content
    assert answer.finish_reason in ("stop", "length")


@pytest.mark.parametrize("tag", [
    {}, {"structures": [], "triggers": ["a"]}, {"structures": [{"begin": "a"}], "triggers": ["a"]},
    {"structures": [{"begin": "b", "schema": {}, "end": "c"}], "triggers": ["a"]},
    {"structures": [{"begin": "a", "schema": {}, "end": "c"}], "triggers": [""]}, "nonsense"])
def test_a_wrong_structural_tag_is_refused_by_name(client, model, tag):
    with pytest.raises(openai.BadRequestError) as failure:
        ask(client, model, {"structural_tag": tag})
    assert failure.value.param.startswith("structural_tag")


BAD = [
    (dict(response_format={"type": "json_schema"}), "response_format.schema"),
    (dict(response_format={"type": "poem"}), "response_format.type"),
    (dict(response_format=schema_format({"type": "nothing"})),
     "response_format.json_schema.schema"),
    (dict(response_format=schema_format({"$ref": "http://x/y"})),
     "response_format.json_schema.schema"),
    (dict(response_format=schema_format({"type": "array", "maxItems": 10001})),
     "response_format.json_schema.schema"),
    (dict(extra_body={"regex": "(open"}), "regex"),
    (dict(extra_body={"regex": "(a)\\1"}), "regex"),
    (dict(extra_body={"regex": "a{20000}"}), "regex"),
    (dict(extra_body={"ebnf": "nothing ::= x"}), "ebnf"),
    (dict(extra_body={"grammar": "start: nowhere"}), "grammar"),
    (dict(extra_body={"guided_choice": []}), "guided_choice"),
    (dict(extra_body={"guided_choice": ["a"], "regex": "b"}), "regex"),
    (dict(extra_body={"structured_outputs": {"structural_tag": {}}}),
     "structured_outputs.structural_tag"),
    (dict(extra_body={"regex": "a", "ignore_eos": True}), "ignore_eos"),
    (dict(tool_choice="required"), "tool_choice"),
    (dict(tools=TOOLS, tool_choice={"type": "function", "function": {"name": "fly"}}),
     "tool_choice"),
    (dict(tools=TOOLS, tool_choice="required", response_format={"type": "json_object"}),
     "response_format"),
    (dict(tools=TOOLS, tool_choice="required", extra_body={"separate_reasoning": False}),
     "separate_reasoning"),
    (dict(tools=TOOLS, response_format=schema_format({"type": "object"}),
          extra_body={"separate_reasoning": False}), "separate_reasoning"),
]


@pytest.mark.parametrize("request_,param", BAD, ids=lambda value: str(value)[:50])
def test_f16_what_cannot_be_constrained_is_refused_by_name(client, model, request_, param):
    with pytest.raises(openai.BadRequestError) as failure:
        client.chat.completions.create(**dict(model=model, messages=QUESTION, max_tokens=5)
                                       | request_)
    assert failure.value.param == param, failure.value
    assert client.models.list().data, "the server lives on"


def test_a_grammar_that_grows_out_of_its_bounds_is_the_requests_fault(client, model):
    far = {"type": "integer", "multipleOf": 99991, "minimum": 0, "maximum": 10**15}
    with pytest.raises(openai.BadRequestError) as failure:
        ask(client, model, response_format=schema_format(far))
    assert "grammar" in failure.value.message and "too many" in failure.value.message
    assert ask(client, model).message.content, "the next request notices nothing"
