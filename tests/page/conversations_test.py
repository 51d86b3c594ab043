"""The list of conversations: what is stored, found, renamed, deleted, exported and imported."""

import json

import pytest
from chatting import (STORED, answer_with, ask, finish, growing, last_answer, phase, titles,
                      wait_until_stored)
from playwright.sync_api import expect


def talk(page, question, answer):
    """One conversation of one question; afterwards it is open and stored."""
    page.get_by_test_id("new-chat").click()
    answer_with(page, answer)
    ask(page, question)
    finish(page)
    wait_until_stored(page, answer)


@pytest.fixture
def three(ready_page):
    """A page with three conversations; the last one is open."""
    page = ready_page()
    for question, answer in (("Where do foxes live?", "In dens."), ("What is a lynx?", "A cat."),
                             ("Name a river.", "The Rhine.")):
        talk(page, question, answer)
    return page


def test_conversations_are_listed_and_outlive_a_reload(three):
    page = three
    assert titles(page) == ["Name a river.", "What is a lynx?", "Where do foxes live?"]
    page.reload()
    expect(last_answer(page)).to_contain_text("The Rhine.")
    page.get_by_text("Where do foxes live?").first.click()
    expect(last_answer(page)).to_contain_text("In dens.")
    page.go_back()
    expect(last_answer(page)).to_contain_text("The Rhine.")


def test_search_looks_at_titles_and_texts(three):
    page = three
    page.get_by_test_id("search").fill("LYNX")
    expect(page.get_by_test_id("open-conversation")).to_have_text(["What is a lynx?"])
    page.get_by_test_id("search").fill("dens live")  # a word of the answer, one of the question
    expect(page.get_by_test_id("open-conversation")).to_have_text(["Where do foxes live?"])
    page.get_by_test_id("search").fill("what live")  # one word each of two conversations
    expect(page.get_by_test_id("list")).to_contain_text("Nothing found.")
    page.get_by_test_id("search").fill("otter")
    expect(page.get_by_test_id("list")).to_contain_text("Nothing found.")
    page.get_by_test_id("search").press("Escape")
    expect(page.get_by_test_id("open-conversation")).to_have_count(3)


def test_a_conversation_is_renamed(three):
    page = three
    page.get_by_test_id("conversation").nth(1).hover()
    page.get_by_test_id("rename").nth(1).click()
    page.get_by_test_id("rename-field").fill("Cats")
    page.keyboard.press("Enter")
    renamed = page.get_by_test_id("open-conversation").nth(1)
    expect(renamed).to_have_text("Cats")
    expect(renamed).to_be_focused()
    page.keyboard.press("F2")
    page.get_by_test_id("rename-field").fill("Dogs")
    page.keyboard.press("Escape")
    expect(renamed).to_have_text("Cats")
    wait_until_stored(page, "Cats")
    page.reload()
    expect(page.get_by_test_id("open-conversation").nth(1)).to_have_text("Cats")


def test_a_conversation_is_deleted_and_can_be_brought_back(three):
    page = three
    page.get_by_test_id("conversation").first.hover()
    page.get_by_test_id("delete").first.click()
    assert titles(page) == ["What is a lynx?", "Where do foxes live?"]
    expect(page.get_by_test_id("welcome")).to_be_visible()  # it was the open one
    page.get_by_test_id("toast-action").click()
    expect(last_answer(page)).to_contain_text("The Rhine.")
    growing(page)
    ask(page, "And longer?")
    page.evaluate("window.feed('The first part')")
    expect(last_answer(page)).to_contain_text("first part")
    page.get_by_test_id("conversation").first.hover()
    page.get_by_test_id("delete").first.click()
    page.get_by_test_id("toast-action").click()
    assert finish(page, "stopped") == "The first part"  # deleting it has ended the answer
    page.get_by_test_id("conversation").first.hover()
    page.get_by_test_id("delete").first.click()
    page.wait_for_timeout(200)
    page.reload()
    expect(page.get_by_test_id("open-conversation")).to_have_text(
        ["What is a lynx?", "Where do foxes live?"])


def test_the_list_works_with_the_keyboard_alone(three):
    page = three
    items = page.get_by_test_id("open-conversation")
    page.get_by_test_id("search").focus()
    page.keyboard.press("ArrowDown")
    expect(items.nth(0)).to_be_focused()
    page.keyboard.press("End")
    expect(items.nth(2)).to_be_focused()
    page.keyboard.press("ArrowUp")
    expect(items.nth(1)).to_be_focused()
    page.keyboard.press("Tab")
    expect(page.get_by_test_id("rename").nth(1)).to_be_focused()
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Enter")
    expect(last_answer(page)).to_contain_text("A cat.")
    items.nth(1).focus()
    page.keyboard.press("Delete")
    expect(items).to_have_text(["Name a river.", "Where do foxes live?"])
    expect(items.nth(1)).to_be_focused()  # what took its place


