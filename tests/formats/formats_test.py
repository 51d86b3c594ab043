"""Quantised checkpoints: the engine's weights are bit for bit what the decoders here and the
packages that wrote the layouts say, and a quantised model answers as its dequantised twin."""

import json
import pathlib
import shutil

import numpy as np
import pytest

import decoders
import encoders
import stored

HERE = pathlib.Path(__file__).resolve().parent
TARGET = "model.layers.0.mlp.down_proj.weight"


def compressed(name, bits, kind, **weights):
    group = {"targets": ["Linear"], "weights": {"num_bits": bits, "type": kind, **weights}}
    return {"quant_method": "compressed-tensors", "format": name, "ignore": ["lm_head"],
            "config_groups": {"group_0": group}}


def integers(method, group):
    return {"quant_method": method, "bits": 4, "group_size": group}


# name: (encoder, decoder of its parts and the weight's shape, quantization_config, what it runs as)
FORMATS = {
    "fp8_blocks": (
        encoders.fp8_blocks,
        lambda p, s: decoders.fp8_blocks(p[".weight"], p[".weight_scale_inv"]),
        {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128]}, "fp8"),
    "fp8_blocks_ue8m0": (
        lambda w: encoders.fp8_blocks(w, power_of_two=True),
        lambda p, s: decoders.fp8_blocks(p[".weight"], p[".weight_scale_inv"]),
        {"quant_method": "fp8", "weight_block_size": [128, 128], "scale_fmt": "ue8m0"}, "fp8"),
    "fp8_channel": (
        encoders.fp8_channel,
        lambda p, s: decoders.scaled(p[".weight"], p[".weight_scale"]),
        compressed("float-quantized", 8, "float", strategy="channel"), "fp8"),
    "int4_packed": (
        lambda w: encoders.int4_packed(w, 32),
        lambda p, s: decoders.int4_packed(p[".weight_packed"], p[".weight_scale"], s, 32),
        compressed("pack-quantized", 4, "int", strategy="group", group_size=32), "int4"),
    "nvfp4": (
        lambda w: encoders.nvfp4(w, divide=True),
        lambda p, s: decoders.nvfp4(p[".weight_packed"], p[".weight_scale"],
                                    p[".weight_global_scale"], True),
        compressed("nvfp4-pack-quantized", 4, "float", group_size=16), "nvfp4_d"),
    "nvfp4_modelopt": (
        lambda w: encoders.nvfp4(w, divide=False),
        lambda p, s: decoders.nvfp4(p[".weight"], p[".weight_scale"], p[".weight_scale_2"], False),
        {"quant_method": "modelopt", "quant_algo": "NVFP4"}, "nvfp4"),
    "mxfp4": (
        encoders.mxfp4,
        lambda p, s: decoders.mxfp4(p[".weight_packed"], p[".weight_scale"]),
        compressed("mxfp4-pack-quantized", 4, "float", group_size=32), "mxfp4"),
    "awq": (
        lambda w: encoders.awq(w, 32),
        lambda p, s: decoders.awq(p[".qweight"], p[".qzeros"], p[".scales"], 32),
        integers("awq", 32), "int4_zp32"),
    "gptq": (
        lambda w: encoders.gptq(w, 32),
        lambda p, s: decoders.gptq(p[".qweight"], p[".qzeros"], p[".scales"], 32, p[".g_idx"]),
        integers("gptq", 32), "int4_zp32"),
    "int8_packed": (
        lambda w: encoders.int8_packed(w, 0),
        lambda p, s: decoders.int8_packed(p[".weight_packed"], p[".weight_scale"], s, 0),
        compressed("pack-quantized", 8, "int", strategy="channel"), "int8"),
    "gptq_int8": (
        lambda w: encoders.gptq_int8(w, 32),
        lambda p, s: decoders.gptq_int8(p[".qweight"], p[".qzeros"], p[".scales"], 32),
        {**integers("gptq", 32), "bits": 8}, "q8_0"),
    "gptq_act_order": (
        lambda w: encoders.gptq(w, 64, shuffled=True),
        lambda p, s: decoders.gptq(p[".qweight"], p[".qzeros"], p[".scales"], 64, p[".g_idx"]),
        {**integers("gptq", 64), "desc_act": True}, "int4_zp32"),
}

