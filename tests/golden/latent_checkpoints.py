"""Random-weight checkpoints of the families with latent attention, written as released models are.

Kimi-Linear, Ling-3, Ling-2.5 and DeepSeek-V3.  Scales as in checkpoints.py; the router's bias and
`A_log` are fp32.
"""

from dataclasses import dataclass, field

import torch

from checkpoints import FULL, LINEAR, Weights


@dataclass
class LatentShape:
    """One checkpoint: its sizes and the form of its files."""

    name: str
    seed: int
    family: str  # kimi_linear, kimi_linear_exported, ling_3, ling_2 or deepseek_v3
    hidden: int
    layers: list  # LINEAR or FULL, one a layer
    dense: int  # first layers without experts
    vocab: int
    heads: int  # of full attention, in the Ling families of all layers
    latent: int
    nope: int
    rope: int
    value: int
    dense_width: int
    experts: int
    top_k: int
    expert_width: int
    groups: int
    groups_kept: int
    scale: float
    query_rank: int = 0
    linear_heads: int = 0
    linear_dim: int = 0
    group_size: int = 0
    norm_groups: int = 0
    tied: bool = False
    shards: int = 1
    mtp: bool = False
    norm_eps: float = 1e-6
    config: dict = field(default_factory=dict)  # keys beside the usual ones
    lengths: list = field(default_factory=lambda: [1, 3, 65, 260])

    def make(self):
        """config.json and the tensors."""
        return model_config(self), LatentWeights(self).all()


YARN = {
    "type": "yarn", "factor": 40.0, "original_max_position_embeddings": 64, "beta_fast": 32,
    "beta_slow": 1, "mscale": 1.0, "mscale_all_dim": 1.0,
}  # fmt: skip

