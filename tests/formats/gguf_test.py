"""GGUF files: what llama.cpp's converter makes of golden checkpoints scores as the checkpoints do,
blocks of every type are read as the package gguf reads them, and wrong files are refused."""

import json
import re
import struct

import numpy as np
import pytest

import gguf_models
import gguf_writer
import stored
from formats_test import HERE, dump

GOLDEN = HERE.parent / "golden"


def scores_of(braid, model, prompts, *flags):
    lines = braid("score", model, prompts, "--compute", "fp32", *flags).splitlines()
    return [np.array(json.loads(line)["logprobs"][1:]) for line in lines]


@pytest.mark.parametrize("name, flags", [
    ("qwen3_5_moe_a", []), ("qwen3_5_a", []), ("deepseek_v3_a", []), ("kimi_linear_c", []),
    # Prompts of 260 and 300 tokens, and the key half of kv_b_proj is stored the other way around.
    ("deepseek_v3_a", ["--mla", "expanded"]), ("kimi_linear_c", ["--mla", "expanded"]),
])  # fmt: skip
def test_a_converted_golden_checkpoint_scores_as_the_golden(braid, tmp_path, name, flags):
    want = [json.loads(line) for line in (GOLDEN / name / "score.jsonl").read_text().splitlines()]
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text("".join(json.dumps({"token_ids": w["token_ids"]}) + "\n" for w in want))
    found = scores_of(braid, HERE / f"layouts/{name}.gguf", prompts, *flags)
    for got, expected in zip(found, want, strict=True):
        assert np.abs(got - np.array(expected["logprobs"][1:])).max(initial=0) <= 1e-4


@pytest.mark.parametrize("name", stored.MADE)
def test_a_converted_made_checkpoint_scores_as_it_does_itself(braid, tmp_path, name):
    braid("make-model", tmp_path / "made", *stored.MADE[name])
    prompts = tmp_path / "prompts.jsonl"
    ids = [int(x) for x in np.random.default_rng(3).integers(0, 96, 150)]
    prompts.write_text("".join(json.dumps({"token_ids": ids[:n]}) + "\n" for n in (2, 70, 150)))
    want = scores_of(braid, tmp_path / "made", prompts)
    found = scores_of(braid, HERE / f"layouts/{name}.gguf", prompts)
    assert np.concatenate(want).std() > 0.1
    for got, expected in zip(found, want, strict=True):
        assert np.abs(got - expected).max() <= 1e-5


@pytest.mark.parametrize("name", ["qwen3_a", "qwen3_moe_b"])
def test_a_qwen3_file_scores_as_the_golden(braid, tmp_path, name):
    want = [json.loads(line) for line in (GOLDEN / name / "score.jsonl").read_text().splitlines()]
    gguf_models.write(tmp_path / "m.gguf", GOLDEN / name)
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text("".join(json.dumps({"token_ids": w["token_ids"]}) + "\n" for w in want))
    for found, golden in zip(scores_of(braid, tmp_path / "m.gguf", prompts), want, strict=True):
        assert np.abs(found - np.array(golden["logprobs"][1:])).max(initial=0) <= 1e-4


@pytest.mark.parametrize("name", ["qwen3_5_moe_a", "qwen3_5_a"])
def test_every_tensor_of_a_converted_checkpoint_is_the_original(braid, tmp_path, name):
    """Up to the roundings of 1 + w and exp(A_log) that the file's values went through."""
    for tensor, (kind, bits) in stored.read_model(GOLDEN / name).items():
        got = dump(braid, HERE / f"layouts/{name}.gguf", tensor, tmp_path / "dump").reshape(-1)
        want = stored.as_float(kind, bits).reshape(-1)
        norm = tensor.endswith("norm.weight") and "linear_attn" not in tensor
        assert np.allclose(got - 1 if norm else got, want, rtol=1e-6, atol=2e-7), tensor


