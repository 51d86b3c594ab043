"""braid plan: text, JSON, search and errors."""

import json
import pathlib

import pytest

CONFIGS = pathlib.Path(__file__).resolve().parents[1] / "configs"
LING = str(CONFIGS / "ling_2_6_1t.json")


def plan(braid, *words):
    done = braid("plan", *words, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_text_and_json_say_the_same(braid):
    words = [LING, "--hardware", "tpu_v7x", "--mesh", "dp=8,tp=4,ep=32", "--weights", "fp8",
             "--workload", "in=16384,out=1024,concurrency=512"]  # fmt: skip
    found = plan(braid, *words)
    text = braid("plan", *words).stdout
    assert found["devices"] == 32 and found["fits"]
    memory = found["memory_bytes"]
    parts = ["weights", "kv", "state", "workspace", "balance_buffers", "exchange_buffers"]
    assert memory["total"] == sum(memory[part] for part in parts)
    assert f"{memory['total'] / 2**30:.1f} GiB of 96.0 GiB" in text
    for step in ("prefill", "decode"):
        assert f"bound by {found[step]['bound']}" in text
    assert f"{found['with_overlap']['output_tokens_per_second']:.0f}" in text
    assert all(source in text for source in found["sources"])


def test_search_is_no_worse_than_a_mesh_and_keeps_its_bound(braid):
    words = [str(CONFIGS / "qwen3_5_35b_a3b.json"), "--hardware", "h100",
             "--workload", "in=2048,out=256,concurrency=16"]  # fmt: skip
    best = plan(braid, *words, "--search", "--devices", "4")
    given = plan(braid, *words, "--mesh", "tp=2,ep=2")
    speed = "output_tokens_per_second"
    assert best["fits"] and best["devices"] <= 4
    assert best["with_overlap"][speed] >= given["with_overlap"][speed]
    bound = best["with_overlap"]["inter_token_seconds_mean"] * 1e3 * 1.01
    again = plan(braid, *words, "--search", "--devices", "4", "--inter-token-ms", str(bound))
    assert again["with_overlap"][speed] == best["with_overlap"][speed]
    assert best["best"][0]["mesh"] == best["mesh"] and len(best["best"]) == 5
    speeds = [one["with_overlap"][speed] for one in best["best"]]
    assert speeds == sorted(speeds, reverse=True)
    frugal = plan(braid, *words, "--search", "--devices", "4", "--best", "device")

    def each(found):
        return found["with_overlap"][speed] / found["devices"]

    assert each(frugal) > each(best) and frugal["devices"] < best["devices"]
    text = braid("plan", *words, "--search", "--devices", "4").stdout
    table = text.split("the best, with overlap")[1].split("sources")[0].strip().splitlines()
    assert len(table) == 6 and f"{speeds[4]:.0f}" in table[5]


def test_a_search_divides_the_devices_into_prefill_and_decode_engines(braid):
    words = [str(CONFIGS / "qwen3_5_35b_a3b.json"), "--hardware", "h100", "--search", "--devices",
             "4", "--workload", "in=2048,out=256,concurrency=64"]  # fmt: skip
    assert "splits" not in plan(braid, *words)
    found = plan(braid, *words, "--split")["splits"]
    speeds = [split["output_tokens_per_second"] for split in found]
    assert len(found) == 5 and speeds == sorted(speeds, reverse=True)
    for split in found:
        sides = [split["prefill"], split["decode"]]
        devices = [side["engines"] * side["dp"] * side["tp"] for side in sides]
        assert sum(devices) == split["devices"] <= 4 and min(devices) >= 1
        # 10 layers of keys and values of 2 heads of 256 in bf16, and the states of 30 layers.
        assert split["handoff_bytes"] > 2048 * 10 * 2 * 2 * 256 * 2
    text = braid("plan", *words, "--split").stdout
    assert f"{speeds[0]:.0f}" in text.split("prefill engines")[1].splitlines()[1]
    bound = max(split["inter_token_seconds"] for split in found) * 999
    for split in plan(braid, *words, "--split", "--inter-token-ms", str(bound))["splits"]:
        assert split["inter_token_seconds"] * 1e3 <= bound
    none = braid("plan", *words, "--split", "--first-token-ms", "0.001")
    assert none.returncode == 1


def test_a_draft_head_takes_memory(braid):
    words = [str(CONFIGS / "qwen3_5_35b_a3b.json"), "--workload", "in=2048,out=256,concurrency=16"]
    none, one, two = (plan(braid, *words, "--drafts", n)["memory_bytes"] for n in ("0", "1", "2"))
    # A layer of the 41 in bf16, of 2 (256 x 3 x 2048 x 512) bytes and more.
    assert one["weights"] - none["weights"] > 2 * 256 * 3 * 2048 * 512
    # 10 layers with keys and values and the head's: more than a tenth more, for the last state.
    assert 1.1 * none["kv"] < one["kv"] == two["kv"] < 1.5 * none["kv"]
    # Three states of a sequence instead of two, with room for each draft.
    assert 1.5 * none["state"] < one["state"] < two["state"]


def test_hardware_of_ones_own(braid, tmp_path):
    number = {"value": 1e12, "source": "a measurement"}
    names = ["memory_bytes", "memory_bytes_per_second", "bf16_flops"]
    file = tmp_path / "mine.json"
    file.write_text(json.dumps({"name": "mine", "numbers": dict.fromkeys(names, number)}))
    assert plan(braid, LING, "--hardware", str(file))["hardware"] == "mine"


def test_measured_parts_replace_the_formula(braid, tiny, tmp_path):
    lines = tmp_path / "ops.json"
    done = braid("bench", "ops", "--model", tiny, "--filter", "8 rows", "--json")
    assert done.returncode == 0, done.stderr
    run = json.loads(done.stdout)
    parts = {result["part"]: result for result in run["results"]}
    assert {"experts", "attention projections", "embedding, head"} <= parts.keys()
    parts["experts"]["ns_median"] = 7e9
    run["results"] = [parts["experts"]]
    lines.write_text(json.dumps(run) + "\n")
    words = [tiny, "--workload", "in=8,out=2,concurrency=8"]
    found = plan(braid, *words, "--calibration", lines)
    layers = json.loads((pathlib.Path(tiny) / "config.json").read_text())["num_hidden_layers"]
    (experts,) = [part for part in found["decode"]["parts"] if part["part"] == "experts"]
    assert experts["seconds"] == pytest.approx(7 * layers, rel=1e-3)
    assert found["hardware"] == run["cpu"] and "ops.json" in found["sources"][-1]
    other = plan(braid, *words, "--calibration", lines, "--hardware", "h100")
    assert other["hardware"] == "h100" and "ops.json" in other["sources"][-1]
    text = braid("plan", *words, "--calibration", lines, "--hardware", "h100").stdout
    assert f"as measured on {run['cpu']}" in text
    lines.write_text("{}\n")
    done = braid("plan", *words, "--calibration", lines)
    assert done.returncode == 1 and "ops.json, line 1: hardware is missing" in done.stderr


def test_every_part_of_a_decode_step_is_measured_as_it_is_planned(braid, tiny, tmp_path):
    lines, amounts = tmp_path / "ops.json", {}
    with open(lines, "w") as file:
        for cases in ("8 ", "24 rows"):  # of 8 sequences, and with two drafts each
            done = braid("bench", "ops", "--model", tiny, "--filter", cases, "--json")
            assert done.returncode == 0, done.stderr
            run = json.loads(done.stdout)
            for result in run["results"]:
                assert 0 < result["ns_min"] <= result["ns_median"]
                result["ns_median"] = 1e9
                place = amounts.setdefault(result["part"], [])
                place.append((result["flops"], result["bytes"]))
            file.write(json.dumps(run) + "\n")
    config = json.loads((pathlib.Path(tiny) / "config.json").read_text())
    layers = config["num_hidden_layers"]
    full = config["layer_types"].count("full_attention")
    expected = {"embedding, head": 1, "norms, convolutions": 1, "experts": layers,
                "attention": full, "attention projections": full,
                "linear attention": layers - full,
                "linear attention projections": layers - full}  # fmt: skip
    # After 96 tokens, half of the answer generated; each part of a layer takes a second.
    words = ["--workload", "in=95,out=2,concurrency=8", "--calibration", lines]
    for drafts in (0, 2):
        found = plan(braid, tiny, *words, "--drafts", str(drafts))["decode"]["parts"]
        seconds = {p["part"]: p["seconds"] for p in found if p["part"] != "draft head"}
        assert seconds == pytest.approx(expected, rel=1e-3)
        for part in found if drafts == 0 else []:
            each = [part[key] / expected[part["part"]] for key in ("flops", "bytes")]
            assert any(each == pytest.approx(one, rel=1e-6) for one in amounts[part["part"]]), part


@pytest.mark.parametrize(
    "words, said",
    [
        (["--mesh", "tp=3"], "tp 3 does not divide"),
        (["--mesh", "pp=2"], "write dp=N,tp=N,ep=N"),
        (["--workload", "in=0"], "N from 1"),
        (["--hardware", "abacus"], "neither known hardware (h100"),
        (["--weights", "any"], "--weights any needs --search"),
        (["--mesh", "tp=2", "--hardware", "epyc_2core"], "network_bytes_per_second"),
        (["--search", "--devices", "1"], "Allow more devices"),
        (["--best", "device"], "--best goes with --search"),
        (["--split"], "--split goes with --search"),
        (["--mesh", "dp=2", "--redundant-experts", "2"], "several ranks (ep) can hold 0 to 128"),
    ],
)
def test_errors_name_what_is_wrong(braid, words, said):
    done = braid("plan", LING, *words)
    assert done.returncode == 1
    assert said in done.stderr
