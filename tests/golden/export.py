"""Writes the golden checkpoints and what transformers computes with them.

    make golden                      # or: python tests/golden/export.py [--only NAME]

Needs torch and transformers (see requirements.txt); `make test` does not run it.  Expected
values are transformers' in fp32 arithmetic on the stored bf16 weights, eager attention and
experts, one thread, the whole prompt in one pass.  For every set the program also measures how
far that is from the same model in fp64 arithmetic, and from transformers with two threads, with
prefill in chunks of 64, token by token, and in bf16 arithmetic.  measured.json has these
figures: they are the context of the tolerances of compare.py.

Files of a set: score.jsonl (log-probabilities of the given tokens and the top 5 at every
position), greedy.jsonl (a greedy continuation with its top-2 gaps), and for one set trace.json
(the residual stream after every step of every layer).
"""

import argparse
import contextlib
import copy
import json
import pathlib

import torch
import transformers
from transformers import AutoTokenizer
from transformers.models.bailing_hybrid import modeling_bailing_hybrid
from transformers.models.deepseek_v3 import modeling_deepseek_v3
from transformers.models.kimi_linear import modeling_kimi_linear
from transformers.models.qwen3_5 import modeling_qwen3_5
from transformers.models.qwen3_5_moe import modeling_qwen3_5_moe
from transformers.models.qwen3_next import modeling_qwen3_next

import checkpoints
import latent_checkpoints
import oracle_ling2

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
TOP = 5
PROMPT_LENGTHS = [1, 3, 63, 64, 65, 130, 333]
GREEDY_TOKENS = 24
TRACED = "qwen3_5_moe_a"
TINY_TASKS = {"arithmetic": 2, "retrieval": 2, "long": 1, "tools": 3, "lists": 3, "text": 2}
TINY_GREEDY_TOKENS = 128
# A routing decision nearer than this to a tie could fall either way in another correct
# implementation, and then every later number differs: such prompts are not used.
ROUTER_GAP_MIN = {"random": 2e-4, "trained": 3e-5}
# Nor are prompts on which transformers' own rounding uses up the tolerance.
FROM_EXACT_MAX = {"random": 2e-5, "trained": 5e-5}


MODULES = (
    modeling_bailing_hybrid,
    modeling_deepseek_v3,
    modeling_kimi_linear,
    modeling_qwen3_5,
    modeling_qwen3_5_moe,
    modeling_qwen3_next,
)
# Published names of architectures that transformers calls otherwise.
CLASSES = {"BailingMoeV3ForCausalLM": "BailingHybridForCausalLM"}


class Fp64Torch:
    """The torch module with fp64 in the place of fp32."""

    float = float32 = torch.float64

    def __getattr__(self, name):
        return getattr(torch, name)


@contextlib.contextmanager
def fp64_arithmetic():
    """Make the models' explicit casts to fp32 casts to fp64."""
    cast = torch.Tensor.float
    modules = MODULES
    torch.Tensor.float = torch.Tensor.double
    for m in modules:
        m.torch = Fp64Torch()
    try:
        yield
    finally:
        torch.Tensor.float = cast
        for m in modules:
            m.torch = torch