def test_an_export_is_imported_elsewhere(three, ready_page):
    with three.expect_download() as download:
        three.get_by_test_id("export").click()
    path = download.value.path()
    exported = json.loads(path.read_text())
    assert exported["format"] == "braid-conversations" and len(exported["conversations"]) == 3
    other = ready_page()
    other.get_by_test_id("import-file").set_input_files(path)
    expect(other.get_by_test_id("toast")).to_contain_text("3 conversations imported")
    assert titles(other) == titles(three)
    three.get_by_test_id("import-file").set_input_files(path)  # where they come from
    expect(three.get_by_test_id("toast")).to_contain_text("All of these are here already")
    other.get_by_test_id("import-file").set_input_files(path)
    expect(other.get_by_test_id("toast")).to_contain_text("All of these are here already")
    expect(other.get_by_test_id("open-conversation")).to_have_count(3)
    wait_until_stored(other, "The Rhine.")
    other.reload()
    expect(other.get_by_test_id("open-conversation")).to_have_count(3)


FILES = {
    "{": "not JSON", "[]": "no conversations", "null": "no conversations",
    '{"conversations": 5}': "no conversations",
    '[{"messages": [{"role": "x"}]}]': "no conversations",
    '[7, {"messages": [{"role": "user", "content": "kept"}, {"role": "system"}]}]': "1 conv",
}


def test_files_of_any_kind_can_be_tried_for_import(ready_page):
    page = ready_page()
    for text, said in FILES.items():
        page.get_by_test_id("import-file").set_input_files(
            {"name": "some.json", "mimeType": "application/json", "buffer": text.encode()})
        expect(page.get_by_test_id("toast")).to_contain_text(said)
        page.get_by_label("Dismiss").click()
    assert titles(page) == ["kept"]


def test_an_imported_conversation_may_have_any_id(ready_page):
    page = ready_page()
    ids = ["my chat", "a/b", "50%", "größer", "#chat"]
    list_ = [{"id": id_, "messages": [{"role": "user", "content": f"in {id_}"}]} for id_ in ids]
    page.get_by_test_id("import-file").set_input_files(
        {"name": "some.json", "mimeType": "application/json", "buffer": json.dumps(list_).encode()})
    for id_ in ids:
        page.get_by_role("button", name=f"in {id_}", exact=True).click()
        expect(page.get_by_test_id("user-message")).to_have_text(f"in {id_}")
        page.get_by_test_id("tab-model").click()
        page.get_by_test_id("tab-chat").click()
        expect(page.get_by_test_id("user-message")).to_have_text(f"in {id_}")


def test_messages_of_the_old_page_are_taken_over(open_page):
    old = [{"id": 1, "role": "user", "content": "What was before?"},
           {"id": 2, "role": "assistant", "content": "One conversation.", "reasoning": "",
            "status": "streaming"}]
    store = f"localStorage.setItem('braid.messages', {json.dumps(json.dumps(old))})"
    page = open_page()
    page.evaluate(store)
    page.reload()
    page.get_by_text("What was before?").click()
    expect(last_answer(page)).to_contain_text("One conversation.")
    expect(last_answer(page)).to_have_attribute("data-status", "stopped")
    page.wait_for_function("localStorage.getItem('braid.messages') === null")
    page.evaluate(store)  # a page that was closed meanwhile has not forgotten them
    page.reload()
    page.wait_for_function("localStorage.getItem('braid.messages') === null")
    expect(page.get_by_test_id("open-conversation")).to_have_text(["What was before?"])


def test_an_answer_is_kept_as_far_as_it_came_when_the_page_is_left(ready_page):
    page = ready_page()
    growing(page)
    ask(page, "Count.")
    page.evaluate("window.feed('One, two, three')")
    wait_until_stored(page, "One, two, three")
    page.reload()
    expect(last_answer(page)).to_contain_text("One, two, three")
    expect(last_answer(page)).to_contain_text("stopped")


def test_an_answer_grows_on_while_another_conversation_is_read(three):
    page = three
    page.get_by_test_id("new-chat").click()
    growing(page)
    ask(page, "A long one.")
    page.evaluate("window.feed('first part')")
    expect(last_answer(page)).to_contain_text("first part")
    page.get_by_text("What is a lynx?").first.click()
    expect(last_answer(page)).to_contain_text("A cat.")
    expect(page.get_by_test_id("send")).to_be_visible()  # this one is not being answered
    page.evaluate("window.feed(' and the last'); window.end()")
    page.get_by_text("A long one.").first.click()
    assert finish(page) == "first part and the last"


def test_tabs_of_the_browser_share_the_list(three):
    page = three
    other = page.context.new_page()
    other.goto(page.url.split("#")[0])
    expect(other.get_by_test_id("open-conversation")).to_have_count(3)
    talk(page, "And a lake?", "Lake Constance.")
    expect(other.get_by_test_id("open-conversation").first).to_have_text("And a lake?")
    other.get_by_test_id("open-conversation").first.focus()
    other.keyboard.press("Delete")
    expect(page.get_by_test_id("open-conversation")).to_have_count(3)


