"""Draft heads in GGUF files: every number of the head is the checkpoint's, it drafts what the
checkpoint's head drafts, and heads that are not used or not complete are named."""

import json
import pathlib

import numpy as np
import pytest

import gguf_models
import stored
from formats_test import dump

ROOT = pathlib.Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests/golden"
TINY = ROOT / "models/braid-tiny"


@pytest.mark.parametrize("name", ["qwen3_5_b", "qwen3_5_moe_b", "deepseek_v3_a"])
def test_every_number_of_the_head_is_the_checkpoints(braid, tmp_path, name):
    path = tmp_path / "m.gguf"
    gguf_models.write(path, GOLDEN / name)
    for tensor, (kind, bits) in stored.read_model(GOLDEN / name).items():
        head = tensor.startswith(("mtp.", "model.layers.3.")) and "kv_b_proj" not in tensor
        if not head or tensor.endswith(("embed_tokens.weight", "shared_head.head.weight")):
            continue
        want = stored.as_float(kind, bits).reshape(-1)
        if "mlp.experts." in tensor:
            continue  # one tensor a part in the file; MapExperts makes the names of all layers
        got = dump(braid, path, tensor, tmp_path / "dump").reshape(-1)
        norm = tensor.startswith("mtp.") and "norm" in tensor
        assert np.allclose(got - 1 if norm else got, want, rtol=1e-6, atol=2e-7), tensor


def drafts_of(braid, model):
    """Drafts of the head alone: how many were verified, and how many right by place."""
    facts = json.loads(braid("bench", "offline", model, "--json", "--draft", 3, "--compute", "fp32",
                             "--input-tokens", 70, "--output-tokens", 90, "--repeat", 1,
                             "--sequences", 2, "--threads", 1, "--max-model-len", 512))
    return facts["drafts"], facts["drafts_accepted"], facts["draft_acceptance_by_place"]


def test_the_head_of_a_file_drafts_as_the_checkpoints_does(braid, tmp_path):
    gguf_models.write(tmp_path / "m.gguf", TINY)
    found = drafts_of(braid, tmp_path / "m.gguf")
    assert found == drafts_of(braid, TINY)
    assert found[2][0] > 0.5  # a trained head, which other weights than its own would not reach

    def swap_norms(_, tensors):
        names = [f"blk.8.nextn.{name}.weight" for name in ("enorm", "hnorm")]
        tensors[names[0]], tensors[names[1]] = tensors[names[1]], tensors[names[0]]

    gguf_models.write(tmp_path / "m.gguf", TINY, swap_norms)
    assert drafts_of(braid, tmp_path / "m.gguf") != found


def without_head(metadata, tensors):
    metadata["qwen35.nextn_predict_layers"] = 0
    metadata["qwen35.block_count"] = 3
    for name in [name for name in tensors if name.startswith("blk.3.")]:
        del tensors[name]


def test_inspect_says_what_becomes_of_the_head(braid, tmp_path):
    path = tmp_path / "m.gguf"
    gguf_models.write(path, GOLDEN / "qwen3_5_b")
    inspected = json.loads(braid("inspect", path, "--json"))
    facts, outlook = inspected["checkpoint"], inspected["outlook"]
    assert facts["draft"][0].startswith("mtp.*: 15 tensors, ")
    assert facts["draft"][0].endswith(" (draft head, loaded where --draft uses it)")
    assert "skipped" not in facts
    # The first line is about what `braid serve` loads.
    assert outlook["draft_head_bytes"] > 0 and " with a draft head of " in outlook["text"]
    gguf_models.write(path, GOLDEN / "qwen3_5_b", without_head)
    bare = json.loads(braid("inspect", path, "--json"))["outlook"]
    assert bare["draft_head_bytes"] == 0 and "draft" not in bare["text"]
    assert outlook["weight_bytes"] - bare["weight_bytes"] == outlook["draft_head_bytes"]
    gguf_models.write(path, GOLDEN / "deepseek_v3_a")
    facts = json.loads(braid("inspect", path, "--json"))["checkpoint"]
    assert "loaded where --draft uses it" in facts["draft"][0]
    assert [line.split(":")[0] for line in facts["skipped"]] == [
        "blk.3.nextn.embed_tokens.*", "blk.3.nextn.shared_head_head.*"]


def test_a_head_without_a_norm_has_the_models(braid, tmp_path):
    gguf_models.write(tmp_path / "m.gguf", GOLDEN / "qwen3_5_b",
                      lambda _, tensors: tensors.pop("blk.3.nextn.shared_head_norm.weight"))
    norms = [dump(braid, tmp_path / "m.gguf", name, tmp_path / "dump")
             for name in ("mtp.norm.weight", "model.norm.weight")]
    assert np.array_equal(*norms)


def test_heads_that_cannot_be_used_are_named(braid, tmp_path):
    path = tmp_path / "m.gguf"

    def without(name):
        return lambda _, tensors: tensors.pop(f"blk.3.{name}.weight")

    for lost, named in [("nextn.eh_proj", "mtp.fc.weight"),
                        ("nextn.enorm", "mtp.pre_fc_norm_embedding.weight"),
                        ("attn_q", "mtp.layers.0.self_attn.q_proj.weight")]:
        gguf_models.write(path, GOLDEN / "qwen3_5_b", without(lost))
        assert f"\"{named}\"" in braid("inspect", path, fails=True), lost

    def no_key(metadata, _):  # a block that no layer is
        metadata["qwen35.nextn_predict_layers"] = 0
        metadata["qwen35.block_count"] = 3

    gguf_models.write(path, GOLDEN / "qwen3_5_b", no_key)
    told = braid("inspect", path, fails=True)
    assert "tensors that belong to no weight of the model: blk.3." in told

    def stripped(_, tensors):  # the key stays, the head goes
        for name in [name for name in tensors if name.startswith("blk.3.")]:
            del tensors[name]

    gguf_models.write(path, GOLDEN / "qwen3_5_b", stripped)
    assert "draft" not in json.loads(braid("inspect", path, "--json"))["checkpoint"]

    def two(metadata, tensors):
        metadata["qwen35.nextn_predict_layers"] = 2
        metadata["qwen35.block_count"] = 5
        for name in [name for name in tensors if name.startswith("blk.3.")]:
            tensors[name.replace("blk.3.", "blk.4.")] = tensors[name]

    gguf_models.write(path, GOLDEN / "qwen3_5_b", two)
    facts = json.loads(braid("inspect", path, "--json"))["checkpoint"]
    assert "layer 1 of 2 of a draft head" in facts["skipped"][0]
    assert "layer 2 of 2 of a draft head" in facts["skipped"][1]
