"""A slow oracle of draft heads (multi-token prediction) in NumPy, fp64, from published formulas.

    python tests/golden/oracle_heads.py          # writes draft.jsonl beside the sets' score.jsonl

transformers leaves the heads of all families out.  So the models themselves are computed here as
well, one head and one token at a time, and compared with transformers' numbers of the same
prompts (score.jsonl); the state after the final norm is what the head sees of position t, together
with the token at t + 1, at position t.  A line of draft.jsonl is a prompt: `token_ids`, and
`logprobs[t]`, the head's log-probability, of what it sees up to position t, of token t + 2.
Nothing of it is shared with the engine.  Needs NumPy and safetensors.
"""

import json
import pathlib
import struct

import numpy as np

from oracle_ling2 import MINI, Hashed, Ling2, rms, sigmoid

HERE = pathlib.Path(__file__).resolve().parent
SETS = ("qwen3_5_b", "qwen3_5_moe_b", "qwen3_next_a", "ling_2_a", "ling_3_a", "deepseek_v3_a")


def read_weights(folder):
    """All tensors of a folder in fp64, by name."""
    weights = {}
    for path in sorted(folder.glob("*.safetensors")):
        data = path.read_bytes()
        (size,) = struct.unpack("<Q", data[:8])
        for name, entry in json.loads(data[8 : 8 + size]).items():
            if name == "__metadata__":
                continue
            begin, end = (8 + size + at for at in entry["data_offsets"])
            if entry["dtype"] == "BF16":
                bits = np.frombuffer(data[begin:end], np.uint16).astype(np.uint32) << 16
                values = bits.view(np.float32)
            else:
                values = np.frombuffer(data[begin:end], {"F32": np.float32}[entry["dtype"]])
            weights[name] = values.astype(np.float64).reshape(entry["shape"])
    return weights


def silu(x):
    """x sigmoid(x)."""
    return x * sigmoid(x)


def softplus(x):
    """log(1 + e^x)."""
    return np.logaddexp(0.0, x)


def attend(q, k, v, scale):
    """Causal softmax attention of one head."""
    scores = scale * q @ k.T
    scores[np.triu_indices(len(q), 1)] = -np.inf
    weight = np.exp(scores - scores.max(1, keepdims=True))
    return weight / weight.sum(1, keepdims=True) @ v


def convolve(x, weight):
    """Causal convolution per channel, newest input last in `weight`, then SiLU."""
    width = weight.shape[-1]
    padded = np.concatenate([np.zeros((width - 1, x.shape[1])), x])
    return silu(sum(padded[j : j + len(x)] * weight[:, 0, j] for j in range(width)))


def unit(x):
    """L2 norm of the last dimension."""
    return x / np.sqrt((x * x).sum(-1, keepdims=True) + 1e-6)


def delta(q, k, v, beta, decay):
    """Gated delta rule of one head; decay [n, 1] or [n, key]."""
    state, out = np.zeros((k.shape[1], v.shape[1])), np.zeros_like(v)
    for t in range(len(q)):
        state = np.exp(decay[t])[:, None] * state
        state = state + np.outer(k[t], beta[t] * (v[t] - k[t] @ state))
        out[t] = q[t] @ state
    return out


class Ling3(Ling2):
    """Bounded decays per channel (KDA), latent attention with a gate per head."""

    def is_full(self, layer):
        """The last layer of a group alone."""
        return (layer + 1) % self.c["layer_group_size"] == 0

    def gated(self, name, x, out):
        """One gate for all channels of a head."""
        return out * sigmoid(self.linear(name + ".g_proj", x))[:, :, None]

    def linear_attention(self, name, x, layer):
        """Kimi delta attention."""
        c, n = self.c, len(x)
        heads, dim = c["num_attention_heads"], c["head_dim"]
        parts = []
        for part in "qkv":
            conv = self.w[f"{name}.{part}_conv1d.weight"]
            parts.append(convolve(self.linear(f"{name}.{part}_proj", x), conv))
        q, k, v = (part.reshape(n, heads, dim) for part in parts)
        q, k = unit(q) * dim**-0.5, unit(k)
        beta = sigmoid(self.linear(name + ".b_proj", x))
        raw = self.linear(name + ".f_proj", x) + self.w[name + ".dt_bias"].reshape(-1)
        rate = np.exp(self.w[name + ".A_log"].reshape(-1))
        decay = c["kda_lower_bound"] * sigmoid(rate[:, None] * raw.reshape(n, heads, dim))
        out = np.zeros((n, heads, dim))
        for h in range(heads):
            out[:, h] = delta(q[:, h], k[:, h], v[:, h], beta[:, h], decay[:, h])
        gate = sigmoid(self.linear(name + ".g_proj", x)).reshape(n, heads, dim)
        normed = rms(out, self.w[name + ".o_norm.weight"], c["rms_norm_eps"]) * gate
        return self.linear(name + ".o_proj", normed.reshape(n, -1))


