"""Quantises fp32 weights [out, in] into the tensors that exporters write, in NumPy. Each function
returns the parts by the suffix that takes the place of ".weight"."""

import numpy as np

from decoders import AWQ_ORDER, E2M1, E4M3


def nearest(table, values):
    """Codes 0..n of the nearest non-negative entry of a rising table, signs added by the caller."""
    middle = (table[1:] + table[:-1]) / 2
    return np.searchsorted(middle, values).astype(np.uint8)


def to_e4m3(values):
    codes = nearest(E4M3[:127], np.abs(values))
    return codes | np.where(np.signbit(values), 0x80, 0).astype(np.uint8)


def to_e2m1(values):
    codes = nearest(E2M1[:8], np.abs(values))
    return codes | np.where(np.signbit(values), 8, 0).astype(np.uint8)


def packed_bytes(codes):
    return (codes[..., 0::2] | codes[..., 1::2] << 4).astype(np.uint8)


def packed_words(codes, bits=4):
    """Codes of the last axis in words, lowest bits first; zeros where the axis ends."""
    per = 32 // bits
    codes = np.pad(codes.astype(np.uint32), [(0, 0), (0, -codes.shape[1] % per)])
    groups = codes.reshape(codes.shape[0], -1, per)
    return sum(groups[..., i] << np.uint32(bits * i) for i in range(per)).astype(np.uint32).view(
        np.int32)


def to_e8m0(scale):
    return np.clip(np.ceil(np.log2(np.maximum(scale, 1e-30))) + 127, 1, 254).astype(np.uint8)


def powers(bits):
    return np.exp2(bits.astype(np.float64) - 127).astype(np.float32)


def fp8_blocks(w, power_of_two=False):
    rows, columns = w.shape
    padded = np.pad(np.abs(w), [(0, -rows % 128), (0, -columns % 128)])
    top = padded.reshape(padded.shape[0] // 128, 128, -1, 128).max((1, 3))
    scale = (np.maximum(top, 1e-12) / 448).astype(np.float32)
    if power_of_two:
        scale = powers(to_e8m0(scale))
    full = np.repeat(np.repeat(scale, 128, 0), 128, 1)[:rows, :columns]
    stored = ("F8_E8M0", to_e8m0(scale)) if power_of_two else ("F32", scale)
    return {".weight": ("F8_E4M3", to_e4m3(w / full)), ".weight_scale_inv": stored}


def fp8_channel(w):
    scale = (np.abs(w).max(1, keepdims=True) / 448 + 1e-12).astype(np.float32)
    return {".weight": ("F8_E4M3", to_e4m3(w / scale)), ".weight_scale": ("F32", scale)}


def grouped(w, group):
    rows, columns = w.shape
    padded = np.pad(w, [(0, 0), (0, -columns % group)])
    return padded.reshape(rows, -1, group)


def int4_packed(w, group):
    blocks = grouped(w, group)
    scale = (np.abs(blocks).max(-1) / 7.5 + 1e-9).astype(np.float16)
    codes = np.clip(np.rint(blocks / scale.astype(np.float32)[..., None]) + 8, 0, 15)
    codes = codes.reshape(w.shape[0], -1)[:, :w.shape[1]]
    return {".weight_packed": ("I32", packed_words(codes)), ".weight_scale": ("F16", scale),
            ".weight_shape": ("I64", np.array(w.shape))}


def int8_packed(w, group):
    """One scale per row where group is 0."""
    blocks = grouped(w, group or w.shape[1])
    scale = (np.abs(blocks).max(-1) / 127 + 1e-7).astype(np.float16)
    codes = np.clip(np.rint(blocks / scale.astype(np.float32)[..., None]) + 128, 0, 255)
    codes = codes.reshape(w.shape[0], -1)[:, :w.shape[1]]
    return {".weight_packed": ("I32", packed_words(codes, 8)), ".weight_scale": ("F16", scale),
            ".weight_shape": ("I64", np.array(w.shape))}


def gptq_int8(w, group):
    parts = int8_packed(w, group)
    codes = parts[".weight_packed"][1].view(np.uint8)[:, :w.shape[1]]
    scale = parts[".weight_scale"][1]
    zeros = np.full((scale.shape[1], w.shape[0]), 127)
    return {".qweight": ("I32", packed_words(codes, 8).T.copy()),
            ".qzeros": ("I32", packed_words(zeros, 8)), ".scales": ("F16", scale.T)}


def nvfp4(w, divide):
    blocks = grouped(w, 16)
    factor = np.float32(448 * 6 / np.abs(w).max())
    scale = to_e4m3(np.abs(blocks).max(-1) / 6 * factor)
    step = np.maximum(E4M3[scale] / factor, 1e-20)[..., None]
    codes = to_e2m1(blocks / step).reshape(w.shape)
    if divide:
        return {".weight_packed": ("U8", packed_bytes(codes)), ".weight_scale": ("F8_E4M3", scale),
                ".weight_global_scale": ("F32", np.array([factor], np.float32))}
    return {".weight": ("U8", packed_bytes(codes)), ".weight_scale": ("F8_E4M3", scale),
            ".weight_scale_2": ("F32", np.array(1 / factor, np.float32))}


def mxfp4(w):
    blocks = grouped(w, 32)
    scale = to_e8m0(np.abs(blocks).max(-1) / 6)
    codes = to_e2m1(blocks / powers(scale)[..., None]).reshape(w.shape)
    return {".weight_packed": ("U8", packed_bytes(codes)), ".weight_scale": ("U8", scale)}


def asymmetric(w, group):
    """Codes [out, in], zeros and scales [out, groups]."""
    blocks = grouped(w, group)
    low, high = np.minimum(blocks.min(-1), 0), np.maximum(blocks.max(-1), 0)
    scale = ((high - low) / 15 + 1e-9).astype(np.float16)
    step = scale.astype(np.float32)
    zeros = np.clip(np.rint(-low / step), 1, 15).astype(np.int64)
    codes = np.clip(np.rint(blocks / step[..., None]) + zeros[..., None], 0, 15)
    return codes.reshape(w.shape[0], -1)[:, :w.shape[1]].astype(np.int64), zeros, scale


def awq(w, group):
    codes, zeros, scale = asymmetric(w, group)

    def pack(values):
        ordered = values.reshape(values.shape[0], -1, 8)[..., AWQ_ORDER]
        return packed_words(ordered.reshape(values.shape[0], -1))

    return {".qweight": ("I32", pack(codes.T)), ".qzeros": ("I32", pack(zeros.T)),
            ".scales": ("F16", scale.T)}


def gptq(w, group, shuffled=False):
    """`shuffled`: inputs fall into groups in an order of their own, as act-order makes them."""
    order = np.random.default_rng(1).permutation(w.shape[1]) if shuffled else np.arange(w.shape[1])
    codes, zeros, scale = asymmetric(w[:, order], group)
    back = np.argsort(order)
    return {".qweight": ("I32", packed_words(codes[:, back]).T),
            ".qzeros": ("I32", packed_words((zeros - 1).T)), ".scales": ("F16", scale.T),
            ".g_idx": ("I32", (back // group).astype(np.int32))}

