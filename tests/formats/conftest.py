"""Runs the binary for the tests of stored formats."""

import os
import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BINARY = os.environ.get("BRAID_BIN", str(ROOT / "build/release/braid"))


@pytest.fixture(scope="session")
def braid():
    """braid(*words, fails=False) -> standard output; standard error where it must fail."""

    def run(*words, fails=False):
        done = subprocess.run([BINARY, *map(str, words)], capture_output=True, text=True,
                              timeout=300, check=False)
        assert (done.returncode != 0) == fails, done.stderr
        return done.stderr if fails else done.stdout

    return run
