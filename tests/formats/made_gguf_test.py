"""GGUF files of make-model: they say of a model what llama.cpp's converter says, hold the numbers
of the checkpoint that make-model writes otherwise, and run as stored in every mixture."""

import json

import gguf
import numpy as np
import pytest

import gguf_reader
import gguf_writer
import stored
from formats_test import HERE, dump
from gguf_test import scores_of

GOLDEN = HERE.parent / "golden"
# Of Hugging Face's library, without effect.
UNREAD = ("architectures", "model_type", "dtype", "use_cache", "initializer_range",
          "mamba_ssm_dtype", "attention_dropout", "router_aux_loss_coef", "output_router_logits")
FAMILIES = {"qwen3_5_moe_a": "qwen3_5_moe", "qwen3_5_a": "qwen3_5", "deepseek_v3_a": "deepseek_v3",
            "kimi_linear_c": "kimi_linear"}
# Keys that the converter writes and that say nothing of the model, or that only one of the two has.
# The converter takes the interval of a list without one to be 4, and the sizes of one head's keys
# and values in Kimi-Linear from other keys than these files do.
OTHER = {"general.name", "general.size_label", "tokenizer.ggml.model", "qwen35.vocab_size",
         "qwen35moe.vocab_size", "qwen3next.vocab_size", "qwen35.full_attention_interval",
         "qwen3next.feed_forward_length", "kimi-linear.attention.key_length",
         "kimi-linear.attention.value_length", "kimi-linear.expert_group_count",
         "kimi-linear.expert_weights_norm"}


def arguments(name):
    """make-model's for a model of a golden checkpoint's sizes."""
    if name in stored.MADE:
        return stored.MADE[name]
    config = json.loads((GOLDEN / name / "config.json").read_text())
    config.pop("num_nextn_predict_layers", None)  # the files of the converter have no draft head
    words = [f"{key}={json.dumps(value, separators=(',', ':'))}"
             for key, value in config.items() if key not in UNREAD]
    return ["--family", FAMILIES[name], "--shape", ",".join(["tiny", *words])]


@pytest.mark.parametrize("name", [*FAMILIES, *stored.MADE])
def test_a_file_says_what_the_converter_says(braid, tmp_path, name):
    """Every key with its type, and every tensor with its shape and type."""
    braid("make-model", tmp_path / "m.gguf", *arguments(name), "--format", "gguf_bf16")
    metadata, tensors = gguf_reader.read(tmp_path / "m.gguf")
    expected, theirs = gguf_reader.read(HERE / f"layouts/{name}.gguf")
    assert {n: t[:2] for n, t in tensors.items()} == {n: t[:2] for n, t in theirs.items()}
    for key in sorted((metadata.keys() | expected.keys()) - OTHER):
        assert metadata.get(key) == expected.get(key), key


MODELS = {
    "qwen3_5_moe": "tiny,linear_num_value_heads=6,num_experts=5,mtp_num_hidden_layers=1",
    # Rows of 50, and numbers are drawn by fours.
    "qwen3_5": "tiny,linear_num_value_heads=6,linear_key_head_dim=24,hidden_size=50",
    "qwen3": "tiny,num_experts=5,num_attention_heads=6",
}


def made(braid, folder, family, form, shape=None):
    braid("make-model", folder, "--family", family, "--shape", shape or MODELS[family], "--format",
          form, "--seed", "5")
    return folder


def prompts_for(tmp_path):
    ids = [int(x) for x in np.random.default_rng(3).integers(0, 500, 150)]
    path = tmp_path / "prompts.jsonl"
    path.write_text("".join(json.dumps({"token_ids": ids[:n]}) + "\n" for n in (2, 70, 150)))
    return path


@pytest.mark.parametrize("family", MODELS)
def test_a_file_has_the_numbers_of_the_checkpoint(braid, tmp_path, family):
    plain = made(braid, tmp_path / "plain", family, "bf16")
    file = made(braid, tmp_path / "file", family, "gguf_bf16")
    prompts = prompts_for(tmp_path)
    want, got = scores_of(braid, plain, prompts), scores_of(braid, file, prompts)
    assert np.concatenate(want).std() > 0.1
    for one, other in zip(want, got, strict=True):
        assert np.abs(one - other).max() <= 1e-5
    for tensor, (kind, bits) in stored.read_model(plain).items():
        found = dump(braid, file, tensor, tmp_path / "dump").reshape(-1)
        if "norm" in tensor and "linear_attn" not in tensor and family != "qwen3":
            found = found - 1  # stored plus one
        assert np.allclose(found, stored.as_float(kind, bits).reshape(-1), rtol=1e-6, atol=2e-7)