# Shapes with edges: 192 and 160 columns against blocks of 128, heads that no block divides.
MODELS = {
    "qwen3_5_moe": ["hidden_size=192", "num_experts=3", "moe_intermediate_size=160",
                    "shared_expert_intermediate_size=64", "num_hidden_layers=4"],
    "qwen3_next": ["hidden_size=192", "num_experts=3", "moe_intermediate_size=160",
                   "shared_expert_intermediate_size=64", "num_hidden_layers=4"],
    "deepseek_v3": ["hidden_size=192", "kv_lora_rank=64", "q_lora_rank=96", "qk_nope_head_dim=32",
                    "v_head_dim=48", "qk_rope_head_dim=16", "intermediate_size=320",
                    "moe_intermediate_size=160"],
}
LAYOUT_MODEL = ["hidden_size=64", "intermediate_size=256", "num_hidden_layers=1",
                "full_attention_interval=1"]
# Never quantised by exporters; the input projections of Qwen's update gate and decay neither.
KEPT = ("embed_tokens", "lm_head", "norm", "mlp.gate.", "shared_expert_gate", "conv1d", "in_proj_a",
        "in_proj_b", "A_log", "dt_bias", "correction_bias")


@pytest.fixture(scope="session")
def models(braid, tmp_path_factory):
    """Folders of small random models by family, made once."""
    made = {}

    def make(family):
        if family not in made:
            folder = tmp_path_factory.mktemp(family) / "model"
            braid("make-model", folder, "--family", family, *shape_flags(MODELS[family]))
            made[family] = folder
        return made[family]

    return make


def shape_flags(shape):
    return ["--shape", ",".join(["tiny", *shape])]


def write_model(folder, tensors, config):
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    stored.write(folder / "model.safetensors", tensors)


def per_expert(tensors):
    """Stacked experts as one tensor an expert, the form that quantised exports have."""
    out = {}
    for name, (kind, bits) in tensors.items():
        if name.endswith("experts.gate_up_proj"):
            for e, both in enumerate(bits):
                half = both.shape[0] // 2
                base = name.removesuffix("gate_up_proj") + f"{e}."
                out[base + "gate_proj.weight"] = (kind, both[:half])
                out[base + "up_proj.weight"] = (kind, both[half:])
        elif name.endswith("experts.down_proj"):
            for e, one in enumerate(bits):
                out[name.removesuffix("down_proj") + f"{e}.down_proj.weight"] = (kind, one)
        else:
            out[name] = (kind, bits)
    return out


def quantise(tensors, encode, decode):
    """(quantised tensors, {name: fp32 values} of those that were quantised)."""
    out, values = {}, {}
    for name, (kind, bits) in tensors.items():
        small = bits.ndim != 2 or bits.shape[1] % 32 or bits.shape[0] % 8
        if small or not name.endswith(".weight") or any(word in name for word in KEPT):
            out[name] = (kind, bits)
            continue
        parts = encode(stored.as_float(kind, bits))
        base = name.removesuffix(".weight")
        out.update({base + suffix: part for suffix, part in parts.items()})
        values[name] = decode(parts, bits.shape)
    return out, values


def dump(braid, folder, name, scratch):
    facts = json.loads(braid("inspect", folder, "--dump", name, "--output", scratch))
    return np.fromfile(scratch, "<f4").reshape(facts["rows"], facts["columns"])


