"""eval, bench, inspect, doctor, make-model and serve."""

import hashlib
import json
import math
import pathlib
import os
import re
import signal
import subprocess
import urllib.request

import pytest

from conftest import BINARY, ROOT, TINY


@pytest.fixture(scope="module")
def server():
    """A served braid-tiny; yields its address."""
    command = [BINARY, "serve", str(TINY), "--port", "0", "--log-level", "error"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, **pipes, text=True) as process:
        first = process.stdout.readline()
        yield re.fullmatch(r"listening on (http://127\.0\.0\.1:\d+)\n", first)[1]
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0


def test_eval_prints_accuracy_intervals_and_perplexity(braid, tiny):
    done = braid("eval", tiny, ROOT / "models/eval/arithmetic.jsonl",
                 ROOT / "models/eval/text.jsonl", "--limit", "8", "--json")  # fmt: skip
    assert done.returncode == 0, done.stderr
    arithmetic, text = json.loads(done.stdout)["tasks"]
    assert arithmetic["task"] == "arithmetic" and arithmetic["n"] == 8
    assert arithmetic["accuracy"] == 1 and arithmetic["high"] == 1
    assert 0.6 < arithmetic["low"] < 0.8
    assert text["n"] == 8 and 1.2 < text["perplexity"] < 1.5


def test_the_end_of_a_text_is_a_token_of_the_vocabulary(braid, tiny, tmp_path):
    """A model without <|endoftext|>, whose answers end with two tokens: the text's tokens alone."""
    model = tmp_path / "model"
    model.mkdir()
    for path in pathlib.Path(tiny).iterdir():
        text = path.read_bytes()
        if b"<|endoftext|>" in text and path.suffix in (".json", ".jinja"):
            (model / path.name).write_bytes(text.replace(b"<|endoftext|>", b"<|otherend|>"))
        else:
            (model / path.name).symlink_to(path.resolve())
    file, text = tmp_path / "text.jsonl", "Once upon a time."
    file.write_text(json.dumps({"check": "perplexity", "answer": None, "text": text}) + "\n")
    (task,) = json.loads(braid("eval", model, file, "--json").stdout)["tasks"]
    scored = braid("score", model, "-", input=json.dumps({"text": text}) + "\n")
    values = json.loads(scored.stdout)["logprobs"][1:]
    assert task["perplexity"] == pytest.approx(math.exp(-sum(values) / len(values)))


def test_eval_table_has_a_line_per_task(braid, tiny):
    done = braid("eval", tiny, ROOT / "models/eval/lists.jsonl", "--limit", "2")
    assert re.search(r"^lists +2 ", done.stdout, re.MULTILINE)


@pytest.fixture(scope="module")
def gsm8k(tmp_path_factory):
    """braid-tiny's sums in the form of GSM8K's files."""
    path = tmp_path_factory.mktemp("sets") / "gsm8k.jsonl"
    lines = []
    for line in (ROOT / "models/eval/arithmetic.jsonl").read_text().splitlines()[:24]:
        item = json.loads(line)
        answer = f"The answer is {item['answer']}.\n#### {item['answer']}"
        lines.append({"question": item["messages"][-1]["content"], "answer": answer})
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def accuracy(braid, *words):
    done = braid("eval", *words, "--json")
    assert done.returncode == 0, done.stderr
    (task,) = json.loads(done.stdout)["tasks"]
    return task["n"], task["accuracy"]


def test_eval_asks_gsm8k_with_and_without_examples(braid, tiny, gsm8k):
    few = [tiny, gsm8k, "--max-tokens", "60"]
    asked, right = accuracy(braid, *few)
    assert asked == 24 and right > 0.5
    assert accuracy(braid, *few, "--shots", "4")[0] == 20
    assert accuracy(braid, *few, "--shots", "4", "--shots-file", gsm8k)[0] == 24
    raw = accuracy(braid, *few, "--shots", "4", "--raw")
    assert raw[0] == 20


