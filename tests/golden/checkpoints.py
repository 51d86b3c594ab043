"""Random-weight checkpoints with awkward shapes, written as released models are written.

Weights are bf16, `A_log` and the gated norm fp32.  Files are written with safetensors directly:
saving through transformers would drop `mtp.*` and round `A_log`.  The scales keep the models
lively and well conditioned: logits of standard deviation 2 to 4, routers that choose, decay
gates between one token and a thousand.
"""

import json
import math
from dataclasses import dataclass, field, replace

import torch
from safetensors.torch import save_file

LINEAR, FULL = "linear_attention", "full_attention"


@dataclass
class Shape:
    """One checkpoint: its sizes and the form of its files."""

    name: str
    seed: int
    hidden: int
    layers: list  # LINEAR or FULL, one a layer
    vocab: int
    head_dim: int
    query_heads: int
    kv_heads: int
    rotary: float  # share of a head's channels that RoPE turns
    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int
    experts: int
    top_k: int
    expert_width: int
    shared_width: int
    tied: bool = False
    per_expert: bool = False  # one tensor an expert instead of one a layer
    shards: int = 1
    mtp: bool = False
    family: str = "qwen3_5_moe"  # or qwen3_5_moe_nested, qwen3_next
    rope: str = "nested"  # where config.json keeps it: nested, mrope or flat
    rope_theta: float = 1e6
    norm_eps: float = 1e-6
    dense_width: int = 0
    dense_layers: list = field(default_factory=list)
    lengths: list = None  # of its prompts, or null: export.py's

    def make(self):
        """config.json and the tensors."""
        return model_config(self), Weights(self).all()


SHAPES = [
    Shape(
        name="qwen3_5_moe_a", seed=11, hidden=48, layers=[LINEAR, LINEAR, LINEAR, FULL],
        vocab=211, head_dim=24, query_heads=4, kv_heads=2, rotary=0.25,
        key_heads=2, value_heads=6, key_dim=24, value_dim=40,
        experts=7, top_k=3, expert_width=40, shared_width=24,
    ),
    Shape(
        name="qwen3_5_moe_b", seed=12, hidden=64, layers=[FULL, LINEAR, LINEAR, FULL, LINEAR],
        vocab=300, head_dim=40, query_heads=3, kv_heads=1, rotary=0.5,
        key_heads=3, value_heads=6, key_dim=16, value_dim=24,
        experts=6, top_k=2, expert_width=24, shared_width=40, tied=True, per_expert=True,
        shards=2, mtp=True, family="qwen3_5_moe_nested", rope="mrope",
    ),
    Shape(
        name="qwen3_5_moe_c", seed=13, hidden=40, layers=[LINEAR, FULL, LINEAR],
        vocab=97, head_dim=16, query_heads=5, kv_heads=5, rotary=1.0,
        key_heads=3, value_heads=3, key_dim=32, value_dim=16,
        experts=5, top_k=1, expert_width=16, shared_width=56,
        rope="flat", rope_theta=1e7, norm_eps=1e-5,
    ),
    Shape(
        name="qwen3_5_moe_full_only", seed=14, hidden=40, layers=[FULL],
        vocab=97, head_dim=24, query_heads=6, kv_heads=2, rotary=0.25,
        key_heads=1, value_heads=1, key_dim=8, value_dim=8,
        experts=4, top_k=4, expert_width=24, shared_width=8, rope_theta=1e4,
    ),
    Shape(
        name="qwen3_5_moe_linear_only", seed=15, hidden=56, layers=[LINEAR, LINEAR],
        vocab=97, head_dim=8, query_heads=1, kv_heads=1, rotary=0.25,
        key_heads=1, value_heads=5, key_dim=40, value_dim=24,
        experts=3, top_k=2, expert_width=8, shared_width=16, tied=True,
    ),
    Shape(
        name="qwen3_next_a", seed=16, hidden=48,
        layers=[LINEAR, LINEAR, FULL, LINEAR, LINEAR, FULL],
        vocab=151, head_dim=32, query_heads=4, kv_heads=2, rotary=0.25,
        key_heads=2, value_heads=4, key_dim=24, value_dim=16,
        experts=8, top_k=2, expert_width=24, shared_width=32, per_expert=True, mtp=True,
        family="qwen3_next", rope="flat", dense_width=72, dense_layers=[0, 2, 3, 4],
    ),
    Shape(
        name="qwen3_5_a", seed=21, hidden=40, layers=[LINEAR, FULL, LINEAR],
        vocab=67, head_dim=24, query_heads=4, kv_heads=2, rotary=0.5,
        key_heads=2, value_heads=6, key_dim=16, value_dim=24,
        experts=0, top_k=0, expert_width=0, shared_width=0, family="qwen3_5_dense",
        dense_width=56, dense_layers=[0, 1, 2], lengths=[1, 3, 65, 260],
    ),
    Shape(
        name="qwen3_5_b", seed=22, hidden=40, layers=[LINEAR, FULL, FULL],
        vocab=67, head_dim=16, query_heads=3, kv_heads=1, rotary=0.25,
        key_heads=3, value_heads=3, key_dim=16, value_dim=16,
        experts=0, top_k=0, expert_width=0, shared_width=0, family="qwen3_5_dense_nested",
        rope="mrope", tied=True, mtp=True, dense_width=40, dense_layers=[0, 1, 2],
        lengths=[1, 3, 65, 260],
    ),
    Shape(
        name="qwen3_5_c", seed=23, hidden=24, layers=[LINEAR] * 4 + [FULL],
        vocab=71, head_dim=10, query_heads=7, kv_heads=1, rotary=0.2,
        key_heads=1, value_heads=7, key_dim=12, value_dim=20,
        experts=0, top_k=0, expert_width=0, shared_width=0, family="qwen3_5_dense",
        rope="flat", dense_width=33, dense_layers=[0, 1, 2, 3, 4], lengths=[1, 2, 64, 127, 300],
    ),
    Shape(
        name="qwen3_next_c", seed=18, hidden=32,
        layers=[LINEAR, LINEAR, FULL, LINEAR, LINEAR, FULL, LINEAR],
        vocab=61, head_dim=12, query_heads=4, kv_heads=1, rotary=0.5,
        key_heads=1, value_heads=5, key_dim=20, value_dim=8, tied=True,
        experts=3, top_k=1, expert_width=9, shared_width=7, family="qwen3_next", rope="flat",
        dense_width=27, dense_layers=[0, 2, 3, 4, 6], norm_eps=1e-5, per_expert=True,
        lengths=[1, 2, 63, 129, 300],
    ),
    Shape(
        name="qwen3_next_b", seed=17, hidden=36,
        layers=[LINEAR, LINEAR, FULL] * 3, vocab=61, head_dim=20, query_heads=6, kv_heads=3,
        rotary=0.3, key_heads=3, value_heads=6, key_dim=12, value_dim=20,
        experts=7, top_k=3, expert_width=11, shared_width=13, family="qwen3_next", rope="flat",
        dense_width=21, dense_layers=[0, 2, 3, 4, 6, 8], per_expert=True, rope_theta=1e7,
        lengths=[1, 2, 62, 128, 500],
    ),
]  # fmt: skip


