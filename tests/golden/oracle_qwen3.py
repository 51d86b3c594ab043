"""A slow oracle of Qwen3 and Qwen3-MoE in NumPy, fp64, from the published formulas.

    python tests/golden/oracle_qwen3.py    # draws the weights, writes the sets qwen3_*

It prints what measured.json holds of each.  Every layer is full attention with norms on queries
and keys (rotation by halves, all channels), then a dense or a sparse feed-forward: softmax over
all experts, the best k, renormalised or not.
Nothing of it is shared with the engine.  Needs NumPy.
"""

import json
import pathlib
import struct

import numpy as np

from oracle_heads import attend, read_weights, silu
from oracle_ling2 import rms, round_bf16

HERE = pathlib.Path(__file__).resolve().parent
GREEDY_TOKENS = 24
ROUTER_GAP_MIN = 2e-5  # between the last chosen expert and the first that is not
EACH = {"hidden_act": "silu", "rms_norm_eps": 1e-6, "max_position_embeddings": 1024,
        "attention_bias": False, "use_sliding_window": False, "bos_token_id": None,
        "eos_token_id": None, "dtype": "bfloat16"}  # fmt: skip
SETS = {
    # 6 heads on 2, 7 experts top-3, the middle layer dense, weights of experts as they are.
    "qwen3_moe_a": (1, EACH | {
        "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "vocab_size": 67,
        "hidden_size": 40, "num_hidden_layers": 3, "num_attention_heads": 6,
        "num_key_value_heads": 2, "head_dim": 24, "num_experts": 7, "num_experts_per_tok": 3,
        "moe_intermediate_size": 11, "norm_topk_prob": False, "mlp_only_layers": [1],
        "intermediate_size": 50, "rope_theta": 1e4, "tie_word_embeddings": False}),
    # One key head, heads of 10 channels, renormalised weights, tied head.
    "qwen3_moe_b": (2, EACH | {
        "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "vocab_size": 97,
        "hidden_size": 48, "num_hidden_layers": 4, "num_attention_heads": 7,
        "num_key_value_heads": 1, "head_dim": 10, "num_experts": 5, "num_experts_per_tok": 2,
        "moe_intermediate_size": 16, "norm_topk_prob": True, "decoder_sparse_step": 1,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e6},
        "tie_word_embeddings": True}),
    # Dense, as many key heads as heads, eps 1e-5.
    "qwen3_a": (3, EACH | {
        "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "vocab_size": 83,
        "hidden_size": 36, "num_hidden_layers": 3, "num_attention_heads": 3,
        "num_key_value_heads": 3, "head_dim": 16, "intermediate_size": 70, "rms_norm_eps": 1e-5,
        "rope_theta": 5e5, "layer_types": ["full_attention"] * 3, "tie_word_embeddings": False}),
}  # fmt: skip


class Qwen3:
    """One model; its weights by name, [out, in]."""

    def __init__(self, config, weights):
        self.c, self.w = config, weights
        self.gap = np.inf  # the smallest between a chosen expert and one that is not
        self.bf16 = False  # round what every product reads and gives

    def linear(self, name, x):
        """x times the transposed weight."""
        if not self.bf16:
            return x @ self.w[name].T
        return round_bf16(round_bf16(x) @ self.w[name].T)

    def rotate(self, x):
        """Halves of a head turn together; x [n, channels], positions from 0."""
        half = x.shape[1] // 2
        theta = self.c.get("rope_parameters", self.c)["rope_theta"]
        angle = np.outer(np.arange(len(x)), theta ** (-np.arange(half) / half))
        a, b = x[:, :half], x[:, half:]
        return np.concatenate(
            [a * np.cos(angle) - b * np.sin(angle), b * np.cos(angle) + a * np.sin(angle)], 1
        )

    def mix(self, prefix, x):
        """Attention of a layer; x [n, hidden]."""
        c, eps, dim = self.c, self.c["rms_norm_eps"], self.c["head_dim"]
        q, k, v = (self.linear(f"{prefix}{name}_proj.weight", x) for name in "qkv")
        outs = []
        for head in range(c["num_attention_heads"]):
            kv = head * c["num_key_value_heads"] // c["num_attention_heads"]
            of = [slice(i * dim, (i + 1) * dim) for i in (head, kv)]
            query = self.rotate(rms(q[:, of[0]], self.w[prefix + "q_norm.weight"], eps))
            key = self.rotate(rms(k[:, of[1]], self.w[prefix + "k_norm.weight"], eps))
            outs.append(attend(query, key, v[:, of[1]], dim**-0.5))
        return self.linear(prefix + "o_proj.weight", np.concatenate(outs, 1))

    def feed(self, prefix, x):
        """SwiGLU with the weights below a prefix."""
        gate, up = (self.linear(f"{prefix}{name}_proj.weight", x) for name in ("gate", "up"))
        return self.linear(prefix + "down_proj.weight", silu(gate) * up)

    def experts(self, prefix, x):
        """The sum of the best experts of each token, by the softmax over all."""
        scores = x @ self.w[prefix + "gate.weight"].T
        weight = np.exp(scores - scores.max(1, keepdims=True))
        weight /= weight.sum(1, keepdims=True)
        out, top = np.zeros_like(x), self.c["num_experts_per_tok"]
        for t, row in enumerate(weight):
            order = np.argsort(-row, kind="stable")
            self.gap = min(self.gap, row[order[top - 1]] - row[order[top]])
            total = row[order[:top]].sum() if self.c["norm_topk_prob"] else 1.0
            for e in order[:top]:
                out[t] += row[e] / total * self.feed(f"{prefix}experts.{e}.", x[t : t + 1])[0]
        return out

    def logprobs(self, ids):
        """Log-probabilities after every position, [n, vocabulary]."""
        eps = self.c["rms_norm_eps"]
        x = self.w["model.embed_tokens.weight"][ids]
        for i in range(self.c["num_hidden_layers"]):
            layer = f"model.layers.{i}."
            x = x + self.mix(layer + "self_attn.",
                             rms(x, self.w[layer + "input_layernorm.weight"], eps))  # fmt: skip
            normed = rms(x, self.w[layer + "post_attention_layernorm.weight"], eps)
            sparse = layer + "mlp.gate.weight" in self.w
            x = x + (self.experts if sparse else self.feed)(layer + "mlp.", normed)
        head = "model.embed_tokens" if self.c["tie_word_embeddings"] else "lm_head"
        logits = self.linear(head + ".weight", rms(x, self.w["model.norm.weight"], eps))
        logits -= logits.max(1, keepdims=True)
        return logits - np.log(np.exp(logits).sum(1, keepdims=True))