def scores(braid, folder, tmp_path, *flags):
    prompts = tmp_path / "prompts.jsonl"
    ids = [int(x) for x in np.random.default_rng(3).integers(0, 500, 90)]
    prompts.write_text("".join(json.dumps({"token_ids": ids[:n]}) + "\n" for n in (1, 7, 90)))
    lines = braid("score", folder, prompts, "--compute", "fp32", *flags).splitlines()
    return [json.loads(line)["logprobs"] for line in lines]


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("family", MODELS)
def test_a_quantised_model_is_its_dequantised_twin(braid, models, tmp_path, family, name):
    encode, decode, quantization, runs_as = FORMATS[name]
    source = models(family)
    config = json.loads((source / "config.json").read_text())
    plain = per_expert(stored.read_model(source))
    tensors, values = quantise(plain, encode, decode)
    assert len(values) > 10
    write_model(tmp_path / "q", tensors, {**config, "quantization_config": quantization})
    for tensor in list(values)[::5]:
        got = dump(braid, tmp_path / "q", tensor, tmp_path / "dump")
        assert np.array_equal(got.view(np.uint32), values[tensor].view(np.uint32)), tensor

    facts = json.loads(braid("inspect", tmp_path / "q", "--json", "--tensors"))
    # The key half of kv_b_proj is turned round, so its codes are widened.
    turned = {w["runs_as"] for w in facts["tensors"] if w["name"].endswith("kv_b_proj.keys")}
    assert turned <= {"bf16", "fp32"}
    found = {w["runs_as"] for w in facts["tensors"] if w["stored_as"] not in ("bf16", "f32")
             and not w["name"].endswith("kv_b_proj.keys")}
    if name == "gptq_act_order":  # weights of 64 columns have one group
        found -= {"int4_zp"}
    assert found == {runs_as}

    twin = {n: ("F32", values[n] if n in values else stored.as_float(*tensor))
            for n, tensor in plain.items()}
    write_model(tmp_path / "twin", twin, config)
    got, want = (scores(braid, tmp_path / folder, tmp_path, "--weights", "fp32")
                 for folder in ("q", "twin"))
    assert got == want
    original = scores(braid, source, tmp_path)
    assert got != original  # the format did round


@pytest.mark.parametrize("name", ["fp8_blocks", "fp8_blocks_ue8m0", "fp8_channel", "int4_packed"])
@pytest.mark.parametrize("family", MODELS)
def test_codes_stay_what_they_are_in_memory(braid, models, tmp_path, family, name):
    encode, decode, quantization, runs_as = FORMATS[name]
    source = models(family)
    config = json.loads((source / "config.json").read_text())
    plain = per_expert(stored.read_model(source))
    tensors, values = quantise(plain, encode, decode)
    write_model(tmp_path / "q", tensors, {**config, "quantization_config": quantization})
    twin = {n: ("F32", values[n] if n in values else stored.as_float(*tensor))
            for n, tensor in plain.items()}
    write_model(tmp_path / "twin", twin, config)
    exact = sum(scores(braid, tmp_path / "twin", tmp_path), [])

    def changes(folder, *flags):
        pairs = zip(exact, sum(scores(braid, tmp_path / folder, tmp_path, *flags), []))
        return [abs(a - b) for a, b in pairs if a is not None]

    kept, anew = changes("q"), changes("twin", "--weights", runs_as)
    if runs_as == "fp8":  # only the order of sums differs
        assert 0 < max(kept) < 1e-4 and max(anew) > 1e-3
    else:  # activations are rounded as well, and a router may choose otherwise
        assert 0 < np.mean(kept) < np.mean(anew) / 2


@pytest.mark.parametrize("name", ["nvfp4", "nvfp4_modelopt", "mxfp4", "awq", "gptq",
                                  "gptq_act_order"])
def test_codes_score_as_their_numbers_do(braid, models, tmp_path, name):
    """Up to the rounding of activations to int8."""
    encode, decode, quantization, _ = FORMATS[name]
    source = models("qwen3_5_moe")
    config = json.loads((source / "config.json").read_text())
    tensors, _ = quantise(per_expert(stored.read_model(source)), encode, decode)
    write_model(tmp_path / "q", tensors, {**config, "quantization_config": quantization})
    kept, exact = (np.array([x for x in sum(scores(braid, tmp_path / "q", tmp_path, *flags), [])
                             if x is not None]) for flags in ([], ["--weights", "fp32"]))
    assert 0 < np.median(np.abs(kept - exact)) < 0.1 * exact.std()


def test_an_order_of_columns_stays_in_a_mapped_checkpoint(braid, models, tmp_path):
    encode, decode, quantization, _ = FORMATS["gptq_act_order"]
    source = models("qwen3_5_moe")
    config = json.loads((source / "config.json").read_text())
    tensors, _ = quantise(per_expert(stored.read_model(source)), encode, decode)
    write_model(tmp_path / "q", tensors, {**config, "quantization_config": quantization})
    braid("convert", tmp_path / "q", tmp_path / "mapped", "--mapped")
    mapped, kept = (scores(braid, tmp_path / name, tmp_path) for name in ("mapped", "q"))
    assert mapped == kept


