"""Checkpoint directories as GGUF files with their draft heads, as llama.cpp's converter writes them
(conversion/qwen.py; DeepSeek's head, which it leaves out, under the names of its loader). Written
from the converter's rules, without its libraries; `qwen3_5_a` and others in layouts/ are its own
work."""

import json

import numpy as np

import gguf_writer
import stored

ATTENTION = {"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
             "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
             "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm"}
LATENT = {"self_attn.q_a_proj": "attn_q_a", "self_attn.q_a_layernorm": "attn_q_a_norm",
          "self_attn.q_b_proj": "attn_q_b", "self_attn.kv_a_proj_with_mqa": "attn_kv_a_mqa",
          "self_attn.kv_a_layernorm": "attn_kv_a_norm", "self_attn.o_proj": "attn_output"}
DENSE = {f"mlp.{part}_proj": f"ffn_{part}" for part in ("gate", "up", "down")}
HEAD = {"enorm": "nextn.enorm", "hnorm": "nextn.hnorm", "eh_proj": "nextn.eh_proj",
        "shared_head.norm": "nextn.shared_head_norm", "embed_tokens": "nextn.embed_tokens",
        "shared_head.head": "nextn.shared_head_head"}
QWEN_HEAD = {"mtp.pre_fc_norm_embedding": "enorm", "mtp.pre_fc_norm_hidden": "hnorm",
             "mtp.fc": "eh_proj", "mtp.norm": "shared_head.norm"}


def read(folder):
    """(config of the text part, {name: fp32}) with the layers under "model.layers." and the head's
    behind them."""
    config = json.loads((folder / "config.json").read_text())
    config.update(config.get("text_config", {}))
    layers, tensors = config["num_hidden_layers"], {}
    for name, (kind, bits) in stored.read_model(folder).items():
        name = name.replace("model.language_model.", "model.")
        for old, new in QWEN_HEAD.items():
            name = name.replace(old + ".", f"model.layers.{layers}.{new}.")
        name = name.replace("mtp.layers.0.", f"model.layers.{layers}.")
        if name.startswith(("model.layers.", "model.embed", "model.norm", "lm_head")):
            tensors[name] = stored.as_float(kind, bits)
    return config, tensors


def experts(layer, base):
    """The experts of a layer, one tensor a part, and their router."""
    out = {"ffn_gate_inp.weight": layer.pop("mlp.gate.weight")}
    if "mlp.experts.gate_up_proj" in layer:
        both = layer.pop("mlp.experts.gate_up_proj")
        out["ffn_gate_exps.weight"], out["ffn_up_exps.weight"] = np.split(both, 2, axis=1)
        out["ffn_down_exps.weight"] = layer.pop("mlp.experts.down_proj")
    else:
        for part in ("gate", "up", "down"):
            names = [f"mlp.experts.{e}.{part}_proj.weight" for e in range(base)]
            out[f"ffn_{part}_exps.weight"] = np.stack([layer.pop(name) for name in names])
    for shared in ("mlp.shared_expert", "mlp.shared_experts"):
        for part in ("gate", "up", "down"):
            if (name := f"{shared}.{part}_proj.weight") in layer:
                out[f"ffn_{part}_shexp.weight"] = layer.pop(name)
    if "mlp.shared_expert_gate.weight" in layer:
        out["ffn_gate_inp_shexp.weight"] = layer.pop("mlp.shared_expert_gate.weight")
    if "mlp.gate.e_score_correction_bias" in layer:
        out["exp_probs_b.bias"] = layer.pop("mlp.gate.e_score_correction_bias")
    return out