class DeepseekV3(Ling2):
    """Latent attention in every layer, with YaRN; names as Ling's."""

    NAMES = (("embed_tokens", "word_embeddings"), ("self_attn.", "attention."),
             ("o_proj", "dense"), ("e_score_correction_bias", "expert_bias"))  # fmt: skip

    def __init__(self, config, weights):
        named = {}
        for name, value in weights.items():
            for old, new in self.NAMES:
                name = name.replace(old, new)
            named[name] = value
        config = config | {"layer_group_size": 1, "num_experts": config["n_routed_experts"]}
        super().__init__(config=config, weights=named)
        scaling = config["rope_scaling"]
        self.score_factor = (0.1 * scaling["mscale_all_dim"] * np.log(scaling["factor"]) + 1) ** 2

    def frequencies(self, dims):
        """With YaRN: slow rotations are interpolated."""
        s, theta = self.c["rope_scaling"], float(self.c["rope_theta"])
        base = theta ** (-np.arange(0, dims, 2) / dims)

        def dim_at(turns):
            ratio = s["original_max_position_embeddings"] / (turns * 2 * np.pi)
            return dims * np.log(ratio) / (2 * np.log(theta))

        low = max(np.floor(dim_at(s["beta_fast"])), 0)
        high = min(np.ceil(dim_at(s["beta_slow"])), dims - 1)
        ramp = np.clip((np.arange(dims // 2) - low) / max(high - low, 0.001), 0, 1)
        return base * (1 - ramp) + base / s["factor"] * ramp


class Qwen:
    """Qwen3.5, dense and MoE, and Qwen3-Next."""

    def __init__(self, config, weights):
        self.c = config
        nested = "model.language_model.norm.weight" in weights
        prefix = "model.language_model." if nested else "model."
        self.w = {
            "model." + name.removeprefix(prefix) if name.startswith(prefix) else name: value
            for name, value in weights.items()
        }

    def linear(self, name, x):
        """x times the transposed weight."""
        return x @ self.w[name + ".weight"].T

    def norm(self, name, x):
        """Root-mean-square norm with a zero-centred weight."""
        return rms(x, 1 + self.w[name + ".weight"], self.c["rms_norm_eps"])

    def swiglu(self, name, x):
        """Gated feed-forward."""
        gate = silu(self.linear(name + ".gate_proj", x))
        return self.linear(name + ".down_proj", gate * self.linear(name + ".up_proj", x))

    def attention(self, name, x):
        """Full attention with norms, partial rotation and a gate per channel."""
        c, n = self.c, len(x)
        heads, shared, dim = c["num_attention_heads"], c["num_key_value_heads"], c["head_dim"]
        rope = c.get("rope_parameters") or c
        turned = int(dim * rope["partial_rotary_factor"])
        both = self.linear(name + ".q_proj", x).reshape(n, heads, 2 * dim)
        q, gate = both[..., :dim], both[..., dim:]
        k = self.linear(name + ".k_proj", x).reshape(n, shared, dim)
        v = self.linear(name + ".v_proj", x).reshape(n, shared, dim)
        angle = np.arange(n)[:, None, None] * float(rope["rope_theta"]) ** (
            -np.arange(0, turned, 2) / turned
        )

        def rotate(x):
            first, second, rest = np.split(x, [turned // 2, turned], axis=-1)
            cos, sin = np.cos(angle), np.sin(angle)
            turn = [first * cos - second * sin, second * cos + first * sin]
            return np.concatenate([*turn, rest], -1)

        q, k = rotate(self.norm(name + ".q_norm", q)), rotate(self.norm(name + ".k_norm", k))
        out = np.stack(
            [attend(q[:, h], k[:, h * shared // heads], v[:, h * shared // heads], dim**-0.5)
             for h in range(heads)], 1)  # fmt: skip
        return self.linear(name + ".o_proj", (out * sigmoid(gate)).reshape(n, -1))

    def linear_attention(self, name, x):
        """Gated DeltaNet."""
        c, n = self.c, len(x)
        keys, values = c["linear_num_key_heads"], c["linear_num_value_heads"]
        dk, dv, each = c["linear_key_head_dim"], c["linear_value_head_dim"], values // keys
        if name + ".in_proj_qkvz.weight" in self.w:  # interleaved by key head
            rows = self.linear(name + ".in_proj_qkvz", x).reshape(n, keys, -1)
            q, k, v, z = np.split(rows, np.cumsum([dk, dk, each * dv]), axis=2)
            mixed = np.concatenate([part.reshape(n, -1) for part in (q, k, v)], 1)
            b, a = np.split(self.linear(name + ".in_proj_ba", x).reshape(n, keys, -1), 2, axis=2)
            b, a = b.reshape(n, -1), a.reshape(n, -1)
        else:
            mixed, z = self.linear(name + ".in_proj_qkv", x), self.linear(name + ".in_proj_z", x)
            b, a = self.linear(name + ".in_proj_b", x), self.linear(name + ".in_proj_a", x)
        mixed = convolve(mixed, self.w[name + ".conv1d.weight"])
        q, k, v = np.split(mixed, [keys * dk, 2 * keys * dk], axis=1)
        q, k = unit(q.reshape(n, keys, dk)) * dk**-0.5, unit(k.reshape(n, keys, dk))
        v, z = v.reshape(n, values, dv), z.reshape(n, values, dv)
        decay = -np.exp(self.w[name + ".A_log"]) * softplus(a + self.w[name + ".dt_bias"])
        beta = sigmoid(b)
        out = np.zeros((n, values, dv))
        for h in range(values):
            at = h // each
            out[:, h] = delta(q[:, at], k[:, at], v[:, h], beta[:, h], decay[:, h, None])
        normed = rms(out, self.w[name + ".norm.weight"], c["rms_norm_eps"]) * silu(z)
        return self.linear(name + ".out_proj", normed.reshape(n, -1))

    def mixture(self, name, x):
        """Softmax router, routed experts, gated shared expert."""
        scores = np.exp(self.linear(name + ".gate", x))
        scores /= scores.sum(1, keepdims=True)
        gate = sigmoid(self.linear(name + ".shared_expert_gate", x))
        out = gate * self.swiglu(name + ".shared_expert", x)
        for t, score in enumerate(scores):
            experts = np.argsort(-score, kind="stable")[: self.c["num_experts_per_tok"]]
            for e in experts:
                y = self.swiglu(f"{name}.experts.{e}", x[t : t + 1])[0]
                out[t] += score[e] / score[experts].sum() * y
        return out

    def layer(self, name, x):
        """One decoder layer; what it is made of, its tensors say."""
        normed = self.norm(name + ".input_layernorm", x)
        if name + ".self_attn.q_proj.weight" in self.w:
            x = x + self.attention(name + ".self_attn", normed)
        else:
            x = x + self.linear_attention(name + ".linear_attn", normed)
        normed = self.norm(name + ".post_attention_layernorm", x)
        sparse = name + ".mlp.gate.weight" in self.w
        return x + (self.mixture if sparse else self.swiglu)(name + ".mlp", normed)

    def states(self, ids):
        """The residual stream after the final norm."""
        x = self.w["model.embed_tokens.weight"][ids]
        for i in range(self.c["num_hidden_layers"]):
            x = self.layer(f"model.layers.{i}", x)
        return self.norm("model.norm", x)

    def head(self, x):
        """Logits of normed states."""
        tied = "lm_head.weight" not in self.w
        return self.linear("model.embed_tokens" if tied else "lm_head", x)

    def draft(self, ids, states):
        """The draft head's normed states of positions 0 to n - 2."""
        embedding = self.w["model.embed_tokens.weight"][ids[1:]]
        embedded = self.norm("mtp.pre_fc_norm_embedding", embedding)
        hidden = self.norm("mtp.pre_fc_norm_hidden", states[:-1])
        x = self.linear("mtp.fc", np.concatenate([embedded, hidden], 1))
        return self.norm("mtp.norm", self.layer("mtp.layers.0", x))


def latent_draft(model, ids, states):
    """The same for Ling and DeepSeek: the layer behind the model's last."""
    w, eps = model.w, model.c["rms_norm_eps"]
    name = f"model.layers.{model.c['num_hidden_layers']}"
    embedded = rms(w["model.word_embeddings.weight"][ids[1:]], w[name + ".enorm.weight"], eps)
    hidden = rms(states[:-1], w[name + ".hnorm.weight"], eps)
    x = model.linear(name + ".eh_proj", np.concatenate([embedded, hidden], 1))
    x = x + model.latent(name + ".attention", rms(x, w[name + ".input_layernorm.weight"], eps))
    x = x + model.mixture(name + ".mlp", rms(x, w[name + ".post_attention_layernorm.weight"], eps))
    last = name + ".final_layernorm.weight"
    return rms(x, w[last if last in w else name + ".shared_head.norm.weight"], eps)


def logprobs(logits, ids):
    """Of ids[i] by row i."""
    shifted = logits - logits.max(1, keepdims=True)
    shifted -= np.log(np.exp(shifted).sum(1, keepdims=True))
    return shifted[np.arange(len(ids)), ids]


def open_model(folder):
    """The model of a set."""
    config = json.loads((folder / "config.json").read_text())
    architecture = config["architectures"][0]
    config = config | config.get("text_config", {})
    weights = read_weights(folder)
    if architecture.startswith("Qwen"):
        return Qwen(config, weights)
    if architecture.startswith("Deepseek"):
        return DeepseekV3(config, weights)
    kind = Ling3 if "V3" in architecture else Ling2
    return kind(config=config, weights=weights)


def check_published():
    """The published numbers of the head of a model whose weights are hashes of their names."""
    ids = np.array([3, 17, 8, 29, 5, 11])
    known = {"production": [0.127901209, -0.667280839, 0.634186528, -0.374239244],
             "hf": [0.138854019, -0.653170908, 0.533000259, -0.581966137]}  # fmt: skip
    for mode, first in known.items():
        config = MINI | {"lightning_slope_mode": mode}
        model = Ling2(config=config, weights=Hashed(config))
        model.w[f"model.layers.{config['num_hidden_layers']}.final_layernorm.weight"]  # makes it
        logits = model.head(latent_draft(model, ids, model.states(ids)))[-1]
        assert np.abs(logits[:4] - first).max() < 1e-8 and logits.argmax() == 26


def main():
    """Writes the heads' numbers of every set that has one."""
    check_published()
    for name in SETS:
        model, lines, worst = open_model(HERE / name), [], 0.0
        for line in (HERE / name / "score.jsonl").read_text().splitlines():
            known = json.loads(line)
            ids = np.array(known["token_ids"])
            if len(ids) < 3:
                continue
            states = model.states(ids)
            own = logprobs(model.head(states)[:-1], ids[1:])
            worst = max(worst, np.abs(own - np.array(known["logprobs"][1:])).max())
            draft = model.draft if isinstance(model, Qwen) else None
            drafted = draft(ids, states) if draft else latent_draft(model, ids, states)
            values = logprobs(model.head(drafted)[:-1], ids[2:])
            lines.append({"token_ids": ids.tolist(), "logprobs": [round(v, 6) for v in values]})
        print(name, len(lines), "prompts; the model differs from transformers by", worst)
        assert worst < 5e-5
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (HERE / name / "draft.jsonl").write_text(text)


if __name__ == "__main__":
    main()
