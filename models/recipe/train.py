"""Train the checkpoint: `torchrun --nproc-per-node 2 train.py OUT --minutes 68`.

Runs on CPU (gloo, one thread per rank) or CUDA (nccl).  The schedule follows
the wall clock: warm-up, constant, then linear decay to zero at the end.  A
rerun with the same OUT resumes from its last state.
"""

import argparse
import json
import os
import pathlib
import time

import numpy as np
import torch
import torch.distributed as dist
from safetensors.torch import save_file
from tokenizers import Tokenizer

import tasks
from model import Braid, load_config

HERE = pathlib.Path(__file__).parent


class Packer:
    """Fills rows of `length` tokens with whole documents."""

    def __init__(self, tokenizer, seed, pool=96):
        self.tok = tokenizer
        self.length = 256
        self.docs = tasks.stream(seed, lambda: self.length - 30)
        self.pool, self.size = [], pool

    def document(self):
        """The next document that fits, as (ids, target mask, task number)."""
        while True:
            sample = next(self.docs)
            ids, mask = [], []
            for text, target in tasks.render(sample):
                part = self.tok.encode(text, add_special_tokens=False).ids
                ids += part
                mask += [target] * len(part)
            if len(ids) <= self.length:
                return ids, mask, tasks.TASKS.index(sample.task)

    def batch(self, rows):
        """Arrays [rows, length]: ids, positions, reset flags, targets, task numbers."""
        n = self.length
        ids = np.zeros((rows, n), np.int64)
        pos, reset, target = np.zeros_like(ids), np.zeros_like(ids), np.zeros_like(ids)
        task = np.full_like(ids, -1)
        for row in range(rows):
            at = 0
            while True:
                while len(self.pool) < self.size:
                    self.pool.append(self.document())
                fits = [i for i, d in enumerate(self.pool) if len(d[0]) <= n - at]
                if not fits:
                    break
                i = max(fits, key=lambda j: len(self.pool[j][0])) if n - at < 128 else fits[0]
                doc, mask, kind = self.pool.pop(i)
                end = at + len(doc)
                ids[row, at:end], target[row, at:end], task[row, at:end] = doc, mask, kind
                pos[row, at:end] = np.arange(len(doc))
                reset[row, at] = 1
                at = end
            reset[row, at : at + 1] = 1
        return [torch.from_numpy(a) for a in (ids, pos, reset, target, task)]


class HeadLoss(torch.autograd.Function):
    """Cross entropy through the tied head, keeping only the probabilities."""

    @staticmethod
    def forward(ctx, hidden, weight, target):
        hb, wb = hidden.bfloat16(), weight.bfloat16()
        logits = (hb @ wb.t()).float()
        best = logits.argmax(-1)
        logp = logits.log_softmax(-1)
        rows = torch.arange(len(target), device=target.device)
        loss = -logp[rows, target]
        grad = logp.exp_()
        grad[rows, target] -= 1
        ctx.save_for_backward(hb, wb, grad.bfloat16())
        ctx.mark_non_differentiable(best)
        return loss, best

    @staticmethod
    def backward(ctx, dloss, _):
        hb, wb, grad = ctx.saved_tensors
        grad = grad * dloss[:, None].bfloat16()
        return (grad @ wb).float(), (grad.t() @ hb).float(), None


def orthogonalise(g, steps=5):
    """Newton-Schulz iteration of Muon for a batch of matrices."""
    a, b, c = 3.4445, -4.7750, 2.0315
    x = g.bfloat16()
    tall = x.shape[-2] > x.shape[-1]
    if tall:
        x = x.transpose(-1, -2)
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(steps):
        s = x @ x.transpose(-1, -2)
        x = a * x + (b * s + c * (s @ s)) @ x
    return x.transpose(-1, -2) if tall else x


