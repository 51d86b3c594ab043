"""braid simulate cluster: JSON, page, traces, failures and errors."""

import json
import pathlib
import xml.etree.ElementTree

import pytest

CONFIGS = pathlib.Path(__file__).resolve().parents[1] / "configs"
MODEL = str(CONFIGS / "qwen3_5_35b_a3b.json")


def simulate(braid, *words):
    done = braid("simulate", "cluster", MODEL, *words, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["runs"]


def test_a_sweep_gives_a_front_and_a_page(braid, tmp_path):
    words = ["--hardware", "h100", "--engines", "2", "--mesh", "tp=2,ep=2", "--load", "sharegpt",
             "--rate", "5,50", "--minutes", "0.5", "--html", str(tmp_path / "p.html")]  # fmt: skip
    slow, fast = simulate(braid, *words)
    assert simulate(braid, *words) == [slow, fast]
    assert slow["finished"] == slow["requests"] and slow["failures"] == 0
    assert fast["output_tokens_per_second"] > 3 * slow["output_tokens_per_second"]
    assert fast["inter_token_seconds"]["p50"] > slow["inter_token_seconds"]["p50"]
    page = (tmp_path / "p.html").read_text()
    assert "http" not in page and "<script" not in page
    plots = page.split("<svg")[1:]
    assert len(plots) == 6
    for plot in plots:
        xml.etree.ElementTree.fromstring("<svg" + plot.split("</svg>")[0] + "</svg>")
    text = braid("simulate", "cluster", MODEL, *words).stdout
    assert f"{fast['output_tokens_per_second']:.0f}" in text


def test_a_trace_with_shared_blocks_is_reused(braid, tmp_path):
    trace = tmp_path / "trace.jsonl"
    lines = [{"timestamp": 500 * i, "input_length": 2048, "output_length": 10,
              "hash_ids": [1, 2, 3, 100 + i]} for i in range(20)]  # fmt: skip
    trace.write_text("".join(json.dumps(line) + "\n" for line in lines))
    (run,) = simulate(braid, "--trace-file", str(trace), "--minutes", "1")
    assert run["finished"] == 20 and run["output_tokens"] == 200
    assert run["requests_per_second"] == pytest.approx(20 / 9.5)  # whatever the minutes
    assert run["reused_tokens"] > 0.6 * run["input_tokens"]


def test_failures_restart_requests(braid):
    (run,) = simulate(braid, "--engines", "3", "--rate", "20", "--minutes", "1", "--fail-every",
                      "20", "--repair", "5")  # fmt: skip
    assert run["failures"] > 0 and run["restarted"] > 0
    assert run["finished"] == run["requests"]


def test_prompts_on_engines_of_their_own(braid):
    words = ["--engines", "4", "--prefill-engines", "2", "--rate", "20", "--minutes", "0.5"]
    (run,) = simulate(braid, *words)
    assert run["finished"] == run["requests"] == run["transfers"]
    assert run["transferred_bytes"] > 0 and run["transfers_failed"] == 0
    words += ["--mesh", "dp=2,ep=2", "--no-overlap"]
    (skewed,) = simulate(braid, *words, "--expert-balance", "0.5")
    (even,) = simulate(braid, *words)
    assert skewed["first_token_seconds"]["mean"] > even["first_token_seconds"]["mean"]


RECORDED = CONFIGS.parent / "experts" / "recorded_loads.jsonl"


@pytest.fixture
def three_layers(tmp_path):
    """The model of the recorded load: two layers of 256 experts, 8 a token, behind a dense one."""
    config = json.loads((CONFIGS / "deepseek_v3.json").read_text())
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config | {"num_hidden_layers": 3, "first_k_dense_replace": 1}))
    return path


