"""--device: a model on a Vulkan device, what is refused, and what is said where there is none."""

import json
import os
import re
import subprocess
import sys
import urllib.request

import pytest

from conftest import BINARY, ROOT
from disk_tier_test import ask, prompts, settle

sys.path.insert(0, str(ROOT / "tests"))
from serving import serving  # noqa: E402

NO_DRIVER = {"VK_ICD_FILENAMES": "/nonexistent.json", "VK_DRIVER_FILES": "/nonexistent.json"}
PROMPT = ["How much is 62 + 12?", "--temperature", "0", "--json"]


@pytest.fixture(scope="module")
def vulkan():
    """The devices that can be used; the tests are skipped where there are none."""
    done = subprocess.run(
        [BINARY, "doctor", "--json"], capture_output=True, text=True, timeout=300, check=True
    )
    found = json.loads(done.stdout)
    usable = [d for d in found["vulkan_devices"] if not d["missing"]]
    if not usable:
        pytest.skip(found["no_vulkan_devices"] or "no Vulkan device can be used")
    return usable


def answer(done):
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_device_answers_as_the_cpu_does(braid, tiny, vulkan):
    here = answer(braid("run", tiny, *PROMPT, "--compute", "fp32"))
    there = answer(braid("run", tiny, *PROMPT, "--device", "vulkan"))
    assert there["token_ids"] == here["token_ids"]
    sampled = [*PROMPT[:1], "--temperature", "1", "--seed", "5", "--json"]
    here = answer(braid("run", tiny, *sampled, "--compute", "fp32", "--draft", "off"))
    there = answer(braid("run", tiny, *sampled, "--device", "vulkan:0"))
    assert there["token_ids"] == here["token_ids"]
    filtered = [*sampled, "--top-p", "0.9", "--top-k", "30", "--draft", "off"]
    here = answer(braid("run", tiny, *filtered, "--compute", "fp32"))
    there = answer(braid("run", tiny, *filtered, "--device", "vulkan"))
    assert there["token_ids"] == here["token_ids"]


@pytest.mark.parametrize("weights", ["int8", "q8_0", "int4", "q4_k", "fp8"])
def test_quantised_weights_run_on_a_device(braid, tiny, vulkan, weights):
    done = braid("run", tiny, *PROMPT, "--device", "vulkan", "--weights", weights)
    assert "74" in answer(done)["text"]


@pytest.mark.parametrize("weights", ["auto", "fp32", "int8", "q4_k", "mxfp4"])
def test_experts_stay_with_the_cpu_in_its_formats(braid, tiny, vulkan, weights):
    flags = ["--device", "vulkan", "--experts", "cpu", "--weights", weights]
    done = braid("run", tiny, *PROMPT, *flags, "--explain-ops")
    assert "74" in answer(done)["text"]
    (chosen,) = [line for line in done.stderr.splitlines() if line.startswith("experts ")]
    assert chosen.split()[1] == "cpu", "by the CPU's kernels"
    (chosen,) = [line for line in done.stderr.splitlines() if line.startswith("attention ")]
    assert chosen.split()[1] == "vulkan"