@pytest.mark.parametrize("flags", [("--no-prefix-cache",), ("--draft", "3"), ("--draft", "ngram"),
                                   ("--tp", "2"), ("--dp", "2", "--ep", "2"),
                                   ("--concurrency", "1")])  # fmt: skip
def test_accuracy_does_not_move(braid, tiny, gsm8k, flags):
    words = [tiny, gsm8k, "--shots", "2", "--max-tokens", "40"]
    assert accuracy(braid, *words, *flags) == accuracy(braid, *words, "--draft", "off")


def test_eval_fails_below_the_least_accuracy(braid, tiny, gsm8k):
    few = [tiny, gsm8k, "--limit", "6", "--max-tokens", "40"]
    assert braid("eval", *few, "--min-accuracy", "0").returncode == 0
    low = braid("eval", *few, "--raw", "--min-accuracy", "1")
    assert low.returncode == 1
    assert "gsm8k: the accuracy 0." in low.stderr and "is below --min-accuracy 1" in low.stderr
    assert braid("eval", tiny, gsm8k, "--shots", "24").returncode == 1


def test_eval_asks_mmlu_pro(braid, tiny, tmp_path):
    file = tmp_path / "mmlu.jsonl"
    line = {"question": "How much is 2 + 3?", "options": ["4", "5", "6"], "answer": "B",
            "category": "math", "cot_content": ""}  # fmt: skip
    file.write_text(3 * (json.dumps(line) + "\n"))
    asked, right = accuracy(braid, tiny, file, "--shots", "1", "--max-tokens", "60")
    assert asked == 2 and right in (0, 1)  # the same question twice
    file.write_text(json.dumps(line | {"answer": "D"}) + "\n")
    assert "mmlu.jsonl:1: \"options\" must be" in braid("eval", tiny, file).stderr


@pytest.mark.parametrize("line", ['{"check": "guess"}', "{}", '{"check": "number", "answer": "x"}'])
def test_eval_names_the_line_it_cannot_read(braid, tiny, tmp_path, line):
    file = tmp_path / "tasks.jsonl"
    file.write_text(line + "\n")
    done = braid("eval", tiny, file)
    assert done.returncode == 1
    assert "tasks.jsonl:1" in done.stderr


def test_bench_offline_has_its_keys(braid, tiny):
    done = braid("bench", "offline", tiny, "--input-tokens", "100", "--output-tokens", "8",
                 "--sequences", "3", "--repeat", "1", "--json")  # fmt: skip
    assert done.returncode == 0, done.stderr
    out = json.loads(done.stdout)
    for key in ("prefill_tokens_per_second", "decode_tokens_per_second", "time_to_first_token_ms",
                "fraction_of_compute_peak", "fraction_of_bandwidth", "prefill_fraction_of_limit",
                "decode_fraction_of_limit"):  # fmt: skip
        assert out[key] > 0, key
    assert out["fraction_of_compute_peak"] < 1.2
    # A part takes at least its arithmetic and at least its bytes.
    assert out["prefill_fraction_of_limit"] > 0.99 * out["fraction_of_compute_peak"]
    assert out["decode_fraction_of_limit"] > 0.99 * out["fraction_of_bandwidth"]


def test_bench_offline_of_one_sequence_says_the_same_in_text(braid, tiny):
    words = ["bench", "offline", tiny, "--input-tokens", "64", "--output-tokens", "8", "--repeat",
             "1", "--seed", "3"]  # fmt: skip
    out = json.loads(braid(*words, "--draft", "off", "--json").stdout)
    # Its prompt is computed until its first token.
    assert out["prefill_tokens_per_second"] * out["time_to_first_token_ms"] == pytest.approx(64e3)
    assert out["drafts"] == 0 and out["draft_acceptance_by_place"] == []
    done = braid(*words, "--draft", "2")
    assert done.returncode == 0 and done.stderr == ""
    lines = [r"1 sequences of 64 \+ 8 tokens, .*", r"prefill +[\d.]+ tokens/s .*",
             r"decode +[\d.]+ tokens/s .*", r"time to first token +[\d.]+ ms, one sequence",
             r"drafts +\d+ verified in \d+ steps, \d+ accepted; by place( [\d.]+ %)+"]  # fmt: skip
    assert re.fullmatch("\n".join(lines) + "\n", done.stdout), done.stdout