SHAPES = [
    LatentShape(
        name="kimi_linear_a", seed=31, family="kimi_linear", hidden=40,
        layers=[LINEAR, FULL, LINEAR, FULL], dense=1, vocab=67, heads=5, latent=24,
        nope=16, rope=8, value=8, dense_width=24, experts=5, top_k=3, expert_width=12, groups=1,
        groups_kept=1, scale=2.446, linear_heads=3, linear_dim=16, norm_eps=1e-5,
    ),
    LatentShape(
        name="kimi_linear_b", seed=32, family="kimi_linear_exported", hidden=32,
        layers=[FULL, LINEAR, LINEAR], dense=2, vocab=67, heads=2, latent=24, nope=12, rope=16,
        value=20, dense_width=24, experts=8, top_k=2, expert_width=8, groups=4, groups_kept=2,
        scale=1.5, linear_heads=2, linear_dim=12, query_rank=20,
    ),
    LatentShape(
        name="ling_3_a", seed=41, family="ling_3", hidden=32, layers=[LINEAR, LINEAR, FULL, LINEAR],
        dense=1, vocab=67, heads=3, latent=24, nope=16, rope=8, value=24, dense_width=24,
        experts=8, top_k=3, expert_width=8, groups=4, groups_kept=2, scale=2.5, linear_heads=3,
        linear_dim=16, group_size=3, mtp=True,
    ),
    LatentShape(
        name="ling_3_b", seed=42, family="ling_3", hidden=40, layers=[LINEAR, FULL], dense=0,
        vocab=67, heads=5, latent=16, nope=8, rope=16, value=8, dense_width=8, experts=6, top_k=2,
        expert_width=12, groups=3, groups_kept=2, scale=1.0, linear_heads=5, linear_dim=8,
        group_size=2, shards=2,
        config={"architectures": ["BailingHybridForCausalLM"], "kda_safe_gate": False,
                "kda_lower_bound": 0.0, "rope_theta": 1e4,
                "rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4, "factor": 2.0,
                                    "original_max_position_embeddings": 128}},
    ),
    LatentShape(
        name="ling_2_a", seed=51, family="ling_2", hidden=40, layers=[LINEAR, LINEAR, FULL, FULL],
        dense=1, vocab=67, heads=6, latent=24, nope=8, rope=8, value=16, dense_width=24, experts=8,
        top_k=2, expert_width=8, groups=4, groups_kept=2, scale=2.5, query_rank=20, linear_heads=6,
        linear_dim=8, group_size=3, norm_groups=2, mtp=True,
    ),
    LatentShape(
        name="ling_2_b", seed=52, family="ling_2", hidden=32, layers=[LINEAR, FULL], dense=0,
        vocab=67, heads=4, latent=16, nope=24, rope=16, value=8, dense_width=8, experts=6, top_k=3,
        expert_width=12, groups=2, groups_kept=1, scale=1.5, linear_heads=4, linear_dim=16,
        group_size=2, norm_groups=4, config={"lightning_slope_mode": "hf", "rope_theta": 1e4},
    ),
    LatentShape(
        name="deepseek_v3_a", seed=61, family="deepseek_v3", hidden=40, layers=[FULL] * 3, dense=1,
        vocab=67, heads=5, latent=24, nope=8, rope=16, value=16, dense_width=40, experts=8,
        top_k=3, expert_width=8, groups=4, groups_kept=2, scale=2.5, query_rank=28, mtp=True,
        config={"rope_scaling": YARN},
    ),
    LatentShape(
        name="deepseek_v3_b", seed=62, family="deepseek_v3", hidden=32, layers=[FULL] * 2, dense=0,
        vocab=67, heads=37, latent=16, nope=8, rope=8, value=4, dense_width=8, experts=5, top_k=2,
        expert_width=12, groups=1, groups_kept=1, scale=1.3, tied=True,
        config={"rope_interleave": False},
    ),
    LatentShape(
        name="kimi_linear_c", seed=33, family="kimi_linear", hidden=28,
        layers=[LINEAR, LINEAR, LINEAR, FULL, LINEAR, LINEAR, FULL], dense=2, vocab=71, heads=3,
        latent=20, nope=10, rope=6, value=12, dense_width=18, experts=7, top_k=1, expert_width=10,
        groups=1, groups_kept=1, scale=2.0, linear_heads=5, linear_dim=10,
        lengths=[1, 2, 64, 127, 300],
    ),
    LatentShape(
        name="deepseek_v3_c", seed=63, family="deepseek_v3", hidden=36, layers=[FULL] * 5, dense=3,
        vocab=71, heads=3, latent=20, nope=10, rope=12, value=14, dense_width=18, experts=9,
        top_k=4, expert_width=6, groups=3, groups_kept=2, scale=2.5, query_rank=16, norm_eps=1e-5,
        shards=2, lengths=[1, 2, 64, 127, 300],
    ),
    LatentShape(
        name="ling_3_c", seed=43, family="ling_3", hidden=28,
        layers=[LINEAR, LINEAR, LINEAR, FULL, LINEAR, LINEAR, LINEAR, FULL, LINEAR], dense=6,
        vocab=71, heads=7, latent=20, nope=10, rope=6, value=14, dense_width=18, experts=9, top_k=4,
        expert_width=10, groups=3, groups_kept=2, scale=2.5, linear_heads=7,
        linear_dim=10, group_size=4, norm_eps=1e-5, lengths=[1, 2, 64, 127, 500],
    ),
    LatentShape(
        name="ling_2_c", seed=53, family="ling_2", hidden=36,
        layers=[LINEAR, FULL, LINEAR, FULL, FULL], dense=2, vocab=71, heads=3, latent=20, nope=10,
        rope=6, value=14, dense_width=18, experts=9, top_k=4, expert_width=10, groups=3,
        groups_kept=2, scale=2.5, query_rank=16, linear_heads=3, linear_dim=12, group_size=2,
        norm_groups=3, tied=True, norm_eps=1e-5, lengths=[1, 2, 64, 127, 500],
    ),
]  # fmt: skip