def text_config(s):
    """The flat configuration of the language model."""
    if s.family.startswith("qwen3_5_dense"):
        return dense_config(s)
    next_family = s.family == "qwen3_next"
    config = {
        "architectures": ["Qwen3NextForCausalLM" if next_family else "Qwen3_5MoeForCausalLM"],
        "model_type": "qwen3_next" if next_family else "qwen3_5_moe_text",
        "dtype": "bfloat16",
        "vocab_size": s.vocab,
        "hidden_size": s.hidden,
        "num_hidden_layers": len(s.layers),
        "layer_types": s.layers,
        "num_attention_heads": s.query_heads,
        "num_key_value_heads": s.kv_heads,
        "head_dim": s.head_dim,
        "attention_bias": False,
        "attention_dropout": 0.0,
        "hidden_act": "silu",
        "rms_norm_eps": s.norm_eps,
        "max_position_embeddings": 1024,
        "linear_num_key_heads": s.key_heads,
        "linear_num_value_heads": s.value_heads,
        "linear_key_head_dim": s.key_dim,
        "linear_value_head_dim": s.value_dim,
        "linear_conv_kernel_dim": 4,
        "num_experts": s.experts,
        "num_experts_per_tok": s.top_k,
        "norm_topk_prob": True,
        "moe_intermediate_size": s.expert_width,
        "shared_expert_intermediate_size": s.shared_width,
        "router_aux_loss_coef": 0.001,
        "output_router_logits": False,
        "tie_word_embeddings": s.tied,
        "initializer_range": 0.02,
        "use_cache": True,
        "bos_token_id": None,
        "eos_token_id": None,
        "pad_token_id": None,
    }
    if next_family:
        # The released form: no layer_types, an interval instead; every second layer sparse.
        del config["layer_types"]
        config |= {"full_attention_interval": 3, "decoder_sparse_step": 2, "mlp_only_layers": [3]}
        config |= {"intermediate_size": s.dense_width}
    else:
        config |= {"attn_output_gate": True, "mamba_ssm_dtype": "float32"}
        config |= {"mtp_num_hidden_layers": int(s.mtp), "mtp_use_dedicated_embeddings": False}
    rope = {"rope_theta": s.rope_theta, "partial_rotary_factor": s.rotary}
    if s.rope == "flat":
        config |= rope | {"rope_scaling": None}
    else:
        rope = {"rope_type": "default"} | rope
        if s.rope == "mrope":
            rope |= {"mrope_interleaved": True, "mrope_section": [4, 3, 3]}
        config["rope_parameters"] = rope
    return config