@pytest.mark.parametrize("family", ["deepseek_v3", "kimi_linear", "qwen3_next"])
def test_other_families_are_read_without_a_rest(braid, tmp_path, family):
    """Their weights have other names or forms in files, so their numbers are others."""
    shape = "tiny,num_nextn_predict_layers=1" if family == "deepseek_v3" else "tiny"
    file = made(braid, tmp_path / "file", family, "gguf_bf16", shape)
    facts = json.loads(braid("inspect", file, "--json"))
    assert "skipped" not in facts["checkpoint"]
    logprobs = np.concatenate(scores_of(braid, file, prompts_for(tmp_path)))
    plain = made(braid, tmp_path / "plain", family, "bf16", shape)
    expected = np.concatenate(scores_of(braid, plain, prompts_for(tmp_path)))
    # Both behave like trained models: as unsure of the next token.
    assert np.isfinite(logprobs).all() and abs(logprobs.std() / expected.std() - 1) < 0.3


def test_a_file_in_f16_runs_as_it_is(braid, tmp_path):
    file = made(braid, tmp_path / "file", "qwen3_5_moe", "gguf_f16")
    facts = json.loads(braid("inspect", file, "--json", "--tensors"))
    kinds = {w["runs_as"] for w in facts["tensors"] if w["stored_as"] == "F16"}
    assert kinds == {"fp16"}
    prompts = prompts_for(tmp_path)
    assert all((one == other).all() for one, other in zip(
        scores_of(braid, file, prompts),
        scores_of(braid, file, prompts, "--weights", "fp32", "--expand"), strict=True))


# Sizes that blocks of 256 divide, and every kind of tensor.
WIDE = ("tiny,hidden_size=256,moe_intermediate_size=256,shared_expert_intermediate_size=256,"
        "num_experts=4,head_dim=64,linear_num_value_heads=4,linear_value_head_dim=128,"
        "vocab_size=500")
# Matrices of each type in the mixture of this model.
TYPES = {
    "q4_0": {"Q4_0", "Q6_K"}, "q4_1": {"Q4_1", "Q6_K"}, "q5_0": {"Q5_0", "Q6_K"},
    "q5_1": {"Q5_1", "Q6_K"}, "q8_0": {"Q8_0"}, "q6_k": {"Q6_K"}, "q5_k_s": {"Q5_K", "Q6_K"},
    "q5_k_m": {"Q5_K", "Q6_K"}, "q4_k_s": {"Q4_K", "Q5_K", "Q6_K"}, "q4_k_m": {"Q4_K", "Q6_K"},
    "q3_k_s": {"Q3_K", "Q6_K"}, "q3_k_m": {"Q3_K", "Q4_K", "Q5_K", "Q6_K"},
    "q3_k_l": {"Q3_K", "Q5_K", "Q6_K"}, "q2_k": {"Q2_K", "Q3_K", "Q6_K"},
    "iq4_nl": {"IQ4_NL", "Q6_K"}, "iq4_xs": {"IQ4_XS", "Q6_K"}, "mxfp4_moe": {"MXFP4", "Q8_0"},
}


@pytest.fixture(scope="module")
def wide(braid, tmp_path_factory):
    return made(braid, tmp_path_factory.mktemp("wide") / "plain", "qwen3_5_moe", "bf16", WIDE)


@pytest.mark.parametrize("mixture", TYPES)
def test_every_mixture_runs_as_stored_and_is_near_the_numbers(braid, tmp_path, wide, mixture):
    folder = made(braid, tmp_path / "model", "qwen3_5_moe", mixture, WIDE)
    file, = folder.iterdir()
    assert file.name == f"model-{mixture.upper()}.gguf"
    _, tensors = gguf_reader.read(file)
    assert {t[0] for t in tensors.values()} - {"F32"} == TYPES[mixture]
    weights = json.loads(braid("inspect", folder, "--json", "--tensors"))["tensors"]
    plain = {w["name"].split(".", 2)[-1] for w in weights if w["runs_as"] in ("bf16", "fp32")
             and w["stored_as"] != "F32"}
    assert plain <= {"linear_attn.gates"}  # matrices that decide are never quantised
    for name in ("mlp.experts.down_proj", "linear_attn.out_proj.weight"):
        tensor = f"model.layers.0.{name}"
        kind, bits = stored.read_model(wide)[tensor]
        want = stored.as_float(kind, bits).reshape(-1)
        got = dump(braid, folder, tensor, tmp_path / "dump").reshape(-1)
        assert 0 < np.sqrt(np.mean((got - want)**2)) < 0.4 * want.std()
    prompts = prompts_for(tmp_path)
    exact, rounded = (np.concatenate(scores_of(braid, model, prompts)) for model in (wide, folder))
    limit = 1.2 if mixture.startswith("q2") else 0.7 if mixture.startswith("q3") else 0.45
    assert 0 < np.median(np.abs(exact - rounded)) < limit * exact.std()


