"""The playground: answers that keep to a schema, and tools whose calls the reader answers."""

import json

import pytest
from chatting import CHAT, events_of, requests_of, set_option
from playwright.sync_api import expect

YES_NO = {"type": "object", "properties": {"answer": {"enum": ["yes", "no"]}},
          "required": ["answer"], "additionalProperties": False}


@pytest.fixture
def playground(ready_page):
    def open_it(part, **kwargs):
        page = ready_page(**kwargs)
        page.get_by_test_id("tab-playground").click()
        page.get_by_test_id(f"play-{part}").click()
        return page

    return open_it


def test_an_answer_keeps_to_the_schema_and_is_checked(playground):
    page = playground("JSON schema")
    requests = requests_of(page)
    page.get_by_test_id("schema-question").fill("Is water wet?")
    page.get_by_test_id("schema-field").fill(json.dumps(YES_NO))
    page.get_by_test_id("play-run").click()
    expect(page.get_by_test_id("verdict")).to_contain_text("Matches the schema", timeout=60_000)
    answer = json.loads(page.get_by_test_id("schema-result").locator("pre").inner_text())
    assert answer["answer"] in ("yes", "no")
    assert requests[0]["response_format"] == {"type": "json_schema", "json_schema": {
        "name": "answer", "strict": True, "schema": YES_NO}}


def test_each_example_works(playground):
    page = playground("JSON schema")
    for name in ("CSV row", "Person", "To-do list", "Sentiment"):
        page.get_by_test_id(f"example-{name}").click()
        page.get_by_test_id("schema-question").focus()
        page.keyboard.press("Control+Enter")
        expect(page.get_by_test_id("play-stop")).to_have_count(0, timeout=60_000)
        expect(page.get_by_test_id("verdict")).to_contain_text("Matches the schema")


def test_what_breaks_the_schema_is_named(playground):
    page = playground("JSON schema")
    chunk = {"choices": [{"index": 0, "delta": {"content": '{"answer": "maybe"}'},
                          "finish_reason": "stop"}]}
    page.route(CHAT, lambda route: route.fulfill(content_type="text/event-stream",
                                                 body=events_of(chunk)))
    page.get_by_test_id("schema-field").fill(json.dumps(YES_NO))
    page.get_by_test_id("play-run").click()
    expect(page.get_by_test_id("verdict")).to_contain_text("/answer")


def test_a_schema_with_an_error_is_not_sent(playground):
    page = playground("JSON schema")
    page.get_by_test_id("schema-field").fill('{\n  "type": object\n}')
    expect(page.get_by_test_id("schema-field-problem")).to_contain_text("Unexpected token")
    expect(page.get_by_test_id("play-run")).to_be_disabled()
    page.get_by_test_id("schema-field").fill("[]")
    expect(page.get_by_test_id("schema-field-problem")).to_contain_text("A schema is a JSON object")


def test_the_servers_refusal_of_a_schema_is_shown(playground):
    page = playground("JSON schema")
    page.get_by_test_id("schema-field").fill('{"type": "string", "pattern": "("}')
    page.get_by_test_id("play-run").click()
    expect(page.get_by_test_id("error")).to_contain_text("400")


def test_a_call_is_shown_and_answered(playground):
    page = playground("Tools")
    requests = requests_of(page)
    page.get_by_test_id("tool-choice").select_option("calculate")
    page.get_by_test_id("play-run").click()
    call = page.get_by_test_id("tool-call")
    expect(call).to_have_count(1, timeout=60_000)
    expect(call).to_contain_text("calculate")
    expect(call.get_by_test_id("verdict")).to_contain_text("Matches the parameters")
    assert requests[0]["tool_choice"] == {"type": "function", "function": {"name": "calculate"}}
    assert [tool["function"]["name"] for tool in requests[0]["tools"]] == ["calculate", "add_event"]
    arguments = json.loads(call.locator("pre").inner_text())
    page.get_by_test_id("tool-result").fill("1484")
    page.get_by_test_id("send-results").click()
    expect(page.get_by_test_id("tool-answer").nth(1)).to_have_attribute("data-status", "done",
                                                                        timeout=60_000)
    said, result = requests[1]["messages"][1:]
    assert json.loads(said["tool_calls"][0]["function"]["arguments"]) == arguments
    assert result == {"role": "tool", "content": "1484",
                      "tool_call_id": said["tool_calls"][0]["id"]}
    assert requests[1]["tool_choice"] == "auto"
    expect(call).to_contain_text("1484")


def test_the_thinking_before_a_call_is_sent_back_with_it(playground):
    page = playground("Tools")
    requests = requests_of(page)
    call = {"index": 0, "id": "call-1", "function": {"name": "calculate", "arguments": "{}"}}
    deltas = [{"reasoning_content": "A product"}, {"reasoning_content": ", then.\n"},
              {"tool_calls": [call]}]
    chunks = [{"choices": [{"index": 0, "delta": delta}]} for delta in deltas]
    end = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
    answers = [events_of(*chunks, end), events_of(chunks[2], end), events_of(end)]
    page.route(CHAT, lambda route: route.fulfill(content_type="text/event-stream",
                                                 body=answers.pop(0)))
    page.get_by_test_id("play-run").click()
    for turn in (1, 2):
        page.get_by_test_id("tool-result").fill("1484")
        page.get_by_test_id("send-results").click()
        answer = page.get_by_test_id("tool-answer").nth(turn)
        expect(answer).to_have_attribute("data-status", "done")
    first, second = (message for message in requests[2]["messages"]
                     if message["role"] == "assistant")
    assert first["reasoning_content"] == "A product, then.\n"
    assert [made["id"] for made in first["tool_calls"]] == ["call-1"]
    assert "reasoning_content" not in second  # there was none


def test_tools_are_checked_before_they_are_sent(playground):
    page = playground("Tools")
    page.get_by_test_id("tools-field").fill('[{"name": "a"}, {"description": "x"}]')
    expect(page.get_by_test_id("tools-field-problem")).to_contain_text('Tool 2 has no "name"')
    expect(page.get_by_test_id("play-run")).to_be_disabled()


def test_what_was_typed_outlives_a_reload(playground):
    page = playground("Tools")
    page.get_by_test_id("tools-question").fill("something else")
    page.reload()
    expect(page.get_by_test_id("tools-question")).to_have_value("something else")


def test_an_answer_can_be_stopped(playground):
    page = playground("JSON schema")
    page.route(CHAT, lambda route: None)
    page.get_by_test_id("play-run").click()
    page.get_by_test_id("play-stop").click()
    expect(page.get_by_test_id("schema-result")).to_have_attribute("data-status", "stopped")


def test_the_readers_options_hold_here_too(playground):
    page = playground("JSON schema")
    set_option(page, "seed", "11")
    requests = requests_of(page)
    page.get_by_test_id("play-run").click()
    expect(page.get_by_test_id("verdict")).to_be_visible(timeout=60_000)
    assert requests[0]["seed"] == 11


def test_it_fits_a_phone(playground):
    page = playground("JSON schema", width=390)
    for part in ("JSON schema", "Tools"):
        page.get_by_test_id(f"play-{part}").click()
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        assert page.locator("main").evaluate("main => main.scrollWidth - main.clientWidth") <= 0