def goldens(name, *flags):
    done = subprocess.run(
        [sys.executable, ROOT / "tests/golden/compare.py", BINARY, "--only", name, "--few-cuts",
         "--tolerance", "2e-3", "--device", "vulkan", *flags],
        capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout


# A software driver takes a minute or two for one of the second list: LONG=yes asks for them too.
ON_DEVICE = (["kimi_linear_a", "ling_2_a"],
             ["qwen3_5_a", "deepseek_v3_a", "qwen3_a", "qwen3_moe_a", "qwen3_next_a",
              "qwen3_5_moe_a", "ling_3_a"])
WITH_EXPERTS_ON_THE_CPU = (["deepseek_v3_a"],
                           ["kimi_linear_a", "qwen3_moe_a", "qwen3_next_a", "qwen3_5_moe_a",
                            "ling_2_a", "ling_3_a"])


def asked_for(names):
    short, long = names
    return short + (long if os.environ.get("BRAID_LONG", "1") == "1" else [])


@pytest.mark.parametrize("name", asked_for(ON_DEVICE))
def test_goldens_hold_on_a_device(vulkan, name):
    goldens(name)


@pytest.mark.parametrize("name", asked_for(WITH_EXPERTS_ON_THE_CPU))
def test_goldens_hold_with_experts_on_the_cpu(vulkan, name):
    goldens(name, "--experts", "cpu")


# The core's checks, and those of synchronisation.
VALIDATED = {"VK_INSTANCE_LAYERS": "VK_LAYER_KHRONOS_validation",
             "VK_LAYER_ENABLES": "VK_VALIDATION_FEATURE_ENABLE_SYNCHRONIZATION_VALIDATION_EXT"}


def validated(braid, tiny, *flags):
    done = braid("run", tiny, "--device", "vulkan", "--max-tokens", "8", *flags, env=VALIDATED)
    if done.returncode != 0 and "starting Vulkan" in done.stderr:
        pytest.skip("the validation layers are not installed")
    assert done.returncode == 0, done.stderr
    for name in ("VUID", "SYNC-HAZARD"):
        assert name not in done.stdout + done.stderr
    assert "alidation" not in done.stderr


@pytest.mark.parametrize("experts", ["device", "cpu"])
def test_the_validation_layer_is_silent(braid, tiny, vulkan, experts):
    drawn = [*PROMPT[:1], "--temperature", "1", "--top-p", "0.9", "--seed", "5"]
    validated(braid, tiny, *drawn, "--experts", experts)


def test_the_validation_layer_is_silent_over_pages_that_move(
        braid, tiny, vulkan, tmp_path, monkeypatch):  # fmt: skip
    validated(braid, tiny, *PROMPT)  # or skips
    for name, value in VALIDATED.items():
        monkeypatch.setenv(name, value)
    flags = ["--device", "vulkan", "--cache-dir", str(tmp_path), "--memory", "200MiB",
             "--max-model-len", "1024"]  # fmt: skip
    for restored in (0, 128):
        with serving(*flags) as served:
            _, usage = ask(served.port, prompts(1, length=150)[0], tokens=4)
            settle(served.port)
        assert usage["prompt_tokens_details"].get("disk_tokens", 0) == restored
        assert not [line for line in served.log if "VUID" in line or "SYNC-HAZARD" in line]


def test_ops_are_measured_beside_the_devices_limits(braid, vulkan):
    cases = ["--filter", "small", "--device", "vulkan", "--json"]
    out = json.loads(braid("bench", "ops", *cases).stdout)
    assert out["device"] == vulkan[0]["name"]
    (case,) = out["results"]
    assert 0 < out["limits"]["kernel_start_seconds"] < 0.1
    assert case["candidate"] == "vulkan" and 0 < case["ns_min"] <= case["ns_median"]
    assert case["limited_by"] in ("fp32", "memory")
    slower = max(case["flops"] / out["limits"]["fma_fp32"],
                 case["bytes"] / case["memory_read"])  # fmt: skip
    assert case["limit_ns"] == pytest.approx(slower * 1e9)
    cases = ["sample", "--filter", "greedy", "--device", "vulkan", "--json"]
    out = json.loads(braid("bench", "ops", *cases).stdout)
    assert out["results"] == []
    assert [case["name"] for case in out["left_out"]] == ["sample greedy of 65536"]


def test_pages_of_a_device_outlive_the_server(vulkan, tmp_path):
    flags = ["--cache-dir", str(tmp_path), "--max-model-len", "1024", "--memory", "200MiB"]
    (prompt,) = prompts(1, length=200)
    answers = []

    def stored(*more):
        with serving(*flags, *more) as served:
            answer, usage = ask(served.port, prompt)
            settle(served.port)
        answers.append(answer)
        return usage["prompt_tokens_details"].get("disk_tokens", 0)

    assert [stored("--device", "vulkan", "--experts", "device") for _ in range(2)] == [0, 192]
    assert answers[0] == answers[1]
    # Who computes them decides about their bits.
    assert stored("--device", "vulkan", "--experts", "cpu") == 0
    assert stored("--compute", "fp32", "--kv-dtype", "fp32") == 0


def test_a_trace_has_what_the_device_did_by_its_clock(braid, tiny, vulkan, tmp_path):
    file = tmp_path / "trace.json"
    done = braid("run", tiny, "--token-ids", "[1, 2, 3]", "--max-tokens", "3", "--device", "vulkan",
                 "--threads", "2", "--trace", file)  # fmt: skip
    assert done.returncode == 0, done.stderr
    events = json.loads(file.read_text())["traceEvents"]
    lists = {e["args"]["name"]: e["tid"] for e in events if e["ph"] == "M"}
    assert set(lists) == {"engine", "compute 1", "device"}
    there = [e for e in events if e["ph"] == "X" and e["tid"] == lists["device"]]
    names = {e["name"] for e in there}
    assert names >= {"linear", "attention", "linear_attention", "experts", "sample"}
    steps = [e for e in events if e["ph"] == "X" and e["name"] == "step"]
    for e in there:
        assert any(s["ts"] <= e["ts"] and e["ts"] + e["dur"] <= s["ts"] + s["dur"] + 1000
                   for s in steps)  # fmt: skip
    # One after the other.
    assert all(a["ts"] + a["dur"] <= b["ts"] + 0.01 for a, b in zip(there, there[1:]))
    assert sum(e["dur"] for e in there) > 0


def test_a_trace_has_what_the_device_waits_for(braid, tiny, vulkan, tmp_path):
    file = tmp_path / "trace.json"
    done = braid("run", tiny, "--token-ids", "[1, 2, 3]", "--max-tokens", "3", "--device", "vulkan",
                 "--experts", "cpu", "--draft", "off", "--trace", file)  # fmt: skip
    assert done.returncode == 0, done.stderr
    events = json.loads(file.read_text())["traceEvents"]
    lists = {e["args"]["name"]: e["tid"] for e in events if e["ph"] == "M"}
    spans = [e for e in events if e["ph"] == "X"]
    waits = [e for e in spans if e["tid"] == lists["device"] and e["name"] == "experts of the host"]
    here = [e for e in spans if e["tid"] == lists["engine"] and e["name"] == "experts"]
    config = json.loads((tiny / "config.json").read_text())
    assert len(waits) == 3 * config["num_hidden_layers"]
    assert len(here) >= len(waits), "and the engine's thread took part in each"
    assert not [e for e in spans if e["tid"] == lists["device"] and e["name"] == "experts"]


def test_the_plan_says_what_lies_where(braid, tiny, vulkan):
    bench = ["bench", "offline", tiny, "--input-tokens", "8", "--output-tokens", "2", "--sequences",
             "1", "--repeat", "1", "--json", "--draft", "off", "--device", "vulkan"]  # fmt: skip
    there, divided = (json.loads(braid(*bench, "--experts", way).stdout)["engine"]
                      for way in ("device", "cpu"))  # fmt: skip
    assert there["host_weight_bytes"] == 0 < divided["host_weight_bytes"]
    assert divided["weight_bytes"] + divided["host_weight_bytes"] == there["weight_bytes"]
    assert divided["host_scratch_bytes"] > 0


def test_the_plan_says_what_rate_to_expect(vulkan):
    number = r"(\d+(?:\.\d+)?)"
    parts = {"device": "", "cpu": f", experts on the CPU {number}"}
    for way, host in parts.items():
        with serving("--device", "vulkan", "--experts", way) as served:
            with urllib.request.urlopen(f"{served.address}/server_info", timeout=60) as answer:
                info = json.load(answer)
        line = re.compile(
            rf"one sequence decodes about {number} tokens/s: of a token's {number} ms the device "
            rf"has {number}, starts of (\d+) kernels {number}{host}, submissions {number} "
            rf"\(measured: {number} GB/s, {number} Gop/s, {number} us a start"
        )
        (found,) = [m for m in map(line.match, served.log) if m]
        rate, whole, device, kernels, *spent, _, _, start_us = [float(n) for n in found.groups()]
        assert kernels == info["decode_kernels"] > 20
        assert start_us == pytest.approx(info["kernel_start_seconds"] * 1e6, abs=0.06)
        assert spent[0] == pytest.approx(kernels * info["kernel_start_seconds"] * 1e3, abs=0.06)
        spent.append(device)
        assert rate == pytest.approx(info["expected_tokens_per_second"], rel=0.05)
        # Times have one digit behind the point.
        assert whole == pytest.approx(sum(spent), abs=0.05 * (len(spent) + 1) + 0.01)
        assert 1000 / (whole + 0.06) * 0.94 <= rate <= 1000 / (whole - 0.06) * 1.06


def test_the_cpu_alone_has_no_such_line(tiny):
    with serving(model=tiny) as served:
        assert not [line for line in served.log if "one sequence decodes about" in line]


def test_experts_leave_a_device_that_has_no_room_for_them(braid, tiny, vulkan):
    config = json.loads((tiny / "config.json").read_text())
    fixed = ["--weights", "fp32", "--draft", "off", "--max-batch-tokens", "64", "--json",
             "--device", "vulkan", "--max-model-len", "256"]  # fmt: skip
    bench = ["bench", "offline", tiny, "--input-tokens", "8", "--output-tokens", "2", "--sequences",
             "1", "--repeat", "1"]  # fmt: skip
    engine = json.loads(braid(*bench, *fixed, "--experts", "device").stdout)["engine"]
    assert engine["host_reason"] == ""
    less = engine["weight_bytes"]  # no room for the workspace
    engine = json.loads(braid(*bench, *fixed, "--memory", str(less)).stdout)["engine"]
    matrices = 3 * config["num_experts"] * config["moe_intermediate_size"] * config["hidden_size"]
    assert engine["host_weight_bytes"] == 4 * matrices * config["num_hidden_layers"]
    assert engine["weight_bytes"] + engine["host_weight_bytes"] == less
    assert "with them, weights and workspace need" in engine["host_reason"]
    run = ["run", tiny, *PROMPT, *fixed]
    chosen = answer(braid(*run, "--memory", str(less)))
    asked = answer(braid(*run, "--experts", "cpu"))
    assert chosen["token_ids"] == asked["token_ids"]
    done = braid(*run, "--memory", str(less), "--experts", "device")
    assert done.returncode != 0 and "is too small: weights need" in done.stderr
    done = braid(*run, "--memory", "1M")
    assert done.returncode != 0 and "is too small: weights need" in done.stderr
    assert "of experts on the CPU, weights and workspace still need" in done.stderr


@pytest.mark.parametrize(
    "flags, said",
    [
        (["--device", "gpu"], "expected cpu, vulkan, vulkan:N or auto"),
        (["--device", "vulkan:x"], "expected cpu, vulkan, vulkan:N or auto"),
        (["--device", "vulkan:99"], "--device vulkan:99: there are"),
        (["--device", "vulkan", "--tp", "2"], "a device is one rank"),
        (["--device", "vulkan", "--mla", "expanded"], "use --mla absorbed"),
        (["--device", "vulkan", "--compute", "bf16"], "a device computes in fp32"),
        (["--device", "vulkan", "--memory", "100TiB"], "bytes of memory are wanted at once"),
        (["--device", "vulkan", "--memory", "100TiB"], "; the device has "),
    ],
)
def test_what_does_not_go_is_refused_by_name(braid, tiny, vulkan, flags, said):
    done = braid("run", tiny, *PROMPT, *flags)
    assert done.returncode != 0
    assert said in done.stderr


def test_without_a_driver_vulkan_is_an_error_and_auto_is_the_cpu(braid, tiny):
    done = braid("run", tiny, *PROMPT, "--device", "vulkan", env=NO_DRIVER)
    assert done.returncode != 0
    assert "Vulkan" in done.stderr and "mesa-vulkan-drivers" in done.stderr
    done = braid("run", tiny, *PROMPT, "--device", "auto", env=NO_DRIVER)
    assert "74" in answer(done)["text"]
    assert "--device auto: the CPU (no Vulkan" in done.stderr
    found = json.loads(braid("doctor", "--json", env=NO_DRIVER).stdout)
    assert found["vulkan_devices"] == [] and found["no_vulkan_devices"]
