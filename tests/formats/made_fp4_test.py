"""NVFP4 and MXFP4 checkpoints of make-model: laid out as the exporters lay them out, near the
numbers that were drawn, and run as stored."""

import json

import numpy as np
import pytest

import decoders
import stored
from formats_test import dump, scores

# name: (suffixes of the parts, decoder of their arrays, columns of a scale, what it runs as)
FORMATS = {
    "nvfp4": (("", "_scale", "_scale_2"),
              lambda codes, scale, whole: decoders.nvfp4(codes, scale, whole, False), 16, "nvfp4"),
    "mxfp4": (("_packed", "_scale"), decoders.mxfp4, 32, "mxfp4"),
}
SHAPE = "tiny,hidden_size=192,num_experts=3,moe_intermediate_size=96"


def made(braid, folder, form, *flags):
    braid("make-model", folder, "--family", "qwen3_5_moe", "--shape", SHAPE, "--format", form,
          "--seed", "5", *flags)
    return folder


@pytest.mark.parametrize("name", FORMATS)
def test_weights_are_coded_in_the_exporters_layout(braid, tmp_path, name):
    suffixes, decode, columns, runs_as = FORMATS[name]
    tensors = stored.read_model(made(braid, tmp_path / "q", name))
    # Every expert by itself, as the exporters have it.
    coded = [n.removesuffix(suffixes[1]) for n in tensors if n.endswith("weight" + suffixes[1])]
    for layer in range(4):
        for part in ("gate", "up", "down"):
            assert f"model.layers.{layer}.mlp.experts.2.{part}_proj.weight" in coded
    config = json.loads((tmp_path / "q/config.json").read_text())["quantization_config"]
    assert not {n.removesuffix(".weight") for n in coded} & set(config["ignore"])
    plain = stored.read_model(made(braid, tmp_path / "plain", "bf16"))
    for tensor in coded[::3]:
        parts = [tensors[tensor + suffix] for suffix in suffixes]
        values = decode(*parts)
        assert parts[0][0] == "U8" and parts[0][1].shape == (values.shape[0], values.shape[1] // 2)
        assert parts[1][1].shape == (values.shape[0], values.shape[1] // columns)
        got = dump(braid, tmp_path / "q", tensor, tmp_path / "dump")
        assert np.array_equal(got.view("u4"), values.view("u4")), tensor
        assert len(np.unique(parts[0][1] & 15)) >= 15  # of 16 codes; there may be no -0
        if tensor in plain:  # experts of the plain model are stacked, with other numbers
            want = stored.as_float(*plain[tensor])
            assert 0 < np.sqrt(np.mean((values - want)**2)) < 0.15 * want.std()
            # Every block reaches its largest number, up to its scale's rounding.
            largest = np.abs(want).reshape(-1, columns).max(1)
            ratio = np.abs(values).reshape(-1, columns).max(1) / largest
            assert 0.7 < ratio.min() and ratio.max() < 1.34
    weights = json.loads(braid("inspect", tmp_path / "q", "--json", "--tensors"))["tensors"]
    found = {w["runs_as"] for w in weights if w["stored_as"] not in ("bf16", "f32")}
    assert found == {runs_as}
    logprobs = [x for x in sum(scores(braid, tmp_path / "q", tmp_path), []) if x is not None]
    assert np.isfinite(logprobs).all()


@pytest.mark.parametrize("name", FORMATS)
def test_embedding_and_head_are_coded_where_it_is_asked_for(braid, tmp_path, name):
    tensors = stored.read_model(made(braid, tmp_path / "q", name, "--quantize-head"))
    scales = {n for n in tensors if n.endswith("_scale")}
    assert {"lm_head.weight_scale", "model.embed_tokens.weight_scale"} <= scales
    tensors = stored.read_model(made(braid, tmp_path / "r", name))
    assert "lm_head.weight_scale" not in tensors and "lm_head.weight" in tensors


@pytest.mark.parametrize("name", FORMATS)
def test_rows_that_blocks_do_not_divide_are_refused(braid, tmp_path, name):
    columns = FORMATS[name][2]
    told = braid("make-model", tmp_path / "q", "--family", "qwen3_5_moe", "--shape",
                 "tiny,moe_intermediate_size=40", "--format", name, fails=True)
    assert f"rows of 40; {name} has blocks of {columns} along a row" in told
    assert not (tmp_path / "q/config.json").exists()
