"""Any turn can be edited or answered anew; the versions stay, and prompts are reused."""

import re

from chatting import (answer_with, ask, finish, growing, last_answer, requests_of,
                      wait_until_stored)
from playwright.sync_api import expect


def questions(page):
    return page.get_by_test_id("user-message").locator(".bubble").all_inner_texts()


def answers(page):
    return page.get_by_test_id("answer-text").all_inner_texts()


def three_turns(page):
    for number in ("one", "two", "three"):
        answer_with(page, f"answer {number}")
        ask(page, f"question {number}")
        finish(page)


def test_any_question_can_be_edited(ready_page):
    page = ready_page()
    three_turns(page)
    answer_with(page, "another answer")
    requests = requests_of(page)
    page.get_by_test_id("user-message").nth(1).hover()
    page.get_by_test_id("edit").nth(1).click()
    page.get_by_test_id("editor").fill("question two, said better")
    page.keyboard.press("Enter")
    finish(page)
    assert questions(page) == ["question one", "question two, said better"]
    assert answers(page) == ["answer one", "another answer"]
    assert [message["content"] for message in requests[0]["messages"]] == [
        "question one", "answer one", "question two, said better"]
    versions = page.get_by_test_id("user-message").nth(1).get_by_test_id("versions")
    expect(versions).to_contain_text("2 / 2")
    versions.get_by_label("Previous version").click()
    assert questions(page) == ["question one", "question two", "question three"]
    assert answers(page) == ["answer one", "answer two", "answer three"]
    page.get_by_test_id("regenerate").first.click()
    finish(page)
    assert questions(page) == ["question one"]
    page.get_by_label("Previous version").click()
    assert questions(page) == ["question one", "question two, said better"]  # the newest path


def test_any_answer_can_be_made_anew(ready_page):
    page = ready_page()
    three_turns(page)
    answer_with(page, "another one")
    requests = requests_of(page)
    page.get_by_test_id("regenerate").first.click()
    finish(page)
    assert answers(page) == ["another one"] and questions(page) == ["question one"]
    assert [message["content"] for message in requests[0]["messages"]] == ["question one"]
    versions = page.get_by_test_id("versions")
    expect(versions).to_contain_text("2 / 2")
    wait_until_stored(page, "another one")
    page.reload()
    page.get_by_label("Previous version").click()
    assert answers(page) == ["answer one", "answer two", "answer three"]


def test_an_answer_can_be_edited_and_the_conversation_goes_on_from_it(ready_page):
    page = ready_page()
    answer_with(page, "a wrong answer")
    ask(page, "question")
    finish(page)
    page.get_by_test_id("edit-answer").click()
    page.get_by_test_id("editor").fill("a corrected answer")
    page.get_by_test_id("editor-save").click()
    assert answers(page) == ["a corrected answer"]
    requests = requests_of(page)
    ask(page, "go on")
    finish(page)
    assert requests[0]["messages"][1] == {"role": "assistant", "content": "a corrected answer"}


def test_editing_can_be_left_with_escape(ready_page):
    page = ready_page()
    answer_with(page, "answer")
    ask(page, "question")
    finish(page)
    page.get_by_test_id("user-message").hover()
    page.get_by_test_id("edit").click()
    expect(page.get_by_test_id("editor")).to_be_focused()
    page.get_by_test_id("editor").fill("something else")
    page.keyboard.press("Escape")
    assert questions(page) == ["question"]


def test_regenerating_reuses_the_prefix(ready_page):
    page = ready_page()
    page.get_by_test_id("thinking-switch").click()
    ask(page, "The fox sleeps in the meadow all day. " * 60 + "How long does it sleep?")
    finish(page)
    page.get_by_test_id("regenerate").click()
    finish(page)
    stats = last_answer(page).get_by_test_id("stats").inner_text()
    match = re.search(r"([\d,]+) of ([\d,]+) prompt tokens reused", stats)
    reused, whole = (int(number.replace(",", "")) for number in match.groups())
    assert whole > 300 and reused >= 0.8 * whole, stats


def test_an_answer_that_failed_is_no_version(ready_page):
    page = ready_page()
    page.route("**/v1/chat/completions", lambda route: route.fulfill(status=500, body="oh no"))
    ask(page, "question")
    finish(page, "failed")
    expect(page.get_by_test_id("error")).to_contain_text("oh no")
    answer_with(page, "now it works")
    page.get_by_test_id("retry").click()
    assert finish(page) == "now it works"
    expect(page.get_by_test_id("versions")).to_have_count(0)


def test_what_follows_an_answer_without_text_stays(ready_page):
    page = ready_page()
    page.route("**/v1/chat/completions", lambda route: route.fulfill(status=500, body="oh no"))
    ask(page, "question one")
    finish(page, "failed")
    answer_with(page, "answer two", "answer one")
    ask(page, "question two")
    assert finish(page) == "answer two"
    page.get_by_test_id("retry").click()
    assert finish(page) == "answer one"
    assert questions(page) == ["question one"]
    page.get_by_label("Previous version").click()
    assert questions(page) == ["question one", "question two"]
    assert answers(page) == ["", "answer two"]


def test_an_editor_that_is_open_waits_for_the_answer_that_grows(ready_page):
    page = ready_page()
    answer_with(page, "answer")
    ask(page, "question")
    finish(page)
    page.get_by_test_id("user-message").hover()
    page.get_by_test_id("edit").click()
    page.get_by_test_id("editor").fill("said better")
    growing(page)
    ask(page, "one more")
    page.evaluate("window.feed('The first part')")
    expect(last_answer(page)).to_contain_text("The first part")
    expect(page.get_by_test_id("editor-save")).to_be_disabled()
    page.get_by_test_id("editor").press("Enter")
    page.evaluate("window.feed(' and the last'); window.end()")
    assert finish(page) == "The first part and the last"
    page.unroute("**/v1/chat/completions")
    page.get_by_test_id("editor").press("Enter")
    page.evaluate("window.feed('Another'); window.end()")
    assert finish(page) == "Another"
    assert questions(page) == ["said better"]