def test_a_tab_stores_on_after_another_has_deleted_all(three):
    page = three
    other = page.context.new_page()
    other.goto(page.url)
    expect(last_answer(other)).to_contain_text("The Rhine.")
    page.get_by_test_id("open-settings").click()
    page.get_by_test_id("reset-all").click()
    page.get_by_test_id("reset-all").click()
    expect(other.get_by_test_id("open-conversation")).to_have_count(0)
    talk(other, "And a lake?", "Lake Constance.")
    expect(other.get_by_test_id("storage-banner")).to_have_count(0)
    other.reload()
    expect(last_answer(other)).to_contain_text("Lake Constance.")


def test_an_answer_is_not_disturbed_by_another_tab_of_the_browser(three):
    page = three
    growing(page)
    ask(page, "And longer?")
    page.evaluate("window.feed('The first part')")
    expect(last_answer(page)).to_contain_text("first part")
    other = page.context.new_page()
    other.goto(page.url.split("#")[0])
    page.evaluate("window.feed(' and the second')")
    other.get_by_test_id("open-conversation").first.focus()
    other.keyboard.press("F2")
    other.get_by_test_id("rename-field").fill("Renamed elsewhere")
    other.keyboard.press("Enter")
    expect(page.get_by_test_id("open-conversation").first).to_have_text("Renamed elsewhere")
    page.evaluate("window.feed(', then the end.'); window.end()")
    assert finish(page) == "The first part and the second, then the end."
    wait_until_stored(other, "then the end.")
    expect(other.get_by_test_id("open-conversation").first).to_have_text("Renamed elsewhere")
    page.reload()
    expect(page.get_by_test_id("open-conversation").first).to_have_text("Renamed elsewhere")


def test_what_another_tab_asks_meanwhile_stays_beside_a_growing_answer(three):
    page = three
    growing(page)
    ask(page, "And longer?")
    page.evaluate("window.feed('The first part')")
    wait_until_stored(page, "The first part")
    other = page.context.new_page()
    other.goto(page.url)
    phase(other, "ready")
    expect(last_answer(other)).to_contain_text("first part")
    answer_with(other, "Asked elsewhere.")
    ask(other, "And wider?")
    finish(other)
    wait_until_stored(other, "Asked elsewhere.")
    page.evaluate("window.feed(' and the last.'); window.end()")
    finish(page)
    wait_until_stored(page, "The first part and the last.")
    wait_until_stored(page, "Asked elsewhere.")


# Another tab has just renamed it, and has not told yet.
RENAME_UNTOLD = """async () => {
  const database = await new Promise((done, failed) => {
    const request = indexedDB.open('braid');
    request.onsuccess = () => done(request.result);
    request.onerror = () => failed(request.error);
  });
  const change = database.transaction('conversations', 'readwrite');
  const records = await new Promise((done) => {
    const all = change.objectStore('conversations').getAll();
    all.onsuccess = () => done(all.result);
  });
  const record = records.find(({messages}) => messages.some(
    ({content}) => content === 'And longer?'));
  change.objectStore('conversations').put({...record, title: 'Renamed elsewhere'});
  await new Promise((done) => change.oncomplete = done);
  database.close();
}"""


def test_a_tab_that_goes_stores_its_answer_and_leaves_the_rest(three):
    page = three
    growing(page)
    ask(page, "And longer?")
    page.evaluate("window.feed('The first part')")
    wait_until_stored(page, "The first part")
    page.evaluate(RENAME_UNTOLD)
    page.evaluate("window.feed(' and the second')")
    expect(last_answer(page)).to_contain_text("and the second")
    page.evaluate("window.dispatchEvent(new Event('pagehide'))")
    wait_until_stored(page, "The first part and the second")
    assert "Renamed elsewhere" in page.evaluate(STORED)


def test_on_a_phone_the_list_is_a_drawer(ready_page):
    page = ready_page(width=390)
    answer_with(page, "Yes.")
    ask(page, "Is it small?")
    finish(page)
    page.get_by_test_id("toggle-list").click()
    drawer = page.get_by_test_id("list-drawer")
    expect(drawer).to_be_visible()
    drawer.get_by_test_id("new-chat").click()
    expect(drawer).to_have_count(0)
    expect(page.get_by_test_id("welcome")).to_be_visible()
    page.get_by_test_id("toggle-list").click()
    page.get_by_test_id("open-conversation").focus()
    page.keyboard.press("F2")
    page.keyboard.press("Escape")  # ends the renaming, not the drawer
    expect(drawer.get_by_test_id("open-conversation")).to_be_focused()
    page.get_by_test_id("open-conversation").click()
    expect(drawer).to_have_count(0)
    expect(last_answer(page)).to_contain_text("Yes.")


def test_on_a_phone_a_deletion_can_be_undone_from_the_drawer(ready_page):
    page = ready_page(width=390)
    answer_with(page, "Yes.")
    ask(page, "Is it small?")
    finish(page)
    page.get_by_test_id("toggle-list").click()
    page.get_by_test_id("open-conversation").focus()
    page.keyboard.press("Delete")
    expect(page.get_by_test_id("list")).to_contain_text("No conversations yet")
    page.get_by_test_id("list-drawer").get_by_test_id("toast-action").click()
    expect(last_answer(page)).to_contain_text("Yes.")