class Oracle:
    """A checkpoint in transformers, and the smallest routing gap that it has met."""

    def __init__(self, folder):
        config = json.loads((folder / "config.json").read_text())
        name = config["architectures"][0]
        model_class = getattr(transformers, CLASSES.get(name, name))
        self.model, report = model_class.from_pretrained(
            folder, dtype=torch.float32, attn_implementation="eager",
            experts_implementation="eager", output_loading_info=True,
        )  # fmt: skip
        if report["missing_keys"]:  # transformers would draw them
            raise ValueError(f"{folder}: transformers misses {sorted(report['missing_keys'])}")
        self.model.eval()
        self.exact_model = copy.deepcopy(self.model).double()
        self.bf16_model = copy.deepcopy(self.model).bfloat16()
        for name, parameter in self.bf16_model.named_parameters():
            if name.endswith("A_log"):  # fp32 on disk
                parameter.data = self.model.get_parameter(name).data
        self.router_gap = float("inf")
        # transformers cannot keep a cache for a model without full attention.
        text = config.get("text_config", config)
        self.has_cache = checkpoints.FULL in text.get("layer_types", [checkpoints.FULL])
        for name, module in self.model.named_modules():
            if name.endswith(".mlp.gate"):
                module.register_forward_hook(self.watch_router)

    def watch_router(self, module, _, output):
        """Note the distance between the last chosen and the first rejected expert."""
        logits = output[0].reshape(-1, module.weight.shape[0])
        if hasattr(module, "e_score_correction_bias"):
            logits = logits.sigmoid() + module.e_score_correction_bias
            groups = logits.reshape(len(logits), module.num_group, -1)
            sums = groups.topk(2, -1).values.sum(-1).sort(-1, descending=True).values
            if module.topk_group < module.num_group:
                gap = sums[:, module.topk_group - 1] - sums[:, module.topk_group]
                self.router_gap = min(self.router_gap, gap.min().item())
            kept = torch.zeros(len(logits), module.num_group)
            best = groups.topk(2, -1).values.sum(-1).topk(module.topk_group, -1).indices
            kept = kept.scatter(1, best, 1).repeat_interleave(groups.shape[-1], 1)
            logits = logits.masked_fill(kept == 0, -1e9)
        if module.top_k < logits.shape[-1]:
            order = logits.sort(-1, descending=True).values
            gap = order[:, module.top_k - 1] - order[:, module.top_k]
            self.router_gap = min(self.router_gap, gap.min().item())

    @torch.no_grad()
    def logprobs(self, ids, threads=1, chunk=None):
        """Log-probabilities [position, vocabulary]; with `chunk`, through a cache."""
        torch.set_num_threads(threads)
        cache, parts = None, []
        for start in range(0, len(ids), chunk or len(ids)):
            part = torch.tensor([ids[start : start + (chunk or len(ids))]])
            out = self.model(input_ids=part, past_key_values=cache, use_cache=chunk is not None)
            cache = out.past_key_values
            parts.append(out.logits[0].float().log_softmax(-1))
        torch.set_num_threads(1)
        return torch.cat(parts)

    @torch.no_grad()
    def exact_logprobs(self, ids):
        """Log-probabilities in fp64 arithmetic."""
        with fp64_arithmetic():
            out = self.exact_model(input_ids=torch.tensor([ids]), use_cache=False)
            return out.logits[0].log_softmax(-1)

    @torch.no_grad()
    def bf16_differences(self, rows, ids):
        """By how much bf16 arithmetic moves the given tokens' log-probabilities."""
        out = self.bf16_model(input_ids=torch.tensor([ids]), use_cache=False)
        return (given(out.logits[0].float().log_softmax(-1), ids) - given(rows, ids)).abs()

    def well_conditioned(self, rows, ids, kind):
        """Whether a correct fp32 implementation can be expected to agree on this prompt."""
        if self.router_gap < ROUTER_GAP_MIN[kind]:
            return False
        return difference(rows, self.exact_logprobs(ids), ids) <= FROM_EXACT_MAX[kind]

    @torch.no_grad()
    def greedy(self, ids, count, stop):
        """Greedy continuation as (ids, log-probabilities [step, vocabulary])."""
        part, cache, new, rows = list(ids), None, [], []
        while True:
            out = self.model(
                input_ids=torch.tensor([part]), past_key_values=cache, use_cache=self.has_cache
            )
            rows.append(out.logits[0, -1].float().log_softmax(-1))
            new.append(rows[-1].argmax().item())
            if len(new) == count or new[-1] in stop:
                return new, torch.stack(rows)
            cache = out.past_key_values
            part = new[-1:] if self.has_cache else ids + new


class LingOracle(Oracle):
    """The slow oracle of oracle_ling2.py behind the same methods."""

    def __init__(self, folder):  # pylint: disable=super-init-not-called
        self.model = oracle_ling2.Ling2(folder)
        self.has_cache = False
        self.router_gap = float("inf")

    def logprobs(self, ids, threads=1, chunk=None):
        """Log-probabilities [position, vocabulary], fp64 rounded to fp32."""
        rows, gap = self.model.logprobs(ids)
        self.router_gap = min(self.router_gap, gap)
        return torch.tensor(rows, dtype=torch.float32)

    def exact_logprobs(self, ids):
        """The same without rounding."""
        return torch.tensor(self.model.logprobs(ids)[0])

    def bf16_differences(self, rows, ids):
        """By how much products of bf16 inputs move the given tokens' log-probabilities."""
        rounded = torch.tensor(self.model.logprobs(ids, bf16=True)[0])
        return (given(rounded, ids) - given(rows, ids)).abs().float()

    def greedy(self, ids, count, stop):
        """Greedy continuation, the whole text again for every token."""
        part, rows = list(ids), []
        while len(rows) < count:
            rows.append(self.logprobs(part)[-1])
            part.append(rows[-1].argmax().item())
        return part[len(ids) :], torch.stack(rows)


