"""What quantised tensors mean, in NumPy and fp32: one function a format, from the parts' arrays
(as `stored.read` gives them) to the weight [out, in]. Written from the formats' definitions; shares
nothing with the engine."""

import numpy as np

from stored import as_float

E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32)
AWQ_ORDER = [0, 2, 4, 6, 1, 3, 5, 7]


def _e4m3_table():
    table = np.zeros(256, np.float32)
    for code in range(256):
        sign = -1.0 if code & 0x80 else 1.0
        exponent, mantissa = code >> 3 & 15, code & 7
        value = mantissa * 2.0**-9 if exponent == 0 else (1 + mantissa / 8) * 2.0**(exponent - 7)
        table[code] = sign * (np.nan if code & 0x7F == 0x7F else value)
    return table


E4M3 = _e4m3_table()


def e8m0(bits):
    return np.exp2(bits.astype(np.float64) - 127).astype(np.float32)


def scales(part):
    kind, bits = part
    return e8m0(bits) if kind in ("F8_E8M0", "U8") else as_float(kind, bits)


def codes8(part):
    kind, bits = part
    return E4M3[bits] if kind == "F8_E4M3" else bits.astype(np.float32)


def fp8_blocks(weight, scale_inv, block=(128, 128)):
    rows, columns = weight[1].shape
    grid = np.repeat(np.repeat(scales(scale_inv), block[0], 0), block[1], 1)
    return codes8(weight) * grid[:rows, :columns]


def scaled(weight, scale):
    """A scale per row, or one for all."""
    return codes8(weight) * scales(scale).reshape(-1, 1)


def nibbles(words, count, bits=4):
    """The numbers of every 32-bit word along the last axis, lowest bits first."""
    unsigned = words.astype(np.int64) & 0xFFFFFFFF
    parts = [unsigned >> bits * i & (1 << bits) - 1 for i in range(32 // bits)]
    return np.stack(parts, -1).reshape(*words.shape[:-1], -1)[..., :count]


def grouped(codes, zeros, scale, group_of):
    """(code - zero) * scale of [out, in] codes, with zeros and scales [out, groups]."""
    return (codes - zeros[:, group_of]).astype(np.float32) * scale[:, group_of]


def int4_packed(packed, scale, shape, group, zero_point=None, g_idx=None):
    rows, columns = shape
    codes = nibbles(packed[1], columns)
    scale = scales(scale)
    zeros = np.full(scale.shape, 8)
    if zero_point is not None:
        zeros = nibbles(zero_point[1].T, rows).T
    group_of = np.arange(columns) // group if g_idx is None else g_idx[1]
    return grouped(codes, zeros, scale, group_of)


def int8_packed(packed, scale, shape, group):
    columns = shape[1]
    codes = nibbles(packed[1], columns, 8)
    group_of = np.arange(columns) // (group or columns)
    return grouped(codes, np.full(scales(scale).shape, 128), scales(scale), group_of)


def gptq_int8(qweight, qzeros, scale, group):
    columns = qweight[1].shape[0] * 4
    codes = nibbles(qweight[1].T, columns, 8)
    zeros = nibbles(qzeros[1], qweight[1].shape[1], 8).T + 1
    return grouped(codes, zeros, scales(scale).T, np.arange(columns) // (group or columns))


def fp4(packed, block, scale):
    low, high = packed & 15, packed >> 4
    codes = np.stack([low, high], -1).reshape(*packed.shape[:-1], -1)
    return E2M1[codes] * np.repeat(scale, block, -1)


def nvfp4(packed, scale, global_scale, divide):
    factor = np.float32(global_scale[1].reshape(-1)[0])
    scale = E4M3[scale[1]]
    return fp4(packed[1], 16, scale / factor if divide else scale * factor)


def mxfp4(packed, scale):
    return fp4(packed[1].view(np.uint8), 32, e8m0(scale[1]))


def awq(qweight, qzeros, scale, group):
    def unpack(words):
        out = nibbles(words, words.shape[1] * 8).reshape(words.shape[0], -1, 8)
        return out[..., np.argsort(AWQ_ORDER)].reshape(words.shape[0], -1)

    codes, zeros = unpack(qweight[1]).T, unpack(qzeros[1]).T
    return grouped(codes, zeros, scales(scale).T, np.arange(codes.shape[1]) // group)


def gptq(qweight, qzeros, scale, group, g_idx=None, zero_less_one=True):
    columns = qweight[1].shape[0] * 8
    codes = nibbles(qweight[1].T, columns)
    zeros = nibbles(qzeros[1], qweight[1].shape[1]).T + int(zero_less_one)
    group_of = np.arange(columns) // group if g_idx is None else g_idx[1]
    return grouped(codes, zeros, scales(scale).T, group_of)
