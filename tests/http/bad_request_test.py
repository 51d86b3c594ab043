"""Every kind of bad request: its status, and the field that the error names."""

import json

import pytest

CHAT = "/v1/chat/completions"
TEXT = "/v1/completions"
MESSAGE = [{"role": "user", "content": "hi"}]


def chat(**more):
    return {"messages": MESSAGE, **more}


def text(**more):
    return {"prompt": "hi", **more}


BAD = [
    # Wrong types and missing fields.
    (CHAT, {}, "messages"),
    (CHAT, {"messages": []}, "messages"),
    (CHAT, {"messages": "hi"}, "messages"),
    (CHAT, {"messages": [{"role": "user"}]}, "messages[0].content"),
    (CHAT, {"messages": [{"role": "robot", "content": "x"}]}, "messages[0].role"),
    (CHAT, {"messages": MESSAGE + [{"role": "user", "content": [{"type": "image_url"}]}]},
     "messages[1].content[0]"),
    (TEXT, {}, "prompt"),
    (TEXT, {"prompt": None}, "prompt"),
    (TEXT, {"prompt": 7}, "prompt"),
    (TEXT, {"prompt": {}}, "prompt"),
    (TEXT, {"prompt": []}, "prompt"),
    (TEXT, {"prompt": ""}, "prompt"),
    (TEXT, {"prompt": [[]]}, "prompt"),
    # Ids out of range.
    (TEXT, {"prompt": [-1]}, "prompt[0]"),
    (TEXT, {"prompt": [5, 4073]}, "prompt[1]"),
    (TEXT, {"prompt": [2 ** 31]}, "prompt[0]"),
    (TEXT, {"prompt": [2 ** 63]}, "prompt[0]"),
    (TEXT, {"prompt": [[1], [1, 4073]]}, "prompt[1][1]"),
    (CHAT, chat(stop_token_ids=[4073]), "stop_token_ids[0]"),
    (CHAT, chat(logit_bias={"4073": 1}), "logit_bias"),
    (CHAT, chat(logit_bias={"5": 101}), "logit_bias.5"),
    ("/detokenize", {"tokens": [4073]}, "tokens[0]"),
    ("/detokenize", {}, "tokens"),
    ("/tokenize", {}, "prompt"),
    ("/tokenize", {"prompt": ["a", "b"]}, "prompt"),
    ("/apply_template", {}, "messages"),
    # Numbers out of range.
    (CHAT, chat(temperature=-0.1), "temperature"),
    (CHAT, chat(temperature=2.1), "temperature"),
    (CHAT, chat(temperature="hot"), "temperature"),
    (CHAT, chat(top_p=0), "top_p"),
    (CHAT, chat(top_p=1.1), "top_p"),
    (CHAT, chat(min_p=-1), "min_p"),
    (CHAT, chat(top_k=-2), "top_k"),
    (CHAT, chat(presence_penalty=3), "presence_penalty"),
    (CHAT, chat(frequency_penalty=-3), "frequency_penalty"),
    (CHAT, chat(repetition_penalty=0), "repetition_penalty"),
    (CHAT, chat(seed=2 ** 64), "seed"),
    (CHAT, chat(seed=1.5), "seed"),
    (CHAT, chat(n=0), "n"),
    (CHAT, chat(n=129), "n"),
    (CHAT, chat(n=5_000_000), "n"),
    (TEXT, {"prompt": ["a"] * 17, "n": 64}, "prompt"),
    (TEXT, text(best_of=2), "best_of"),
    (CHAT, chat(max_tokens=0), "max_tokens"),
    (CHAT, chat(max_tokens=-1), "max_tokens"),
    (CHAT, chat(max_completion_tokens=0), "max_completion_tokens"),
    (CHAT, chat(max_tokens=5, min_tokens=6), "min_tokens"),
    (CHAT, chat(logprobs=True, top_logprobs=21), "top_logprobs"),
    (CHAT, chat(top_logprobs=2), "top_logprobs"),
    (CHAT, chat(logprobs=5), "logprobs"),
    (TEXT, text(logprobs=21), "logprobs"),
    (TEXT, text(logprobs=True), "logprobs"),
    (TEXT, text(prompt_logprobs=-1), "prompt_logprobs"),
    (CHAT, chat(stop=["x"] * 17), "stop"),
    (CHAT, chat(stop=[""]), "stop[0]"),
    (CHAT, chat(stop="x" * 257), "stop"),
    (CHAT, chat(stream="yes"), "stream"),
    (CHAT, chat(stream_options={"include_usage": True}), "stream_options"),
    (CHAT, chat(metadata={"a": "x" * 513}), "metadata.a"),
    ("/tokenize", {"prompt": [1, 2]}, "prompt"),
    ("/tokenize", {"input_ids": [1, 2]}, "input_ids"),
    # What this version does not do.
    (CHAT, chat(response_format={"type": "json_object"}), "response_format"),
    (CHAT, chat(tool_choice="required"), "tool_choice"),
    (CHAT, chat(functions=[{"name": "f"}]), "functions"),
    (CHAT, chat(chat_template="x"), "chat_template"),
    (TEXT, text(suffix="x"), "suffix"),
    (TEXT, text(guided_json={"type": "object"}), "guided_json"),
    (TEXT, text(prompt_embeds="AAAA"), "prompt_embeds"),
]


