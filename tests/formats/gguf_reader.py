"""The head of a GGUF file as dictionaries, written from the format's definition."""

import pathlib
import struct

import gguf_writer

SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q",
           12: "d"}
NAMES = {number: name for name, number in gguf_writer.TYPES.items()}
# Elements and bytes of a block.
BLOCKS = {"F32": (1, 4), "F16": (1, 2), "BF16": (1, 2),
          **{name: (512 * 8 // (gguf_writer.BLOCKS[name][1].size // size), size)
             for name, size in (("Q4_0", 18), ("Q4_1", 20), ("Q5_0", 22), ("Q5_1", 24),
                                ("Q8_0", 34), ("Q2_K", 84), ("Q3_K", 110), ("Q4_K", 144),
                                ("Q5_K", 176), ("Q6_K", 210), ("IQ4_NL", 18), ("IQ4_XS", 136),
                                ("MXFP4", 17))}}


class Head:
    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, form):
        values = struct.unpack_from("<" + form, self.data, self.at)
        self.at += struct.calcsize("<" + form)
        return values

    def text(self):
        size, = self.take("Q")
        self.at += size
        return self.data[self.at - size:self.at].decode()

    def value(self, kind):
        """(kind, value): a list has its items' kind."""
        if kind == gguf_writer.STRING:
            return kind, self.text()
        if kind == gguf_writer.ARRAY:
            inner, count = self.take("IQ")
            return (kind, inner), [self.value(inner)[1] for _ in range(count)]
        return kind, self.take(SCALARS[kind])[0]


def read(path):
    """(metadata: key -> (kind, value), tensors: name -> (type, shape slowest first, bytes))."""
    head = Head(pathlib.Path(path).read_bytes())
    magic, version, tensors, keys = head.take("4sIQQ")
    assert magic == b"GGUF" and version == 3
    metadata = {}
    for _ in range(keys):
        key = head.text()
        metadata[key] = head.value(head.take("I")[0])
    found = []
    for _ in range(tensors):
        name = head.text()
        rank, = head.take("I")
        shape = head.take(f"{rank}Q")[::-1]
        kind, offset = head.take("IQ")
        found.append((name, NAMES[kind], shape, offset))
    begin = (head.at + 31) // 32 * 32
    out, end = {}, 0
    for name, kind, shape, offset in found:
        assert offset == (end + 31) // 32 * 32, name
        elements, size = BLOCKS[kind]
        count = size
        for dim in shape:
            count *= dim
        assert shape[-1] % elements == 0, name
        end = offset + count // elements
        out[name] = (kind, shape, head.data[begin + offset:begin + end])
    assert len(head.data) == begin + (end + 31) // 32 * 32
    return metadata, out
