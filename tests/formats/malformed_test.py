"""Damaged blocks of every GGUF type, and models that take far more memory than their files: one
message each, soon and with little memory."""

import json
import pathlib

import numpy as np
import pytest

import gguf_models
import gguf_writer
import stored
from formats_test import quantise, shape_flags, write_model
from gguf_test import METADATA, random_model, small_model
from limits_test import EXTRA_KIB, SANITIZED, SECONDS, least, run  # noqa: F401

# Where a block of a type has an fp16 number; in IQ1_M it is cut into four parts, and MXFP4's is a
# byte.
NUMBERS = {"Q4_0": 0, "Q8_0": 0, "Q4_K": 0, "Q6_K": 208, "Q5_K": 2, "Q4_1": 2, "Q5_0": 0,
           "Q5_1": 2, "Q3_K": 108, "Q2_K": 82, "IQ4_NL": 0, "IQ4_XS": 0, "IQ2_XXS": 0, "IQ2_XS": 0,
           "IQ2_S": 0, "IQ3_XXS": 0, "IQ3_S": 0, "IQ1_S": 0}
NAN, INFINITY = 0x7E01, 0xFC00
ROOT = pathlib.Path(__file__).resolve().parents[2]


def refuse(words, least, *messages):  # noqa: F811
    code, text, seconds, peak = run(*words)
    assert code == 1 and all(message in text for message in messages), text[:500]
    assert text.count("\n") <= 2, text[:500]
    if not SANITIZED:
        assert seconds < SECONDS, f"{seconds} s"
        assert peak - least < EXTRA_KIB, f"{(peak - least) / 1024:.0f} MiB"


def block_bytes(kind):
    """Of a row of 512."""
    small = kind in ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "IQ4_NL", "MXFP4")
    return gguf_writer.BLOCKS[kind][1].shape[1] // (16 if small else 2)


@pytest.mark.parametrize("kind", gguf_writer.BLOCK_TYPES)
def test_tensors_that_a_type_cannot_have_are_refused(tmp_path, least, kind):  # noqa: F811
    raw, path = gguf_writer.BLOCKS[kind][1].tobytes(), tmp_path / "m.gguf"
    number = gguf_writer.TYPES[kind]
    tensors = {**small_model(), "blk.0.ffn_gate.weight": (kind, (8, 512), raw)}
    gguf_writer.write(path, METADATA, tensors)
    whole = path.read_bytes()
    assert run("inspect", path)[0] == 0
    # The last tensor's last block is not complete.
    last = {**small_model(), "output_norm.weight": tensors["output_norm.weight"]}
    last["zz"] = (kind, (8, 512), raw)
    gguf_writer.write(path, METADATA, last)
    end = len(path.read_bytes()) - (-len(raw) % 32)
    path.write_bytes(path.read_bytes()[:end - 1])
    refuse(["inspect", path], least, "m.gguf: truncated: \"zz\" ends past the end of the file")
    # Rows that no number of blocks makes, products that overflow, and a number of another type.
    name = gguf_writer.text("blk.0.ffn_gate.weight")
    at = whole.index(name)
    entry = gguf_writer.entry("blk.0.ffn_gate.weight", (8, 512), number, 0)[:-8]
    for shape, of, message in (((8, 500), number, "rows of 500 are no multiple of the"),
                               ((2**40, 2**40), number, "more than 2^63 bytes"),
                               ((2**62, 512), number, "more than 2^63 bytes"),
                               ((8, 512), 9, "has the type 9; known are")):
        changed = gguf_writer.entry("blk.0.ffn_gate.weight", shape, of, 0)[:-8]
        path.write_bytes(whole[:at] + changed + whole[at + len(entry):])
        refuse(["inspect", path], least, "m.gguf: \"blk.0.ffn_gate.weight\"", message)


