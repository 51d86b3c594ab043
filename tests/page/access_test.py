"""A server with an API key: the page asks for it at the first 401 and keeps it out of sight."""

import pathlib
import sys

import pytest
from chatting import answer_with, ask, finish, last_answer, phase
from playwright.sync_api import expect

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from serving import serving  # noqa: E402

KEY = "a-key-for-the-page"


@pytest.fixture(scope="module")
def locked():
    with serving("--api-key", KEY) as served:
        yield served.address


def enter(page, key):
    page.get_by_test_id("key-field").fill(key)
    page.keyboard.press("Enter")


def test_a_key_is_asked_for_and_opens_the_page(open_page, locked):
    page = open_page(url=locked)
    asked = []
    page.on("request", lambda request: asked.append(request))
    phase(page, "locked")
    expect(page.get_by_test_id("key-field")).to_be_focused()
    enter(page, "a wrong key")
    expect(page.get_by_test_id("key-problem")).to_contain_text("without spaces")
    enter(page, "a-wrong-key")
    expect(page.get_by_test_id("key-problem")).to_contain_text("does not accept this key")
    enter(page, KEY)
    expect(page.get_by_test_id("key-dialog")).to_have_count(0)
    phase(page, "ready")
    ask(page, "Tell me a story about a fox named Finn in the meadow.")
    assert finish(page).strip()
    assert not [request.url for request in asked if "key" in request.url]
    assert KEY not in page.url
    page.get_by_test_id("tab-api").click()
    expect(page.get_by_test_id("snippet")).to_contain_text("Bearer $BRAID_API_KEY")


def test_the_key_is_kept_for_the_tab_only(open_page, locked):
    page = open_page(url=locked)
    enter(page, KEY)
    phase(page, "ready")
    page.reload()
    phase(page, "ready")
    expect(page.get_by_test_id("key-dialog")).to_have_count(0)
    assert KEY not in page.evaluate("JSON.stringify(localStorage)")
    other = page.context.new_page()
    other.goto(locked + "/")
    expect(other.get_by_test_id("key-dialog")).to_be_visible()
    page.get_by_test_id("open-settings").click()
    page.get_by_test_id("forget-key").click()
    expect(page.get_by_test_id("key-dialog")).to_be_visible()
    assert page.evaluate("sessionStorage.getItem('braid.key')") is None


def test_without_a_key_the_stored_conversations_can_be_read(open_page, locked):
    page = open_page(url=locked)
    expect(page.get_by_test_id("key-field")).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.get_by_test_id("key-dialog")).to_have_count(0)
    expect(page.get_by_test_id("key-banner")).to_contain_text("asks for an API key")
    expect(page.get_by_test_id("send")).to_be_disabled()
    expect(page.get_by_test_id("list")).to_be_visible()
    page.get_by_test_id("key-open").click()
    enter(page, KEY)
    phase(page, "ready")
    expect(page.get_by_test_id("key-banner")).to_have_count(0)


def test_a_key_that_stops_working_is_asked_for_again(ready_page):
    page = ready_page()
    page.evaluate("sessionStorage.setItem('braid.key', 'old')")
    page.reload()
    phase(page, "ready")
    page.route("**/v1/**", lambda route: route.fulfill(
        status=401, body='{"error": {"message": "the API key is missing or wrong"}}'))
    ask(page, "question")
    finish(page, "failed")
    expect(page.get_by_test_id("key-dialog")).to_contain_text("no longer accepts the key")
    page.unroute("**/v1/**")
    answer_with(page, "Here it is.")
    enter(page, "new")
    expect(page.get_by_test_id("key-dialog")).to_have_count(0)
    page.get_by_test_id("retry").click()
    finish(page)
    expect(last_answer(page)).to_contain_text("Here it is.")


def test_a_refused_key_is_not_tried_again_and_again(open_page, locked):
    page = open_page(url=locked)
    expect(page.get_by_test_id("key-dialog")).to_be_visible()
    sent = []
    page.on("request", lambda request: sent.append(request.headers.get("authorization")))
    enter(page, "a-wrong-key")
    expect(page.get_by_test_id("key-problem")).to_contain_text("does not accept")
    page.evaluate("sessionStorage.setItem('braid.key', 'an-old-key')")  # no longer valid
    page.reload()
    expect(page.get_by_test_id("key-dialog")).to_contain_text("no longer accepts the key")
    page.wait_for_timeout(2500)
    assert [key for key in sent if key] == ["Bearer a-wrong-key", "Bearer an-old-key"]
