"""The page as a reader uses it: types, watches the answer grow, stops it, edits, changes the light.

Nothing here knows how the page is made: it goes by labels, data-testid and what is seen.
"""

import json
import re
import time

from chatting import (CHAT, STORY, answer_with, ask, finish, growing, last_answer, never_ending,
                      requests_of, set_option)
from playwright.sync_api import expect

# Writes down, from now on, each new length of the last answer.
WATCH = """() => {
  window.growth = [];
  const look = () => {
    const text = [...document.querySelectorAll('[data-testid="answer-text"]')].pop();
    const length = text ? text.textContent.length : 0;
    const last = window.growth.at(-1);
    if (length > 0 && (!last || last.length !== length)) {
      window.growth.push({length, at: performance.now()});
    }
  };
  new MutationObserver(look).observe(document.body,
    {subtree: true, childList: true, characterData: true});
}"""


def strip_value(page, name):
    return page.get_by_test_id(f"strip-{name}").inner_text()


def test_a_typed_question_gets_an_answer_that_grows(ready_page):
    page = ready_page()
    set_option(page, "temperature", "0")
    page.evaluate(WATCH)
    never_ending(page, 1500)  # long enough for a busy browser to draw it more than once
    ask(page, STORY)
    text = finish(page)
    growth = page.evaluate("window.growth")
    lengths = [step["length"] for step in growth]
    assert lengths[-1] == max(lengths) and len(lengths) >= 3, lengths
    assert growth[-1]["at"] - growth[0]["at"] > 20, growth
    assert "Finn" in text and "meadow" in text
    expect(page.get_by_test_id("user-message")).to_contain_text(STORY)
    stats = page.get_by_test_id("stats").inner_text()
    assert "tokens/s" in stats and "first token" in stats, stats


def test_thinking_is_open_while_it_streams_and_folded_after(ready_page):
    page = ready_page()
    growing(page)
    ask(page, STORY)
    page.wait_for_function("Boolean(window.feed)")
    page.evaluate("window.feed('Finn the fox should', 'reasoning_content')")
    thinking = page.get_by_test_id("thinking")
    expect(thinking).to_have_attribute("data-open", "true")
    expect(thinking).to_contain_text("Finn the fox should")
    page.evaluate("window.feed('Finn ran.')")
    page.evaluate("window.end()")
    assert finish(page) == "Finn ran."
    expect(thinking).to_have_attribute("data-open", "false")
    page.get_by_test_id("thinking-toggle").click()
    expect(thinking).to_contain_text("Finn the fox")


def test_without_think_there_is_no_thinking(ready_page):
    page = ready_page()
    page.get_by_test_id("thinking-switch").click()
    ask(page, STORY)
    finish(page)
    expect(page.get_by_test_id("thinking")).to_have_count(0)


def test_stop_and_escape_end_the_answer_and_free_the_request(ready_page):
    page = ready_page()
    never_ending(page)
    for stop in (page.get_by_test_id("stop").click, lambda: page.keyboard.press("Escape")):
        ask(page, "A long one. " + STORY)
        expect(last_answer(page).get_by_test_id("stats")).to_contain_text("tokens")
        expect(page.get_by_test_id("strip-running")).to_have_text("1")
        stop()
        text = finish(page, "stopped")
        time.sleep(0.5)
        assert last_answer(page).get_by_test_id("answer-text").inner_text() == text
        expect(page.get_by_test_id("strip-running")).to_have_text("0")
        expect(last_answer(page)).to_contain_text("stopped")


def test_the_live_strip_shows_the_load(ready_page):
    page = ready_page()
    never_ending(page)
    for name in ("running", "waiting", "prompt", "output"):
        expect(page.get_by_test_id(f"strip-{name}")).to_have_text("0")
    ask(page, "A long one. " + STORY)
    expect(page.get_by_test_id("strip-running")).to_have_text("1")
    expect(page.get_by_test_id("strip-output")).not_to_have_text("0")
    assert strip_value(page, "pages").endswith("%")
    assert strip_value(page, "pages") != "0 %"
    assert page.locator("[data-testid=strip] canvas").count() == 1
    page.get_by_test_id("stop").click()
    expect(page.get_by_test_id("strip-output")).to_have_text("0")


def test_the_live_strip_shows_what_the_cache_keeps_and_saves(ready_page):
    page = ready_page()
    page.evaluate("fetch('flush_cache', {method: 'POST'})")
    ask(page, STORY * 10)  # some whole blocks of tokens
    finish(page)
    expect(page.get_by_test_id("strip-page-bar")).to_have_attribute(
        "title", re.compile(r"^0 pages in use, [1-9][0-9]* cached, [1-9][0-9]* free$"))
    page.get_by_test_id("regenerate").click()
    finish(page)
    expect(page.get_by_test_id("strip-reused")).to_have_text(re.compile(r"^[1-9][0-9.]* %$"))


def test_the_next_question_carries_the_conversation(ready_page):
    page = ready_page()
    requests = requests_of(page)
    set_option(page, "system", "You are a helpful assistant.")
    set_option(page, "seed", "7")
    ask(page, STORY)
    first = finish(page)
    ask(page, "Tom has 12 apples and buys 7 more. How many apples does Tom have?")
    assert "19" in finish(page)
    roles = [message["role"] for message in requests[1]["messages"]]
    assert roles == ["system", "user", "assistant", "user"]
    assert requests[1]["messages"][2]["content"].split()[:4] == first.split()[:4]
    assert requests[1]["seed"] == 7 and "temperature" not in requests[1]
    assert requests[1]["chat_template_kwargs"] == {"enable_thinking": True}


def test_a_starter_is_asked_with_one_click(ready_page):
    page = ready_page()
    page.get_by_test_id("starter").first.click()
    assert finish(page).strip()


