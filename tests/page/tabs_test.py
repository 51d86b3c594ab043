"""The tabs beside the chat: what runs and its end, latencies, the model, examples that work."""

import json
import re
import subprocess
import threading
import urllib.request

import pytest
from playwright.sync_api import expect


def post(base_url, body):
    request = urllib.request.Request(f"{base_url}/v1/completions", json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=120) as response:
        return response.read()


def open_tab(page, name):
    page.get_by_test_id(f"tab-{name}").click()
    expect(page.get_by_test_id(f"tab-{name}")).to_have_attribute("aria-current", "page")


def test_a_running_request_is_shown_and_can_be_cancelled(ready_page, base_url):
    page = ready_page()
    open_tab(page, "live")
    expect(page.get_by_test_id("nothing-runs")).to_be_visible()
    body = {"prompt": "Once", "max_tokens": 6000, "ignore_eos": True}
    ended = []

    def ask():
        try:
            ended.append(post(base_url, body))
        except urllib.error.HTTPError as error:
            ended.append(error.code)

    thread = threading.Thread(target=ask)
    thread.start()
    request = page.get_by_test_id("running-request")
    expect(request).to_have_count(1)
    expect(request).to_have_attribute("data-phase", "decode")
    expect(request).to_contain_text("prompt tokens")
    page.get_by_test_id("cancel-request").click()
    expect(request).to_have_count(0)
    thread.join(30)
    assert ended == [499]


def test_nothing_is_asked_for_after_the_tab_was_left(ready_page):
    page = ready_page()
    held, asked = [], []
    page.route("**/v1/running", lambda route: held.append(route))
    page.on("request", lambda r: asked.append(r.url) if r.url.endswith("/v1/running") else None)
    open_tab(page, "live")
    while not held:
        page.wait_for_timeout(20)
    open_tab(page, "api")
    for route in held:
        route.fulfill(json={"data": []})
    asked.clear()
    page.wait_for_timeout(1500)
    assert asked == []


def test_latencies_and_the_cache_are_shown(ready_page, base_url):
    post(base_url, {"prompt": "Once upon a time " * 50, "max_tokens": 4})
    page = ready_page()
    open_tab(page, "live")
    table = page.get_by_test_id("latencies")
    expect(table.get_by_role("row").nth(2)).to_contain_text(re.compile(r"\d+ ?(ms|s)"))
    live = page.get_by_test_id("live")
    expect(live).to_contain_text("Pages cached for later")
    expect(live).to_contain_text("Recurrent states")
    expect(live).to_contain_text(re.compile(r"of [\d,]+ prompt tokens came from the cache"))


@pytest.mark.parametrize("tier, where", [("disk", "on disk"),
                                         ("host", "in memory beside the cache")])
def test_conversations_below_the_cache_are_where_the_metrics_say(open_page, tier, where):
    def with_parts(route):
        text = route.fetch().text()
        text = re.sub(r'^(braid:tier_parts{.*tier=)"disk"(.*) 0$', rf'\1"{tier}"\2 12', text,
                      flags=re.M)
        text = re.sub(r"^(braid:tier_unwritten_total{.*) 0$", r"\1 3", text, flags=re.M)
        route.fulfill(body=text, content_type="text/plain")

    page = open_page(before=lambda page: page.route("**/metrics", with_parts))
    open_tab(page, "live")
    card = page.get_by_test_id("tiers")
    expect(card).to_contain_text(f"Conversations {where}")
    expect(card).to_contain_text(re.compile(f"Parts of pages {where} ?12"))
    expect(card).to_contain_text(re.compile("evicted before they were written ?3"))
    if tier == "host":
        expect(card).not_to_contain_text("Written")


def pixel(page, at):
    """The transparency of a pixel of the heat map."""
    return page.get_by_test_id("expert-heat").evaluate(
        "(canvas, [x, y]) => canvas.getContext('2d').getImageData(x, y, 1, 1).data[3]", at
    )


def test_the_load_of_experts_is_a_heat_map(ready_page, base_url):
    post(base_url, {"prompt": "Once upon a time", "max_tokens": 120, "ignore_eos": True})
    with urllib.request.urlopen(f"{base_url}/v1/expert_load", timeout=30) as response:
        load = json.load(response)
    page = ready_page()
    open_tab(page, "live")
    heat = page.get_by_test_id("expert-heat")
    expect(heat).to_be_visible(timeout=30_000)
    size = heat.evaluate("canvas => [canvas.width, canvas.height]")
    assert size == [load["experts"], len(load["layers"])]
    expect(page.get_by_test_id("expert-balance")).to_contain_text(
        re.compile(r"^Balance 0\.\d\d \(mean over fullest\)\. Most: layer \d+, expert \d+: ")
    )
    # The more an expert is chosen, the less one sees through its pixel.
    counts = load["counts"][0]
    order = sorted(range(len(counts)), key=counts.__getitem__)
    assert pixel(page, [order[0], 0]) < pixel(page, [order[-1], 0])
    heat.hover(position={"x": 1, "y": 1})
    expect(page.get_by_test_id("experts")).to_contain_text(f"layer {load['layers'][0]}, expert 0: ")