def model_config(s):
    """What config.json holds."""
    config = {
        "dtype": "bfloat16",
        "vocab_size": s.vocab,
        "hidden_size": s.hidden,
        "num_hidden_layers": len(s.layers),
        "num_attention_heads": s.heads,
        "num_key_value_heads": s.heads,
        "q_lora_rank": s.query_rank or None,
        "kv_lora_rank": s.latent,
        "qk_nope_head_dim": s.nope,
        "qk_rope_head_dim": s.rope,
        "v_head_dim": s.value,
        "intermediate_size": s.dense_width,
        "moe_intermediate_size": s.expert_width,
        "first_k_dense_replace": s.dense,
        "topk_group": s.groups_kept,
        "routed_scaling_factor": s.scale,
        "hidden_act": "silu",
        "rms_norm_eps": s.norm_eps,
        "tie_word_embeddings": s.tied,
        "use_cache": True,
        "bos_token_id": None,
        "eos_token_id": None,
        "pad_token_id": None,
    }
    return config | FAMILY_CONFIG[s.family](s) | s.config


def kimi_config(s):
    """The keys of Kimi-Linear as published."""
    numbered = list(enumerate(s.layers, 1))
    return {
        "architectures": ["KimiLinearForCausalLM"],
        "model_type": "kimi_linear",
        "head_dim": s.hidden // s.heads,
        "linear_attn_config": {
            "num_heads": s.linear_heads,
            "head_dim": s.linear_dim,
            "short_conv_kernel_size": 4,
            "kda_layers": [i for i, kind in numbered if kind == LINEAR],
            "full_attn_layers": [i for i, kind in numbered if kind == FULL],
        },
        "num_experts": s.experts,
        "num_experts_per_token": s.top_k,
        "num_shared_experts": 1,
        "moe_layer_freq": 1,
        "moe_router_activation_func": "sigmoid",
        "moe_renormalize": True,
        "use_grouped_topk": True,
        "num_expert_group": s.groups,
        "mla_use_nope": True,
        "rope_theta": 10000.0,
        "rope_scaling": None,
        "model_max_length": 1024,
    }


def exported_kimi_config(s):
    """The keys that transformers writes."""
    config = kimi_config(s)
    del config["linear_attn_config"], config["rope_theta"], config["rope_scaling"]
    return config | {
        "head_dim": s.rope,
        "qk_head_dim": s.nope + s.rope,
        "linear_head_dim": s.linear_dim,
        "linear_num_heads": s.linear_heads,
        "linear_conv_kernel_dim": 4,
        "layer_types": s.layers,
        "mlp_layer_types": ["dense" if i < s.dense else "sparse" for i in range(len(s.layers))],
        "pretraining_tp": 1,
    }


def ling_config(s):
    """The keys that both Ling families have."""
    return {
        "model_type": "bailing_hybrid",
        "head_dim": s.linear_dim,
        "layer_group_size": s.group_size,
        "num_experts": s.experts,
        "num_experts_per_tok": s.top_k,
        "num_shared_experts": 1,
        "n_group": s.groups,
        "score_function": "sigmoid",
        "router_dtype": "fp32",
        "moe_router_enable_expert_bias": True,
        "norm_topk_prob": True,
        "rope_interleave": True,
        "rope_theta": 6000000.0,
        "max_position_embeddings": 1024,
        "num_nextn_predict_layers": int(s.mtp),
    }


def ling_3_config(s):
    """The keys of Ling-3 as published."""
    return ling_config(s) | {
        "architectures": ["BailingMoeV3ForCausalLM"],
        "short_conv_kernel_size": 4,
        "no_kda_lora": True,
        "kda_safe_gate": True,
        "kda_lower_bound": -5.0,
        "group_norm_size": 1,
        "use_mla_nope": False,
    }