def dense_config(s):
    """Qwen3.5 without experts: the same keys but for the feed-forward part."""
    config = text_config(replace(s, family="qwen3_5_moe"))
    for key in list(config):
        if "expert" in key or "router" in key or key in ("norm_topk_prob", "moe_intermediate_size"):
            del config[key]
    config |= {"architectures": ["Qwen3_5ForCausalLM"], "model_type": "qwen3_5_text"}
    return config | {"intermediate_size": s.dense_width}


def model_config(s):
    """What config.json holds: the flat form, or text_config beside a small vision_config."""
    text = text_config(s)
    if not s.family.endswith("_nested"):
        return text
    del text["architectures"]
    dense = s.family == "qwen3_5_dense_nested"
    return {
        "architectures": [f"Qwen3_5{'' if dense else 'Moe'}ForConditionalGeneration"],
        "model_type": "qwen3_5" if dense else "qwen3_5_moe",
        "dtype": "bfloat16",
        "image_token_id": 296,
        "video_token_id": 297,
        "vision_start_token_id": 294,
        "vision_end_token_id": 295,
        "tie_word_embeddings": s.tied,
        "text_config": text,
        "vision_config": {
            "model_type": "qwen3_5_vision" if dense else "qwen3_5_moe_vision",
            "depth": 1,
            "hidden_size": 16,
            "intermediate_size": 16,
            "num_heads": 2,
            "num_position_embeddings": 16,
            "out_hidden_size": s.hidden,
            "patch_size": 4,
        },
    }