class Optimiser:
    """Muon for the matrices of the layers, Adam for everything else."""

    def __init__(self, model, muon_lr=0.02, adam_lr=3e-3):
        self.muon_lr, self.adam_lr, self.t = muon_lr, adam_lr, 0
        self.groups, self.adam = {}, []
        for name, p in model.named_parameters():
            small = min(p.shape[-2:]) < 32 if p.ndim > 1 else True
            if small or "embed" in name or "conv1d" in name:
                self.adam.append((name, p, torch.zeros_like(p), torch.zeros_like(p)))
            else:
                self.groups.setdefault((p.shape[-2:], p.ndim), []).append(
                    (name, p, torch.zeros_like(p))
                )

    @torch.no_grad()
    def step(self, scale, momentum):
        """Update all weights; `scale` multiplies both learning rates."""
        self.t += 1
        for (shape, ndim), group in self.groups.items():
            for _, p, m in group:
                m.mul_(momentum).add_(p.grad)
                p.grad.add_(m, alpha=momentum)
            lr = self.muon_lr * scale * max(1.0, shape[0] / shape[1]) ** 0.5
            if ndim == 3:
                for _, p, _ in group:
                    p.add_(orthogonalise(p.grad).float(), alpha=-lr)
            else:
                update = orthogonalise(torch.stack([p.grad for _, p, _ in group])).float()
                for (_, p, _), u in zip(group, update):
                    p.add_(u, alpha=-lr)
        b1, b2 = 0.9, 0.95
        for name, p, m, v in self.adam:
            m.lerp_(p.grad, 1 - b1)
            v.lerp_(p.grad.square(), 1 - b2)
            denom = (v / (1 - b2**self.t)).sqrt().add_(1e-10)
            p.addcdiv_(m, denom, value=-self.adam_lr * scale / (1 - b1**self.t))

    def state(self):
        """What a resumed run needs."""
        moments = [(n, m) for g in self.groups.values() for n, _, m in g] + [
            (n, m, v) for n, _, m, v in self.adam
        ]
        return {"t": self.t, "moments": moments}

    def load(self, state):
        """Take over what `state` returned."""
        self.t = state["t"]
        mine = [(m,) for g in self.groups.values() for _, _, m in g] + [
            (m, v) for _, _, m, v in self.adam
        ]
        for dst, (_, *src) in zip(mine, state["moments"]):
            for d, s in zip(dst, src):
                d.copy_(s)


def save_checkpoint(model, out):
    """Write model.safetensors in bf16 (A_log and gated norms: bf16 values kept as fp32)."""
    tensors = {}
    for name, p in model.state_dict().items():
        t = p.detach().to(torch.bfloat16)
        keep = name.endswith(("A_log", "linear_attn.norm.weight"))
        tensors[name] = (t.float() if keep else t).contiguous().cpu()
    save_file(tensors, str(out / "model.safetensors"), metadata={"format": "pt"})


def losses(model, batch, dtype, depth):
    """Main and MTP losses of one batch, and statistics by task."""
    ids, pos, reset, target, task = batch
    ctx = model.context(ids, pos, reset, dtype)
    emb = model.model.embed_tokens.weight
    stats, total = {}, 0.0
    with torch.autocast(ids.device.type, torch.bfloat16, enabled=dtype == torch.bfloat16):
        hidden = model.trunk(ids, ctx)
        for s in range(1 + depth):  # s tokens ahead of the usual next token
            if s:
                hidden = model.draft(ids.roll(-s, 1), hidden, ctx)
            doc = reset.cumsum(1)
            ahead = s + 1
            use = torch.zeros_like(ids, dtype=torch.bool)
            use[:, :-ahead] = (target[:, ahead:] == 1) & (doc[:, ahead:] == doc[:, :-ahead])
            rows = use.reshape(-1).nonzero()[:, 0]
            count = len(rows)
            rows = torch.cat([rows, rows.new_zeros(-count % 256)])  # few distinct shapes
            want = ids.roll(-ahead, 1).reshape(-1)[rows]
            loss, best = HeadLoss.apply(hidden.reshape(-1, hidden.shape[-1])[rows], emb, want)
            loss, right = loss[:count], (best == want)[:count].float()
            total = total + loss.mean() * [1.0, 0.25, 0.1, 0.1][s]
            if s == 0:
                kind = task.reshape(-1)[rows[:count]]
                for i, name in enumerate(tasks.TASKS):
                    sel = kind == i
                    stats[name] = (loss.detach()[sel].sum(), right[sel].sum(), sel.sum())
            else:
                stats[f"mtp{s}"] = (loss.detach().sum(), right.sum(), torch.tensor(count))
    total = total + 0.01 * torch.stack(ctx.aux).mean()
    return total, stats, ctx.load


