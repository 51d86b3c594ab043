"""braid simulate, and runs that are recorded and replayed."""

import json
import re


def test_a_simulation_reports_what_it_met(braid):
    done = braid("simulate", "--seeds", 40, "--threads", 2, "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["seeds"] == 40
    assert report["requests"] > 100
    assert report["aborted"] > 0 and report["preemptions"] > 0 and report["reused_tokens"] > 0
    assert "failure" not in report


def test_the_same_seeds_give_the_same_figures(braid):
    words = ("simulate", "--seeds", 10, "--from", 77, "--threads", 1, "--json")
    first, second = (json.loads(braid(*words).stdout) for _ in range(2))
    for name in ("requests", "steps", "rows", "tokens", "reused_tokens", "evicted_states"):
        assert first[name] == second[name], name


def test_without_a_prefix_cache_nothing_is_reused(braid):
    words = ("simulate", "--seeds", 10, "--workload", "agentic", "--faults", "none", "--json")
    assert json.loads(braid(*words).stdout)["reused_tokens"] > 0
    assert json.loads(braid(*words, "--no-prefix-cache").stdout)["reused_tokens"] == 0


def test_a_soak_keeps_one_engine(braid):
    done = braid("simulate", "--minutes", 0.05, "--threads", 1, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["seeds"] > 0


def test_an_unknown_fault_is_named(braid):
    done = braid("simulate", "--faults", "abort,flood")
    assert done.returncode == 1
    assert '"flood"' in done.stderr and "row-error" in done.stderr


def test_nothing_to_end_it_is_refused(braid):
    done = braid("simulate", "--seeds", 0)
    assert done.returncode == 1
    assert "give a number of seeds" in done.stderr


def record(braid, model, log):
    done = braid("run", model, "--token-ids", "[1, 2, 3, 4, 5]", "--max-tokens", 12, "--seed", 3,
                 "--temperature", 0.7, "--memory", "512M", "--event-log", log)
    assert done.returncode == 0, done.stderr


def test_a_recorded_run_replays_with_and_without_the_model(braid, tiny, tmp_path):
    log = tmp_path / "run.log"
    record(braid, tiny, log)
    plans = braid("replay", log)
    assert plans.returncode == 0, plans.stderr
    assert "1 requests" in plans.stdout and "taken from the log" in plans.stdout
    tokens = braid("replay", log, "--model", tiny)
    assert tokens.returncode == 0, tokens.stderr
    assert "and their log-probabilities are equal" in tokens.stdout


def test_a_run_in_the_expanded_form_replays_in_that_form_alone(braid, tmp_path):
    model, log, text = tmp_path / "model", tmp_path / "run.log", tmp_path / "text.jsonl"
    assert braid("make-model", model, "--family", "deepseek_v3", "--shape", "tiny").returncode == 0
    text.write_text(json.dumps({"token_ids": [i % 500 for i in range(300)]}))
    done = braid("score", model, text, "--mla", "expanded", "--memory", "512M", "--event-log", log)
    assert done.returncode == 0, done.stderr
    same = braid("replay", log, "--model", model, "--mla", "expanded")
    assert same.returncode == 0, same.stderr
    assert "mla expanded" in same.stdout and "log-probabilities are equal" in same.stdout
    other = braid("replay", log, "--model", model)
    assert other.returncode == 1 and "other log-probabilities" in other.stderr


def test_a_run_of_another_weight_format_replays_in_that_format_alone(braid, tiny, tmp_path):
    log, text = tmp_path / "run.log", tmp_path / "text.jsonl"
    text.write_text(json.dumps({"token_ids": list(range(100, 164))}))
    done = braid("score", tiny, text, "--weights", "int8", "--quantize-head", "--event-log", log)
    assert done.returncode == 0, done.stderr
    same = braid("replay", log, "--model", tiny, "--weights", "int8", "--quantize-head")
    assert same.returncode == 0, same.stderr
    assert re.search(r"weights .*int8", same.stdout) and "are equal" in same.stdout
    other = braid("replay", log, "--model", tiny)
    assert other.returncode == 1 and "other log-probabilities" in other.stderr


def test_a_log_that_was_cut_off_or_damaged_is_said_to_be(braid, tiny, tmp_path):
    log = tmp_path / "run.log"
    record(braid, tiny, log)
    whole = log.read_bytes()
    log.write_bytes(whole[:-3])
    cut = braid("replay", log)
    assert cut.returncode == 0 and "cut off" in cut.stdout
    log.write_bytes(whole[:-40] + bytes([whole[-40] ^ 1]) + whole[-39:])
    damaged = braid("replay", log)
    assert damaged.returncode == 1 and "damaged" in damaged.stderr
    log.write_bytes(b"{}")
    other = braid("replay", log)
    assert other.returncode == 1 and "no event log" in other.stderr
