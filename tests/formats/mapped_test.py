"""Checkpoints of `convert --mapped` answer as the ones that they were made from, bit for bit."""

import json
import re

import pytest

import stored
from conftest import ROOT
from formats_test import HERE, MODELS, models, scores, shape_flags  # noqa: F401 (a fixture)

LAYOUTS = HERE / "layouts"


@pytest.mark.parametrize("weights", ["auto", "int8", "int4"])
@pytest.mark.parametrize("family", MODELS)
def test_answers_are_those_of_the_original(braid, models, tmp_path, family, weights):  # noqa: F811
    flags = ["--weights", weights, *(["--quantize-head"] if weights == "int4" else [])]
    said = braid("convert", models(family), tmp_path / "mapped", "--mapped", *flags)
    assert (weights == "auto") == ("matrices are" not in said)
    want = scores(braid, models(family), tmp_path, *flags)
    assert scores(braid, tmp_path / "mapped", tmp_path) == want
    assert scores(braid, tmp_path / "mapped", tmp_path, "--threads", "1") == want


@pytest.mark.parametrize("isa", ["base", "avx2"])
def test_the_file_serves_every_instruction_set(braid, models, tmp_path, isa):  # noqa: F811
    source = models("qwen3_5_moe")
    braid("convert", source, tmp_path / "mapped", "--mapped", "--weights", "int8")
    want = scores(braid, source, tmp_path, "--weights", "int8", "--isa", isa)
    assert scores(braid, tmp_path / "mapped", tmp_path, "--isa", isa) == want


@pytest.mark.parametrize("name", ["qwen3_5_moe_a", "deepseek_v3_a", "text"])
def test_a_gguf_file_keeps_its_text_and_its_answers(braid, tmp_path, name):
    source, mapped = LAYOUTS / f"{name}.gguf", tmp_path / "mapped"
    braid("convert", source, mapped, "--mapped")
    prompts = tmp_path / "prompts.jsonl"
    lines = [{"token_ids": [1, 2, 3, 4, 5, 6, 7]}, *([{"text": "hello"}] if name == "text" else [])]
    prompts.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert braid("score", mapped, prompts) == braid("score", source, prompts)


def test_a_panel_in_the_wrong_place_shows(braid, models, tmp_path):  # noqa: F811
    """What the tests above compare is in the file: exchanging two panels changes the answers."""
    mapped = tmp_path / "mapped"
    braid("convert", models("qwen3_next"), mapped, "--mapped", "--weights", "int8")
    before = scores(braid, mapped, tmp_path)
    tensors, _ = stored.read(mapped / "model.safetensors")
    kind, panels = tensors["layers.1.linear_attn.in_proj.int8"]
    data = (mapped / "model.safetensors").read_bytes()
    first, second = panels[0, 0].tobytes(), panels[0, 1].tobytes()
    assert kind == "U8" and data.count(first + second) == 1
    (mapped / "model.safetensors").write_bytes(data.replace(first + second, second + first))
    assert scores(braid, mapped, tmp_path) != before


def test_what_it_cannot_do_is_said(braid, models, tmp_path):  # noqa: F811
    mapped = tmp_path / "mapped"
    braid("convert", models("deepseek_v3"), mapped, "--mapped", "--weights", "q8_0")
    (tmp_path / "prompts.jsonl").write_text('{"token_ids": [1, 2]}\n')
    said = braid("score", mapped, tmp_path / "prompts.jsonl", "--mla", "expanded", fails=True)
    assert "a mapped checkpoint has no keys for --mla expanded; load the one that" in said
    assert "is a mapped checkpoint; convert the one" in braid("convert", mapped, tmp_path / "out",
                                                              fails=True)
    said = braid("convert", models("deepseek_v3"), tmp_path / "out", "--weights", "q8_0",
                 fails=True)
    assert "--weights q8_0: without --mapped it must be one of" in said
    assert not (tmp_path / "out").exists()


def test_experts_that_do_not_fit_stay_in_the_file_and_answer_alike(braid, tmp_path):
    """47 of some 50 MB of weights are experts; --memory leaves 20 MB too little for all."""
    shape = [*MODELS["qwen3_5_moe"][:1], "num_experts=64", "moe_intermediate_size=160",
             "shared_expert_intermediate_size=64", "num_hidden_layers=4"]
    made, mapped, prompts = tmp_path / "made", tmp_path / "mapped", tmp_path / "prompts.jsonl"
    braid("make-model", made, "--family", "qwen3_5_moe", *shape_flags(shape))
    braid("convert", made, mapped, "--mapped")
    prompts.write_text(json.dumps({"token_ids": list(range(60))}) + "\n")
    flags = ["--max-model-len", "64"]
    said = braid("score", made, prompts, *flags, "--memory", "1M", fails=True)
    number, unit = re.search(r"([\d.]+) (\w)iB in total", said).groups()
    whole = float(number) * {"M": 1, "G": 1024}[unit]
    little = [*flags, "--memory", f"{int(whole) - 20}M"]
    assert "is too small" in braid("score", made, prompts, *little, fails=True)
    assert braid("score", mapped, prompts, *little) == braid("score", made, prompts, *flags)
    said = braid("score", mapped, prompts, *flags, "--memory", f"{int(whole) - 60}M", fails=True)
    assert "is too small" in said


def test_inspect_and_bench_say_what_is_mapped(braid, models, tmp_path):  # noqa: F811
    braid("convert", models("qwen3_5_moe"), tmp_path / "mapped", "--mapped")
    facts = json.loads(braid("inspect", tmp_path / "mapped", "--json", "--tensors"))
    matrices = [w for w in facts["tensors"] if w["stored_as"] == "bf16 panels"]
    assert len(matrices) > 20
    assert all(w["stored_bytes"] == w["packed_bytes"] for w in matrices)


def drafted(braid, model, *flags):
    """How many drafts the head made of random prompts, and how many of them were right."""
    told = json.loads(braid("bench", "offline", model, "--draft", "3", "--input-tokens", "16",
                            "--output-tokens", "16", "--repeat", "1", "--json", *flags))
    return told["drafts"], told["draft_acceptance_by_place"]


def test_the_draft_head_is_mapped_too(braid, tmp_path):
    source, mapped = ROOT / "models/braid-tiny", tmp_path / "mapped"
    braid("convert", source, mapped, "--mapped", "--weights", "int8")
    want = drafted(braid, source, "--weights", "int8")
    assert want[0] > 0 and drafted(braid, mapped) == want