def top_pairs(rows):
    """The TOP best entries of each row as [id, log-probability] pairs."""
    value, index = rows.topk(TOP, -1)
    return [
        [[i, round(v, 6)] for i, v in zip(ids, values)]
        for ids, values in zip(index.tolist(), value.tolist())
    ]


def given(rows, ids):
    """Log-probability of each token after the first."""
    return rows[:-1].gather(-1, torch.tensor(ids[1:], dtype=torch.long)[:, None])[:, 0]


def difference(one, other, ids):
    """Largest difference among what a golden stores: given tokens and top entries."""
    index = one.topk(TOP, -1).indices
    worst = (one.gather(-1, index) - other.gather(-1, index)).abs().max().item()
    if len(ids) > 1:
        worst = max(worst, (given(one, ids) - given(other, ids)).abs().max().item())
    return worst


def score_line(name, rows, ids):
    """One line of score.jsonl."""
    return {
        "checkpoint": name,
        "token_ids": ids,
        "logprobs": [None] + [round(v, 6) for v in given(rows, ids).tolist()],
        "top": top_pairs(rows),
    }


def greedy_line(name, prompt, new, rows):
    """One line of greedy.jsonl."""
    best = rows.topk(2, -1).values
    return {
        "checkpoint": name,
        "prompt_ids": prompt,
        "output_ids": new,
        "gaps": [round(g, 6) for g in (best[:, 0] - best[:, 1]).tolist()],
        "top": top_pairs(rows),
    }


def self_difference(oracle, rows, ids, decode_limit=130):
    """How far transformers is from itself on one prompt, by what was changed."""
    result = {"fp64": difference(rows, oracle.exact_logprobs(ids), ids)}
    result |= {"two_threads": difference(rows, oracle.logprobs(ids, threads=2), ids)}
    if oracle.has_cache:
        result["chunks_of_64"] = difference(rows, oracle.logprobs(ids, chunk=64), ids)
    if oracle.has_cache and len(ids) <= decode_limit:
        result["token_by_token"] = difference(rows, oracle.logprobs(ids, chunk=1), ids)
    return result


def write_lines(path, lines):
    """JSON lines without blanks."""
    with open(path, "w", encoding="utf-8") as f:
        for line in lines:
            f.write(json.dumps(line, separators=(",", ":")) + "\n")


def summary(oracle, rows, sequences, differences):
    """What measured.json says about one set."""
    bf16 = torch.cat([oracle.bf16_differences(r, ids) for r, ids in zip(rows, sequences)])
    gap = oracle.router_gap
    return {
        "logit_std": round(torch.cat(rows).std(-1).mean().item(), 2),
        "router_gap_min": float(f"{gap:.2g}") if gap < float("inf") else None,
        "bf16_mean": float(f"{bf16.mean().item():.2g}"),
        "bf16_max": float(f"{bf16.max().item():.2g}"),
        "differs_from": {
            k: float(f"{max(d[k] for d in differences if k in d):.2g}")
            for k in ("fp64", "two_threads", "chunks_of_64", "token_by_token")
            if any(k in d for d in differences)
        },
    }


def trace(oracle, ids):
    """The residual stream after the embedding, each mixer, each feed-forward; final norm."""
    model = oracle.model.model
    steps = {"token_ids": ids, "layers": []}

    def keep(value):
        return [[float(f"{v:.7g}") for v in row] for row in value.reshape(len(ids), -1).tolist()]

    def around_layer(layer, inputs, output):
        steps["layers"].append({"mixer": keep(after_mixer.pop()), "ffn": keep(output)})

    after_mixer, hooks = [], []
    hooks.append(model.embed_tokens.register_forward_hook(
        lambda m, i, o: steps.update(embedding=keep(o))
    ))  # fmt: skip
    for layer in model.layers:
        hooks.append(layer.post_attention_layernorm.register_forward_pre_hook(
            lambda m, i: after_mixer.append(i[0])
        ))  # fmt: skip
        hooks.append(layer.register_forward_hook(around_layer))
    hooks.append(model.norm.register_forward_hook(
        lambda m, i, o: steps.update(final_norm=keep(o))
    ))  # fmt: skip
    oracle.logprobs(ids)
    for hook in hooks:
        hook.remove()
    return steps