@pytest.mark.parametrize("name, kind, shape", [
    ("blk.0.ssm_conv1d.weight", "Q4_K", (None, 256)),  # more numbers in a row than the model has
    ("blk.0.attn_qkv.weight", "F16", (None, 32)),  # half as many
])  # fmt: skip
def test_rows_of_another_length_than_the_models_are_refused(tmp_path, least, name,  # noqa: F811
                                                            kind, shape):
    path = tmp_path / "m.gguf"
    metadata, values = gguf_models.model(ROOT / "tests/golden/qwen3_5_a")
    tensors = {key: ("F32", v.shape, v.astype("<f4").tobytes()) for key, v in values.items()}
    rows, columns = values[name].shape[0], shape[1]
    row_bytes = {"Q4_K": 144 * columns // 256, "F16": 2 * columns}[kind]
    tensors[name] = (kind, (rows, columns), bytes(rows * row_bytes))
    gguf_writer.write(path, metadata, tensors)
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text(json.dumps({"token_ids": [1, 2, 3]}) + "\n")
    for words in (["inspect", path], ["score", path, prompts]):
        refuse(words, least, "m.gguf", f"rows of {name} have")


@pytest.mark.parametrize("kind", NUMBERS)
@pytest.mark.parametrize("bits", [NAN, INFINITY])
def test_scales_that_are_not_finite_are_refused(tmp_path, least, kind, bits):  # noqa: F811
    blocks, path = gguf_writer.BLOCKS[kind][1].copy(), tmp_path / "m.gguf"
    at = block_bytes(kind) + NUMBERS[kind]  # of the second block of a row
    blocks[5, at:at + 2] = np.array([bits], np.uint16).view(np.uint8)
    tensors = {**random_model(), "blk.0.ffn_gate.weight": (kind, (8, 512), blocks.tobytes())}
    tensors["blk.0.ffn_up.weight"] = (kind, (8, 512), gguf_writer.BLOCKS[kind][1].tobytes())
    gguf_writer.write(path, METADATA, tensors)
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text(json.dumps({"token_ids": [1, 2, 3]}) + "\n")
    refuse(["score", path, prompts], least, "m.gguf: \"model.layers.0.mlp.gate_proj.weight\" has a "
           "scale that is NaN or infinite in row 5")


def test_far_more_memory_than_the_file_must_be_asked_for(braid, tmp_path):
    """Numbers of eight bits in blocks of 64 columns, 75 MiB when they are expanded."""
    shape = ["hidden_size=768", "intermediate_size=8192", "num_hidden_layers=1",
             "full_attention_interval=1", "vocab_size=96"]

    def encode(w):
        codes = np.random.default_rng(1).integers(0, 112, w.shape, dtype=np.uint8)
        scales = np.full([-(-n // 64) for n in w.shape], 1e-4, np.float32)
        return {".weight": ("F8_E4M3", codes), ".weight_scale_inv": ("F32", scales)}

    braid("make-model", tmp_path / "made", "--family", "qwen3_5", *shape_flags(shape))
    config = json.loads((tmp_path / "made/config.json").read_text())
    config["quantization_config"] = {"quant_method": "fp8", "weight_block_size": [64, 64]}
    tensors, _ = quantise(stored.read_model(tmp_path / "made"), encode, lambda parts, shape: None)
    write_model(tmp_path / "q", tensors, config)
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text(json.dumps({"token_ids": [1, 2, 3]}) + "\n")
    told = braid("inspect", tmp_path / "q").splitlines()[0]
    assert told.startswith("runs only with --expand: ")
    facts = json.loads(braid("inspect", tmp_path / "q", "--json"))["outlook"]
    assert facts["needs_expand"] and facts["fits"] and not facts["as_stored"]
    refused = braid("score", tmp_path / "q", prompts, fails=True)
    assert "times the" in refused and "fp8 in blocks from" in refused and "in fp32" in refused
    assert "--expand loads them so; --weights int8" in refused
    for flags in (["--expand"], ["--weights", "int8"]):
        assert json.loads(braid("score", tmp_path / "q", prompts, *flags))["logprobs"]


def test_inspect_says_first_what_a_person_asks_first(braid, tmp_path):
    gguf_writer.write(tmp_path / "m.gguf", METADATA, random_model())
    first = braid("inspect", tmp_path / "m.gguf").splitlines()[0]
    assert first.startswith("runs as stored: ") and "; fits, with sequences of up to" in first
    first = braid("inspect", tmp_path / "m.gguf", "--weights", "q4_k").splitlines()[0]
    assert first.startswith("runs in q4_k: ")
