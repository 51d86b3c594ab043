"""Small models whose weights are a function of their names, with logits that are known from a
program of their own in fp64 (written from the published formulas; ids 3, 17, 8, 29, 5, 11)."""

import json

import numpy as np
import pytest

import stored

IDS = [3, 17, 8, 29, 5, 11]
HIDDEN, HEADS, DIM, VOCAB, EXPERTS, WIDTH, DENSE = 16, 4, 8, 32, 8, 6, 24
NOPE, ROPE, VALUE, QUERY, LATENT = 8, 4, 8, 6, 8
CHANNELS = HEADS * DIM
COMMON = {
    "vocab_size": VOCAB, "hidden_size": HIDDEN, "num_attention_heads": HEADS,
    "num_key_value_heads": HEADS, "q_lora_rank": QUERY, "kv_lora_rank": LATENT,
    "qk_nope_head_dim": NOPE, "qk_rope_head_dim": ROPE, "v_head_dim": VALUE,
    "num_experts_per_tok": 2, "n_group": 4, "topk_group": 2, "moe_intermediate_size": WIDTH,
    "intermediate_size": DENSE, "routed_scaling_factor": 2.5, "rms_norm_eps": 1e-6,
    "first_k_dense_replace": 1, "tie_word_embeddings": False, "norm_topk_prob": True,
    "max_position_embeddings": 4096, "hidden_act": "silu",
}
LING = {
    **COMMON, "model_type": "bailing_hybrid", "head_dim": DIM, "num_experts": EXPERTS,
    "num_hidden_layers": 4, "rope_theta": 100.0,
}
LING_2 = {**LING, "architectures": ["BailingMoeV2_5ForCausalLM"], "layer_group_size": 2,
          "group_norm_size": 2, "partial_rotary_factor": 0.5}
LING_3 = {**LING, "architectures": ["BailingMoeV3ForCausalLM"], "layer_group_size": 4,
          "short_conv_kernel_size": 4, "no_kda_lora": True, "kda_safe_gate": True,
          "kda_lower_bound": -5.0}
DEEPSEEK = {
    **COMMON, "architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3",
    "n_routed_experts": EXPERTS, "n_shared_experts": 1, "num_hidden_layers": 3,
    "scoring_func": "sigmoid", "topk_method": "noaux_tc", "rope_theta": 10000.0,
    "rope_scaling": {"type": "yarn", "factor": 40, "original_max_position_embeddings": 4096,
                     "beta_fast": 32, "beta_slow": 1, "mscale": 1.0, "mscale_all_dim": 1.0},
}  # fmt: skip
LIGHTNING = {"query_key_value.weight": (3 * CHANNELS, HIDDEN), "query_layernorm.weight": (DIM,),
             "key_layernorm.weight": (DIM,), "g_proj.weight": (CHANNELS, HIDDEN),
             "g_norm.weight": (CHANNELS,), "dense.weight": (HIDDEN, CHANNELS)}
KDA = {**{f"{p}_proj.weight": (CHANNELS, HIDDEN) for p in "qkvfg"},
       **{f"{p}_conv1d.weight": (CHANNELS, 1, 4) for p in "qkv"},
       "b_proj.weight": (HEADS, HIDDEN), "A_log": (HEADS,), "dt_bias": (CHANNELS,),
       "o_norm.weight": (DIM,), "o_proj.weight": (HIDDEN, CHANNELS)}
# case: config, logits of the first six ids, the best id, the sum of all logits
CASES = {
    "ling_2_production": (
        {**LING_2, "lightning_slope_mode": "production"},
        [-0.282763746, -0.090748888, 0.814450905, -0.568195829, 0.141434782, 0.956980076],
        25, 0.859874532),
    "ling_2_hf": (
        {**LING_2, "lightning_slope_mode": "hf"},
        [-0.306458642, 0.109652033, 0.808498309, -0.578127306, 0.142907125, 0.962768465],
        25, 1.256976711),
    "ling_3": (
        LING_3,
        [0.208509673, -1.591553321, 0.318399354, -0.069946932, 0.126103012, 1.306799203],
        25, -0.955923268),
    "deepseek_v3": (
        DEEPSEEK,
        [-1.332595355, 1.054703553, 0.566925302, 0.373351942, -0.349044462, 1.860898764],
        5, -1.283471610),
}  # fmt: skip