def test_a_file_alone_has_a_tokenizer_and_a_chat_template(braid, tmp_path):
    """Made with the package gguf from the tokenizer of the words goldens."""
    lines = (GOLDEN / "words/encode.jsonl").read_text("utf-8").split("\n")
    texts = [json.loads(line) for line in lines if '"family":"qwen3_5"' in line]
    texts = [t for t in texts if 1 < len(t["ids"]) < 250 and "<" not in t["text"]]
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text("".join(json.dumps({"text": t["text"]}) + "\n" for t in texts))
    model = HERE / "layouts/text.gguf"
    for line, expected in zip(braid("score", model, prompts).splitlines(), texts, strict=True):
        assert json.loads(line)["token_ids"] == expected["ids"], expected["text"]
    facts = json.loads(braid("run", model, "Hi", "--max-tokens", "1", "--json"))
    rendered = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    prompts.write_text(json.dumps({"text": rendered}) + "\n")
    ids = json.loads(braid("score", model, prompts))["token_ids"]
    assert facts["usage"]["prompt_tokens"] == len(ids)
    vocabulary = json.loads((GOLDEN / "words/qwen3_5.json").read_text("utf-8"))["model"]["vocab"]
    assert vocabulary["<|im_end|>"] in ids
    start = vocabulary.get("<|im_start|>", len(vocabulary) + 1)
    assert ids[0] == start and ids.count(start) == 2


def test_a_file_alone_says_which_tokens_a_prompt_has(braid, tmp_path):
    """To the commands that read a request's body, as to the server."""
    model = HERE / "layouts/text.gguf"
    first, second, prompts = tmp_path / "a.json", tmp_path / "b.json", tmp_path / "prompts.jsonl"
    rendered = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    first.write_text(json.dumps({"messages": [{"role": "user", "content": "Hi"}]}))
    second.write_text(json.dumps({"prompt": rendered}))
    prompts.write_text(json.dumps({"text": rendered}) + "\n")
    ids = json.loads(braid("score", model, prompts))["token_ids"]
    read = json.loads(braid("doctor", "prefix", first, second, "--model", model, "--json"))
    assert read["same"] and read["common_tokens"] == len(ids)
    export = ("cache", "export", tmp_path / "pages", tmp_path / "out", "--prefix", first)
    assert f"{tmp_path / 'pages'}" in braid(*export, "--model", model, fails=True)
    bare = tmp_path / "bare"
    bare.mkdir()
    (bare / "config.json").write_text((GOLDEN / "qwen3_5_a/config.json").read_text())
    assert "has no tokenizer: neither" in braid(*export, "--model", bare, fails=True)


METADATA = {
    "general.architecture": "qwen35", "qwen35.block_count": 1, "qwen35.context_length": 64,
    "qwen35.embedding_length": 512, "qwen35.feed_forward_length": 8,
    "qwen35.attention.head_count": 2, "qwen35.attention.head_count_kv": 1,
    "qwen35.attention.key_length": 16, "qwen35.rope.freq_base": 10000.0,
    "qwen35.attention.layer_norm_rms_epsilon": 1e-6, "qwen35.rope.dimension_count": 4,
    "qwen35.full_attention_interval": 1, "qwen35.ssm.conv_kernel": 4, "qwen35.ssm.state_size": 16,
    "qwen35.ssm.group_count": 1, "qwen35.ssm.time_step_rank": 1, "qwen35.ssm.inner_size": 16,
}
LAYER = {"attn_norm": (512,), "post_attention_norm": (512,), "attn_q": (64, 512),
         "attn_k": (16, 512), "attn_v": (16, 512), "attn_output": (512, 32), "attn_q_norm": (16,),
         "attn_k_norm": (16,), "ffn_gate": (8, 512), "ffn_up": (8, 512), "ffn_down": (512, 8)}


def small_model():
    """Tensors of one layer of full attention over 512 channels, all zeros."""
    shapes = {f"blk.0.{name}.weight": shape for name, shape in LAYER.items()}
    shapes.update({"token_embd.weight": (32, 512), "output_norm.weight": (512,)})
    return {name: ("F32", shape, bytes(4 * int(np.prod(shape)))) for name, shape in shapes.items()}


def random_model():
    """The same with random numbers."""
    random = np.random.default_rng(8)
    return {name: (kind, shape, (0.05 * random.standard_normal(shape)).astype("f4").tobytes())
            for name, (kind, shape, _) in small_model().items()}


@pytest.mark.parametrize("kind", gguf_writer.BLOCK_TYPES)
def test_blocks_are_read_as_the_package_reads_them(braid, tmp_path, kind):
    blocks = gguf_writer.BLOCKS
    tensors = small_model()
    tensors["blk.0.ffn_gate.weight"] = (kind, (8, 512), blocks[kind][1].tobytes())
    gguf_writer.write(tmp_path / "m.gguf", METADATA, tensors)
    got = dump(braid, tmp_path / "m.gguf", "model.layers.0.mlp.gate_proj.weight", tmp_path / "d")
    assert np.array_equal(got, blocks[kind + ".expected"][1])
    facts = json.loads(braid("inspect", tmp_path / "m.gguf", "--json"))
    assert f"{kind} and F32, runs as fp32" in facts["formats"]


