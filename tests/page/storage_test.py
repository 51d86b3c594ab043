"""Whatever is stored in the browser, the page is never blank and nothing is lost unasked."""

import json

import pytest
from chatting import answer_with, ask, finish, last_answer, phase
from playwright.sync_api import expect

# Makes a database with these stores of these records: {version, stores: {name: [record, …]}}.
MAKE_DATABASE = """async ({version, stores}) => {
  const database = await new Promise((done, failed) => {
    const request = indexedDB.open('braid', version);
    request.onupgradeneeded = () => {
      for (const name of Object.keys(stores)) {
        request.result.createObjectStore(name, {keyPath: 'id'});
      }
    };
    request.onsuccess = () => done(request.result);
    request.onerror = () => failed(request.error);
  });
  for (const [name, records] of Object.entries(stores)) {
    const change = database.transaction(name, 'readwrite');
    for (const record of records) change.objectStore(name).put(record);
    await new Promise((done) => change.oncomplete = done);
  }
  database.close();
}"""

BAD_VALUES = [
    "{", "", "null", "5", '"text"', "[]", "{}", "[null]", "[[]]", '[{"role": "user"}]',
    '[{"role": "user", "content": {"a": 1}}]', '[{"role": "assistant", "content": "x"}]',
    '[{"role": "user", "content": "kept"}, {"role": "assistant", "content": "kept too", '
    '"stats": 5, "error": "x", "reasoning": [1], "status": "odd"}]',
    '{"temperature": [1], "stop": 5, "system": null, "thinking": "yes"}',
]


def put(page, values):
    """Fills the storage before the page's script runs again."""
    page.evaluate("(values) => Object.assign(localStorage, values)", values)
    page.reload()
    phase(page, "ready")


def test_no_stored_value_leaves_a_blank_page(ready_page):
    page = ready_page()
    answer_with(page, "It works.")
    keys = ("messages", "settings", "theme", "sidebar", "playground", "schema_form", "tools_form")
    for value in BAD_VALUES:
        put(page, {f"braid.{key}": value for key in keys})
        page.get_by_test_id("tab-playground").click()
        expect(page.get_by_test_id("play-run"), value).to_be_visible()
        page.get_by_test_id("open-settings").click()
        expect(page.get_by_test_id("settings"), value).to_be_visible()
        page.keyboard.press("Escape")
        page.get_by_test_id("tab-chat").click()
        page.get_by_test_id("new-chat").click()
        ask(page, f"Does it work with {value}?")
        assert finish(page) == "It works.", value
        if "kept" in value:
            page.get_by_role("button", name="kept", exact=True).click()
            expect(last_answer(page)).to_contain_text("kept too")


RECORDS = [
    {"id": 1}, {"id": "a", "messages": "x"}, {"id": "b", "messages": []},
    {"id": "c", "messages": [None, 3, {"role": "user", "content": 4}]},
    {"id": "ring", "head": "y", "messages": [
        {"id": "x", "parent": "y", "role": "user", "content": "in a ring"},
        {"id": "y", "parent": "x", "role": "assistant", "content": "it is opened"}]},
    {"id": "odd", "title": 7, "updated": "never", "head": "nowhere", "messages": [
        {"id": "x", "parent": "missing", "role": "user", "content": "odd but readable"},
        {"id": "x", "role": "assistant", "content": "twice the same id", "status": "streaming"}]},
    {"id": "few", "messages": [
        {"role": "user", "content": "few numbers"},
        {"role": "assistant", "content": "five tokens", "stats": {"tokens": 5}}]},
]


def test_records_of_any_shape_are_read_as_far_as_they_can_be(open_page):
    page = open_page()
    expect(page.get_by_test_id("list")).to_contain_text("No conversations yet")
    page.evaluate(MAKE_DATABASE, {"version": 1, "stores": {"conversations": RECORDS}})
    page.reload()
    expect(page.get_by_test_id("open-conversation")).to_have_count(3)
    expect(page.get_by_test_id("storage-banner")).to_contain_text("4 stored items could not be")
    for title, answer in (("in a ring", "it is opened"), ("odd but", "twice the same id"),
                          ("few numbers", "five tokens")):
        page.get_by_role("button", name=title).first.click()
        expect(last_answer(page)).to_contain_text(answer)
    with page.expect_download() as download:
        page.get_by_text("Export stored data").click()
    exported = json.loads(download.value.path().read_text())
    assert exported["database"]["conversations"][0] == {"id": 1}  # the unreadable ones as well
    assert len(exported["database"]["conversations"]) == len(RECORDS)


@pytest.mark.parametrize("database", [
    {"version": 9, "stores": {"conversations": []}},  # by a later version of the page
    {"version": 1, "stores": {"other": []}}], ids=["newer", "foreign"])
def test_a_database_that_cannot_be_used_is_no_reason_to_stop(browser, base_url, database):
    context = browser.new_context()
    page = context.new_page()
    page.goto(base_url + "/version")  # the same origin, without the page's script
    page.evaluate(MAKE_DATABASE, database)
    page.goto(base_url + "/")
    expect(page.get_by_test_id("storage-banner")).to_contain_text("cannot be stored")
    page.wait_for_selector('[data-testid="model-name"][data-phase="ready"]')
    answer_with(page, "It works.")
    ask(page, "Does it work?")
    assert finish(page) == "It works."
    page.get_by_test_id("open-settings").click()
    page.get_by_test_id("reset-all").click()
    page.get_by_test_id("reset-all").click()
    expect(page.get_by_test_id("settings").get_by_test_id("toast")).to_contain_text("deleted")
    page.reload()
    expect(page.get_by_test_id("list")).to_contain_text("No conversations yet")
    expect(page.get_by_test_id("storage-banner")).to_have_count(0)
    context.close()


def test_an_error_while_drawing_offers_export_and_reset(open_page):
    page = open_page(expect_errors=True)
    expect(page.get_by_test_id("list")).to_contain_text("No conversations yet")
    message = {"id": "m", "parent": None, "role": "user", "content": "still here"}
    record = {"id": "a", "title": "", "created": 1, "updated": 1, "head": "m",
              "messages": [message]}
    page.evaluate(MAKE_DATABASE, {"version": 1, "stores": {"conversations": [record]}})
    page.evaluate("localStorage.setItem('braid.settings', '{\"seed\": \"7\"}')")
    page.add_init_script("""if (!sessionStorage.fixed) Number.prototype.toLocaleString = () => {
      throw new Error('planted'); }""")
    page.reload()
    recovery = page.get_by_test_id("recovery")
    expect(recovery).to_contain_text("planted")
    with page.expect_download() as download:
        page.get_by_test_id("recovery-export").click()
    exported = json.loads(download.value.path().read_text())
    assert json.loads(exported["local_storage"]["braid.settings"])["seed"] == "7"
    assert exported["database"]["conversations"] == [record]
    assert exported["conversations"][0]["messages"][0]["content"] == "still here"
    page.get_by_test_id("recovery-retry").click()
    expect(recovery).to_contain_text("planted")
    page.evaluate("sessionStorage.fixed = 'yes'")
    page.get_by_test_id("recovery-reset").click()
    expect(page.get_by_test_id("recovery-reset")).to_contain_text("Delete everything")
    page.get_by_test_id("recovery-reset").click()
    expect(page.get_by_test_id("list")).to_contain_text("No conversations yet")
    page.get_by_test_id("open-settings").click()
    expect(page.get_by_test_id("setting-seed")).to_have_value("")
