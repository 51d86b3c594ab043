"""Runs the binary for the tests of the command line."""

import os
import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BINARY = os.environ.get("BRAID_BIN", str(ROOT / "build/release/braid"))
TINY = ROOT / "models/braid-tiny"


@pytest.fixture
def braid():
    """braid(*words, input=None, env=None) -> CompletedProcess with text."""

    def run(*words, input=None, env=None, timeout=300):
        return subprocess.run(
            [BINARY, *map(str, words)], input=input, capture_output=True, text=True,
            env={**os.environ, **(env or {})}, timeout=timeout, check=False,
        )  # fmt: skip

    return run


@pytest.fixture
def tiny():
    """The directory of braid-tiny."""
    return TINY


@pytest.fixture
def ids_only(tmp_path):
    """braid-tiny without tokenizer and chat template."""
    folder = tmp_path / "ids-only"
    folder.mkdir()
    for name in ("config.json", "model.safetensors", "generation_config.json"):
        (folder / name).symlink_to(TINY / name)
    return folder