# Types whose codes stay as they are: the format in memory.
KEPT = {"Q4_0": "int4", "Q8_0": "q8_0", "Q4_K": "q4_k", "Q5_K": "q5_k", "Q6_K": "q6_k",
        "Q4_1": "q4_1", "Q5_0": "q5_0", "Q5_1": "q5_1", "Q3_K": "q3_k", "Q2_K": "q2_k",
        "IQ4_NL": "iq4_nl", "IQ4_XS": "iq4_xs", "MXFP4": "mxfp4", "IQ3_XXS": "iq3_xxs",
        "IQ3_S": "iq3_s", "IQ2_S": "iq2", "IQ2_XS": "iq2", "IQ2_XXS": "iq2", "IQ1_S": "iq1",
        "IQ1_M": "iq1"}


# And of weights whose parts have two types.
MIXED = {("Q4_K", "Q5_K"): "q5_k", ("Q6_K", "Q4_K"): "q6_km", ("Q3_K", "Q6_K"): "q6_k",
         ("Q4_1", "Q5_1"): "q5_1", ("Q2_K", "Q3_K"): "q6_km", ("IQ4_XS", "Q5_K"): "q8_km",
         ("IQ3_S", "Q4_K"): "q6_km"}
# Those that take more than 1.5 times the bytes stored.
WIDE = {("Q2_K", "Q3_K"), ("IQ4_XS", "Q5_K"), ("IQ3_S", "Q4_K"),
        *((k, k) for k in ("IQ2_XS", "IQ2_XXS", "IQ1_S", "IQ1_M"))}


@pytest.mark.parametrize("kinds, memory", [((k, k), m) for k, m in KEPT.items()] + [*MIXED.items()])
def test_codes_run_as_they_are_and_score_as_their_numbers_do(braid, tmp_path, kinds, memory):
    """Up to the rounding of activations to int8: half of 1/127 of a row's largest magnitude."""
    tensors, model, kind = random_model(), tmp_path / "m.gguf", kinds[0]
    for name, of in zip(("ffn_gate", "ffn_up"), kinds, strict=True):
        tensors[f"blk.0.{name}.weight"] = (of, (8, 512), gguf_writer.BLOCKS[of][1].tobytes())
    halves = gguf_writer.BLOCKS[kind][1].reshape(8, 2, -1)  # a row has at least two blocks
    head = np.concatenate([halves[:, ::-1].reshape(8, -1)] * 4)
    tensors["output.weight"] = (kind, (32, 512), head.tobytes())
    gguf_writer.write(model, METADATA, tensors)
    lines = braid("inspect", model, "--tensors").splitlines()
    for name, form in (("mlp.gate_up:", memory), ("lm_head:", KEPT[kind])):
        assert any(name in line and f"runs as {form}," in line for line in lines), name
    form = "partly expanded: " if kinds in WIDE else "  as stored: "
    assert any(form in line for line in lines)
    prompts = tmp_path / "prompts.jsonl"
    ids = [int(x) for x in np.random.default_rng(4).integers(0, 32, 60)]
    prompts.write_text(json.dumps({"token_ids": ids}) + "\n")
    kept, numbers = (scores_of(braid, model, prompts, *flags)[0]
                     for flags in ([], ["--weights", "fp32"]))
    assert 0 < (kept - numbers).std() <= 0.1 * numbers.std()


def test_a_head_turns_whole_where_the_file_does_not_say_how_much_of_it(braid, tmp_path):
    """As in llama.cpp; a written 0 stays 0."""
    key, prompts = "qwen35.rope.dimension_count", tmp_path / "prompts.jsonl"
    prompts.write_text(json.dumps({"token_ids": [3, 1, 4, 1, 5, 9, 2, 6]}) + "\n")
    unsaid = {name: value for name, value in METADATA.items() if name != key}
    found = []
    for metadata in (unsaid, {**unsaid, key: 16}, {**unsaid, key: 0}):
        gguf_writer.write(tmp_path / "m.gguf", metadata, random_model())
        found.append(scores_of(braid, tmp_path / "m.gguf", prompts)[0])
    assert np.array_equal(found[0], found[1])
    assert not np.array_equal(found[0], found[2])