@pytest.mark.parametrize("family", MODELS)
def test_fp16_weights_run_as_they_are(braid, models, tmp_path, family):
    """Twice the memory of the file would have to be asked for with --expand."""
    assert "rounded to fp16" in braid("convert", models(family), tmp_path / "half", "--weights",
                                      "fp16")
    config = json.loads((tmp_path / "half/config.json").read_text())
    assert "float16" in (config.get("dtype"), config.get("torch_dtype"))
    tensors = stored.read_model(tmp_path / "half")
    halves = [bits for kind, bits in tensors.values() if kind == "F16"]
    smallest_normal = np.float16(2.0**-14)
    assert any((np.abs(bits) < smallest_normal).any() for bits in halves)
    facts = json.loads(braid("inspect", tmp_path / "half", "--json", "--tensors"))
    of_halves = [w for w in facts["tensors"] if w["stored_as"] == "f16"]
    assert len(of_halves) > 20
    vectors = {"fp32"}  # norms, which converting leaves alone
    assert {w["runs_as"] for w in of_halves} - vectors == {"fp16"}
    twin = {name: ("F32", stored.as_float(*tensor)) for name, tensor in tensors.items()}
    write_model(tmp_path / "twin", twin, config)
    braid("convert", tmp_path / "half", tmp_path / "mapped", "--mapped")
    half, wide, mapped = (scores(braid, tmp_path / folder, tmp_path)
                          for folder in ("half", "twin", "mapped"))
    assert half == wide and half == mapped
    assert "rounded" not in braid("convert", tmp_path / "half", tmp_path / "again", "--weights",
                                  "fp16")
    again = stored.read_model(tmp_path / "again")
    assert all(np.array_equal(again[name][1], bits) for name, (_, bits) in tensors.items())
    assert "--format" in braid("make-model", tmp_path / "made", "--family", family, "--format",
                               "fp16", fails=True)  # bf16 and quantised formats are drawn


def test_numbers_that_fp16_cannot_hold_are_refused(braid, models, tmp_path):
    source = models("deepseek_v3")
    tensors = stored.read_model(source)
    # One of these runs turned round.
    for part in ("o_proj", "kv_b_proj"):
        name = f"model.layers.1.self_attn.{part}.weight"
        kind, bits = tensors[name]
        spoilt = bits.copy()
        spoilt[3, 5] = 0x4788  # 69632
        write_model(tmp_path / "large", {**tensors, name: (kind, spoilt)},
                    json.loads((source / "config.json").read_text()))
        prompts = tmp_path / "prompts.jsonl"
        prompts.write_text('{"token_ids": [1, 2]}\n')
        for words in (["score", tmp_path / "large", prompts],
                      ["convert", tmp_path / "large", tmp_path / "half"]):
            said = braid(*words, "--weights", "fp16", fails=True)
            assert f'"{name}" has a number beyond 65504' in said and "--weights bf16" in said
            shutil.rmtree(tmp_path / "half", ignore_errors=True)
        shutil.rmtree(tmp_path / "large")


@pytest.mark.parametrize("weights", ["fp32", "bf16"])
def test_convert_writes_what_the_format_stands_for(braid, models, tmp_path, weights):
    encode, decode, quantization, _ = FORMATS["int4_packed"]
    source = models("deepseek_v3")
    config = json.loads((source / "config.json").read_text())
    tensors, values = quantise(per_expert(stored.read_model(source)), encode, decode)
    write_model(tmp_path / "q", tensors, {**config, "quantization_config": quantization})
    (tmp_path / "q/generation_config.json").write_text("{}")
    out = tmp_path / "plain"
    said = braid("convert", tmp_path / "q", out, "--weights", weights)
    assert ("were rounded" in said) == (weights == "bf16")
    written = stored.read_model(out)
    for name, want in values.items():
        got = stored.as_float(*written[name])
        if weights == "bf16":
            bits = want.view(np.uint32).astype(np.int64)
            want = stored.as_float("BF16", (bits + 0x7FFF + (bits >> 16 & 1) >> 16).astype("u2"))
        assert np.array_equal(got, want), name
    assert "quantization_config" not in json.loads((out / "config.json").read_text())
    assert (out / "generation_config.json").exists()
    if weights == "fp32":
        assert scores(braid, out, tmp_path) == scores(braid, tmp_path / "q", tmp_path,
                                                      "--weights", "fp32")
    assert "not empty" in braid("convert", tmp_path / "q", out, fails=True)


