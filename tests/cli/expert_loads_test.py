"""--expert-loads and the balance in /metrics: every token counted once, and answers unchanged."""

import json
import pathlib
import re
import sys
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from serving import serving  # noqa: E402


def recorded(path):
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return lines[0], lines[1:]


def test_a_run_records_every_token_of_every_layer(braid, tiny, tmp_path):
    file = tmp_path / "loads.jsonl"
    words = ["run", tiny, "--token-ids", json.dumps(list(range(5, 105))), "--json",
             "--temperature", "0", "--max-tokens", "150", "--draft", "off"]  # fmt: skip
    plain = json.loads(braid(*words).stdout)
    answer = json.loads(braid(*words, "--expert-loads", file).stdout)
    assert answer["token_ids"] == plain["token_ids"]
    config = json.loads((tiny / "config.json").read_text())
    head, windows = recorded(file)
    assert head["experts"] == config["num_experts"]
    assert head["layers"] == list(range(config["num_hidden_layers"]))
    # The prompt, and every token of the answer but the last.
    tokens = 100 + len(answer["token_ids"]) - 1
    assert sum(window["tokens"] for window in windows) == tokens
    for layer in range(len(head["layers"])):
        counts = sum(sum(window["counts"][layer]) for window in windows)
        assert counts == tokens * head["top_k"]
    if len(windows) > 1:
        done = braid("experts", "plan", file, "--mesh", "ranks=4,node=2", "--json")
        assert done.returncode == 0, done.stderr


def test_a_path_that_cannot_be_written_fails_before_loading(braid, tiny, tmp_path):
    done = braid("run", tiny, "--token-ids", "[5]", "--expert-loads", tmp_path / "no" / "f")
    assert done.returncode == 1
    assert "cannot be written" in done.stderr


def test_metrics_show_the_balance_of_complete_windows():
    with serving("--draft", "off") as served:

        def balances():
            text = urllib.request.urlopen(served.address + "/metrics", timeout=30).read().decode()
            found = re.findall(r'^braid:expert_balance\{.*steps="(\d+)".*\} (\S+)$', text, re.M)
            return {int(steps): float(value) for steps, value in found}

        assert balances() == {10: 0, 100: 0, 1000: 0}
        body = {"model": "braid-tiny", "prompt": [5, 6, 7], "max_tokens": 40, "temperature": 0,
                "ignore_eos": True}  # fmt: skip
        request = urllib.request.Request(served.address + "/v1/completions",
                                         json.dumps(body).encode(),
                                         {"Content-Type": "application/json"})  # fmt: skip
        urllib.request.urlopen(request, timeout=60).read()
        shown = balances()
        assert 0 < shown[10] < 1 and shown[100] == shown[1000] == 0