@pytest.mark.parametrize("path, body, param", BAD,
                         ids=[f"{path}-{param}-{i}" for i, (path, _, param) in enumerate(BAD)])
def test_bad_fields_are_refused_by_name(server, path, body, param):
    status, answer = server.post(path, body)
    error = answer["error"]
    assert (status, error["param"]) == (400, param), answer
    assert error["type"] == "invalid_request_error"
    assert error["message"]


@pytest.mark.parametrize("body", [
    "", "{", "[]", "null", "3", '"x"', '{"messages": }', "{'messages': []}", '{"a": NaN}',
    '{"messages": [1,]}', b'{"x": "\xff"}', '{"x": "\\ud800"}', "[" * 100 + "]" * 100,
    '{"a": ' * 70 + "1" + "}" * 70, '{"' + "k" * 1025 + '": 1}',
])
def test_bodies_that_are_not_a_json_object_are_refused(server, body):
    status, _, answer = server.request("POST", CHAT, body, {"Content-Type": "application/json"})
    assert status == 400
    assert json.loads(answer)["error"]["message"]


def test_a_key_that_stands_twice_is_named(server):
    status, _, answer = server.request("POST", TEXT, '{"prompt": "a", "prompt": "b"}',
                                       {"Content-Type": "application/json"})
    assert status == 400
    assert json.loads(answer)["error"]["param"] == "prompt"


def test_f15_a_prompt_longer_than_the_context_is_refused_with_the_numbers(server):
    for path, body, param in ((TEXT, {"prompt": [5] * 8192}, "prompt"),
                              (TEXT, {"prompt": "word " * 9000}, "prompt"),
                              (TEXT, {"prompt": "a" * 3_000_000}, "prompt"),
                              (CHAT, {"messages": [{"role": "user", "content": "word " * 9000}]},
                               "messages")):
        status, answer = server.post(path, body)
        assert status == 400, answer
        assert answer["error"]["code"] == "context_length_exceeded"
        assert answer["error"]["param"] == param
        assert "8192" in answer["error"]["message"]
    status, answer = server.post(TEXT, {"prompt": [5] * 8191, "max_tokens": 50,
                                        "ignore_eos": True})
    assert status == 200, "the longest prompt that leaves room is taken"
    assert answer["usage"]["completion_tokens"] == 1, "and max_tokens clipped to the room"


def test_an_answer_that_the_cache_can_never_hold_is_refused_with_numbers(start_server):
    server = start_server(pages=20)
    status, answer = server.post(TEXT, {"prompt": [5] * 4000})
    assert status == 400, answer
    assert any(word.isdigit() for word in answer["error"]["message"].replace(",", " ").split())


def test_another_model_is_404(server):
    status, answer = server.post(CHAT, chat(model="gpt-4"))
    assert status == 404
    assert answer["error"]["code"] == "model_not_found"
    assert server.post(CHAT, chat(model="fake", max_tokens=1))[0] == 200
    assert server.get("/v1/models/fake")[1]["id"] == "fake"
    assert server.get("/v1/models/f%61ke")[0] == 200
    assert server.get("/v1/models/other%2Fone")[0] == 404
    assert server.get("/v1/models/fak%6")[0] == 404


def test_unknown_fields_are_refused_by_name(server):
    for body, param in ((chat(made_up_field=1), "made_up_field"),
                        (chat(made_up_field=False), "made_up_field"),
                        (chat(stream=True, stream_options={"padding": 1}),
                         "stream_options.padding"),
                        (chat(**{"thinking.display": "omitted"}), "thinking.display")):
        status, answer = server.post(CHAT, body)
        assert (status, answer["error"]["param"]) == (400, param), answer
        assert answer["error"]["code"] == "unknown_parameter"
        assert "leave it out" in answer["error"]["message"]
    assert server.post(CHAT, chat(max_tokens=1, made_up_field=None))[0] == 200, "null is absent"


def test_bad_requests_are_counted_and_leave_nothing_behind(server):
    before = server.metric("admission_rejections_total")
    assert server.post(CHAT, chat(n=0))[0] == 400
    assert server.metric("admission_rejections_total") == before + 1
    server.wait_idle()


TOOL = {"type": "function", "function": {"name": "f"}}
CUT = [("/v1/completions", {"prompt": "a", "x" * 63 + "é": 1}),
       ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}], "tools": [TOOL],
                                 "tool_choice": {"type": "function",
                                                 "function": {"name": "x" * 63 + "é"}}}),
       ("/v1/completions", {"prompt": "a", "model": "x" * 511 + "é"}),
       ("/v1/responses", {"input": "a", "previous_response_id": "x" * 127 + "é"}),
       ("/v1/responses", {"input": [{"type": "item_reference", "id": "x" * 127 + "é"}]})]


@pytest.mark.parametrize("path, body", CUT)
def test_errors_show_whole_characters_of_what_was_sent(server, path, body):
    status, _, data = server.request("POST", path, body)
    assert status in (400, 404)
    message = json.loads(data.decode("utf-8"))["error"]["message"]
    assert "x" * 40 in message and "é" not in message