def ling_2_config(s):
    """The keys of Ling-2.5 and 2.6 as published."""
    return ling_config(s) | {
        "architectures": ["BailingMoeV2_5ForCausalLM"],
        "group_norm_size": s.norm_groups,
        "partial_rotary_factor": 0.5,
        "use_qk_norm": True,
        "linear_rope": True,
        "linear_silu": False,
        "full_attention_type": "mla",
    }


def deepseek_config(s):
    """The keys of DeepSeek-V3 as published."""
    return {
        "architectures": ["DeepseekV3ForCausalLM"],
        "model_type": "deepseek_v3",
        "n_routed_experts": s.experts,
        "num_experts_per_tok": s.top_k,
        "n_shared_experts": 1,
        "moe_layer_freq": 1,
        "n_group": s.groups,
        "topk_method": "noaux_tc",
        "scoring_func": "sigmoid",
        "norm_topk_prob": True,
        "rope_theta": 10000.0,
        "rope_scaling": None,
        "attention_bias": False,
        "ep_size": 1,
        "max_position_embeddings": 1024,
        "num_nextn_predict_layers": int(s.mtp),
    }


FAMILY_CONFIG = {
    "kimi_linear": kimi_config,
    "kimi_linear_exported": exported_kimi_config,
    "ling_3": ling_3_config,
    "ling_2": ling_2_config,
    "deepseek_v3": deepseek_config,
}


