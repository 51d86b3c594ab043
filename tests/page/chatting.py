"""What a reader does on the page, for the tests of this folder: by labels, data-testid and keys."""

import json
import time

from playwright.sync_api import expect

STORY = "Tell me a story about a fox named Finn in the meadow."
CHAT = "**/v1/chat/completions"


def ask(page, text):
    page.get_by_test_id("composer").fill(text)
    page.keyboard.press("Enter")


def last_answer(page):
    return page.get_by_test_id("assistant-message").last


def finish(page, status="done"):
    expect(last_answer(page)).to_have_attribute("data-status", status, timeout=60_000)
    return last_answer(page).get_by_test_id("answer-text").inner_text()


def set_option(page, name, value):
    page.get_by_test_id("open-settings").click()
    page.get_by_test_id(f"setting-{name}").fill(value)
    page.get_by_label("Close settings").click()


def never_ending(page, tokens=4000):
    """Makes the next requests run until they are stopped, or for so many tokens."""

    def rewrite(route):
        body = route.request.post_data_json
        route.continue_(post_data=json.dumps({**body, "min_tokens": tokens, "max_tokens": tokens}))

    page.route(CHAT, rewrite)


def events_of(*chunks):
    return "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks) + "data: [DONE]\n\n"


def answer_with(page, *texts):
    """The next answers are these texts, one after the other and then the last again."""
    left = list(texts)

    def fulfill(route):
        text = left.pop(0) if len(left) > 1 else left[0]
        chunks = [{"choices": [{"index": 0, "delta": {"content": text}}]},
                  {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}]
        route.fulfill(content_type="text/event-stream", body=events_of(*chunks))

    page.route(CHAT, fulfill)


def requests_of(page):
    """The bodies of the chat requests from now on, as they are sent."""
    bodies = []
    page.on("request", lambda request: bodies.append(request.post_data_json)
            if request.url.endswith("/v1/chat/completions") else None)
    return bodies


def titles(page):
    return page.get_by_test_id("open-conversation").all_inner_texts()


STORED = """async () => {
  const database = await new Promise((done, failed) => {
    const request = indexedDB.open('braid');
    request.onsuccess = () => done(request.result);
    request.onerror = () => failed(request.error);
  });
  const records = await new Promise((done) => {
    const all = database.transaction('conversations').objectStore('conversations').getAll();
    all.onsuccess = () => done(all.result);
  });
  database.close();
  return JSON.stringify(records);
}"""


def wait_until_stored(page, text):
    """Until the browser's database holds the text: what is stored outlives the page."""
    end = time.monotonic() + 10
    while text not in page.evaluate(STORED):
        assert time.monotonic() < end, f"not stored: {text}"
        time.sleep(0.05)


def growing(page):
    """Replaces fetch for chats by a stream: the test calls window.feed(text, field) and end()."""
    page.evaluate("""() => {
      const real = window.fetch;
      window.fetch = (path, ...rest) => {
        if (path !== 'v1/chat/completions') return real(path, ...rest);
        const body = new ReadableStream({start: (stream) => {
          const bytes = new TextEncoder();
          const send = (event) =>
            stream.enqueue(bytes.encode(`data: ${JSON.stringify(event)}\\n\\n`));
          window.feed = (text, field = 'content') =>
            send({choices: [{index: 0, delta: {[field]: text}}]});
          window.end = () => {
            send({choices: [{index: 0, delta: {}, finish_reason: 'stop'}]});
            stream.enqueue(bytes.encode('data: [DONE]\\n\\n'));
            stream.close();
          };
        }});
        return Promise.resolve(new Response(body));
      };
    }""")


def phase(page, name):
    expect(page.get_by_test_id("model-name")).to_have_attribute("data-phase", name, timeout=20_000)