def hashed(name, shape):
    """The tensor called `name`."""
    h = 2166136261
    for byte in name.encode():
        h = ((h ^ byte) * 16777619) % 2**32
    index = np.arange(np.prod(shape), dtype=np.uint64)
    x = np.uint32(h) ^ (index * np.uint64(2654435761)).astype(np.uint32)
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B), (16, 1)):
        x ^= x >> np.uint32(shift)
        x *= np.uint32(factor)
    r = (2.0 * x.astype(np.float64) / 2**32 - 1).reshape(shape)
    if "norm.weight" in name:
        return 1 + 0.1 * r
    if name.endswith("_bias") and "dt_bias" not in name:
        return 0.2 * r
    if name.endswith(("A_log", "dt_bias", "conv1d.weight")):
        return 0.5 * r
    return r if "embed" in name else r * 1.5 / np.sqrt(shape[-1])


def swiglu(base, width):
    return {f"{base}.gate_proj.weight": (width, HIDDEN), f"{base}.up_proj.weight": (width, HIDDEN),
            f"{base}.down_proj.weight": (HIDDEN, width)}


def latent(out, gated):
    """Names and shapes of latent attention."""
    shapes = {
        "q_a_proj.weight": (QUERY, HIDDEN), "q_a_layernorm.weight": (QUERY,),
        "q_b_proj.weight": (HEADS * (NOPE + ROPE), QUERY),
        "kv_a_proj_with_mqa.weight": (LATENT + ROPE, HIDDEN), "kv_a_layernorm.weight": (LATENT,),
        "kv_b_proj.weight": (HEADS * (NOPE + VALUE), LATENT),
        f"{out}.weight": (HIDDEN, HEADS * VALUE),
    }  # fmt: skip
    return {**shapes, "g_proj.weight": (HEADS, HIDDEN)} if gated else shapes


def tensors_of(config):
    """Names and shapes of a whole model."""
    ling = "layer_group_size" in config
    third = config["architectures"] == ["BailingMoeV3ForCausalLM"]
    linear = KDA if third else LIGHTNING
    shapes = {"model.norm.weight": (HIDDEN,), "lm_head.weight": (VOCAB, HIDDEN)}
    shapes[f"model.{'word_embeddings' if ling else 'embed_tokens'}.weight"] = (VOCAB, HIDDEN)
    for i in range(config["num_hidden_layers"]):
        base = f"model.layers.{i}"
        for norm in ("input_layernorm", "post_attention_layernorm"):
            shapes[f"{base}.{norm}.weight"] = (HIDDEN,)
        full = not ling or (i + 1) % config["layer_group_size"] == 0
        mixer = latent("dense" if ling else "o_proj", third) if full else linear
        module = f"{base}.{'attention' if ling else 'self_attn'}"
        shapes.update({f"{module}.{name}": shape for name, shape in mixer.items()})
        if i < config["first_k_dense_replace"]:
            shapes.update(swiglu(f"{base}.mlp", DENSE))
            continue
        shapes[f"{base}.mlp.gate.weight"] = (EXPERTS, HIDDEN)
        bias = "expert_bias" if ling else "e_score_correction_bias"
        shapes[f"{base}.mlp.gate.{bias}"] = (EXPERTS,)
        for part in [*(f"experts.{e}" for e in range(EXPERTS)), "shared_experts"]:
            shapes.update(swiglu(f"{base}.mlp.{part}", WIDTH))
    return shapes


@pytest.mark.parametrize("name", CASES)
def test_a_model_made_of_hashes_has_the_known_logits(braid, tmp_path, name):
    config, first, best, total = CASES[name]
    weights = {n: ("F32", hashed(n, s).astype(np.float32)) for n, s in tensors_of(config).items()}
    (tmp_path / "config.json").write_text(json.dumps(config))
    stored.write(tmp_path / "model.safetensors", weights)
    prompts = tmp_path / "prompts.jsonl"
    # The log-probability of every id as the next one: the logits but for one number, which their
    # sum gives.
    prompts.write_text("".join(json.dumps({"token_ids": [*IDS, i]}) + "\n" for i in range(VOCAB)))
    lines = braid("score", tmp_path, prompts, "--compute", "fp32").splitlines()
    row = np.array([json.loads(line)["logprobs"][-1] for line in lines])
    logits = row + (total - row.sum()) / VOCAB
    assert np.abs(logits[:6] - first).max() <= 1e-4
    assert logits.argmax() == best
