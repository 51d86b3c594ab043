"""`braid bench rebalance`: experts of a skewed model go back and forth while steps go on, and what
is wrong is said. `make-model --expert-skew`: tokens choose by the law that was asked for."""

import json

import pytest

ONE_GROUP = "n_group=1,topk_group=1"


@pytest.fixture(scope="module")
def skewed(tmp_path_factory):
    """A tiny model whose tokens choose some of 16 experts far more often than others."""
    import subprocess

    from conftest import BINARY

    folder = tmp_path_factory.mktemp("skewed")
    shape = f"tiny,{ONE_GROUP},num_experts=16,num_experts_per_tok=2"
    subprocess.run([BINARY, "make-model", folder, "--family", "ling_2", "--shape", shape,
                    "--expert-skew", "1.2"], check=True, capture_output=True)  # fmt: skip
    return folder


def rebalanced(braid, model, *flags):
    done = braid("bench", "rebalance", model, "--json", "--steps", "20", *flags)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("redundant", [0, 8])
def test_experts_are_placed_and_put_back_while_steps_go_on(braid, skewed, redundant):
    found = rebalanced(braid, skewed, "--prompts", "--sequences", "8", "--input-tokens", "64",
                       "--rounds", "2", "--redundant-experts", redundant)  # fmt: skip
    assert found["placed"] and found["redundant_experts"] == redundant and not found["by_rows"]
    # Placed, back in order and placed again.
    assert found["moves"] >= 3 and found["moved_bytes_first_rank"] > 0
    assert found["steps_in_order"] >= 20 and found["steps_placed"] >= 40
    assert found["steps_moving"] > 0
    assert found["longest_moving_over_median"] > 0
    # The balancer would not have placed them if its cost did not fall.
    assert found["predicted_gain"] > 1
    assert found["experts_ms_predicted"] < found["experts_ms_in_order"]
    assert 0 < found["experts_ms_in_order"] < found["step_ms_in_order"]
    assert found["gain"] == pytest.approx(found["step_ms_in_order"] / found["step_ms_placed"])


def test_experts_stay_in_order_where_moving_costs_more_than_it_saves(braid, skewed):
    # Of 20 steps of 4 tokens no rank saves the 64 rows that an expert's move costs.
    found = rebalanced(braid, skewed, "--sequences", "4", "--input-tokens", "4",
                       "--output-tokens", "400", "--by-rows")  # fmt: skip
    assert not found["placed"] and found["moves"] == 0 and found["by_rows"]
    assert found["steps_in_order"] > 60 and found["steps_placed"] == 0
    assert found["gain"] == 0 and found["step_ms_in_order"] > 0


def test_more_prompts_run_and_wait_than_a_server_would_queue(braid, skewed):
    done = braid("bench", "rebalance", skewed, "--json", "--prompts", "--sequences", "2052",
                 "--input-tokens", "1", "--steps", "10", "--rounds", "1")  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["sequences"] == 2052 and found["steps_in_order"] > 0


def test_the_table_names_both_places(braid, skewed):
    done = braid("bench", "rebalance", skewed, "--prompts", "--sequences", "8", "--input-tokens",
                 "64", "--rounds", "1", "--steps", "20")  # fmt: skip
    assert done.returncode == 0, done.stderr
    for word in ("in order", "placed", "predicted", "gain: measured", "in which experts move"):
        assert word in done.stdout


@pytest.mark.parametrize(
    "flags, said",
    [(["--dp", "1", "--ep", "1"], "--ep of at least 2"),
     (["--sequences", "6"], "6 sequences cannot be divided evenly among 4")],
)  # fmt: skip
def test_what_cannot_be_measured_is_refused(braid, skewed, flags, said):
    done = braid("bench", "rebalance", skewed, *flags)
    assert done.returncode == 1
    assert said in done.stderr


def test_tokens_choose_by_the_law_that_was_asked_for(braid, skewed, tmp_path):
    loads = tmp_path / "loads.jsonl"
    done = braid("run", skewed, "--token-ids", json.dumps([7 * i % 512 for i in range(2000)]),
                 "--json", "--max-tokens", "1", "--expert-loads", loads)  # fmt: skip
    assert done.returncode == 0, done.stderr
    windows = [json.loads(text) for text in loads.read_text().splitlines()][1:]
    tokens = sum(window["tokens"] for window in windows)
    layers = len(windows[0]["counts"])
    fullest = []
    for layer in range(layers):
        counts = [sum(column) for column in zip(*(w["counts"][layer] for w in windows))]
        shares = sorted((count / tokens for count in counts), reverse=True)
        # Of 16 experts, 2 a token, the first place has 0.59 of the tokens, the last 0.03.
        assert 0.4 < shares[0] < 0.8
        assert sum(shares[:4]) > 1.1 and shares[-1] < 0.1
        fullest.append(max(range(len(counts)), key=counts.__getitem__))
    assert len(set(fullest)) > 1  # each layer has an order of its own


@pytest.mark.parametrize("family", ["ling_2", "qwen3_5_moe"])  # groups of experts; no bias
def test_routers_that_cannot_be_skewed_are_refused(braid, tmp_path, family):
    done = braid("make-model", tmp_path / "m", "--family", family, "--expert-skew", "1.2")
    assert done.returncode == 1
    assert ONE_GROUP in done.stderr
    assert not (tmp_path / "m").exists()


def test_recording_what_tokens_choose_costs_less_than_a_hundredth_of_a_step(braid):
    for rows in ("4", "256"):
        done = braid("bench", "balance", "--rows", rows, "--repeat", "2", "--json")
        assert done.returncode == 0, done.stderr
        shown = json.loads(done.stdout)
        assert 0 < shown["recording_ns"] and shown["recording_part"] < 0.01
