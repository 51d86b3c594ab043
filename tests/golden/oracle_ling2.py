"""A slow oracle of Ling-2.5/2.6 in NumPy, fp64, from the published formulas.

Token by token, one head at a time: nothing of it is shared with the engine.  Without a folder it
computes the mini model whose weights are hashes of their names, checks its logits against known
values and prints them.
"""

import argparse
import json
import pathlib

import numpy as np
from safetensors import safe_open


def rms(x, weight, eps):
    """Root-mean-square norm over the last dimension."""
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * weight


def sigmoid(x):
    """Logistic function."""
    return 1.0 / (1.0 + np.exp(-x))


def slopes(heads):
    """ALiBi slopes for any number of heads."""
    whole = 1 << (heads.bit_length() - 1)

    def power(n):
        return [2.0 ** (-8.0 * (h + 1) / n) for h in range(n)]

    return (power(whole) + power(2 * whole)[0::2][: heads - whole])[:heads]


def round_bf16(x):
    """To the nearest bf16, ties to even."""
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32).astype(np.uint64)
    bits += 0x7FFF + ((bits >> 16) & 1)
    return (bits & 0xFFFF0000).astype(np.uint32).view(np.float32).astype(np.float64)


class Ling2:
    """One model; its weights by name."""

    def __init__(self, folder=None, config=None, weights=None):
        if folder is not None:
            config = json.loads((folder / "config.json").read_text())
            weights = {}
            for path in sorted(folder.glob("*.safetensors")):
                with safe_open(path, "pt") as file:
                    for name in file.keys():
                        weights[name] = file.get_tensor(name).double().numpy()
        self.c, self.w = config, weights
        self.bf16 = False
        self.gap = np.inf
        self.score_factor = 1.0  # of the queries of latent attention

    def linear(self, name, x, exact=False):
        """x times the transposed weight."""
        if self.bf16 and not exact:
            x = round_bf16(x)
        return x @ self.w[name + ".weight"].T

    def swiglu(self, name, x):
        """Gated feed-forward."""
        gate = self.linear(name + ".gate_proj", x)
        return self.linear(
            name + ".down_proj", gate * sigmoid(gate) * self.linear(name + ".up_proj", x)
        )

    def frequencies(self, dims):
        """Inverse frequencies of `dims` rotated channels."""
        return float(self.c["rope_theta"]) ** (-np.arange(0, dims, 2) / dims)

    def linear_attention(self, name, x, layer):
        """Linear attention with a constant decay."""
        c, n = self.c, len(x)
        heads, dim = c["num_attention_heads"], c["head_dim"]
        q, k, v = np.split(self.linear(name + ".query_key_value", x), 3, axis=1)
        q, k, v = (part.reshape(n, heads, dim) for part in (q, k, v))
        q = rms(q, self.w[name + ".query_layernorm.weight"], c["rms_norm_eps"])
        k = rms(k, self.w[name + ".key_layernorm.weight"], c["rms_norm_eps"])
        turned = int(dim * c["partial_rotary_factor"])
        angle = np.arange(n)[:, None, None] * self.frequencies(turned)
        for part in (q, k):
            first = part[..., : turned // 2].copy()
            second = part[..., turned // 2 : turned].copy()
            part[..., : turned // 2] = first * np.cos(angle) - second * np.sin(angle)
            part[..., turned // 2 : turned] = second * np.cos(angle) + first * np.sin(angle)
        at = layer if c.get("lightning_slope_mode", "production") == "production" else layer - 1
        factor = 1.0 - at / (c["num_hidden_layers"] - 1) + 1e-5
        out = np.zeros((n, heads, dim))
        for h, slope in enumerate(slopes(heads)):
            state = np.zeros((dim, dim))
            for t in range(n):
                state = np.exp(-slope * factor) * state + np.outer(k[t, h], v[t, h])
                out[t, h] = dim**-0.5 * (q[t, h] @ state)
        groups = out.reshape(n, c["group_norm_size"], -1)
        normed = rms(groups, 1.0, c["rms_norm_eps"]).reshape(n, -1)
        gate = sigmoid(self.linear(name + ".g_proj", x))
        return self.linear(name + ".dense", normed * self.w[name + ".g_norm.weight"] * gate)

    def latent(self, name, x):
        """Multi-head latent attention with keys and values written out per head."""
        c, n = self.c, len(x)
        heads, nope, rope = c["num_attention_heads"], c["qk_nope_head_dim"], c["qk_rope_head_dim"]
        value, rank = c["v_head_dim"], c["kv_lora_rank"]
        if c.get("q_lora_rank"):
            low = self.linear(name + ".q_a_proj", x)
            low = rms(low, self.w[name + ".q_a_layernorm.weight"], 1e-6)
            q = self.linear(name + ".q_b_proj", low)
        else:
            q = self.linear(name + ".q_proj", x)
        q = q.reshape(n, heads, nope + rope)
        row = self.linear(name + ".kv_a_proj_with_mqa", x)
        latent = rms(row[:, :rank], self.w[name + ".kv_a_layernorm.weight"], 1e-6)
        angle = np.arange(n)[:, None] * self.frequencies(rope)

        def rotate(part, angle):
            even, odd = part[..., 0::2], part[..., 1::2]
            turned = np.empty_like(part)
            turned[..., 0::2] = even * np.cos(angle) - odd * np.sin(angle)
            turned[..., 1::2] = even * np.sin(angle) + odd * np.cos(angle)
            return turned

        shared = rotate(row[:, rank:], angle)
        kv = self.linear(name + ".kv_b_proj", latent).reshape(n, heads, nope + value)
        out = np.zeros((n, heads, value))
        for h in range(heads):
            key = np.concatenate([kv[:, h, :nope], shared], 1)
            query = np.concatenate([q[:, h, :nope], rotate(q[:, h, nope:], angle)], 1)
            scores = self.score_factor * (nope + rope) ** -0.5 * query @ key.T
            scores[np.triu_indices(n, 1)] = -np.inf
            weight = np.exp(scores - scores.max(1, keepdims=True))
            out[:, h] = weight / weight.sum(1, keepdims=True) @ kv[:, h, nope:]
        return self.linear(name + ".dense", self.gated(name, x, out).reshape(n, -1))

    def gated(self, name, x, out):
        """What latent attention gives of its heads; other families have gates here."""
        return out

    def chosen(self, scores):
        """The experts of one token from score plus bias, and how near another choice was."""
        c = self.c
        groups = scores.reshape(c["n_group"], -1)
        sums = np.sort(groups, 1)[:, -2:].sum(1)
        order = np.argsort(-sums, kind="stable")
        kept = c["topk_group"]
        if kept < len(order):
            self.gap = min(self.gap, sums[order[kept - 1]] - sums[order[kept]])
        masked = np.full_like(groups, -np.inf)
        masked[order[:kept]] = groups[order[:kept]]
        masked = masked.reshape(-1)
        best = np.argsort(-masked, kind="stable")
        k = c["num_experts_per_tok"]
        self.gap = min(self.gap, masked[best[k - 1]] - masked[best[k]])
        return best[:k]

    def mixture(self, name, x):
        """Sigmoid router with groups and bias, routed experts, shared expert."""
        scores = sigmoid(self.linear(name + ".gate", x, exact=True))
        out = self.swiglu(name + ".shared_experts", x)
        for t, score in enumerate(scores):
            experts = self.chosen(score + self.w[name + ".gate.expert_bias"])
            total = score[experts].sum() + 1e-20
            for e in experts:
                weight = score[e] / total * self.c["routed_scaling_factor"]
                out[t] += weight * self.swiglu(f"{name}.experts.{e}", x[t : t + 1])[0]
        return out

    def is_full(self, layer):
        """Whether a layer has full attention: the last of a group, and the rest of the groups."""
        size = self.c["layer_group_size"]
        return (layer + 1) % size == 0 or layer >= self.c["num_hidden_layers"] // size * size

    def states(self, ids):
        """The residual stream after the final norm."""
        c, eps = self.c, self.c["rms_norm_eps"]
        x = self.w["model.word_embeddings.weight"][ids]
        for i in range(c["num_hidden_layers"]):
            name = f"model.layers.{i}"
            normed = rms(x, self.w[name + ".input_layernorm.weight"], eps)
            if self.is_full(i):
                x = x + self.latent(name + ".attention", normed)
            else:
                x = x + self.linear_attention(name + ".attention", normed, i)
            normed = rms(x, self.w[name + ".post_attention_layernorm.weight"], eps)
            dense = i < c["first_k_dense_replace"]
            x = x + (self.swiglu if dense else self.mixture)(name + ".mlp", normed)
        return rms(x, self.w["model.norm.weight"], eps)

    def logits(self, ids):
        """Logits [position, vocabulary]."""
        return self.head(self.states(ids))

    def head(self, x):
        """Logits of normed states."""
        c = self.c
        head = "model.word_embeddings" if c["tie_word_embeddings"] else "lm_head"
        return self.linear(head, x)

    def logprobs(self, ids, bf16=False):
        """Log-probabilities [position, vocabulary] and the smallest routing gap."""
        self.bf16, self.gap = bf16, np.inf
        logits = self.logits(np.array(ids))
        shifted = logits - logits.max(1, keepdims=True)
        return shifted - np.log(np.exp(shifted).sum(1, keepdims=True)), self.gap


MINI = {
    "vocab_size": 32, "hidden_size": 16, "num_hidden_layers": 4, "num_attention_heads": 4,
    "head_dim": 8, "layer_group_size": 2, "group_norm_size": 2, "partial_rotary_factor": 0.5,
    "q_lora_rank": 6, "kv_lora_rank": 8, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4,
    "v_head_dim": 8, "num_experts": 8, "n_group": 4, "topk_group": 2, "num_experts_per_tok": 2,
    "moe_intermediate_size": 6, "intermediate_size": 24, "routed_scaling_factor": 2.5,
    "rms_norm_eps": 1e-6, "first_k_dense_replace": 1, "rope_theta": 100.0,
    "tie_word_embeddings": False,
}  # fmt: skip


class Hashed(dict):
    """Weights that are a function of their names and shapes."""

    def __init__(self, config):
        super().__init__()
        self.shapes = mini_shapes(config)

    def __missing__(self, name):
        h = 2166136261
        for byte in name.encode():
            h = ((h ^ byte) * 16777619) % 2**32
        inner = name.split("layers.")[-1].split(".", 1)[-1] if "layers." in name else name
        shape = self.shapes[inner]
        index = np.arange(np.prod(shape), dtype=np.uint64)
        x = np.uint32(h) ^ (index * 2654435761).astype(np.uint32)
        x ^= x >> 16
        x *= np.uint32(0x7FEB352D)
        x ^= x >> 15
        x *= np.uint32(0x846CA68B)
        x ^= x >> 16
        r = (2.0 * x.astype(np.float64) / 2**32 - 1).reshape(shape)
        if "norm.weight" in name:
            r = 1 + 0.1 * r
        elif name.endswith("expert_bias"):
            r = 0.2 * r
        elif "word_embeddings" not in name:
            r = r * 1.5 / np.sqrt(shape[-1])
        self[name] = r
        return r


def mini_shapes(c):
    """Shapes by name, those of layers without their number."""
    hidden, heads, n = c["hidden_size"], c["num_attention_heads"], 4 * 8
    nope, rope, value = c["qk_nope_head_dim"], c["qk_rope_head_dim"], c["v_head_dim"]
    rank, query = c["kv_lora_rank"], c["q_lora_rank"]
    shapes = {
        "model.word_embeddings.weight": (c["vocab_size"], hidden),
        "lm_head.weight": (c["vocab_size"], hidden),
        "model.norm.weight": (hidden,),
        "input_layernorm.weight": (hidden,),
        "post_attention_layernorm.weight": (hidden,),
        "attention.query_key_value.weight": (3 * n, hidden),
        "attention.query_layernorm.weight": (8,),
        "attention.key_layernorm.weight": (8,),
        "attention.g_proj.weight": (n, hidden),
        "attention.g_norm.weight": (n,),
        "attention.dense.weight": (hidden, n),
        "attention.q_a_proj.weight": (query, hidden),
        "attention.q_a_layernorm.weight": (query,),
        "attention.q_b_proj.weight": (heads * (nope + rope), query),
        "attention.kv_a_proj_with_mqa.weight": (rank + rope, hidden),
        "attention.kv_a_layernorm.weight": (rank,),
        "attention.kv_b_proj.weight": (heads * (nope + value), rank),
        "mlp.gate.weight": (c["num_experts"], hidden),
        "mlp.gate.expert_bias": (c["num_experts"],),
        "eh_proj.weight": (hidden, 2 * hidden),
    }
    shapes |= {f"{norm}.weight": (hidden,) for norm in ("enorm", "hnorm", "final_layernorm")}
    blocks = [("mlp", c["intermediate_size"])]
    blocks += [(f"mlp.experts.{e}", c["moe_intermediate_size"]) for e in range(c["num_experts"])]
    for name, width in [*blocks, ("mlp.shared_experts", c["moe_intermediate_size"])]:
        shapes[name + ".gate_proj.weight"] = shapes[name + ".up_proj.weight"] = (width, hidden)
        shapes[name + ".down_proj.weight"] = (hidden, width)
    return shapes


def main():
    """Logits of the mini model in both conventions, or of a checkpoint."""
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("folder", nargs="?", type=pathlib.Path)
    args = p.parse_args()
    ids = [3, 17, 8, 29, 5, 11]
    if args.folder:
        print(Ling2(args.folder).logprobs(ids)[0][-1])
        return
    known = {"production": 115.376748400, "hf": 120.393990228}  # sums of squared logits
    for mode, squares in known.items():
        config = MINI | {"lightning_slope_mode": mode}
        logits = Ling2(config=config, weights=Hashed(config)).logits(np.array(ids))
        print(mode, logits[-1][:6], logits[-1].argmax(), (logits**2).sum())
        assert abs((logits**2).sum() - squares) < 1e-6


if __name__ == "__main__":
    main()
