"""GGUF files byte by byte, also wrong ones."""

import pathlib
import struct

import stored

# Blocks of every type that has some (make_gguf.py), and the types' numbers.
BLOCKS, _NUMBERS = stored.read(pathlib.Path(__file__).parent / "layouts/gguf_blocks.safetensors")
TYPES = {"F32": 0, "F16": 1, "BF16": 30, **{name: int(n) for name, n in _NUMBERS.items()}}
BLOCK_TYPES = list(_NUMBERS)
U32, F32, BOOL, STRING, ARRAY = 4, 6, 7, 8, 9


def text(value):
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def value_of(value):
    """Type and bytes of a metadata value."""
    if isinstance(value, bool):
        return BOOL, struct.pack("<?", value)
    if isinstance(value, int):
        return U32, struct.pack("<I", value)
    if isinstance(value, float):
        return F32, struct.pack("<f", value)
    if isinstance(value, str):
        return STRING, text(value)
    kind, _ = value_of(value[0])
    items = b"".join(value_of(item)[1] for item in value)
    return ARRAY, struct.pack("<IQ", kind, len(value)) + items


def header(tensors, keys, version=3):
    return b"GGUF" + struct.pack("<IQQ", version, tensors, keys)


def entry(name, shape, kind, offset):
    """Shape slowest first, as NumPy has it."""
    packed = struct.pack(f"<I{len(shape)}QIQ", len(shape), *reversed(shape), kind, offset)
    return text(name) + packed


def write(path, metadata, tensors):
    """`tensors`: name -> (type name, shape in elements, bytes)."""
    out = header(len(tensors), len(metadata))
    for key, value in metadata.items():
        kind, data = value_of(value)
        out += text(key) + struct.pack("<I", kind) + data
    at, blobs = 0, b""
    for name, (kind, shape, data) in tensors.items():
        out += entry(name, shape, TYPES[kind], at)
        blobs += data + b"\0" * (-len(data) % 32)
        at = len(blobs)
    path.write_bytes(out + b"\0" * (-len(out) % 32) + blobs)


def split(path, metadata, tensors, counts):
    """Writes parts with counts[i] tensors each, as `llama-gguf-split` does; returns their paths.
    `path` ends with ".gguf"."""
    names, at, paths = list(tensors), 0, []
    for part, count in enumerate(counts):
        keys = {"split.no": part, "split.count": len(counts), "split.tensors.count": len(tensors)}
        name = f"{path.stem}-{part + 1:05}-of-{len(counts):05}.gguf"
        paths.append(path.parent / name)
        write(paths[-1], {**metadata, **keys} if part == 0 else keys,
              {n: tensors[n] for n in names[at:at + count]})
        at += count
    return paths
