"""--expert-loads and the balance in /metrics: every token counted once, and answers unchanged."""

import json
import pathlib
import re
import sys
import urllib.request

import pytest

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


def test_a_line_can_be_a_step_with_the_experts_of_every_token(braid, tiny, tmp_path):
    path = tmp_path / "loads.jsonl"
    done = braid("run", tiny, *RUN, "--max-tokens", "5", "--expert-loads", path,
                 "--expert-loads-line", "token")  # fmt: skip
    assert done.returncode == 0, done.stderr
    header, *steps = map(json.loads, path.read_text().splitlines())
    assert [step["tokens"] for step in steps] == [100, 1, 1, 1, 1]
    for step in steps:
        for counts, choices in zip(step["counts"], step["choices"], strict=True):
            assert len(choices) == step["tokens"] * header["top_k"]
            assert counts == [choices.count(expert) for expert in range(header["experts"])]
    assert braid("experts", "plan", path, "--mesh", "ranks=2").returncode == 0
    for flags, said in [(("--expert-loads-line", "pass"), "goes with --expert-loads FILE"),
                        (("--expert-loads", path, "--expert-loads-line", "pass", "--tp", "2"),
                         "several ranks count windows")]:  # fmt: skip
        done = braid("run", tiny, *RUN, *flags)
        assert done.returncode == 1 and said in done.stderr


def test_metrics_show_the_balance_of_complete_windows():
    with serving("--draft", "off") as served:

        def balances():
            text = urllib.request.urlopen(served.address + "/metrics", timeout=30).read().decode()
            found = re.findall(r'^braid:expert_balance\{.*steps="(\d+)".*\} (\S+)$', text, re.M)
            return {int(steps): float(value) for steps, value in found}

        def load():
            with urllib.request.urlopen(served.address + "/v1/expert_load", timeout=30) as answer:
                return json.load(answer)

        assert balances() == {10: 0, 100: 0, 1000: 0}
        assert load()["passes"] == 0 and load()["counts"] == []
        body = {"model": "braid-tiny", "prompt": [5, 6, 7], "max_tokens": 40, "temperature": 0,
                "ignore_eos": True}  # fmt: skip
        request = urllib.request.Request(served.address + "/v1/completions",
                                         json.dumps(body).encode(),
                                         {"Content-Type": "application/json"})  # fmt: skip
        urllib.request.urlopen(request, timeout=60).read()
        shown = balances()
        found = load()
        assert found["passes"] == 10 and len(found["counts"]) == len(found["layers"])
        assert all(sum(layer) == found["tokens"] * found["top_k"] for layer in found["counts"])
        fullest = sum(max(layer) for layer in found["counts"]) * found["experts"]
        balance = sum(map(sum, found["counts"])) / fullest
        assert shown[10] == pytest.approx(balance) and found["rank_rows"] == []
        assert 0 < shown[10] < 1 and shown[100] == shown[1000] == 0
        text = urllib.request.urlopen(served.address + "/metrics", timeout=30).read().decode()
        layers = re.findall(r'^braid:expert_layer_balance\{.*layer="(\d+)".*\} (\S+)$', text, re.M)
        even = {int(layer): float(value) for layer, value in layers}
        assert even == {
            layer: pytest.approx(sum(counts) / max(counts) / found["experts"])
            for layer, counts in zip(found["layers"], found["counts"], strict=True)}  # fmt: skip


RUN = ["--token-ids", json.dumps(list(range(5, 105))), "--json", "--temperature", "0",
       "--draft", "off", "--logprobs", "1"]  # fmt: skip


def test_ranks_count_what_one_counts_and_lie_where_a_plan_says(braid, tiny, tmp_path):
    alone, ranks = tmp_path / "alone.jsonl", tmp_path / "ranks.jsonl"
    answer = json.loads(braid("run", tiny, *RUN).stdout)
    braid("run", tiny, *RUN, "--max-tokens", "30", "--expert-loads", alone)
    mesh = ["--tp", "2", "--ep", "2"]
    divided = braid("run", tiny, *RUN, *mesh, "--expert-loads", ranks)
    assert json.loads(divided.stdout) == answer, divided.stderr
    assert 30 <= len(answer["token_ids"]) < 40  # ranks write whole tens of steps
    assert recorded(ranks) == recorded(alone)
    assert recorded(alone)[1], "it has steps"
    for redundant, method in [(2, "global"), (0, "incremental")]:
        file = tmp_path / f"placement-{redundant}.json"
        done = braid("experts", "plan", ranks, "--mesh", f"ranks=2,node=2,redundant={redundant}",
                     "--write", file, "--placement", method)  # fmt: skip
        assert done.returncode == 0, done.stderr
        placed = braid("run", tiny, *RUN, *mesh, "--expert-placement", file)
        assert json.loads(placed.stdout) == answer, placed.stderr


