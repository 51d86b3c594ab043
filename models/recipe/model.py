"""Training module for the text-only Qwen3.5-MoE architecture, with its MTP head.

Parameter names equal those of the Hugging Face checkpoint format (`model.*`,
`mtp.*`), so `state_dict()` can be saved as it is.  Several documents share one
row; `reset` marks the first token of each.  There the recurrent state is wiped
(the log decay gets an extra -50), the convolution sees zeros and attention is
masked, so nothing leaks from one document to the next.
"""

import json
from types import SimpleNamespace

import torch
import torch.nn as nn
import torch.nn.functional as F

CHUNK = 32
RESET_DECAY = -50.0


def load_config(path):
    """Read config.json into a namespace."""
    with open(path) as f:
        return SimpleNamespace(**json.load(f))


def z_norm(x, weight, eps):
    """RMS norm with a zero-centred weight."""
    x = x.float()
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * (1.0 + weight)


class Norm(nn.Module):
    """Zero-centred RMS norm."""

    def __init__(self, dim, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(dim))
        self.eps = eps

    def forward(self, x):
        return z_norm(x, self.weight, self.eps)


class UnitLowerInverse(torch.autograd.Function):
    """(I + A)^-1 for a batch of strictly lower triangular A."""

    @staticmethod
    def forward(ctx, a):
        eye = torch.eye(a.shape[-1], dtype=a.dtype, device=a.device).expand_as(a)
        inv = torch.linalg.solve_triangular(a, eye, upper=False, unitriangular=True)
        ctx.save_for_backward(inv)
        return inv

    @staticmethod
    def backward(ctx, grad):
        (inv,) = ctx.saved_tensors
        t = inv.transpose(-1, -2)
        return -(t @ grad @ t).tril(-1)


