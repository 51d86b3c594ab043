"""`braid bench agentic`: against the engine, against servers that know less, and its refusals."""

import http.server
import json
import threading
import time

import pytest

SMALL = ("--conversations", 3, "--turns", 4, "--first-tokens", 300, "--turn-tokens", 60,
         "--output-tokens", 20)  # fmt: skip
BLOCK = 64


def report(done):
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_later_turns_resume_at_the_last_whole_block(braid, tiny):
    found = report(braid("bench", "agentic", tiny, *SMALL, "--json"))
    assert found["cached_tokens_reported"] and found["evictions"] == 0
    for turn, row in enumerate(found["by_turn"]):
        assert row["prompt_tokens"] == 3 * (300 + 60 * turn)
        stored = 300 + 60 * (turn - 1) + 20 - 1 if turn else 0
        assert row["reusable_tokens"] == 3 * stored
        assert row["reused_tokens"] == 3 * (stored // BLOCK * BLOCK)
        assert row["reprocessed_tokens"] == row["reusable_tokens"] - row["reused_tokens"]
    assert found["reuse"] == pytest.approx(found["reused_tokens"] / found["reusable_tokens"])


@pytest.mark.parametrize("share", [1.0, 0.6])
def test_going_back_to_a_prompt_reuses_it_when_the_cache_is_full(braid, tiny, share):
    # Answers of several blocks: the prompt's last state is not the conversation's.
    flags = ("--conversations", 6, "--turns", 2, "--first-tokens", 1000, "--turn-tokens", 260,
             "--output-tokens", 200, "--cache-share", share, "--json")  # fmt: skip
    found = report(braid("bench", "agentic", tiny, *flags))
    for kind in ("regenerated", "answer_shortened"):
        assert found[kind]["requests"] == 3
        assert found[kind]["reusable_tokens"] == 3 * (1260 - 1)
        if share == 1.0:
            assert found[kind]["reuse"] > 0.95


def test_without_the_prefix_cache_everything_is_processed_again(braid, tiny):
    found = report(braid("bench", "agentic", tiny, *SMALL, "--json", "--no-prefix-cache"))
    assert found["reused_tokens"] == 0
    assert found["reprocessed_tokens"] == found["reusable_tokens"] > 0


def test_a_share_of_the_cache_evicts_and_says_so(braid, tiny):
    done = braid("bench", "agentic", tiny, *SMALL, "--cache-share", 0.5)
    assert done.returncode == 0, done.stderr
    assert "evicted: 0 parts" not in done.stdout and "computed again" in done.stdout


class Plain(http.server.BaseHTTPRequestHandler):
    """Streams a word a token after a time that the prompt decides; no cached tokens, no ids."""

    word_seconds = 0.0

    def log_message(self, *_):
        pass

    def answer(self, kind, body):
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        self.answer("application/json", json.dumps({"data": [{"id": "plain"}]}).encode())

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        prompt = body["prompt"]
        count = len(prompt.split() if isinstance(prompt, str) else prompt)
        time.sleep(self.server.seconds(count))
        events = [{"choices": [{"text": " word"}]}] * body["max_tokens"]
        events.append({"choices": [], "usage": {"prompt_tokens": count,
                                                "completion_tokens": body["max_tokens"]}})
        lines = [f"data: {json.dumps(event)}\n\n" for event in events] + ["data: [DONE]\n\n"]
        self.answer("text/event-stream", "".join(lines).encode())


@pytest.fixture
def plain_server():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Plain)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()


@pytest.mark.parametrize("forgets", (True, False))
def test_a_server_that_tells_nothing_is_judged_by_its_time(braid, plain_server, forgets):
    # One that forgets takes 1 ms a word; one that remembers takes it for the first prompt only.
    plain_server.seconds = lambda count: count * 1e-3 if forgets or count <= 300 else 0.02
    url = f"http://127.0.0.1:{plain_server.server_port}/v1"
    found = report(braid("bench", "agentic", "--base-url", url, "--words", *SMALL, "--json"))
    assert not found["cached_tokens_reported"]
    assert [row["prompt_tokens"] for row in found["by_turn"]] == [900, 1080, 1260, 1440]
    if forgets:
        assert found["reuse"] < 0.3 and found["later_ttft_to_cold"] > 0.9
    else:
        assert found["reuse"] > 0.7 and found["later_ttft_to_cold"] < 0.5


def test_what_cannot_be_measured_is_refused(braid, tiny, plain_server):
    plain_server.seconds = lambda count: 0
    url = f"http://127.0.0.1:{plain_server.server_port}/v1"
    for flags, word in (
            ((), "give MODEL"), ((tiny, "--base-url", url), "give MODEL"),
            (("--base-url", url, "--cache-share", "0.5"), "--cache-share needs MODEL"),
            ((tiny, "--turn-tokens", "30"), "must be more than --output-tokens 32"),
            (("--base-url", url), "give --words"),
            ((tiny, *SMALL[2:], "--cache-share", "0.5", "--memory", "90M"), "too small to find"),
            (("--base-url", "http://127.0.0.1:9/v1"), "127.0.0.1:9")):
        done = braid("bench", "agentic", *flags)
        assert done.returncode == 1 and word in done.stderr, (flags, done.stderr)