def test_a_recorded_load_on_72_ranks_is_balanced_as_deployments_say(braid, tmp_path, three_layers):
    """Experts in order leave most of 72 ranks idle; replicas more than double the balance, order
    alone does little, and a load that stays like itself needs to be placed no more than once."""
    page = tmp_path / "page.html"

    def replay(placed, redundant, ranks=72):
        done = braid("simulate", "cluster", three_layers, "--hardware", "h200", "--weights", "fp8",
                     "--mesh", f"dp={ranks},ep={ranks}", "--expert-loads", RECORDED,
                     "--experts-placed", placed, "--redundant-experts", str(redundant),
                     "--input-tokens", "4096", "--output-tokens", "32", "--rate", "200",
                     "--minutes", "0.05", "--html", page, "--json")  # fmt: skip
        assert done.returncode == 0, done.stderr
        (run,) = json.loads(done.stdout)["runs"]
        assert run["finished"] == run["requests"] > 0
        return run

    none, once, online = (replay(placed, 32) for placed in ("none", "once", "online"))
    assert "Balance of experts over time</figcaption>" in page.read_text()
    order, alone = replay("none", 0, ranks=64), replay("online", 0, ranks=64)
    more = replay("online", 64, ranks=64)
    balance = "expert_balance"
    assert none[balance] < 0.35
    assert once[balance] > 2 * none[balance] and online[balance] > 2 * none[balance]
    assert abs(online[balance] - once[balance]) < 0.1
    assert order[balance] <= alone[balance] < 1.5 * order[balance] < more[balance] / 2
    assert none["busy"] > online["busy"]
    first = "first_token_seconds"
    assert none[first]["mean"] > online[first]["mean"]


def test_a_drawn_load_is_replayed_like_a_recorded_one(braid, three_layers):
    def balance(source, placed):
        done = braid("simulate", "cluster", three_layers, "--hardware", "h200", "--weights", "fp8",
                     "--mesh", "dp=72,ep=72", "--expert-loads", source, "--experts-placed", placed,
                     "--redundant-experts", "32", "--input-tokens", "4096", "--output-tokens", "32",
                     "--rate", "200", "--minutes", "0.05", "--json")  # fmt: skip
        assert done.returncode == 0, done.stderr
        (run,) = json.loads(done.stdout)["runs"]
        assert run["finished"] == run["requests"] > 0
        return run["expert_balance"]

    even, skewed = balance("zipf=0", "none"), balance("zipf=1.2", "none")
    assert skewed < 0.4 and even > 2 * skewed
    assert balance("zipf=1.2", "online") > 2 * skewed
    assert balance("zipf=1.2", "none") == skewed


def test_a_recorded_load_must_be_of_the_model_and_its_ranks(braid, three_layers):
    def refusal(*words):
        done = braid("simulate", "cluster", *words, "--expert-loads", RECORDED)
        assert done.returncode == 1
        return done.stderr

    assert "give a --mesh with ep" in refusal(three_layers)
    assert "the loads are of" in refusal(MODEL, "--mesh", "dp=8,ep=8")
    assert "32 redundant ones would" in refusal(three_layers, "--mesh", "dp=72,ep=72")


@pytest.mark.parametrize(
    "words, said",
    [
        (["--rate", "fast"], "write numbers above 0"),
        (["--engines", "2", "--prefill-engines", "2"], "must be fewer than --engines 2"),
        (["--mesh", "tp=3"], "tp 3 does not divide"),
        (["--engines", "2", "--machine-engines", "2"], "--calibration-shared FILE go together"),
        (["--experts-placed", "once"], "goes with --expert-loads FILE"),
        (["--hardware", "epyc_2core"], "memory of 23.5 GiB is too small"),
        (["--trace-file", MODEL, "--rate", "2"], "leave out --load and --rate"),
        (["--trace-file", MODEL, "--load", "random"], "leave out --load and --rate"),
        (["--rate", "1", "--fail-every", "0.001", "--repair", "0"], "has started 1001 times"),
        (["--rate", "9", "--minutes", "0.1", "--fail-every", "0.5", "--repair", "1e9"],
         "--repair and --start-seconds must be shorter"),
        (["--trace-file", MODEL], "line 1: not valid JSON"),
        (["--rate", "0.0001", "--minutes", "0.02"], "raise --rate"),
    ],
)
def test_errors_name_what_is_wrong(braid, words, said):
    done = braid("simulate", "cluster", MODEL, *words)
    assert done.returncode == 1
    assert said in done.stderr