def gdn_inputs(qkv, b, a, reset, conv, a_log, dt_bias, hk, hv, dk, dv):
    """Convolution, gates and norms: everything before the recurrence.

    Returns q, k [B,HK,n,C,dk], v [B,HV,n,C,dv], beta and G (the running sum
    of the log decay inside each chunk), both [B,HV,n,C].
    """
    bsz, t, _ = qkv.shape
    qkv = qkv.float()
    since = torch.stack([F.pad(reset, (j, 0))[:, :t] for j in range(3)])  # reset 0..2 tokens ago
    same = (1 - since.cumsum(0)).clamp_min(0)
    y = qkv * conv[:, 3]
    for j in range(1, 4):
        y = y + F.pad(qkv, (0, 0, j, 0))[:, :t] * conv[:, 3 - j] * same[j - 1][..., None]
    y = F.silu(y)
    q, k, v = y.split([hk * dk, hk * dk, hv * dv], -1)

    def heads(u, h, d):
        return u.reshape(bsz, t // CHUNK, CHUNK, h, d).permute(0, 3, 1, 2, 4)

    q, k, v = heads(q, hk, dk), heads(k, hk, dk), heads(v, hv, dv)
    q = q * torch.rsqrt(q.square().sum(-1, keepdim=True) + 1e-6) * dk**-0.5
    k = k * torch.rsqrt(k.square().sum(-1, keepdim=True) + 1e-6)
    beta = torch.sigmoid(b.float())
    g = -torch.exp(a_log) * F.softplus(a.float() + dt_bias) + RESET_DECAY * reset[..., None]
    beta = heads(beta[..., None], hv, 1)[..., 0]
    gsum = heads(g[..., None], hv, 1)[..., 0].cumsum(-1)
    return q.contiguous(), k.contiguous(), v.contiguous(), beta, gsum


def gdn_decay(kk, qk, beta, gsum, r):
    """Decay-weighted key-key (times beta, strictly lower) and query-key products."""
    c = kk.shape[-1]
    tri = torch.ones(c, c, dtype=torch.bool, device=kk.device).tril()
    decay = (gsum[..., :, None] - gsum[..., None, :]).masked_fill(~tri, float("-inf")).exp()
    kk = kk.repeat_interleave(r, 1) * decay * beta[..., None]
    return kk.masked_fill(~tri.tril(-1), 0.0), qk.repeat_interleave(r, 1) * decay


def gdn_operands(q, k, v, beta, gsum, r):
    """Decayed operands of the scan over chunks."""
    q, k = q.repeat_interleave(r, 1), k.repeat_interleave(r, 1)
    e = gsum.exp()[..., None]
    vb = v * beta[..., None]
    kb = k * (beta[..., None] * e)
    last = gsum[..., -1:]
    return q * e, k * (last - gsum).exp()[..., None], vb, kb, last.exp()[..., None]


def gdn_output(o, z, weight, eps):
    """Gated norm of the heads; o [B,HV,n,C,dv] -> [B,T,HV*dv]."""
    bsz, hv, n, c, dv = o.shape
    o = o.permute(0, 2, 3, 1, 4).reshape(bsz, n * c, hv, dv)
    o = o * torch.rsqrt(o.square().mean(-1, keepdim=True) + eps) * weight
    o = o * F.silu(z.float().view(bsz, n * c, hv, dv))
    return o.reshape(bsz, n * c, hv * dv)


class GatedDeltaNet(nn.Module):
    """Gated delta rule token mixer, chunked form."""

    def __init__(self, cfg):
        super().__init__()
        h = cfg.hidden_size
        self.hk, self.hv = cfg.linear_num_key_heads, cfg.linear_num_value_heads
        self.dk, self.dv = cfg.linear_key_head_dim, cfg.linear_value_head_dim
        kd, vd = self.hk * self.dk, self.hv * self.dv
        self.eps = cfg.rms_norm_eps
        self.in_proj_qkv = nn.Linear(h, 2 * kd + vd, bias=False)
        self.in_proj_z = nn.Linear(h, vd, bias=False)
        self.in_proj_b = nn.Linear(h, self.hv, bias=False)
        self.in_proj_a = nn.Linear(h, self.hv, bias=False)
        self.conv1d = nn.Conv1d(
            2 * kd + vd, 2 * kd + vd, cfg.linear_conv_kernel_dim, groups=2 * kd + vd, bias=False
        )
        self.A_log = nn.Parameter(torch.empty(self.hv).uniform_(1, 16).log())
        dt = torch.exp(torch.empty(self.hv).uniform_(-6.9, -2.3))  # 0.001 .. 0.1
        self.dt_bias = nn.Parameter(dt + torch.log(-torch.expm1(-dt)))
        self.norm = nn.Module()
        self.norm.weight = nn.Parameter(torch.ones(self.dv))
        self.out_proj = nn.Linear(vd, h, bias=False)

    def forward(self, x, ctx):
        w = torch.cat(
            [
                self.in_proj_qkv.weight,
                self.in_proj_z.weight,
                self.in_proj_b.weight,
                self.in_proj_a.weight,
            ]
        )
        kd, vd = self.hk * self.dk, self.hv * self.dv
        qkv, z, b, a = F.linear(x, w).split([2 * kd + vd, vd, self.hv, self.hv], -1)
        q, k, v, beta, gsum = ctx.ops.gdn_inputs(
            qkv,
            b,
            a,
            ctx.reset,
            self.conv1d.weight[:, 0],
            self.A_log,
            self.dt_bias,
            self.hk,
            self.hv,
            self.dk,
            self.dv,
        )
        r = self.hv // self.hk
        with torch.autocast(x.device.type, enabled=False):
            kt = k.transpose(-1, -2)
            kk, qk = ctx.ops.gdn_decay(k @ kt, q @ kt, beta, gsum, r)
            inv = UnitLowerInverse.apply(kk)
            qd, kd_, vb, kb, chunk_decay = ctx.ops.gdn_operands(q, k, v, beta, gsum, r)
            u, w = inv @ vb, inv @ kb
            kdt = kd_.transpose(-1, -2)
            state = torch.zeros(x.shape[0], self.hv, self.dk, self.dv, device=x.device)
            new, old = [], []
            parts = zip(u.unbind(2), w.unbind(2), kdt.unbind(2), chunk_decay.unbind(2))
            for ui, wi, ki, di in parts:
                n = ui - wi @ state
                new.append(n)
                old.append(state)
                state = state * di + ki @ n
            o = qk @ torch.stack(new, 2) + qd @ torch.stack(old, 2)
        return self.out_proj(ctx.ops.gdn_output(o, z, self.norm.weight, self.eps))


def rotate(x, cos, sin):
    """Rotate the first 2*len(cos) channels; x [B,T,heads,D]."""
    half = cos.shape[-1]
    a, b, rest = x[..., :half], x[..., half : 2 * half], x[..., 2 * half :]
    return torch.cat([a * cos - b * sin, b * cos + a * sin, rest], -1)


def attn_inputs(qg, k, v, cos, sin, qw, kw, nq, nkv, d, eps):
    """Per-head norms and rotary embedding; returns heads-first tensors."""
    bsz, t, _ = qg.shape
    q, gate = qg.reshape(bsz, t, nq, 2 * d).float().chunk(2, -1)
    q = rotate(z_norm(q, qw, eps), cos, sin)
    k = rotate(z_norm(k.reshape(bsz, t, nkv, d), kw, eps), cos, sin)
    v = v.reshape(bsz, t, nkv, d)
    r = nq // nkv
    qkv = torch.stack(
        [q.to(v.dtype), k.to(v.dtype).repeat_interleave(r, 2), v.repeat_interleave(r, 2)], 2
    )
    return qkv.reshape(bsz * t, 3 * nq * d), gate.reshape(bsz, t, nq * d)


class Rearrange(torch.autograd.Function):
    """Rows x[there]; the gradient goes back by `back`.  Negative entries give zeros."""

    @staticmethod
    def forward(ctx, x, there, back):
        ctx.save_for_backward(there, back)
        return Rearrange.rows(x, there)

    @staticmethod
    def backward(ctx, grad):
        there, back = ctx.saved_tensors
        return Rearrange.rows(grad, back), None, None

    @staticmethod
    def rows(x, index):
        y = x.index_select(0, index.clamp_min(0))
        return y.masked_fill_((index < 0)[:, None], 0.0)


def document_batches(reset):
    """Groups the documents of a batch by length for attention.

    Returns (there, back, spans): `there` lists the token of every slot (-1 for
    padding), `back` the slot of every token, and each span (first slot,
    documents, length) is a dense batch.
    """
    flat = reset.reshape(-1)
    starts = flat.nonzero()[:, 0]
    lengths = torch.diff(starts, append=starts.new_tensor([flat.numel()]))
    size = 2 ** torch.log2(lengths.float()).ceil().long().clamp_min(5)
    size = torch.where(lengths <= size * 3 // 4, size * 3 // 4, size)  # 32, 48, 64, 96, 128, ...
    there, spans, at = [], [], 0
    for n in size.unique().tolist():
        pick = size == n
        offset = torch.arange(n, device=reset.device)
        slots = starts[pick][:, None] + offset
        there.append(slots.masked_fill(offset >= lengths[pick][:, None], -1).reshape(-1))
        spans.append((at, len(slots), n))
        at += len(there[-1])
    there = torch.cat(there)
    real = (there >= 0).nonzero()[:, 0]
    back = torch.empty_like(flat)
    back[there[real]] = real
    return there, back, spans


class Attention(nn.Module):
    """Full attention with per-head query/key norms and an output gate."""

    def __init__(self, cfg):
        super().__init__()
        h, self.d = cfg.hidden_size, cfg.head_dim
        self.nq, self.nkv, self.eps = (
            cfg.num_attention_heads,
            cfg.num_key_value_heads,
            cfg.rms_norm_eps,
        )
        self.q_proj = nn.Linear(h, self.nq * self.d * 2, bias=False)
        self.k_proj = nn.Linear(h, self.nkv * self.d, bias=False)
        self.v_proj = nn.Linear(h, self.nkv * self.d, bias=False)
        self.o_proj = nn.Linear(self.nq * self.d, h, bias=False)
        self.q_norm, self.k_norm = Norm(self.d, self.eps), Norm(self.d, self.eps)

    def forward(self, x, ctx):
        w = torch.cat([self.q_proj.weight, self.k_proj.weight, self.v_proj.weight])
        qg, k, v = F.linear(x, w).split(
            [self.nq * self.d * 2, self.nkv * self.d, self.nkv * self.d], -1
        )
        qkv, gate = ctx.ops.attn_inputs(
            qg,
            k,
            v,
            ctx.cos,
            ctx.sin,
            self.q_norm.weight,
            self.k_norm.weight,
            self.nq,
            self.nkv,
            self.d,
            self.eps,
        )
        there, back, spans = ctx.documents
        slots, out = Rearrange.apply(qkv, there, back), []
        for at, n, size in spans:
            q, k, v = (
                slots[at : at + n * size].view(n, size, 3, self.nq, self.d).permute(2, 0, 3, 1, 4)
            )
            o = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            out.append(o.transpose(1, 2).reshape(n * size, -1))
        o = Rearrange.apply(torch.cat(out), back, there).view(gate.shape)
        return self.o_proj(o * torch.sigmoid(gate).to(o.dtype))


class GroupedExperts(torch.autograd.Function):
    """Routed SwiGLU experts: tokens sorted by expert, one matmul per expert.

    The rows of each expert are padded to a multiple of `PAD` (token 0 with
    weight 0), so that the matmul library meets few distinct shapes.
    """

    PAD = 64

    @staticmethod
    def forward(ctx, x, index, weight, gate_up, down):
        n, k = index.shape
        flat = index.reshape(-1)
        order = flat.argsort(stable=True)
        counts = torch.bincount(flat, minlength=gate_up.shape[0])
        padded = (counts + GroupedExperts.PAD - 1) // GroupedExperts.PAD * GroupedExperts.PAD
        start = padded.cumsum(0) - padded
        slot = torch.empty_like(order)  # place of each (token, choice) among the padded rows
        shift = start - (counts.cumsum(0) - counts)
        slot[order] = torch.arange(n * k, device=x.device) + shift[flat[order]]
        ends = padded.cumsum(0).tolist()
        spans = [(e, s, t) for e, (s, t) in enumerate(zip([0] + ends[:-1], ends)) if t > s]
        token = torch.zeros(ends[-1], dtype=torch.long, device=x.device)
        token[slot] = torch.arange(n * k, device=x.device) // k
        ws = x.new_zeros(ends[-1], 1)
        ws[slot, 0] = weight.reshape(-1).to(x.dtype)
        xs = x[token]
        gu = x.new_empty(len(xs), gate_up.shape[1])
        for e, s, t in spans:
            torch.mm(xs[s:t], gate_up[e].t(), out=gu[s:t])
        g, u = gu.chunk(2, -1)
        act = F.silu(g) * u * ws
        y = torch.empty_like(xs)
        for e, s, t in spans:
            torch.mm(act[s:t], down[e].t(), out=y[s:t])
        ctx.save_for_backward(xs, gu, ws, token, slot, gate_up, down)
        ctx.spans, ctx.k = spans, k
        return y[slot].view(n, k, -1).sum(1)

    @staticmethod
    def backward(ctx, grad):
        xs, gu, ws, token, slot, gate_up, down = ctx.saved_tensors
        k = ctx.k
        dy = grad.to(xs.dtype)[token]
        g, u = gu.chunk(2, -1)
        s = torch.sigmoid(g)
        sg = g * s
        h = sg * u
        act = h * ws
        dact = torch.empty_like(act)
        ddown, dgate_up = torch.zeros_like(down), torch.zeros_like(gate_up)
        for e, a, b in ctx.spans:
            torch.mm(dy[a:b], down[e], out=dact[a:b])
            torch.mm(dy[a:b].t(), act[a:b], out=ddown[e])
        dws = (dact * h).sum(-1, dtype=torch.float32)
        dact = dact * ws
        dgu = torch.cat([dact * u * (s + sg * (1 - s)), dact * sg], -1)
        dxs = torch.empty_like(xs)
        for e, a, b in ctx.spans:
            torch.mm(dgu[a:b], gate_up[e], out=dxs[a:b])
            torch.mm(dgu[a:b].t(), xs[a:b], out=dgate_up[e])
        dx = dxs[slot].view(-1, k, xs.shape[1]).sum(1)
        return dx, None, dws[slot].view(-1, k), dgate_up, ddown


def swiglu(gu):
    """SwiGLU of concatenated gate and up projections."""
    g, u = gu.chunk(2, -1)
    return F.silu(g) * u


class SparseMoe(nn.Module):
    """Top-k routed experts plus a sigmoid-gated shared expert."""

    def __init__(self, cfg):
        super().__init__()
        h, i, s = cfg.hidden_size, cfg.moe_intermediate_size, cfg.shared_expert_intermediate_size
        self.top_k, self.n = cfg.num_experts_per_tok, cfg.num_experts
        self.gate = nn.Linear(h, self.n, bias=False)
        self.experts = nn.Module()
        self.experts.gate_up_proj = nn.Parameter(torch.empty(self.n, 2 * i, h))
        self.experts.down_proj = nn.Parameter(torch.empty(self.n, h, i))
        self.shared_expert = nn.Module()
        self.shared_expert.gate_proj = nn.Linear(h, s, bias=False)
        self.shared_expert.up_proj = nn.Linear(h, s, bias=False)
        self.shared_expert.down_proj = nn.Linear(s, h, bias=False)
        self.shared_expert_gate = nn.Linear(h, 1, bias=False)

    def forward(self, x, ctx):
        shape = x.shape
        x = x.reshape(-1, shape[-1])
        xb = x.to(ctx.dtype)
        se = self.shared_expert
        small = F.linear(
            xb,
            torch.cat(
                [
                    se.gate_proj.weight,
                    se.up_proj.weight,
                    self.gate.weight,
                    self.shared_expert_gate.weight,
                ]
            ),
        )
        gu, logits, sgate = small.split([2 * se.gate_proj.out_features, self.n, 1], -1)
        p = logits.float().softmax(-1)
        top, index = p.topk(self.top_k, -1)
        top = top / top.sum(-1, keepdim=True)
        with torch.no_grad():
            load = torch.bincount(index.reshape(-1), minlength=self.n).float() / index.numel()
        ctx.aux.append(self.n * (load * p.mean(0)).sum())
        ctx.load.append(load)
        y = GroupedExperts.apply(
            xb,
            index,
            top,
            self.experts.gate_up_proj.to(ctx.dtype),
            self.experts.down_proj.to(ctx.dtype),
        )
        y = y + torch.sigmoid(sgate) * se.down_proj(ctx.ops.swiglu(gu))
        return y.view(shape)


class Layer(nn.Module):
    """Pre-norm decoder layer."""

    def __init__(self, cfg, kind):
        super().__init__()
        self.kind = kind
        if kind == "full_attention":
            self.self_attn = Attention(cfg)
        else:
            self.linear_attn = GatedDeltaNet(cfg)
        self.mlp = SparseMoe(cfg)
        self.input_layernorm = Norm(cfg.hidden_size, cfg.rms_norm_eps)
        self.post_attention_layernorm = Norm(cfg.hidden_size, cfg.rms_norm_eps)

    def forward(self, x, ctx):
        n = self.input_layernorm
        h = ctx.ops.z_norm(x, n.weight, n.eps).to(ctx.dtype)
        x = x + (self.self_attn if self.kind == "full_attention" else self.linear_attn)(h, ctx)
        n = self.post_attention_layernorm
        return x + self.mlp(ctx.ops.z_norm(x, n.weight, n.eps).to(ctx.dtype), ctx)


OPS = dict(
    gdn_inputs=gdn_inputs,
    gdn_decay=gdn_decay,
    gdn_operands=gdn_operands,
    gdn_output=gdn_output,
    attn_inputs=attn_inputs,
    swiglu=swiglu,
    z_norm=z_norm,
)


class Braid(nn.Module):
    """The language model and its MTP head."""

    def __init__(self, cfg, compile_ops=False):
        super().__init__()
        self.cfg = cfg
        self.model = nn.Module()
        self.model.embed_tokens = nn.Embedding(cfg.vocab_size, cfg.hidden_size)
        self.model.layers = nn.ModuleList([Layer(cfg, kind) for kind in cfg.layer_types])
        self.model.norm = Norm(cfg.hidden_size, cfg.rms_norm_eps)
        self.mtp = nn.Module()
        self.mtp.pre_fc_norm_embedding = Norm(cfg.hidden_size, cfg.rms_norm_eps)
        self.mtp.pre_fc_norm_hidden = Norm(cfg.hidden_size, cfg.rms_norm_eps)
        self.mtp.fc = nn.Linear(2 * cfg.hidden_size, cfg.hidden_size, bias=False)
        self.mtp.layers = nn.ModuleList([Layer(cfg, "full_attention")])
        self.mtp.norm = Norm(cfg.hidden_size, cfg.rms_norm_eps)
        self.ops = SimpleNamespace(
            **{k: torch.compile(f) if compile_ops else f for k, f in OPS.items()}
        )
        self.init_weights()

    @torch.no_grad()
    def init_weights(self):
        """Scaled normal initialisation; small outputs of each residual branch."""
        scale = (2 * len(self.model.layers)) ** -0.5
        for name, p in self.named_parameters():
            if (
                name.endswith(("norm.weight", "layernorm.weight", "A_log", "dt_bias"))
                or "pre_fc_norm" in name
            ):
                continue
            if "embed_tokens" in name:
                p.normal_(0, 0.03)
            elif "conv1d" in name:
                p.uniform_(-0.5, 0.5)
            else:
                p.normal_(0, p.shape[-1] ** -0.5)
                if name.endswith(
                    ("o_proj.weight", "out_proj.weight", "down_proj", "down_proj.weight")
                ):
                    p.mul_(scale)

    def context(self, ids, positions, reset, dtype):
        """Shared inputs of all layers: rotary tables, masks, accumulators."""
        cfg, dev = self.cfg, ids.device
        rope = cfg.rope_parameters
        rd = int(cfg.head_dim * rope["partial_rotary_factor"])
        inv = 1.0 / rope["rope_theta"] ** (torch.arange(0, rd, 2, device=dev).float() / rd)
        ang = positions[..., None, None].float() * inv
        return SimpleNamespace(
            cos=ang.cos(),
            sin=ang.sin(),
            documents=document_batches(reset),
            reset=reset.float(),
            dtype=dtype,
            ops=self.ops,
            aux=[],
            load=[],
        )

    def trunk(self, ids, ctx):
        """Hidden states after the final norm."""
        x = self.model.embed_tokens(ids)
        for layer in self.model.layers:
            x = layer(x, ctx)
        return self.model.norm(x)

    def draft(self, next_ids, hidden, ctx):
        """One MTP step for all positions; next_ids are the ids one place ahead."""
        e = self.mtp.pre_fc_norm_embedding(self.model.embed_tokens(next_ids))
        x = self.mtp.fc(torch.cat([e, self.mtp.pre_fc_norm_hidden(hidden)], -1).to(ctx.dtype))
        return self.mtp.norm(self.mtp.layers[0](x.float(), ctx))

    def head(self, hidden):
        """Logits through the tied embedding."""
        return F.linear(hidden, self.model.embed_tokens.weight)