def test_the_servers_error_is_shown_in_its_own_words(ready_page):
    page = ready_page()
    set_option(page, "temperature", "9")
    ask(page, STORY)
    finish(page, "failed")
    error = page.get_by_test_id("error")
    expect(error).to_contain_text("400")
    expect(error).to_contain_text("temperature")
    set_option(page, "temperature", "0")
    page.get_by_test_id("retry").click()
    assert "Finn" in finish(page)


def test_an_event_cut_anywhere_is_put_together(ready_page):
    page = ready_page()
    choice = {"index": 0, "delta": {"content": "naïve 中文 🦊"}, "finish_reason": "stop"}
    chunk = {"choices": [choice]}
    body = f"data: {json.dumps(chunk, ensure_ascii=False)}\r\n\r\ndata: [DONE]\r\n\r\n".encode()
    # fetch is replaced, because a fulfilled route arrives whole.
    page.evaluate("""(bytes) => {
      const real = window.fetch;
      window.fetch = (path, ...rest) => path !== "v1/chat/completions" ? real(path, ...rest)
        : Promise.resolve(new Response(new ReadableStream({start(stream) {
            for (const byte of bytes) stream.enqueue(new Uint8Array([byte]));
            stream.close();
          }})));
    }""", list(body))
    ask(page, "x")
    assert finish(page) == "naïve 中文 🦊"


def test_an_answer_that_comes_in_one_piece_does_not_flatter_the_rate(ready_page):
    page = ready_page()
    chunks = [{"choices": [{"index": 0, "delta": {"content": "word "}}]}] * 500
    chunks.append({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    body = "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks) + "data: [DONE]\n\n"

    def late(route):
        time.sleep(0.5)
        route.fulfill(content_type="text/event-stream", body=body)

    page.route(CHAT, late)
    ask(page, "x")
    finish(page)
    stats = page.get_by_test_id("stats").inner_text()
    rate = float(re.search(r"([\d.]+) tokens/s", stats)[1])
    assert 100 < rate <= 1000 and "500 tokens" in stats, stats


def test_a_stream_that_breaks_off_is_an_error(ready_page):
    page = ready_page()
    chunk = {"choices": [{"index": 0, "delta": {"content": "half an ans"}}]}
    page.route(CHAT, lambda route: route.fulfill(
        content_type="text/event-stream", body=f"data: {json.dumps(chunk)}\n\n"))
    ask(page, "x")
    assert finish(page, "failed") == "half an ans"
    expect(page.get_by_test_id("error")).to_contain_text("closed before the answer was complete")


def test_while_the_model_loads_the_page_says_so_and_waits(open_page):
    answers = {"status": 503}
    body = json.dumps({"error": {"message": "loading 40 %"}})

    def route_ready(page):
        page.route("**/ready", lambda route: route.fulfill(**answers, body=body))

    page = open_page(before=route_ready)
    expect(page.get_by_test_id("banner")).to_contain_text("loading 40 %")
    page.get_by_test_id("composer").fill(STORY)
    expect(page.get_by_test_id("send")).to_be_disabled()
    answers["status"] = 200
    expect(page.get_by_test_id("banner")).to_have_count(0)
    expect(page.get_by_test_id("send")).to_be_enabled()


def test_nothing_is_wider_than_a_phone(ready_page):
    page = ready_page(width=375)

    def fits():
        wide = page.evaluate("""() => [...document.querySelectorAll('body, body *')]
            .filter((element) => !element.closest('pre, svg, math') && element.clientWidth > 0)
            .filter((element) => element.getBoundingClientRect().right > innerWidth + 0.5)
            .map((element) => element.outerHTML.slice(0, 80))""")
        width = page.evaluate("document.documentElement.scrollWidth")
        assert width <= 375 and wide == [], (width, wide)

    fits()
    code = "```\n" + "x" * 300 + "\n```\n" + "y" * 300
    answer_with(page, code)
    ask(page, "z" * 300)
    finish(page)
    fits()
    page.get_by_test_id("open-settings").click()
    expect(page.get_by_test_id("settings")).to_be_visible()
    fits()


def brightness(page):
    colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
    return sum(int(part) for part in colour.strip("rgb()").split(",")[:3]) / 3


def test_dark_and_light_follow_the_system_and_the_button(ready_page):
    assert brightness(ready_page(scheme="light")) > 200
    page = ready_page(scheme="dark")
    assert brightness(page) < 50
    page.get_by_test_id("theme").click()
    assert brightness(page) > 200
    page.reload()
    assert brightness(page) > 200


NAMELESS = """() => [...document.querySelectorAll('button, input, textarea, select, dialog')]
    .filter((element) => !element.ariaLabel && !element.textContent.trim()
                         && !element.closest('label')?.textContent.trim())
    .map((element) => element.outerHTML)"""


def test_every_button_and_field_has_a_name(ready_page):
    page = ready_page()
    answer_with(page, "done")
    ask(page, "x")
    finish(page)
    assert page.evaluate(NAMELESS) == []
    page.get_by_test_id("open-settings").click()
    assert page.evaluate(NAMELESS) == []
    page.keyboard.press("Escape")
    page.get_by_test_id("tab-playground").click()
    for part in ("JSON schema", "Tools"):
        page.get_by_test_id(f"play-{part}").click()
        assert page.evaluate(NAMELESS) == []


def test_readers_of_the_screen_hear_when_an_answer_begins_and_ends(ready_page):
    page = ready_page()
    growing(page)
    ask(page, "x")
    expect(page.get_by_test_id("announcer")).to_have_text("Answering")
    page.evaluate("window.feed('some text'); window.end()")
    expect(page.get_by_test_id("announcer")).to_have_text("Answer complete")