def test_a_placement_for_others_is_refused_by_name(braid, tiny, tmp_path):
    file = tmp_path / "placement.json"
    config = json.loads((tiny / "config.json").read_text())
    experts, layers = config["num_experts"], config["num_hidden_layers"]
    placement = {"braid_expert_placement": 1, "experts": experts, "ranks": 4, "ranks_per_node": 4,
                 "redundant": 0, "layers": list(range(layers)),
                 "slots": [list(range(experts))] * layers}  # fmt: skip

    def refusal(*flags, **changes):
        file.write_text(json.dumps(placement | changes))
        done = braid("run", tiny, *RUN, *flags, "--expert-placement", file)
        assert done.returncode == 1
        return done.stderr

    assert "start with --ep 4" in refusal("--tp", "2", "--ep", "2")
    short = {"layers": list(range(layers - 1)), "slots": placement["slots"][1:]}
    assert "the model has experts in layers" in refusal("--tp", "4", "--ep", "4", **short)
    wrong = [[0] * experts] + placement["slots"][1:]
    assert "no slot holds expert 1" in refusal("--tp", "4", "--ep", "4", slots=wrong)
    assert "leave out --redundant-experts" in refusal(
        "--tp", "4", "--ep", "4", "--redundant-experts", "4")  # fmt: skip


def complete(address, prompt):
    body = {"model": "braid-tiny", "prompt": prompt, "max_tokens": 24, "temperature": 0,
            "ignore_eos": True, "logprobs": 1}  # fmt: skip
    request = urllib.request.Request(address + "/v1/completions", json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})  # fmt: skip
    return json.load(urllib.request.urlopen(request, timeout=60))["choices"][0]


def test_experts_move_while_answers_stay_what_one_rank_gives(tiny):
    prompts = [[(7 * i + seed) % 500 for i in range(600)] for seed in range(4)]
    with serving("--draft", "off") as alone:
        wanted = [complete(alone.address, prompt) for prompt in prompts]
    flags = ["--tp", "2", "--ep", "2", "--redundant-experts", "2", "--balance-experts",
             "--balance-every", "10", "--balance-below", "1", "--no-prefix-cache"]  # fmt: skip
    with serving("--draft", "off", *flags) as ranks:

        def metric(name):
            text = urllib.request.urlopen(ranks.address + "/metrics", timeout=30).read().decode()
            return float(re.search(rf"^braid:{name} (\S+)$", text.replace(",", " "), re.M)[1])

        done = r'expert_moves_total\{[^}]*result="done"[^}]*\}'
        def balance(steps):
            return metric(rf'expert_rank_balance\{{[^}}]*steps="{steps}"[^}}]*\}}')

        for _ in range(20):
            assert [complete(ranks.address, prompt) for prompt in prompts] == wanted
            if metric(done) > 0 and balance(100) > 0:
                break
        assert metric(done) > 0
        assert metric(r"expert_moved_bytes_total\{[^}]*\}") > 0
        assert 0 < balance(10) <= 1 and 0 < balance(100) <= 1
        layers = r'expert_{}layer_balance\{{[^}}]*layer="1"[^}}]*\}}'
        assert 0 < metric(layers.format("")) <= 1
        assert 0 < metric(layers.format("rank_")) <= 1
        # A token in each of the last ten steps: its experts in each layer.
        complete(ranks.address, prompts[0][:5])
        text = urllib.request.urlopen(ranks.address + "/metrics", timeout=30).read().decode()
        rows = re.findall(r"^braid:expert_rank_rows\{.*\} (\S+)$", text, re.M)
        config = json.loads((tiny / "config.json").read_text())
        each = config["num_experts_per_tok"] * config["num_hidden_layers"]
        assert len(rows) == 2 and sum(map(float, rows)) == 10 * each


def test_what_cannot_be_balanced_is_refused(braid, tiny):
    for flags in [("--balance-every", "50"), ("--balance-below", "0.5"),
                  ("--balance-step-bytes", "2M")]:  # fmt: skip
        done = braid("run", tiny, *RUN, *flags)
        assert done.returncode == 1
        assert f"{flags[0]} has no effect without --balance-experts" in done.stderr
    done = braid("run", tiny, *RUN, "--balance-experts")
    assert done.returncode == 1
    assert "one rank has all experts; start with --ep of at least 2" in done.stderr
    for count in (65535, (1 << 30) + 1):
        done = braid("run", tiny, *RUN, "--tp", "2", "--ep", "2", "--balance-experts",
                     "--balance-step-bytes", count)  # fmt: skip
        assert done.returncode == 1
        assert "--balance-step-bytes must be from 64K to 1G" in done.stderr
    done = braid("run", tiny, *RUN, "--tp", "2", "--ep", "2", "--balance-experts",
                 "--balance-step-bytes", "97M", "--rank-seconds", "3")  # fmt: skip
    assert done.returncode == 1
    assert "choose at most 32M for each second, 96M" in done.stderr