# The formats of `convert --weights`: suffixes of their parts, a decoder of two-dimensional ones.
CONVERTED = {
    "fp8": (["", "_scale_inv"], lambda w, s, shape: decoders.fp8_blocks(w, s, (1, 128))),
    "int8": (["", "_scale"], lambda w, s, shape: decoders.scaled(w, s)),
    "int4": (["_packed", "_scale"], lambda w, s, shape: decoders.int4_packed(w, s, shape, 32)),
}


@pytest.mark.parametrize("weights", CONVERTED)
@pytest.mark.parametrize("family", MODELS)
def test_convert_quantises_as_loading_does(braid, models, tmp_path, family, weights):
    source, out = models(family), tmp_path / "out"
    suffixes, decode = CONVERTED[weights]
    assert f"matrices are {weights}" in braid("convert", source, out, "--weights", weights)
    same = ["--weights", weights]
    assert scores(braid, out, tmp_path, *same) == scores(braid, source, tmp_path, *same)
    facts = json.loads(braid("inspect", out, "--json", "--tensors"))
    assert weights in {w["runs_as"] for w in facts["tensors"]}
    if family != "deepseek_v3":  # the key half of kv_b_proj runs turned round
        assert scores(braid, out, tmp_path) == scores(braid, source, tmp_path, *same)

    written, plain = stored.read_model(out), stored.read_model(source)
    quantised = [n for n in plain if n + suffixes[1] in written]
    assert len(quantised) > 10
    assert not any(word in name for name in quantised for word in KEPT)
    step = {"fp8": 1 / 16, "int8": 1 / 250, "int4": 1 / 8}[weights]
    for name in quantised:
        want = stored.as_float(*plain[name])
        want = want.reshape(-1, want.shape[-1])
        parts = [written[name + suffix] for suffix in suffixes]
        parts = [(kind, bits.reshape(-1, bits.shape[-1])) for kind, bits in parts]
        found = decode(*parts, want.shape)
        assert np.abs(found - want).max() <= step * np.abs(want).max(), name
    for name in plain.keys() - set(quantised):
        assert np.array_equal(written[name][1], plain[name][1]), name

    braid("convert", out, tmp_path / "again", "--weights", weights)
    again = stored.read_model(tmp_path / "again")
    assert again.keys() == written.keys()
    assert all(np.array_equal(again[n][1], written[n][1]) for n in written)


def test_convert_quantises_embedding_and_head_when_asked(braid, models, tmp_path):
    braid("convert", models("qwen3_next"), tmp_path / "out", "--weights", "int4", "--quantize-head")
    written = stored.read_model(tmp_path / "out")
    assert {"model.embed_tokens.weight_packed", "lm_head.weight_packed"} <= written.keys()
    flags = ["--weights", "int4", "--quantize-head"]
    want = scores(braid, models("qwen3_next"), tmp_path, *flags)
    assert scores(braid, tmp_path / "out", tmp_path) == want
    # A stored head counts although the config ties it; codes of one need a config that does not.
    config = json.loads((models("qwen3_next") / "config.json").read_text())
    write_model(tmp_path / "tied", stored.read_model(models("qwen3_next")),
                {**config, "tie_word_embeddings": True})
    braid("convert", tmp_path / "tied", tmp_path / "untied", *flags)
    assert not json.loads((tmp_path / "untied/config.json").read_text())["tie_word_embeddings"]
    assert scores(braid, tmp_path / "untied", tmp_path) == want


