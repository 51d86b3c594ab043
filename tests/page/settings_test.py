"""The settings: every option reaches the request; the dialog keeps the focus and gives it back."""

import pytest
from chatting import answer_with, ask, finish, requests_of, set_option
from playwright.sync_api import expect

INSIDE = "document.activeElement.closest('dialog') !== null"


def sent_with(page, options):
    answer_with(page, "done")
    requests = requests_of(page)
    page.get_by_test_id("open-settings").click()
    for name, value in options.items():
        page.get_by_test_id(f"setting-{name}").fill(value)
    page.keyboard.press("Escape")
    ask(page, "x")
    finish(page)
    return requests[0]


def test_every_option_reaches_the_request(ready_page):
    page = ready_page()
    options = {"temperature": "0.5", "top_p": "0.9", "top_k": "40", "min_p": "0.05",
               "presence_penalty": "0.2", "frequency_penalty": "-0.3", "repetition_penalty": "1.1",
               "max_tokens": "12", "thinking_budget": "5", "seed": "7"}
    request = sent_with(page, options | {"stop": "END\n\\n\\n\ntwo words", "system": "Be brief."})
    for name, value in options.items():
        assert request[name] == float(value), name
    assert request["stop"] == ["END", "\n\n", "two words"]
    assert request["messages"][0] == {"role": "system", "content": "Be brief."}


def test_an_empty_option_is_left_to_the_model(ready_page):
    page = ready_page()
    request = sent_with(page, {})
    assert set(request) == {"model", "messages", "chat_template_kwargs", "stream", "stream_options"}
    page.get_by_test_id("open-settings").click()
    assert page.get_by_test_id("setting-temperature").get_attribute("placeholder") == "0.7"


def test_the_server_takes_every_option(ready_page):
    page = ready_page()
    page.get_by_test_id("open-settings").click()
    for name, value in (("min_p", "0.05"), ("presence_penalty", "0.2"),
                        ("frequency_penalty", "0.2"), ("repetition_penalty", "1.1"),
                        ("thinking_budget", "8"), ("max_tokens", "40"), ("stop", "zebra")):
        page.get_by_test_id(f"setting-{name}").fill(value)
    page.keyboard.press("Escape")
    ask(page, "Tell me a story about a fox named Finn in the meadow.")
    finish(page)


def test_a_stop_string_ends_the_answer(ready_page):
    page = ready_page()
    set_option(page, "temperature", "0")
    set_option(page, "stop", "meadow")
    page.get_by_test_id("thinking-switch").click()
    ask(page, "Tell me a story about a fox named Finn in the meadow.")
    text = finish(page)
    assert "Finn" in text and "meadow" not in text


def test_options_are_kept_and_can_be_restored(ready_page):
    page = ready_page()
    set_option(page, "seed", "7")
    page.reload()
    page.get_by_test_id("open-settings").click()
    expect(page.get_by_test_id("setting-seed")).to_have_value("7")
    page.get_by_test_id("restore-defaults").click()
    expect(page.get_by_test_id("setting-seed")).to_have_value("")


@pytest.mark.parametrize("key", ["Tab", "Shift+Tab"])
def test_focus_stays_in_the_dialog_and_returns_to_its_opener(ready_page, key):
    page = ready_page()
    page.get_by_test_id("open-settings").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_test_id("settings")).to_be_visible()
    seen = set()
    for step in range(40):
        assert page.evaluate(INSIDE), f"outside after {step} times {key}"
        seen.add(page.evaluate("document.activeElement.dataset.testid ?? ''"))
        page.keyboard.press(key)
    assert {"setting-system", "setting-min_p", "setting-stop", "reset-all"} <= seen
    page.keyboard.press("Escape")
    expect(page.get_by_test_id("settings")).to_have_count(0)
    expect(page.get_by_test_id("open-settings")).to_be_focused()


@pytest.mark.parametrize("opener, dialog", [("toggle-list", "list-drawer"),
                                            ("open-settings", "settings")])
def test_dialogs_of_a_phone_keep_the_focus_too(ready_page, opener, dialog):
    page = ready_page(width=390)
    page.get_by_test_id(opener).focus()
    page.keyboard.press("Enter")
    expect(page.get_by_test_id(dialog)).to_be_visible()
    for _ in range(20):
        assert page.evaluate(INSIDE)
        page.keyboard.press("Tab")
    page.keyboard.press("Escape")
    expect(page.get_by_test_id(opener)).to_be_focused()


def test_escape_in_a_dialog_does_not_stop_the_answer(ready_page):
    page = ready_page()
    page.route("**/v1/chat/completions", lambda route: None)  # it never answers
    ask(page, "x")
    expect(page.get_by_test_id("stop")).to_be_visible()
    page.get_by_test_id("open-settings").click()
    page.keyboard.press("Escape")
    expect(page.get_by_test_id("settings")).to_have_count(0)
    expect(page.get_by_test_id("stop")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_test_id("send")).to_be_visible()


def test_the_page_can_be_used_with_the_keyboard_alone(ready_page):
    page = ready_page()
    answer_with(page, "Typed without a mouse.")
    expect(page.get_by_test_id("composer")).to_be_focused()
    page.keyboard.type("first line")
    page.keyboard.press("Shift+Enter")
    page.keyboard.type("second line")
    page.keyboard.press("Enter")
    finish(page)
    expect(page.get_by_test_id("user-message").locator(".bubble")).to_have_text(
        "first line\nsecond line")
    reached = set()
    for _ in range(60):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.dataset.testid ?? ''"))
    assert {"composer", "open-settings", "theme", "tab-playground", "new-chat", "search", "edit",
            "open-conversation", "regenerate", "edit-answer", "copy", "thinking-switch",
            "export"} <= reached, reached