def test_convert_refuses_a_directory_of_a_gguf_file(braid, tmp_path):
    """Its norms are stored plus one, and a config.json could not say so."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in/m.gguf").write_bytes((HERE / "layouts/qwen3_5_a.gguf").read_bytes())
    said = braid("convert", tmp_path / "in", tmp_path / "out", fails=True)
    assert "GGUF files run as they are" in said and "--mapped" in said
    assert not (tmp_path / "out").exists()


def test_types_that_no_format_holds_together_are_expanded_and_named(braid, tmp_path):
    tensors, model = random_model(), tmp_path / "m.gguf"
    for name, of in (("ffn_gate", "Q4_K"), ("ffn_up", "Q8_0")):
        tensors[f"blk.0.{name}.weight"] = (of, (8, 512), gguf_writer.BLOCKS[of][1].tobytes())
    gguf_writer.write(model, METADATA, tensors)
    runs = json.loads(braid("inspect", model, "--json"))["weights"]["run"]
    assert runs.startswith("partly expanded: ")
    assert "(Q4_K and Q8_0 from 6.50 KiB to 32.0 KiB in fp32)" in runs


def test_what_a_file_says_and_nobody_knows_is_refused(braid, tmp_path):
    path = tmp_path / "m.gguf"
    tensors = small_model()
    wrong = {
        "a key that may change the mathematics": (
            {**METADATA, "qwen35.rope.scaling.type": "yarn"}, tensors, "rope.scaling.type"),
        "another architecture": (
            {**METADATA, "general.architecture": "llama"}, tensors, "known are qwen3"),
        "a tensor too many": (
            METADATA, {**tensors, "blk.0.attn_q.bias": ("F32", (64,), bytes(256))},
            "blk.0.attn_q.bias"),
        "a tensor too few": (
            METADATA, {n: t for n, t in tensors.items() if "ffn_up" not in n},
            "up_proj.weight\" [8, 512] is missing"),
        "another shape": (
            METADATA, {**tensors, "blk.0.attn_k.weight": ("F32", (8, 512), bytes(16384))},
            "has the shape [8, 512]; it must be"),
        "a key of another type": (
            {**METADATA, "qwen35.embedding_length": "many"}, tensors, "hidden_size"),
    }
    for what, (metadata, changed, message) in wrong.items():
        gguf_writer.write(path, metadata, changed)
        assert message in braid("inspect", path, fails=True), what


def test_a_split_file_is_its_parts_together(braid, tmp_path):
    """Whichever part is named, and in the directory beside a vision part."""
    tensors, prompts = random_model(), tmp_path / "prompts.jsonl"
    prompts.write_text(json.dumps({"token_ids": [3, 1, 4, 1, 5, 9, 2, 6]}) + "\n")
    gguf_writer.write(tmp_path / "whole.gguf", METADATA, tensors)
    want = scores_of(braid, tmp_path / "whole.gguf", prompts)
    (tmp_path / "split").mkdir()
    (tmp_path / "split/mmproj-F16.gguf").write_bytes(b"no model")
    # The first part may have metadata alone.
    for counts in ([5, 4, len(tensors) - 9], [0, len(tensors)]):
        parts = gguf_writer.split(tmp_path / "split/m.gguf", METADATA, tensors, counts)
        for model in [*parts, tmp_path / "split"]:
            assert np.array_equal(scores_of(braid, model, prompts), want), model
        told = braid("inspect", parts[-1])
        assert "mmproj-F16.gguf: vision, not used" in told
        assert f"{len(tensors)}" in told
        for part in parts:
            part.unlink()


def test_parts_that_do_not_belong_together_are_refused(braid, tmp_path):
    tensors, path = small_model(), tmp_path / "m.gguf"

    def parts(metadata=METADATA, counts=(4, 4, len(tensors) - 8)):
        return gguf_writer.split(path, metadata, tensors, counts)

    def refused(message, model=None):
        assert message in braid("inspect", model or tmp_path / first.name, fails=True)

    first, second, third = parts()
    second.unlink()
    refused("m-00002-of-00003.gguf is missing: part 2 of 3")
    refused("m-00002-of-00003.gguf is missing: part 2 of 3", third)
    second.write_bytes(third.read_bytes())  # doubled
    refused("is part 3 of 3 by its split.no and part 2 by its name")
    first, second, third = parts()  # reordered
    swapped = second.read_bytes()
    second.write_bytes(third.read_bytes())
    third.write_bytes(swapped)
    refused("is part 3 of 3 by its split.no and part 2 by its name")
    first, second, third = parts()
    first.rename(tmp_path / "renamed.gguf")
    refused("its name must end with \"-00001-of-00003.gguf\"", tmp_path / "renamed.gguf")
    parts()
    foreign = third.read_bytes()  # of another cut of the same tensors
    parts(counts=(4, 3, len(tensors) - 7))
    third.write_bytes(foreign)
    refused("tensors together and split.tensors.count is")
    parts(counts=(4, 5, len(tensors) - 9))
    kept = second.read_bytes()
    parts(counts=(5, 4, len(tensors) - 9))
    second.write_bytes(kept)
    refused("is both in")
    parts()
    kept = second.read_bytes()
    more = {**tensors, "x": tensors["output_norm.weight"]}
    gguf_writer.split(path, METADATA, more, (4, 4, len(more) - 8))
    second.write_bytes(kept)
    refused("it belongs to another file")
    for key, value, message in [("split.count", 70000, "from 0 to 4096"),
                                ("split.no", 3, "from 0 to 2"), ("split.no", "1", "from 0 to 2"),
                                ("split.tensors.count", -1.0, "from 0 to")]:
        keys = {"split.no": 0, "split.count": 3, "split.tensors.count": 12, key: value}
        gguf_writer.write(first, {**METADATA, **keys}, tensors)
        refused(message)


def test_a_directory_of_several_models_is_refused_with_their_names(braid, tmp_path):
    for name in ("a-Q4_0.gguf", "b-Q8_0.gguf"):
        gguf_writer.write(tmp_path / name, METADATA, small_model())
    assert "2 models: a-Q4_0.gguf, b-Q8_0.gguf" in braid("inspect", tmp_path, fails=True)


def test_parts_of_a_model_that_are_no_text_are_left_out_or_named(braid, tmp_path):
    """Vision tensors and keys inside, keys of an importance matrix, and files that are no model."""
    tensors = small_model()
    path = tmp_path / "m.gguf"
    inside = {"v.blk.0.attn_q.weight": tensors["blk.0.attn_q.weight"],
              "mm.0.weight": tensors["output_norm.weight"]}
    keys = {"qwen35.vision.block_count": 27, "quantize.imatrix.file": "x.dat",
            "quantize.imatrix.dataset": "x.txt", "quantize.imatrix.entries_count": 496,
            "quantize.imatrix.chunks_count": 125}
    gguf_writer.write(path, {**METADATA, **keys}, {**tensors, **inside})
    facts = json.loads(braid("inspect", path, "--json"))
    assert [s.split(":")[0] for s in facts["checkpoint"]["skipped"]] == ["v.*", "mm.*"]
    gguf_writer.write(path, {"general.architecture": "clip", "general.type": "mmproj"}, tensors)
    assert "is no model but the vision part of one" in braid("inspect", path, fails=True)
    gguf_writer.write(path, {"general.type": "imatrix"}, tensors)
    assert "is no model but of the type \"imatrix\"" in braid("inspect", path, fails=True)


def test_a_file_cut_anywhere_is_refused(braid, tmp_path):
    whole = (HERE / "layouts/qwen3_5_a.gguf").read_bytes()
    ends = {match.end() for match in re.finditer(rb"qwen35\.|blk\.|general\.", whole)}
    for end in sorted({0, 3, 4, 8, 16, 24, 31, len(whole) - 1, *list(ends)[::12]}):
        (tmp_path / "cut.gguf").write_bytes(whole[:end])
        assert "cut.gguf: " in braid("inspect", tmp_path / "cut.gguf", fails=True), end


HUGE = [2**63 - 1, 2**63, 2**64 - 1, 2**62]


@pytest.mark.parametrize("count", HUGE)
def test_counts_that_overflow_are_refused(braid, tmp_path, count):
    path = tmp_path / "m.gguf"
    named = gguf_writer.header(1, 0) + gguf_writer.text("t")
    files = {
        "tensors": gguf_writer.header(count, 0),
        "keys": gguf_writer.header(0, count),
        "a string": gguf_writer.header(0, 1) + struct.pack("<Q", count),
        "a list": gguf_writer.header(0, 1) + gguf_writer.text("k")
                  + struct.pack("<IIQ", gguf_writer.ARRAY, gguf_writer.U32, count),
        "a list of strings": gguf_writer.header(0, 1) + gguf_writer.text("k")
                             + struct.pack("<IIQ", gguf_writer.ARRAY, gguf_writer.STRING, count),
        "a dimension": named + struct.pack("<IQIQ", 1, count, 0, 0),
        "a product": named + struct.pack("<IQQIQ", 2, 2**62, 2**62, 0, 0),
        "a rank": named + struct.pack("<I", count % 2**32),
        "an offset": named + struct.pack("<IQIQ", 1, 8, 0, count),
    }
    for what, data in files.items():
        path.write_bytes(data + bytes(64))
        assert "m.gguf: " in braid("inspect", path, fails=True), what