def main():
    """Train until the time is over."""
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("out", type=pathlib.Path)
    p.add_argument(
        "--tokenizer", type=pathlib.Path, default=HERE.parent / "braid-tiny" / "tokenizer.json"
    )
    p.add_argument("--minutes", type=float, default=80)
    p.add_argument("--tokens", type=int, default=3072, help="tokens per rank and step")
    p.add_argument("--muon-lr", type=float, default=0.02)
    p.add_argument("--adam-lr", type=float, default=3e-3)
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--save-minutes", type=float, default=4)
    p.add_argument("--compile", action="store_true")
    args = p.parse_args()
    rank, world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    cuda = torch.cuda.is_available()
    device = (
        torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0))) if cuda else torch.device("cpu")
    )
    if cuda:
        torch.cuda.set_device(device)
    else:
        torch.set_num_threads(max(1, (os.cpu_count() or 1) // world))
        torch.set_float32_matmul_precision("medium")
    if world > 1:
        dist.init_process_group("nccl" if cuda else "gloo")
    torch._dynamo.config.automatic_dynamic_shapes = False
    torch._dynamo.config.recompile_limit = 64

    torch.manual_seed(args.seed)
    cfg = load_config(HERE / "config.json")
    model = Braid(cfg, compile_ops=args.compile).to(device)
    opt = Optimiser(model, args.muon_lr, args.adam_lr)
    args.out.mkdir(parents=True, exist_ok=True)
    state_file, log = args.out / "state.pt", None
    step, seen, before = 0, 0, 0.0
    if state_file.exists():
        state = torch.load(state_file, map_location=device)
        model.load_state_dict(state["model"])
        opt.load(state["opt"])
        step, seen, before = state["step"], state["seen"], state["elapsed"]
    if rank == 0:
        log = open(args.out / "log.jsonl", "a")
        print(
            sum(q.numel() for q in model.parameters()),
            "parameters, resume at step",
            step,
            flush=True,
        )
    packer = Packer(
        Tokenizer.from_file(str(args.tokenizer)), seed=(args.seed * 1000 + rank) * 1000 + step
    )
    params = list(model.parameters())
    sizes = [q.numel() for q in params]
    start, saved, window, marked = time.time(), time.time(), {}, (time.time(), seen)

    while True:
        elapsed = before + time.time() - start
        frac = torch.tensor([min(1.0, elapsed / (args.minutes * 60))], device=device)
        if world > 1:
            dist.broadcast(frac, 0)
        frac = frac.item()
        if frac >= 1.0:
            break
        packer.length = 256 if frac < 0.25 else 512 if frac < 0.5 else 1024 if step % 4 else 2048
        scale = min(1.0, (step + 1) / 60) * min(1.0, (1 - frac) / 0.4 + 1e-3)
        batch = [t.to(device) for t in packer.batch(max(1, args.tokens // packer.length))]
        loss, stats, load = losses(model, batch, torch.bfloat16, depth=2 if frac > 0.6 else 1)
        loss.backward()
        flat = torch.cat([q.grad.reshape(-1) for q in params])
        if world > 1:
            flat = flat.bfloat16()
            dist.all_reduce(flat)
            flat = flat.float() / world
        norm = flat.norm()
        flat *= (1.0 / norm.clamp_min(1.0)).nan_to_num(0.0)
        for q, g in zip(params, flat.split(sizes)):
            q.grad = g.view_as(q)
        opt.step(scale, momentum=min(0.95, 0.85 + step / 3000))
        for q in params:
            q.grad = None
        step += 1
        seen += batch[0].numel() * world
        for k, v in stats.items():
            window[k] = [x + y.item() for x, y in zip(window.get(k, [0, 0, 0]), v)]
        if rank == 0 and step % 20 == 0:
            now = time.time()
            line = {
                "step": step,
                "seen": seen,
                "min": round((before + now - start) / 60, 2),
                "len": packer.length,
            }
            line |= {
                k: [round(v[0] / max(1, v[2]), 3), round(v[1] / max(1, v[2]), 3)]
                for k, v in window.items()
            }
            line |= {
                "norm": round(norm.item(), 2),
                "tok/s": round((seen - marked[1]) / (now - marked[0])),
            }
            line["maxload"] = round(max(x.max().item() for x in load), 2)
            print(json.dumps(line), flush=True)
            print(json.dumps(line), file=log, flush=True)
            window, marked = {}, (now, seen)
        if rank == 0 and time.time() - saved > args.save_minutes * 60:
            saved = time.time()
            save_checkpoint(model, args.out)
            state = {
                "model": model.state_dict(),
                "opt": opt.state(),
                "step": step,
                "seen": seen,
                "elapsed": before + saved - start,
            }
            torch.save(state, str(state_file) + ".part")
            os.replace(str(state_file) + ".part", state_file)
    if rank == 0:
        save_checkpoint(model, args.out)
        print("finished after", step, "steps,", seen, "tokens", flush=True)
    if world > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
