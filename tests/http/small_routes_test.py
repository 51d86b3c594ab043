"""The small endpoints: load, a probe that runs a token, ending requests by id, parsing texts."""

import http.client
import json
import threading

from conftest import wait_for

CALL = '<tool_call>\n{"name": "now", "arguments": {"zone": "UTC"}}\n</tool_call>'


def test_loads_are_shown(slow_server):
    status, loads = slow_server.get("/v1/loads")
    assert status == 200 and loads["loads"][0]["num_total_reqs"] == 0
    done = threading.Event()

    def ask():
        slow_server.post("/v1/completions", {"prompt": "a", "max_tokens": 20, "ignore_eos": True})
        done.set()

    threading.Thread(target=ask, daemon=True).start()
    wait_for(lambda: slow_server.get("/v1/loads")[1]["loads"][0]["num_running_reqs"] == 1)
    assert slow_server.get("/v1/loads")[1]["loads"][0]["token_usage"] > 0
    assert done.wait(20)


def test_health_generate_runs_one_token(server):
    before = server.metric("generation_tokens_total")
    status, answer = server.get("/health_generate")
    assert status == 200 and answer["usage"]["completion_tokens"] == 1
    assert server.metric("generation_tokens_total") == before + 1


def test_a_request_can_be_ended_by_its_id(slow_server):
    connection = http.client.HTTPConnection("127.0.0.1", slow_server.port, timeout=20)
    body = {"prompt": "a", "max_tokens": 5000, "ignore_eos": True, "stream": True}
    connection.request("POST", "/v1/completions", json.dumps(body),
                       {"Content-Type": "application/json", "X-Request-Id": "mine"})
    response = connection.getresponse()
    assert response.readline().startswith(b"data: ")
    assert slow_server.post("/abort_request", {"rid": "another"}) == (200, {"aborted": 0})
    assert slow_server.post("/abort_request", {"rid": "mine"}) == (200, {"aborted": 1})
    rest = response.read().decode()
    assert '"code":"aborted"' in rest and rest.endswith("data: [DONE]\n\n")
    slow_server.wait_idle()
    status, error = slow_server.post("/abort_request", {})
    assert status == 400 and error["error"]["param"] == "rid"


def test_texts_can_be_parsed(server):
    tools = [{"type": "function", "function": {"name": "now", "parameters": {}}}]
    status, parsed = server.post("/parse_function_call", {"text": "Well.\n" + CALL,
                                                          "tools": tools})
    assert status == 200 and parsed["normal_text"] == "Well."
    assert parsed["calls"] == [{"tool_index": 0, "name": "now", "parameters": '{"zone": "UTC"}'}]
    status, parsed = server.post("/parse_function_call",
                                 {"text": CALL, "tool_call_parser": "kimi_k2"})
    assert parsed == {"normal_text": CALL, "calls": []}
    status, error = server.post("/parse_function_call", {"text": "", "tool_call_parser": "mind"})
    assert status == 400 and "hermes" in error["error"]["message"]
    status, parsed = server.post("/separate_reasoning", {"text": "<think>\nHm.\n</think>\n\nSo."})
    assert (status, parsed) == (200, {"reasoning_text": "Hm.", "text": "So."})
    status, parsed = server.post("/separate_reasoning",
                                 {"text": "Hm.</think>So.", "reasoning_parser": "deepseek-r1"})
    assert parsed == {"reasoning_text": "Hm.", "text": "So."}
    whole = {"text": "<think>Hm.</think>So.", "reasoning_parser": "none"}
    assert server.post("/separate_reasoning", whole) == (
        200, {"reasoning_text": "", "text": whole["text"]})
    status, error = server.post("/separate_reasoning", {"text": "", "reasoning_parser": "mind"})
    assert status == 400 and "think" in error["error"]["message"]


def test_a_template_is_applied(server):
    talk = [{"role": "user", "content": "Hi."}, {"role": "assistant", "content": "I am"}]

    def prompt(messages, path="/apply_template", **more):
        status, answer = server.post(path, {"messages": messages} | more)
        assert status == 200, answer
        return answer["prompt"]

    ended = prompt(talk[:1], add_generation_prompt=False)
    assert "Hi." in ended and "assistant" not in ended
    opened = prompt(talk[:1])
    assert opened.startswith(ended) and "assistant" in opened[len(ended):]
    assert prompt(talk[:1], "/apply-template") == opened
    assert prompt(talk, continue_final_message=True, add_generation_prompt=False).endswith("I am")


def test_a_text_that_ends_messages_is_continued(server):
    talk = [{"role": "user", "content": "Hi."}, {"role": "assistant", "content": "I am"}]
    status, counted = server.post("/v1/messages/count_tokens", {"messages": talk})
    assert status == 200, counted
    status, tokens = server.post("/tokenize", {"messages": talk, "continue_final_message": True})
    assert status == 200 and counted["input_tokens"] == tokens["count"]


def test_the_api_describes_itself(server):
    status, document = server.get("/openapi.json")
    assert status == 200 and document["openapi"].startswith("3.")
    for path, methods in document["paths"].items():
        for method in methods:
            status, headers, _ = server.request("PUT", path.replace("{id}", "fake"))
            assert status == 405 and method.upper() in headers["Allow"].split(", "), path


def test_constraints_need_a_model_with_a_grammar(server):
    for field, value in (("guided_regex", "a"), ("response_format", {"type": "json_object"})):
        status, error = server.post("/v1/completions", {"prompt": "a", field: value})
        assert status == 400 and error["error"]["param"] == field