def export_random(shape):
    """One random checkpoint: weights, prompts, expected values."""
    folder = HERE / shape.name
    checkpoints.write_checkpoint(shape, folder)
    ling_2 = getattr(shape, "family", None) == "ling_2"
    oracle = LingOracle(folder) if ling_2 else Oracle(folder)
    rng = torch.Generator().manual_seed(1000 + shape.seed)
    scores, greedy, rows_all, differences = [], [], [], []
    smallest_gap = float("inf")
    for length in shape.lengths or PROMPT_LENGTHS:
        while True:
            ids = torch.randint(shape.vocab, (length,), generator=rng).tolist()
            oracle.router_gap = float("inf")
            rows = oracle.logprobs(ids)
            new, new_rows = oracle.greedy(ids, GREEDY_TOKENS, stop=())
            if oracle.well_conditioned(rows, ids, "random"):
                break
        smallest_gap = min(smallest_gap, oracle.router_gap)
        scores.append(score_line(shape.name, rows, ids))
        greedy.append(greedy_line(shape.name, ids, new, new_rows))
        differences.append(self_difference(oracle, rows, ids))
        rows_all.append(rows)
        if shape.name == TRACED and length == 3:
            (folder / "trace.json").write_text(
                json.dumps(trace(oracle, ids), separators=(",", ":")) + "\n"
            )
    write_lines(folder / "score.jsonl", scores)
    write_lines(folder / "greedy.jsonl", greedy)
    oracle.router_gap = smallest_gap
    return summary(oracle, rows_all, [s["token_ids"] for s in scores], differences)


def chat_ids(tokenizer, item):
    """Prompt tokens of an evaluation item through the chat template."""
    return tokenizer.apply_chat_template(
        item["messages"], tools=item.get("tools"), add_generation_prompt=True,
        enable_thinking=item["thinking"], tokenize=True, return_dict=False,
    )  # fmt: skip


def export_tiny():
    """braid-tiny on prompts from models/eval; scored with their greedy answers."""
    folder, out = ROOT / "models" / "braid-tiny", HERE / "braid_tiny"
    out.mkdir(exist_ok=True)
    oracle = Oracle(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    stop = json.loads((folder / "generation_config.json").read_text())["eos_token_id"]
    scores, greedy, rows_all, differences = [], [], [], []
    smallest_gap = float("inf")
    for task, count in TINY_TASKS.items():
        text = (ROOT / "models" / "eval" / f"{task}.jsonl").read_text(encoding="utf-8")
        for item in map(json.loads, text.splitlines()):
            if count == 0:
                break
            if "messages" not in item:
                continue
            oracle.router_gap = float("inf")
            prompt = chat_ids(tokenizer, item)
            new, new_rows = oracle.greedy(prompt, TINY_GREEDY_TOKENS, stop)
            ids = prompt + new
            rows = oracle.logprobs(ids)
            if not oracle.well_conditioned(rows, ids, "trained"):
                continue
            count -= 1
            smallest_gap = min(smallest_gap, oracle.router_gap)
            scores.append({"id": item["id"]} | score_line("braid-tiny", rows, ids))
            greedy.append({"id": item["id"]} | greedy_line("braid-tiny", prompt, new, new_rows))
            differences.append(self_difference(oracle, rows, ids))
            rows_all.append(rows)
    write_lines(out / "score.jsonl", scores)
    write_lines(out / "greedy.jsonl", greedy)
    oracle.router_gap = smallest_gap
    return summary(oracle, rows_all, [s["token_ids"] for s in scores], differences)


def main():
    """Export all sets, or the one named by --only."""
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("--only", help="name of one set, e.g. qwen3_5_moe_a or braid_tiny")
    args = p.parse_args()
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    shapes = [*checkpoints.SHAPES, *latent_checkpoints.SHAPES]
    work = {s.name: lambda s=s: export_random(s) for s in shapes}
    work["braid_tiny"] = export_tiny
    if args.only and args.only not in work:
        p.error(f"--only {args.only}: there is {', '.join(work)}")
    file = HERE / "measured.json"
    measured = json.loads(file.read_text()) if file.exists() else {}
    for name, export in work.items():
        if args.only in (None, name):
            measured[name] = export()
            print(name, json.dumps(measured[name]), flush=True)
    measured["versions"] = {
        "torch": torch.__version__.split("+")[0],
        "transformers": transformers.__version__,
    }
    file.write_text(json.dumps(measured, indent=2) + "\n")


if __name__ == "__main__":
    main()