class LatentWeights(Weights):
    """Draws the tensors of one checkpoint by their names."""

    def plain_norm(self, name, n):
        """A norm that multiplies by its weight."""
        self.put(name + ".weight", self.normal(n, mean=1.0, std=0.2))

    def zero_centred_norm(self, name, n):
        """These families have none."""
        raise NotImplementedError

    def kimi(self):
        """Whether the names are Kimi's."""
        return self.s.family.startswith("kimi")

    def moe(self, name):
        """Router with its bias, routed experts, the shared expert."""
        s, kimi = self.s, self.kimi()
        self.matrix(name + ".gate", s.experts, s.hidden, 1.5)
        ling = s.family.startswith("ling")
        bias = "expert_bias" if ling else "e_score_correction_bias"
        self.put(f"{name}.gate.{bias}", self.normal(s.experts, std=0.2), torch.float32)
        names = ("w1", "w3", "w2") if kimi else ("gate_proj", "up_proj", "down_proj")
        for e in range(s.experts):
            for part, gain in zip(names[:2], (1.3, 1.0)):
                self.matrix(f"{name}.experts.{e}.{part}", s.expert_width, s.hidden, gain)
            self.matrix(
                f"{name}.experts.{e}.{names[2]}", s.hidden, s.expert_width, 1.2 * self.branch
            )
        self.swiglu(name + ".shared_experts", s.expert_width)

    def latent_attention(self, name, out):
        """Latent attention; a gate per head in Ling-3."""
        s = self.s
        if s.query_rank:
            self.matrix(name + ".q_a_proj", s.query_rank, s.hidden)
            self.plain_norm(name + ".q_a_layernorm", s.query_rank)
            self.matrix(name + ".q_b_proj", s.heads * (s.nope + s.rope), s.query_rank)
        else:
            self.matrix(name + ".q_proj", s.heads * (s.nope + s.rope), s.hidden)
        self.matrix(name + ".kv_a_proj_with_mqa", s.latent + s.rope, s.hidden)
        self.plain_norm(name + ".kv_a_layernorm", s.latent)
        self.matrix(name + ".kv_b_proj", s.heads * (s.nope + s.value), s.latent)
        self.matrix(f"{name}.{out}", s.hidden, s.heads * s.value, 1.5 * self.branch)
        if s.family == "ling_3":
            self.matrix(name + ".g_proj", s.heads, s.hidden)

    def delta_attention(self, name):
        """Kimi delta attention, with low-rank gates in Kimi-Linear."""
        s, kimi = self.s, self.kimi()
        all_channels = s.linear_heads * s.linear_dim
        for part in "qkv":
            self.matrix(f"{name}.{part}_proj", all_channels, s.hidden)
            self.put(f"{name}.{part}_conv1d.weight", self.normal(all_channels, 1, 4, std=0.5))
        for part in "fg":
            if kimi:
                self.matrix(f"{name}.{part}_a_proj", s.linear_dim, s.hidden)
                self.matrix(f"{name}.{part}_b_proj", all_channels, s.linear_dim)
            else:
                self.matrix(f"{name}.{part}_proj", all_channels, s.hidden)
        self.matrix(name + ".b_proj", s.linear_heads, s.hidden, 1.5)
        low, high = (-2.0, 1.5) if kimi or s.config.get("kda_safe_gate") is False else (-1.0, 1.0)
        decay = self.uniform(s.linear_heads, low, high)
        self.put(name + ".A_log", decay.reshape(1, 1, -1, 1) if kimi else decay, torch.float32)
        self.put(name + ".dt_bias", self.uniform(all_channels, -5.0, 1.0), torch.float32)
        self.plain_norm(name + ".o_norm", s.linear_dim)
        self.matrix(name + ".o_proj", s.hidden, all_channels, self.branch)

    def lightning_attention(self, name):
        """Lightning attention."""
        s = self.s
        all_channels = s.heads * s.linear_dim
        self.matrix(name + ".query_key_value", 3 * all_channels, s.hidden)
        self.plain_norm(name + ".query_layernorm", s.linear_dim)
        self.plain_norm(name + ".key_layernorm", s.linear_dim)
        self.matrix(name + ".g_proj", all_channels, s.hidden)
        self.plain_norm(name + ".g_norm", all_channels)
        self.matrix(name + ".dense", s.hidden, all_channels, self.branch)

    def layer(self, name, kind, dense):
        """One decoder layer."""
        s = self.s
        ling = s.family.startswith("ling")
        mixer = name + (".attention" if ling else ".self_attn")
        self.plain_norm(name + ".input_layernorm", s.hidden)
        if kind == FULL:
            self.latent_attention(mixer, "dense" if ling else "o_proj")
        elif s.family == "ling_2":
            self.lightning_attention(mixer)
        else:
            self.delta_attention(mixer)
        self.plain_norm(name + ".post_attention_layernorm", s.hidden)
        if dense and s.family != "kimi_linear_exported":
            self.swiglu(name + ".mlp", s.dense_width)
        elif dense:
            self.swiglu(name + ".block_sparse_moe", s.dense_width)
        else:
            self.moe(name + (".block_sparse_moe" if self.kimi() else ".mlp"))

    def draft_head(self, name):
        """The layer behind the last one."""
        s = self.s
        self.layer(name, FULL, dense=False)
        for part in ("enorm", "hnorm"):
            self.plain_norm(f"{name}.{part}", s.hidden)
        self.matrix(name + ".eh_proj", s.hidden, 2 * s.hidden)
        if s.family != "deepseek_v3":
            self.plain_norm(name + ".final_layernorm", s.hidden)
            return
        self.plain_norm(name + ".shared_head.norm", s.hidden)
        self.put(name + ".embed_tokens.weight", self.tensors["model.embed_tokens.weight"])
        self.put(name + ".shared_head.head.weight", self.tensors["lm_head.weight"].clone())

    def all(self):
        """Every tensor of the checkpoint by name."""
        s = self.s
        words = "word_embeddings" if s.family.startswith("ling") else "embed_tokens"
        table = self.normal(s.vocab, s.hidden, std=self.embedding)
        self.put(f"model.{words}.weight", table)
        for i, kind in enumerate(s.layers):
            self.layer(f"model.layers.{i}", kind, i < s.dense)
        self.plain_norm("model.norm", s.hidden)
        if not s.tied:
            self.matrix("lm_head", s.vocab, s.hidden, 2.5)
        if s.mtp:
            self.draft_head(f"model.layers.{len(s.layers)}")
        return {name: tensor.clone() for name, tensor in self.tensors.items()}
