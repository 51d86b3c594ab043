"""`braid bench ops`, its records and their comparison; `--trace`."""

import json
import pathlib
import subprocess
import sys

import pytest

BENCH = pathlib.Path(__file__).resolve().parents[2] / "bench"


@pytest.fixture(scope="module")
def record(tmp_path_factory):
    """A record of two cheap families, made once."""
    import os

    binary = os.environ.get("BRAID_BIN", str(BENCH.parent / "build/release/braid"))
    out = tmp_path_factory.mktemp("ops") / "record.json"
    command = [sys.executable, BENCH / "record_ops.py", binary, out, "linear", "--filter", "small"]
    done = subprocess.run([*command, "--busy"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return out


def compare(old, new, *words):
    """compare_results.py on two files."""
    return subprocess.run(
        [sys.executable, BENCH / "compare_results.py", old, new, *words],
        capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_a_case_has_its_time_its_candidate_and_its_limit(record):
    out = json.loads(record.read_text())
    (case,) = out["results"]
    assert case["family"] == "linear" and case["candidate"]
    assert 0 < case["ns_min"] <= case["ns_median"]
    assert case["flops"] == 2 * 7 * 96 * 80
    assert case["bytes"] == 2 * 96 * 96  # panels of bf16 pad 80 terms to 96
    assert case["fraction_of_limit"] == pytest.approx(case["limit_ns"] / case["ns_median"])
    assert out["limits"]["memory_read"] > 0 and out["commit"] and out["cpu"]


def test_every_family_is_listed(braid):
    lines = braid("bench", "ops", "--list").stdout.splitlines()
    families = {line.split()[0] for line in lines}
    assert families >= {"linear", "experts", "attention", "latent", "expanded", "linear_attention",
                        "norm", "route", "sample"}  # fmt: skip
    assert len(lines) == len(set(lines)) > 50


def test_what_cannot_be_measured_is_named(braid):
    done = braid("bench", "ops", "linaer")
    assert done.returncode == 1 and "linear" in done.stderr and "experts" in done.stderr
    done = braid("bench", "ops", "--filter", "no such case")
    assert done.returncode == 1 and "--list" in done.stderr


def test_a_comparison_finds_what_moved_and_nothing_else(record, tmp_path):
    equal = compare(record, record)
    assert equal.returncode == 0 and "0 slower, 0 faster, 1 within" in equal.stdout
    out = json.loads(record.read_text())
    out["results"][0]["ns_median"] *= 2
    out["results"][0]["fraction_of_limit"] /= 2
    slow = tmp_path / "slow.json"
    slow.write_text(json.dumps(out))
    assert compare(record, slow).returncode == 1
    assert "slower   0.50x  linear" in compare(record, slow, "--by", "time").stdout
    back = compare(slow, record)
    assert back.returncode == 0 and "faster   2.00x" in back.stdout


def test_a_comparison_refuses_other_files(record, tmp_path):
    other = tmp_path / "other.json"
    other.write_text("{}")
    done = compare(record, other)
    assert done.returncode == 1 and "other.json" in done.stderr


def test_a_trace_has_steps_ops_and_threads(braid, tiny, tmp_path):
    file = tmp_path / "trace.json"
    done = braid("run", tiny, "--token-ids", "[1, 2, 3]", "--max-tokens", "3", "--threads", "2",
                 "--draft", "off", "--trace", file)  # fmt: skip
    assert done.returncode == 0, done.stderr
    events = json.loads(file.read_text())["traceEvents"]
    assert {e["args"]["name"] for e in events if e["ph"] == "M"} == {"engine", "compute 1"}
    spans = [e for e in events if e["ph"] == "X"]
    steps = [e for e in spans if e["name"] == "step"]
    assert [s["args"]["count"] for s in steps] == [3, 1, 1]
    names = {e["name"] for e in spans}
    assert names >= {"linear", "attention", "linear_attention", "experts", "sample"}
    # Everything that the engine thread did for an op lies inside a step.
    for e in spans:
        if e["tid"] == 0 and e["name"] == "linear":
            assert any(s["ts"] <= e["ts"] and e["ts"] + e["dur"] <= s["ts"] + s["dur"] + 0.01
                       for s in steps)  # fmt: skip


def test_a_trace_that_cannot_be_written_is_said_before_loading(braid, tiny):
    done = braid("run", tiny, "--token-ids", "[1]", "--trace", "/no/such/folder/trace.json")
    assert done.returncode == 1 and "/no/such/folder" in done.stderr
