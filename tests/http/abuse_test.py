"""The short form of tests/abuse: a tenth of each attack, with bounds that a busy machine holds."""

import os
import pathlib
import subprocess
import sys

ABUSE = pathlib.Path(__file__).resolve().parents[1] / "abuse/abuse.py"
# A sanitizer is many times slower and keeps freed memory.
SANITIZED = os.environ.get("BRAID_PRESET", "release") != "release"


def test_attacks_in_random_order_leave_nothing_behind_and_a_bystander_its_stream():
    if SANITIZED:
        bounds = ["--p99-ms", "20000", "--max-ms", "60000", "--no-memory"]
    else:
        bounds = ["--p99-ms", "3000", "--max-ms", "10000", "--no-memory"]
    done = subprocess.run(
        [sys.executable, ABUSE, "--small", "--seconds", "12", "--memory", "200M", *bounds],
        capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
