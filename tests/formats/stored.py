"""Safetensors files as dictionaries: name -> (dtype name, NumPy array of its bits)."""

import json
import pathlib
import struct

import numpy as np

BITS = {"F32": np.float32, "F16": np.float16, "BF16": np.uint16, "F64": np.float64, "I8": np.int8,
        "U8": np.uint8, "I32": np.int32, "I64": np.int64, "F8_E4M3": np.uint8, "F8_E8M0": np.uint8}
# Checkpoints of make-model that stored files were made from, by its arguments.
MADE = {"qwen3_next_made": ["--family", "qwen3_next", "--shape",
                            "tiny,linear_num_value_heads=6,vocab_size=96,hidden_size=48"]}


def read(path):
    """(tensors, metadata) of one file."""
    data = pathlib.Path(path).read_bytes()
    length, = struct.unpack("<Q", data[:8])
    header = json.loads(data[8:8 + length])
    metadata = header.pop("__metadata__", {})
    tensors = {}
    for name, entry in header.items():
        begin, end = (8 + length + offset for offset in entry["data_offsets"])
        bits = np.frombuffer(data[begin:end], BITS[entry["dtype"]]).reshape(entry["shape"])
        tensors[name] = (entry["dtype"], bits)
    return tensors, metadata


def write(path, tensors, metadata=None):
    """Writes `tensors` in the order of their names."""
    header, blobs, at = {}, [], 0
    if metadata:
        header["__metadata__"] = metadata
    for name in sorted(tensors):
        kind, bits = tensors[name]
        blob = np.ascontiguousarray(bits, BITS[kind]).tobytes()
        header[name] = {"dtype": kind, "shape": list(bits.shape),
                        "data_offsets": [at, at + len(blob)]}
        blobs.append(blob)
        at += len(blob)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    pathlib.Path(path).write_bytes(struct.pack("<Q", len(text)) + text + b"".join(blobs))


def read_model(folder):
    """All tensors of a checkpoint directory."""
    tensors = {}
    for path in sorted(pathlib.Path(folder).glob("*.safetensors")):
        tensors.update(read(path)[0])
    return tensors


def as_float(kind, bits):
    """Numbers of a plain tensor as fp32."""
    if kind == "BF16":
        return (bits.astype(np.uint32) << 16).view(np.float32)
    return bits.astype(np.float32)


def as_bf16(values):
    """Bits of fp32 numbers that are bf16 numbers already."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    assert not (bits & 0xffff).any(), "not bf16 numbers"
    return (bits >> 16).astype(np.uint16)
