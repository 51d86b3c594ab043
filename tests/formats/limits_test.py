"""Hostile files end with one message, in less than a second and with little memory beside what any
run of the binary takes."""

import json
import os
import struct
import subprocess

import numpy as np
import pytest

import gguf_writer
import stored
from conftest import BINARY
from formats_test import FORMATS, LAYOUT_MODEL, shape_flags, write_model

EXTRA_KIB = 64 * 1024
SECONDS = float(os.environ.get("BRAID_HOSTILE_SECONDS", "1"))  # of processor time
SANITIZED = os.environ.get("BRAID_PRESET", "release") != "release"


def run(*words):
    """(exit code, standard error, processor seconds, peak KiB)."""
    process = subprocess.Popen([BINARY, *map(str, words)], stdout=subprocess.DEVNULL,
                               stderr=subprocess.PIPE, text=True)
    text = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return process.returncode, text, usage.ru_utime + usage.ru_stime, usage.ru_maxrss


@pytest.fixture(scope="module")
def least():
    """Peak KiB of a run that reads nothing."""
    return run("version")[3]


def refuse(path, least, message=""):
    code, text, seconds, peak = run("inspect", path)
    assert code == 1 and message in text, text[:500]
    assert text.startswith("braid: ") or text.startswith("error") or str(path) in text
    if not SANITIZED:
        assert seconds < SECONDS, f"{seconds} s"
        assert peak - least < EXTRA_KIB, f"{(peak - least) / 1024:.0f} MiB"


def many_keys():
    """As many keys as are accepted, each with a list of the greatest length that is kept."""
    one = struct.pack("<IIQ", gguf_writer.ARRAY, 0, 4096) + bytes(4096)
    keys = b"".join(gguf_writer.text(f"k{i}") + one for i in range(65536 // 16))
    return gguf_writer.header(0, 65536 // 16) + keys


def many_tensors():
    """As many tensors as are accepted."""
    entries = b"".join(gguf_writer.entry(f"tensor.{i}", (1,), 0, 32 * i) for i in range(262144))
    return gguf_writer.header(262144, 0) + entries


def long_vocabulary():
    text = gguf_writer.text("x" * 8)
    head = gguf_writer.text("tokens") + struct.pack("<IIQ", 9, gguf_writer.STRING, 1 << 20)
    return gguf_writer.header(0, 1) + head + text * (1 << 20)


@pytest.mark.parametrize("make", [many_keys, many_tensors, long_vocabulary])
def test_the_largest_gguf_headers_cost_little(tmp_path, least, make):
    path = tmp_path / "m.gguf"
    path.write_bytes(make())
    refuse(path, least, "m.gguf: ")


@pytest.mark.parametrize(
    "pattern", ["re:" + "(a*)*" * 40 + "b", "re:" + "(" * 900, "re:[", "x" * 900])
def test_patterns_of_ignore_lists_cost_little(braid, tmp_path, least, pattern):
    braid("make-model", tmp_path / "made", "--family", "qwen3_5", *shape_flags(LAYOUT_MODEL))
    tensors = stored.read_model(tmp_path / "made")
    config = json.loads((tmp_path / "made/config.json").read_text())
    quantization = {**FORMATS["fp8_channel"][2], "ignore": [pattern] * 200}
    name = "model.layers.0.mlp.down_proj.weight"
    parts = FORMATS["fp8_channel"][0](stored.as_float(*tensors.pop(name)))
    tensors.update({name.removesuffix(".weight") + suffix: part for suffix, part in parts.items()})
    tensors["a" * 300] = tensors[name]
    write_model(tmp_path / "m", tensors, {**config, "quantization_config": quantization})
    refuse(tmp_path / "m", least, "belongs to no weight")


def test_a_config_of_the_largest_size_and_depth_costs_little(tmp_path, least):
    write_model(tmp_path / "m", {"x": ("U8", np.zeros(1, np.uint8))}, {})
    long_name = '{"architectures": ["' + "x" * 1_000_000 + '"]}'
    for text in ("[" * 500_000, '{"a":' * 100_000, long_name):
        (tmp_path / "m/config.json").write_text(text)
        refuse(tmp_path / "m", least, "config.json")
