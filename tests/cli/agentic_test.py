"""`braid bench agentic`: what conversations reuse, with caches of several sizes."""

import json

import pytest

SMALL = ("--conversations", 3, "--turns", 4, "--first-tokens", 300, "--turn-tokens", 60,
         "--output-tokens", 20)  # fmt: skip
BLOCK = 64


def report(done):
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_later_turns_resume_at_the_last_whole_block(braid, tiny):
    found = report(braid("bench", "agentic", tiny, *SMALL, "--json"))
    assert found["evictions"] == 0
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
    assert ", 0 evictions" not in done.stdout and "computed again" in done.stdout


def test_what_cannot_be_measured_is_refused(braid, tiny):
    for flags, word in (
            ((), "MODEL"),
            ((tiny, "--turn-tokens", "30"), "must be more than --output-tokens 32"),
            ((tiny, *SMALL[2:], "--cache-share", "0.5", "--memory", "90M"), "is too small")):
        done = braid("bench", "agentic", *flags)
        assert done.returncode != 0 and word in done.stderr, (flags, done.stderr)