def draw(config, rng):
    """Weights that keep activations near one, bf16."""
    c, weights = config, {}
    hidden, dim = c["hidden_size"], c["head_dim"]

    def matrix(name, rows, columns, scale=1.0):
        weights[name] = round_bf16(rng.normal(0, scale * columns**-0.5, (rows, columns)))

    def norm(name, size):
        weights[name] = round_bf16(rng.normal(1, 0.2, size))

    def feed(prefix, width):
        matrix(prefix + "gate_proj.weight", width, hidden, 2)
        matrix(prefix + "up_proj.weight", width, hidden, 2)
        matrix(prefix + "down_proj.weight", hidden, width, 2)

    matrix("model.embed_tokens.weight", c["vocab_size"], hidden, 2)
    for i in range(c["num_hidden_layers"]):
        layer = f"model.layers.{i}."
        norm(layer + "input_layernorm.weight", hidden)
        norm(layer + "post_attention_layernorm.weight", hidden)
        for name, heads in (("q", c["num_attention_heads"]), ("k", c["num_key_value_heads"]),
                            ("v", c["num_key_value_heads"])):  # fmt: skip
            matrix(f"{layer}self_attn.{name}_proj.weight", heads * dim, hidden)
        matrix(layer + "self_attn.o_proj.weight", hidden, c["num_attention_heads"] * dim)
        norm(layer + "self_attn.q_norm.weight", dim)
        norm(layer + "self_attn.k_norm.weight", dim)
        if "num_experts" in c and i not in c.get("mlp_only_layers", []):
            matrix(layer + "mlp.gate.weight", c["num_experts"], hidden, 2)
            for e in range(c["num_experts"]):
                feed(f"{layer}mlp.experts.{e}.", c["moe_intermediate_size"])
        else:
            feed(layer + "mlp.", c["intermediate_size"])
    norm("model.norm.weight", hidden)
    if not c["tie_word_embeddings"]:
        matrix("lm_head.weight", c["vocab_size"], hidden, 2)
    return weights


def write_weights(path, weights):
    """A safetensors file of bf16 tensors."""
    header, parts, at = {}, [], 0
    for name, values in weights.items():
        data = (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16).tobytes()
        header[name] = {"dtype": "BF16", "shape": list(values.shape),
                        "data_offsets": [at, at + len(data)]}  # fmt: skip
        parts.append(data)
        at += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(parts))


def order_of(rows):
    """Of each row, the best 5 ids."""
    return np.argsort(-np.asarray(rows), 1, kind="stable")[:, :5]


def pairs(rows):
    """The best 5 of each row as [id, log-probability]."""
    return [[[int(i), round(float(row[i]), 6)] for i in order]
            for row, order in zip(rows, order_of(rows))]  # fmt: skip


def export(name, seed, config):
    """Writes one set; returns how far bf16 arithmetic is from it, on average and at most."""
    folder = HERE / name
    folder.mkdir(exist_ok=True)
    rng = np.random.default_rng(seed)
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    write_weights(folder / "model.safetensors", draw(config, rng))
    model = Qwen3(config, read_weights(folder))
    scores, greedy, away = [], [], []
    for length in (1, 2, 64, 127, 300):
        while True:
            ids = rng.integers(0, config["vocab_size"], length).tolist()
            model.gap = np.inf
            rows = model.logprobs(ids)
            new, last = [], []
            while len(new) < GREEDY_TOKENS:
                last.append(model.logprobs(ids + new)[-1])
                new.append(int(last[-1].argmax()))
            if model.gap >= ROUTER_GAP_MIN:
                break
        model.bf16 = True
        away.append(np.abs(np.take_along_axis(rows - model.logprobs(ids), order_of(rows), 1)))
        model.bf16 = False
        given = [round(float(rows[t][ids[t + 1]]), 6) for t in range(length - 1)]
        scores.append({"checkpoint": name, "token_ids": ids, "logprobs": [None, *given],
                       "top": pairs(rows)})  # fmt: skip
        best = np.sort(np.array(last), 1)[:, ::-1]
        greedy.append({"checkpoint": name, "prompt_ids": ids, "output_ids": new,
                       "gaps": [round(float(g), 6) for g in best[:, 0] - best[:, 1]],
                       "top": pairs(last)})  # fmt: skip
    for file, lines in (("score.jsonl", scores), ("greedy.jsonl", greedy)):
        text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
        (folder / file).write_text(text)
    away = np.concatenate(away)
    return {"bf16_mean": float(f"{away.mean():.2g}"),
            "bf16_max": float(f"{away.max():.2g}")}  # fmt: skip


if __name__ == "__main__":
    for each, (number, settings) in SETS.items():
        print(each, json.dumps(export(each, number, settings)), flush=True)