@pytest.mark.parametrize("weights", ["fp8", "int8"])
def test_convert_keeps_every_bit_of_what_it_does_not_quantise(braid, models, tmp_path, weights):
    """The key half of kv_b_proj runs turned round. Its codes stay, or become fp32."""
    encode, decode, quantization, _ = FORMATS["fp8_blocks"]
    source, same = models("deepseek_v3"), ["--weights", weights]
    config = json.loads((source / "config.json").read_text())
    tensors, _ = quantise(per_expert(stored.read_model(source)), encode, decode)
    write_model(tmp_path / "q", tensors, {**config, "quantization_config": quantization})
    braid("convert", tmp_path / "q", tmp_path / "out", *same)
    written = stored.read_model(tmp_path / "out")
    kind, _ = written["model.layers.0.self_attn.kv_b_proj.weight"]
    assert kind == {"fp8": "F8_E4M3", "int8": "F32"}[weights]
    want = scores(braid, tmp_path / "q", tmp_path, *same)
    assert scores(braid, tmp_path / "out", tmp_path, *same) == want


LAYOUTS = [path for path in sorted((HERE / "layouts").glob("*.safetensors"))
           if path.stem != "gguf_blocks"]


@pytest.mark.parametrize("path", LAYOUTS,
                         ids=lambda path: path.stem)
def test_a_layout_of_a_public_package_is_read_as_the_package_reads_it(braid, tmp_path, path):
    parts, metadata = stored.read(path)
    expected = parts.pop("expected")[1]
    folder = tmp_path / "model"
    braid("make-model", folder, "--family", "qwen3_5", *shape_flags(LAYOUT_MODEL))
    tensors = stored.read_model(folder)
    del tensors[TARGET]
    base = TARGET.removesuffix("weight")
    tensors.update({base + name: part for name, part in parts.items()})
    config = json.loads((folder / "config.json").read_text())
    shutil.rmtree(folder)
    quantization = json.loads(metadata["quantization_config"])
    write_model(folder, tensors, {**config, "quantization_config": quantization})
    got = dump(braid, folder, TARGET, tmp_path / "dump")
    assert np.array_equal(got, expected)


def broken(tensors, base):
    """name -> (tensors with one mistake, what the message says)."""
    packed, scale = tensors[base + "_packed"], tensors[base + "_scale"]
    without = {n: t for n, t in tensors.items() if n != base + "_scale"}
    return {
        "no scale": (without, f'"{base}_scale" is missing'),
        "scale misspelt": ({**without, base + "_scales": scale},
                           f'"{base}_scale" is missing; the nearest name is "{base}_scales"'),
        "scale of another shape": ({**tensors, base + "_scale": ("F16", scale[1][:, :-1])},
                                   f'"{base}_scale" has the shape'),
        "codes of another type": ({**tensors, base + "_packed": ("I64", packed[1])},
                                  f'"{base}" '),
        "quantised and plain": ({**tensors, base: ("BF16", np.zeros((64, 256), np.uint16))},
                                "are two forms of one weight"),
        "shape says otherwise": ({**tensors, base + "_shape": ("I64", np.array([64, 255]))},
                                 "says [64, 255]"),
    }


def test_what_is_wrong_with_scales_is_said_with_the_nearest_name(braid, tmp_path):
    braid("make-model", tmp_path / "made", "--family", "qwen3_5", *shape_flags(LAYOUT_MODEL))
    tensors = stored.read_model(tmp_path / "made")
    config = json.loads((tmp_path / "made/config.json").read_text())
    config["quantization_config"] = FORMATS["int4_packed"][2]
    values = stored.as_float(*tensors.pop(TARGET))
    base = TARGET.removesuffix(".weight")
    tensors.update({base + suffix: part
                    for suffix, part in encoders.int4_packed(values, 32).items()})
    for number, (what, (mistaken, text)) in enumerate(broken(tensors, TARGET).items()):
        write_model(tmp_path / str(number), mistaken, config)
        assert text in braid("inspect", tmp_path / str(number), fails=True), what
    listed = {**config, "quantization_config": {**config["quantization_config"],
                                                "ignore": ["re:.*down_proj"]}}
    write_model(tmp_path / "ignored", tensors, listed)
    assert "not quantised" in braid("inspect", tmp_path / "ignored", fails=True)
    del config["quantization_config"]
    write_model(tmp_path / "unsaid", tensors, config)
    assert "belongs to no weight" in braid("inspect", tmp_path / "unsaid", fails=True)