def test_bench_load_has_its_keys(braid, tiny):
    done = braid("bench", "load", tiny, "--repeat", "1", "--cold", "--json")
    assert done.returncode == 0, done.stderr
    out = json.loads(done.stdout)
    files = sum(f.stat().st_size for f in pathlib.Path(tiny).glob("*.safetensors"))
    assert out["source_bytes"] == files
    for key in ("load_seconds", "load_bytes_per_second", "read_bytes_per_second",
                "fraction_of_read"):  # fmt: skip
        assert out[key] > 0, key
    assert out["peak_resident_bytes"] > out["engine"]["weight_bytes"]
    text = braid("bench", "load", tiny, "--repeat", "1").stdout
    assert "reading the page cache" in text and "peak resident" in text


def test_inspect_of_a_config_needs_no_weights(braid):
    done = braid("inspect", "--config-only", ROOT / "tests/configs/deepseek_v3.json", "--json")
    facts = json.loads(done.stdout)
    assert facts["parameters"]["total"] == 671026419200
    assert facts["cache"]["kv_bytes_per_token_bf16"] == 70272
    assert facts["model"]["quantization"] == "fp8"


def test_inspect_lists_and_dumps_tensors(braid, tiny, tmp_path):
    facts = json.loads(braid("inspect", tiny, "--json", "--tensors").stdout)
    total = sum(weight["packed_bytes"] for weight in facts["tensors"])
    assert total == facts["weights"]["total"]
    values = tmp_path / "values"
    done = braid("inspect", tiny, "--dump", "model.norm.weight", "--output", values)
    shape = json.loads(done.stdout)
    assert values.stat().st_size == 4 * shape["rows"] * shape["columns"] == 4 * 256
    assert "--tensors" in braid("inspect", tiny, "--dump", "no", "--output", values).stderr


def test_inspect_compares_sums(braid, tiny, tmp_path):
    for name in ("config.json", "model.safetensors"):
        (tmp_path / name).write_bytes((tiny / name).read_bytes())
    sums = "".join(f"{hashlib.sha256((tmp_path / name).read_bytes()).hexdigest()}  {name}\n"
                   for name in ("config.json", "model.safetensors"))  # fmt: skip
    (tmp_path / "SHA256SUMS").write_text(sums)
    done = braid("inspect", tmp_path, "--verify")
    assert done.returncode == 0, done.stderr
    assert "2 files match their checksums" in done.stderr
    data = bytearray((tmp_path / "model.safetensors").read_bytes())
    data[-1] ^= 1
    (tmp_path / "model.safetensors").write_bytes(data)
    done = braid("inspect", tmp_path, "--verify")
    assert done.returncode != 0
    assert "model.safetensors has" in done.stderr


def test_inspect_compares_the_sum_of_a_gguf_file(braid, tmp_path):
    name, data = "m.gguf", (ROOT / "tests/formats/layouts/qwen3_5_a.gguf").read_bytes()
    (tmp_path / name).write_bytes(data)
    done = braid("inspect", tmp_path / name, "--verify")
    assert done.returncode == 0, done.stderr
    assert f"{name}: no checksum found" in done.stderr
    (tmp_path / "SHA256SUMS").write_text(f"{hashlib.sha256(data).hexdigest()}  {name}\n"
                                         f"{'0' * 64}  another-that-is-not-here.gguf\n")
    done = braid("inspect", tmp_path / name, "--verify")
    assert done.returncode == 0, done.stderr
    assert "1 files match their checksums" in done.stderr
    (tmp_path / name).write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    done = braid("inspect", tmp_path / name, "--verify")
    assert done.returncode != 0
    assert f"{name} has" in done.stderr