def test_the_model_and_its_memory_are_shown(ready_page):
    page = ready_page()
    open_tab(page, "model")
    model = page.get_by_test_id("model")
    expect(model).to_contain_text("Architecture")
    parts = page.get_by_test_id("memory-bar").get_attribute("aria-label")
    assert [part.rpartition(" ")[0].rpartition(" ")[0] for part in parts.split(", ")] == [
        "Weights", "Workspace", "Cache"], parts
    assert "[object" not in model.inner_text() and "undefined" not in model.inner_text()


def test_the_examples_work_as_they_stand(ready_page, base_url):
    page = ready_page()
    open_tab(page, "api")
    command = page.get_by_test_id("snippet").inner_text()
    assert base_url in command
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=120)
    assert done.stdout.strip().endswith("data: [DONE]"), done.stderr
    page.get_by_test_id("tool-Python").click()
    script = page.get_by_test_id("snippet").inner_text()
    compile(script, "snippet", "exec")
    assert base_url in script
    page.get_by_test_id("tool-JavaScript").click()
    expect(page.get_by_test_id("snippet")).to_contain_text(base_url)


def test_a_tab_has_an_address_and_the_chat_is_kept(ready_page):
    page = ready_page()
    page.get_by_test_id("composer").fill("half a question")
    open_tab(page, "api")
    assert page.url.endswith("#api")
    page.go_back()
    expect(page.get_by_test_id("composer")).to_have_value("half a question")


def test_facts_have_labels_and_units_that_a_person_reads(ready_page, base_url):
    with urllib.request.urlopen(f"{base_url}/server_info", timeout=30) as response:
        kv_dtype = json.loads(response.read())["kv_dtype"]  # that of the machine's products
    page = ready_page()
    open_tab(page, "model")
    model = page.get_by_test_id("model")
    facts = {term: value for term, value in zip(model.locator("dt").all_inner_texts(),
                                                model.locator("dd").all_inner_texts())}
    # Of two layers of the model and that of its draft head.
    assert facts["KV cache per token"] == {"bf16": "1.5 KiB", "f32": "3.0 KiB"}[kv_dtype]
    # Three blocks of 0.83 MiB: by default a sequence that decodes keeps one for drafts beside two.
    assert facts["Recurrent state per sequence"] == "2.5 MiB"
    assert facts["Context length"] == "8,192 tokens"
    assert facts["Temperature"] == "0.7" and facts["Prefix cache"] == "on"
    assert not [term for term in facts if "_" in term or term[0].islower()]


def test_the_reasons_for_computing_are_sentences(ready_page, base_url):
    post(base_url, {"prompt": "Once upon a time there was a fox " * 30, "max_tokens": 2})
    post(base_url, {"prompt": "Once upon a time there was a fox " * 30, "max_tokens": 2})
    page = ready_page()
    open_tab(page, "live")
    live = page.get_by_test_id("live")
    expect(live).to_contain_text("The last tokens of a prompt are always recomputed")
    expect(live).to_contain_text("New text: no stored prefix continues this way")
    expect(live).to_contain_text("Reached the token limit")


def test_arrow_keys_move_along_the_tools(ready_page):
    page = ready_page()
    open_tab(page, "api")
    page.get_by_test_id("tool-curl").focus()
    page.keyboard.press("ArrowRight")
    expect(page.get_by_test_id("tool-Python")).to_be_focused()
    expect(page.get_by_test_id("snippet")).to_contain_text("from openai import OpenAI")
    page.keyboard.press("End")
    expect(page.get_by_test_id("tool-Anthropic")).to_be_focused()
    page.keyboard.press("ArrowRight")
    expect(page.get_by_test_id("tool-curl")).to_be_focused()


@pytest.mark.parametrize("width", [360, 1280])
def test_nothing_is_wider_than_the_screen(ready_page, width):
    page = ready_page(width=width)
    for tab in ("chat", "playground", "live", "model", "api"):
        open_tab(page, tab)
        page.wait_for_timeout(100)
        assert page.evaluate("document.documentElement.scrollWidth") <= width, tab
        panel = page.locator("main")
        assert panel.evaluate("element => element.scrollWidth - element.clientWidth") <= 0, tab
