"""The short form of tests/abuse: a tenth of each attack, with bounds that a busy machine holds."""

import argparse
import os
import pathlib
import random
import socketserver
import subprocess
import sys
import threading

ABUSE = pathlib.Path(__file__).resolve().parents[1] / "abuse/abuse.py"
sys.path.insert(0, str(ABUSE.parent))
import abuse  # noqa: E402
import attacks  # noqa: E402

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


class Failing(socketserver.BaseRequestHandler):
    """Answers 500 to everything, also to what is no HTTP."""

    def handle(self):
        while self.request.recv(65536):
            pass
        self.request.sendall(b"HTTP/1.1 500 Internal Server Error\r\n\r\n")


def test_a_server_error_in_answer_to_broken_framing_exceeds_a_bound():
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Failing) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        target = attacks.Target(server.server_address[1], small=True)
        seen = attacks.broken_framing(target, random.Random(1))
        server.shutdown()
    options = argparse.Namespace(p99_ms=1, max_ms=1, no_memory=True)
    assert abuse.report([("a", 0.0, 1.0, 0, seen)], [], 0, options) == ["a: 500"]
