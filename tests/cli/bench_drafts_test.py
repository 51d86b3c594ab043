"""`braid bench drafts`: the acceptance that was asked for, and equal answers."""

import json
import pathlib
import re

import pytest

TEXTS = pathlib.Path(__file__).resolve().parents[2] / "models/eval/text.jsonl"
SMALL = ("--input-tokens", 40, "--output-tokens", 60, "--repeat", 1, "--draft", 3)


def report(done):
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("share", [0, 0.75, 1])
def test_the_artificial_acceptance_is_the_one_asked_for(braid, tiny, share):
    found = report(braid("bench", "drafts", tiny, *SMALL, "--sequences", 3, "--temperature", 1,
                         "--draft-acceptance", share, "--json"))  # fmt: skip
    assert found["acceptance_is_artificial"]
    places = found["draft_acceptance_by_place"]
    if share in (0, 1):
        # An answer may end among its drafts, which are then not counted as right.
        assert places[0] == pytest.approx(share, abs=0.05)
        # Of 59 tokens after the first one, four come at a time or one.
        assert found["tokens_per_step"] == pytest.approx(59 / 15 if share == 1 else 1, rel=0.07)
    else:
        assert 0.6 < places[0] < 0.9
        assert len(places) == 3
        assert 1 + places[0] < found["tokens_per_step"] < 4
    assert found["speed_up"] > 0 and len(found["speed_up_by_round"]) == 1


def test_tasks_are_answered_with_the_heads_own_drafts(braid, tiny):
    found = report(braid("bench", "drafts", tiny, TEXTS, "--limit", 2, "--repeat", 1, "--draft", 3,
                         "--json"))  # fmt: skip
    assert not found["acceptance_is_artificial"]
    assert found["drafts_accepted"] > 0.5 * found["drafts"] > 0


@pytest.mark.parametrize("flags", [(), ("--draft-acceptance", 1)])
def test_the_text_says_what_was_right_and_by_place(braid, tiny, flags):
    done = braid("bench", "drafts", tiny, *SMALL[:3], 20, *SMALL[4:], "--seed", 5, *flags)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert re.fullmatch(r"1 sequence: [\d.]+ tokens/s each without drafts, [\d.]+ with them: "
                        r"[\d.]+ times \([\d.]+\)", lines[0])  # fmt: skip
    artificial = r" \(an artificial acceptance\)" if flags else ""
    assert re.fullmatch(r"[\d.]+ tokens a step; \d+ of \d+ drafts were right" + artificial +
                        r"; by place( [\d.]+ %)+", lines[1])  # fmt: skip
    assert lines[2] == "all answers are those without drafts"


@pytest.mark.parametrize(
    "flags, said",
    [
        (("--draft", "off"), "nothing to compare"),
        (("--draft", "ngram", "--draft-acceptance", 0.5), "for models with a draft head"),
        (("--tp", 2, "--draft-acceptance", 0.5), "for one rank"),
    ],
)
def test_what_cannot_be_measured_is_refused(braid, tiny, flags, said):
    done = braid("bench", "drafts", tiny, *SMALL[:-2], *flags)
    assert done.returncode == 1
    assert said in done.stderr