def linear(layer, config):
    """A Qwen3.5 layer of linear attention: value heads tiled over the key heads."""
    keys, heads = config["linear_num_key_heads"], config["linear_num_value_heads"]
    dim = config["linear_value_head_dim"]

    def tiled(values, axis=0):
        per = np.moveaxis(values, axis, 0)
        per = per.reshape(keys, heads // keys, -1, *per.shape[1:]).swapaxes(0, 1)
        return np.moveaxis(per.reshape(-1, *per.shape[3:]), 0, axis)

    take = {name: layer.pop("linear_attn." + name) for name in (
        "in_proj_qkv.weight", "in_proj_z.weight", "in_proj_a.weight", "in_proj_b.weight",
        "conv1d.weight", "A_log", "dt_bias", "norm.weight", "out_proj.weight")}
    split = 2 * keys * config["linear_key_head_dim"]

    def after_keys(values):
        return np.concatenate([values[:split], tiled(values[split:])])

    assert len(take["in_proj_z.weight"]) == heads * dim
    return {"attn_qkv.weight": after_keys(take["in_proj_qkv.weight"]),
            "ssm_conv1d.weight": after_keys(take["conv1d.weight"][:, 0]),
            "attn_gate.weight": tiled(take["in_proj_z.weight"]),
            "ssm_alpha.weight": tiled(take["in_proj_a.weight"]),
            "ssm_beta.weight": tiled(take["in_proj_b.weight"]),
            "ssm_a": tiled(-np.exp(take["A_log"])), "ssm_dt.bias": tiled(take["dt_bias"]),
            "ssm_norm.weight": take["norm.weight"],
            "ssm_out.weight": tiled(take["out_proj.weight"], 1)}


def latent(layer, config):
    """The halves of kv_b_proj, that of the keys transposed."""
    heads, nope = config["num_attention_heads"], config["qk_nope_head_dim"]
    both = layer.pop("self_attn.kv_b_proj.weight").reshape(heads, -1, config["kv_lora_rank"])
    return {"attn_k_b.weight": both[:, :nope].swapaxes(1, 2), "attn_v_b.weight": both[:, nope:]}


def metadata_of(config, architecture, blocks):
    """What both architectures say in the same words, and each in its own."""
    keys = {"block_count": blocks, "context_length": config["max_position_embeddings"],
            "embedding_length": config["hidden_size"],
            "attention.head_count": config["num_attention_heads"],
            "attention.layer_norm_rms_epsilon": config["rms_norm_eps"]}
    if "intermediate_size" in config:
        keys["feed_forward_length"] = config["intermediate_size"]
    if architecture == "deepseek2":
        scaling = config["rope_scaling"]
        keys |= {"attention.q_lora_rank": config["q_lora_rank"],
                 "attention.kv_lora_rank": config["kv_lora_rank"],
                 "attention.value_length_mla": config["v_head_dim"],
                 "attention.key_length_mla":
                     config["qk_nope_head_dim"] + config["qk_rope_head_dim"],
                 "rope.dimension_count": config["qk_rope_head_dim"],
                 "rope.freq_base": config["rope_theta"],
                 "leading_dense_block_count": config["first_k_dense_replace"],
                 "expert_count": config["n_routed_experts"], "expert_gating_func": 2,
                 "expert_used_count": config["num_experts_per_tok"],
                 "expert_shared_count": config["n_shared_experts"],
                 "expert_feed_forward_length": config["moe_intermediate_size"],
                 "expert_weights_scale": config["routed_scaling_factor"],
                 "expert_weights_norm": config["norm_topk_prob"],
                 "expert_group_count": config["n_group"],
                 "expert_group_used_count": config["topk_group"],
                 "rope.scaling.type": scaling["type"], "rope.scaling.factor": scaling["factor"],
                 "rope.scaling.original_context_length":
                     scaling["original_max_position_embeddings"],
                 "rope.scaling.yarn_log_multiplier": 0.1 * scaling["mscale_all_dim"]}
    elif architecture in ("qwen3", "qwen3moe"):
        keys |= {"attention.head_count_kv": config["num_key_value_heads"],
                 "attention.key_length": config["head_dim"],
                 "attention.value_length": config["head_dim"],
                 "rope.freq_base": config.get("rope_parameters", config)["rope_theta"]}
        if architecture == "qwen3moe":
            keys |= {"expert_count": config["num_experts"],
                     "expert_used_count": config["num_experts_per_tok"],
                     "expert_feed_forward_length": config["moe_intermediate_size"]}
        return {"general.architecture": architecture,
                **{f"{architecture}.{key}": value for key, value in keys.items()}}
    else:
        rope = config["rope_parameters"]
        heads, dim = config["linear_num_value_heads"], config["linear_value_head_dim"]
        kinds = config["layer_types"] + ["full_attention"] * (blocks - len(config["layer_types"]))
        keys |= {"attention.head_count_kv": config["num_key_value_heads"],
                 "attention.key_length": config["head_dim"],
                 "rope.freq_base": rope["rope_theta"],
                 "rope.dimension_count": int(rope["partial_rotary_factor"] * config["head_dim"]),
                 "attention.recurrent_layers": [kind == "linear_attention" for kind in kinds],
                 "ssm.group_count": config["linear_num_key_heads"],
                 "ssm.time_step_rank": heads, "ssm.inner_size": heads * dim,
                 "ssm.state_size": config["linear_key_head_dim"],
                 "ssm.conv_kernel": config["linear_conv_kernel_dim"]}
        if architecture == "qwen35moe":
            keys |= {"expert_count": config["num_experts"],
                     "expert_used_count": config["num_experts_per_tok"],
                     "expert_feed_forward_length": config["moe_intermediate_size"],
                     "expert_shared_feed_forward_length":
                         config["shared_expert_intermediate_size"]}
    keys["nextn_predict_layers"] = blocks - config["num_hidden_layers"]
    return {"general.architecture": architecture,
            **{f"{architecture}.{key}": value for key, value in keys.items()}}


def model(folder):
    """(metadata, {tensor: fp32}) of a Qwen3 checkpoint, or of a Qwen3.5 or DeepSeek-V3 one with a
    draft head."""
    config, tensors = read(folder)
    deepseek = "kv_lora_rank" in config
    moe = config.get("num_experts", config.get("n_routed_experts", 0))
    qwen3 = config["model_type"] in ("qwen3", "qwen3_moe")
    family = "qwen3" if qwen3 else "qwen35"
    architecture = "deepseek2" if deepseek else family + "moe" * (moe > 0)
    blocks = config["num_hidden_layers"] + (not qwen3)
    if not deepseek and not qwen3:  # norms are stored plus one
        tensors = {name: values + 1 if name.endswith("norm.weight") and "linear_attn" not in name
                   else values for name, values in tensors.items()}
    out = {"token_embd.weight": tensors["model.embed_tokens.weight"],
           "output_norm.weight": tensors["model.norm.weight"]}
    if "lm_head.weight" in tensors:
        out["output.weight"] = tensors["lm_head.weight"]
    post = "ffn_norm" if deepseek or qwen3 else "post_attention_norm"
    plain = {**(LATENT if deepseek else ATTENTION), **DENSE, **HEAD,
             "input_layernorm": "attn_norm", "post_attention_layernorm": post}
    for i in range(blocks):
        base = f"model.layers.{i}."
        layer = {n.removeprefix(base): v for n, v in tensors.items() if n.startswith(base)}
        block = experts(layer, moe) if "mlp.gate.weight" in layer else {}
        if deepseek:
            block |= latent(layer, config)
        elif "linear_attn.A_log" in layer:
            block |= linear(layer, config)
        for name, tensor in plain.items():
            if f"{name}.weight" in layer:
                block[f"{tensor}.weight"] = layer.pop(f"{name}.weight")
        assert not layer, sorted(layer)
        out.update({f"blk.{i}.{name}": values for name, values in block.items()})
    return metadata_of(config, architecture, blocks), out


def write(path, folder, change=lambda metadata, tensors: None):
    """The checkpoint in fp32 after `change`."""
    metadata, tensors = model(folder)
    change(metadata, tensors)
    gguf_writer.write(path, metadata,
                      {name: ("F32", values.shape, values.astype("<f4").tobytes())
                       for name, values in tensors.items()})