@pytest.mark.parametrize("mixture", TYPES)
def test_the_package_reads_the_numbers_that_the_engine_reads(braid, tmp_path, mixture):
    folder = made(braid, tmp_path / "model", "qwen3_5_moe", mixture, WIDE)
    reader = gguf.GGUFReader(next(folder.iterdir()))
    found = {tensor.name: tensor for tensor in reader.tensors}
    for name, tensor in (("blk.0.ffn_down_exps.weight", "model.layers.0.mlp.experts.down_proj"),
                         ("blk.3.attn_v.weight", "model.layers.3.self_attn.v_proj.weight"),
                         ("output.weight", "lm_head.weight")):
        theirs = gguf.dequantize(found[name].data, found[name].tensor_type)
        ours = dump(braid, folder, tensor, tmp_path / "dump")
        assert np.array_equal(theirs.reshape(ours.shape).view("u4"), ours.view("u4")), name


def test_equal_arguments_give_equal_files_whatever_the_threads(braid, tmp_path):
    for threads in ("1", "3"):
        braid("make-model", tmp_path / f"{threads}.gguf", "--family", "qwen3_5_moe", "--shape",
              "tiny,hidden_size=256", "--format", "q4_k_m", "--threads", threads)
    one, other = (gguf_reader.read(tmp_path / f"{threads}.gguf")[1] for threads in ("1", "3"))
    assert one == other


def test_rows_that_blocks_do_not_divide_have_the_quantisers_types(braid, tmp_path):
    """llama.cpp's choice: blocks of 32, else fp16."""
    shape = "tiny,hidden_size=192,moe_intermediate_size=40"
    file = made(braid, tmp_path / "m.gguf", "qwen3_5_moe", "q4_k_m", shape)
    tensors = gguf_reader.read(file)[1]
    assert tensors["blk.0.ffn_up_exps.weight"][0] == "Q5_0"
    assert tensors["output.weight"][0] == "Q8_0"
    assert tensors["blk.0.ffn_down_exps.weight"][0] == "F16"
    assert np.isfinite(np.concatenate(scores_of(braid, file, prompts_for(tmp_path)))).all()


def test_what_cannot_be_written_is_said(braid, tmp_path):
    def refused(*words):
        return braid("make-model", *words, fails=True)

    told = refused(tmp_path / "a", "--family", "ling_3", "--format", "q4_k_m")
    assert "there are no GGUF files of" in told and "qwen35moe" in told
    told = refused(tmp_path / "b", "--family", "qwen3", "--format", "q8_0", "--shape",
                   "tiny,norm_topk_prob=false")
    assert "no key for norm_topk_prob=false" in told
    told = refused(tmp_path / "c", "--family", "qwen3_5_moe", "--format", "q8_0", "--shape",
                   "tiny,mlp_only_layers=[1],intermediate_size=64")
    assert "no key for dense layers among layers of experts" in told
    told = refused(tmp_path / "d", "--family", "qwen3_5_moe", "--format", "q4_k")
    assert "q4_k_m" in told
    made(braid, tmp_path / "e", "qwen3_5_moe", "q8_0")
    for form in ("q8_0", "q4_0", "bf16"):
        told = refused(tmp_path / "e", "--format", form)
        assert "holds " in told and "already" in told
    made(braid, tmp_path / "f.gguf", "qwen3_5_moe", "q8_0")
    assert "is there already" in refused(tmp_path / "f.gguf", "--format", "q4_0")
    told = refused(tmp_path / "h", "--format", "q4_0", "--quantize-head")
    assert "leave the flag out" in told
    assert "names a GGUF file" in refused(tmp_path / "g.gguf", "--format", "int4")
    assert not (tmp_path / "g.gguf").exists()
    assert set(gguf_writer.BLOCK_TYPES) >= set().union(*TYPES.values())