def test_inspect_is_json_too(braid, tiny):
    assert braid("inspect", tiny).stdout.count("\n") > 10
    assert json.loads(braid("inspect", tiny, "--json").stdout)


def test_doctor_measures(braid):
    out = json.loads(braid("doctor", "--json").stdout)
    limits = out["limits"]
    assert limits["memory_read"] > 1e8 and limits["memory_copy"] > 1e8
    assert limits["fma_base"] > 1e9
    # Each instruction set adds its units and keeps those below it.
    below = json.loads(braid("doctor", "--json", "--isa", "base").stdout)["limits"]
    assert "fma_avx2" not in below and set(below) <= set(limits)
    assert out["physical_cores"] <= os.cpu_count()
    text = braid("doctor", "--isa", "base").stdout
    assert re.search(rf"^features +{re.escape(out['features'])}$", text, re.M)
    assert re.search(r"^  fp32, SSE +[\d.]+ Gop/s$", text, re.M) and "fp32, AVX2" not in text
    for part in ("memory, reading", "memory, copying", "L2, reading", "L3, reading"):
        assert re.search(rf"^  {part} +[\d.]+ GB/s$", text, re.M), part
    usable = sum(not device["missing"] for device in out["vulkan_devices"])
    for figure in (r"fp32 +[\d.]+ Gop/s", r"memory, reading +[\d.]+ GB/s",
                   r"a kernel's start +[\d.]+ us"):  # fmt: skip
        assert len(re.findall(rf"^     {figure}$", text, re.M)) == usable, figure
    # What the kernel says of the CPU; tiles also need its leave.
    flags = set(re.search(r"^flags\s*:(.*)$", pathlib.Path("/proc/cpuinfo").read_text(), re.M)[1]
                .split())  # fmt: skip
    said = set(out["features"].split(", "))
    for feature, flag in [("AVX2", "avx2"), ("AVX-512", "avx512dq"), ("AVX-VNNI", "avx_vnni"),
                          ("AVX512-BF16", "avx512_bf16"), ("AVX512-VBMI", "avx512vbmi"),
                          ("AVX512-VNNI", "avx512_vnni")]:  # fmt: skip
        assert (feature in said) == (flag in flags), feature
    for feature, flag in [("AMX-BF16", "amx_bf16"), ("AMX-INT8", "amx_int8")]:
        assert flag in flags or feature not in said, feature


def test_make_model_gives_equal_files_that_run(braid, tmp_path):
    for name in ("one", "same", "other"):
        done = braid("make-model", tmp_path / name, "--family", "qwen3_5_moe", "--shape",
                     "tiny,num_experts=5", "--seed", "2" if name == "other" else "1")  # fmt: skip
        assert done.returncode == 0, done.stderr
    read = {n: (tmp_path / n / "model.safetensors").read_bytes() for n in ("one", "same", "other")}
    assert read["one"] == read["same"] != read["other"]
    assert braid("run", tmp_path / "one", "--token-ids", "[1,2,3]").returncode == 0


def test_make_model_names_what_is_wrong(braid, tmp_path):
    done = braid("make-model", tmp_path / "a", "--shape", "huge")
    assert done.returncode == 1 and "huge" in done.stderr
    done = braid("make-model", tmp_path / "a", "--family", "gpt")
    assert done.returncode == 2 and "qwen3_5_moe" in done.stderr


def test_serve_is_ready_and_has_the_page(server):
    assert urllib.request.urlopen(server + "/ready").status == 200
    assert b"<html" in urllib.request.urlopen(server + "/").read()
    with urllib.request.urlopen(server + "/v1/models") as models:
        assert json.load(models)["data"][0]["id"] == "braid-tiny"


def test_a_taken_port_is_one_message(braid, server):
    done = braid("serve", TINY, "--port", server.rsplit(":", 1)[1])
    assert done.returncode == 1
    assert "port" in done.stderr or "address" in done.stderr.lower()