class Weights:
    """Draws the tensors of one checkpoint by their names."""

    def __init__(self, shape):
        self.s = shape
        self.rng = torch.Generator().manual_seed(shape.seed)
        self.tensors = {}
        # A tied embedding is also the head, so its scale is that of the head.
        self.embedding = 2.5 * shape.hidden**-0.5 if shape.tied else 1.0
        # Smaller than the embedding: full-size branches amplify rounding from layer to layer
        # until transformers differs from itself by more than 1e-4.
        self.branch = 0.4 * self.embedding

    def normal(self, *shape, mean=0.0, std=1.0):
        """A normal draw in fp32."""
        return torch.randn(*shape, generator=self.rng) * std + mean

    def uniform(self, n, low, high):
        """A uniform draw in fp32."""
        return torch.rand(n, generator=self.rng) * (high - low) + low

    def put(self, name, value, dtype=torch.bfloat16):
        """Keep a tensor under its name."""
        self.tensors[name] = value.to(dtype).contiguous()

    def matrix(self, name, rows, columns, gain=1.0):
        """A linear layer that turns unit inputs into outputs of size `gain`."""
        self.put(name + ".weight", self.normal(rows, columns, std=gain * columns**-0.5))

    def zero_centred_norm(self, name, n):
        """A norm that multiplies by one plus its weight."""
        self.put(name + ".weight", self.normal(n, std=0.2))

    def swiglu(self, name, width):
        """gate_proj, up_proj and down_proj of one feed-forward block."""
        self.matrix(name + ".gate_proj", width, self.s.hidden, 1.3)
        self.matrix(name + ".up_proj", width, self.s.hidden)
        self.matrix(name + ".down_proj", self.s.hidden, width, 1.2 * self.branch)

    def moe(self, name):
        """Router, routed experts in either layout, shared expert and its gate."""
        s = self.s
        self.matrix(name + ".gate", s.experts, s.hidden, 1.5)
        first = set(self.tensors)
        for e in range(s.experts):
            self.swiglu(f"{name}.experts.{e}", s.expert_width)
        if not s.per_expert:
            made = {k: self.tensors.pop(k) for k in list(self.tensors) if k not in first}

            def part(e, which):
                return made[f"{name}.experts.{e}.{which}_proj.weight"]

            every = range(s.experts)
            fused = torch.stack([torch.cat([part(e, "gate"), part(e, "up")]) for e in every])
            self.put(name + ".experts.gate_up_proj", fused)
            self.put(name + ".experts.down_proj", torch.stack([part(e, "down") for e in every]))
        self.swiglu(name + ".shared_expert", s.shared_width)
        self.matrix(name + ".shared_expert_gate", 1, s.hidden, 1.5)

    def full_attention(self, name):
        """Gated attention with per-head norms."""
        s = self.s
        self.matrix(name + ".q_proj", 2 * s.query_heads * s.head_dim, s.hidden)
        self.matrix(name + ".k_proj", s.kv_heads * s.head_dim, s.hidden)
        self.matrix(name + ".v_proj", s.kv_heads * s.head_dim, s.hidden)
        self.matrix(name + ".o_proj", s.hidden, s.query_heads * s.head_dim, 1.5 * self.branch)
        self.zero_centred_norm(name + ".q_norm", s.head_dim)
        self.zero_centred_norm(name + ".k_norm", s.head_dim)

    def linear_attention(self, name):
        """Gated DeltaNet; its projections are separate (3.5) or fused by key head (Next)."""
        s = self.s
        keys, values = s.key_heads * s.key_dim, s.value_heads * s.value_dim
        if s.family == "qwen3_next":
            self.matrix(name + ".in_proj_qkvz", 2 * keys + 2 * values, s.hidden)
            self.matrix(name + ".in_proj_ba", 2 * s.value_heads, s.hidden)
        else:
            self.matrix(name + ".in_proj_qkv", 2 * keys + values, s.hidden)
            self.matrix(name + ".in_proj_z", values, s.hidden)
            self.matrix(name + ".in_proj_b", s.value_heads, s.hidden, 1.5)
            self.matrix(name + ".in_proj_a", s.value_heads, s.hidden)
        self.put(name + ".conv1d.weight", self.normal(2 * keys + values, 1, 4, std=0.5))
        self.put(name + ".A_log", self.uniform(s.value_heads, -2.0, 2.5), torch.float32)
        self.put(name + ".dt_bias", self.uniform(s.value_heads, -5.0, 1.0))
        gated_norm = self.normal(s.value_dim, mean=1.0, std=0.2)
        self.put(name + ".norm.weight", gated_norm, torch.float32)
        self.matrix(name + ".out_proj", s.hidden, values, self.branch)

    def layer(self, name, kind, dense):
        """One decoder layer."""
        self.zero_centred_norm(name + ".input_layernorm", self.s.hidden)
        if kind == FULL:
            self.full_attention(name + ".self_attn")
        else:
            self.linear_attention(name + ".linear_attn")
        self.zero_centred_norm(name + ".post_attention_layernorm", self.s.hidden)
        if dense:
            self.swiglu(name + ".mlp", self.s.dense_width)
        else:
            self.moe(name + ".mlp")

    def all(self):
        """Every tensor of the checkpoint by name."""
        s = self.s
        nested = s.family.endswith("_nested")
        prefix = "model.language_model." if nested else "model."
        embedding = self.normal(s.vocab, s.hidden, std=self.embedding)
        self.put(prefix + "embed_tokens.weight", embedding)
        for i, kind in enumerate(s.layers):
            self.layer(f"{prefix}layers.{i}", kind, i in s.dense_layers)
        self.zero_centred_norm(prefix + "norm", s.hidden)
        if not s.tied:
            self.matrix("lm_head", s.vocab, s.hidden, 2.5)
        if s.mtp:
            self.zero_centred_norm("mtp.pre_fc_norm_embedding", s.hidden)
            self.zero_centred_norm("mtp.pre_fc_norm_hidden", s.hidden)
            self.matrix("mtp.fc", s.hidden, 2 * s.hidden)
            self.layer("mtp.layers.0", FULL, dense=s.experts == 0)
            self.zero_centred_norm("mtp.norm", s.hidden)
        if nested:
            self.put("model.visual.blocks.0.norm1.weight", self.normal(16, mean=1.0, std=0.1))
        return self.tensors


def write_checkpoint(shape, folder):
    """Write config.json and the weights: one file, or shards with an index."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("model*.safetensors*"):
        old.unlink()
    config, tensors = shape.make()
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    meta = {"format": "pt"}
    if shape.shards == 1:
        save_file(tensors, str(folder / "model.safetensors"), metadata=meta)
        return
    names = list(tensors)
    per_shard = math.ceil(len(names) / shape.shards)
    where = {}
    for i in range(shape.shards):
        file = f"model-{i + 1:05}-of-{shape.shards:05}.safetensors"
        part = names[i * per_shard : (i + 1) * per_shard]
        save_file({n: tensors[n] for n in part}, str(folder / file), metadata=meta)
        where |= {n: file for n in part}
    total = sum(t.numel() * t.element_size() for t in tensors.values())
    index = {"metadata": {"total_size": total}, "weight_map": dict(sorted(where.items()))}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=2) + "\n")
