"""A running `braid serve` for the tests of several folders."""

import contextlib
import os
import pathlib
import re
import signal
import subprocess
import threading

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[1]
START_SECONDS = 120
STOP_SECONDS = 60


class Served:
    """One process; `log` grows with what it prints."""

    def __init__(self, process, address, log):
        self.process, self.address, self.log = process, address, log
        self.port = int(address.rsplit(":", 1)[1])


@contextlib.contextmanager
def serving(*flags, binary=None, model=ROOT / "models/braid-tiny", may_be_killed=False):
    """Serves a model on a free port; at the end it must stop within a minute and say 0, or, if it
    may be, have been killed."""
    binary = binary or os.environ.get("BRAID_BIN", str(ROOT / "build/release/braid"))
    command = [binary, "serve", str(model), "--port", "0", *flags]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    timer = threading.Timer(START_SECONDS, process.kill)
    timer.start()
    log, address = [], None
    for line in process.stdout:
        log.append(line)
        if match := re.search(r"listening on (https?://\S+)", line):
            address = match[1].rstrip("/")
            break
    timer.cancel()
    if address is None:
        pytest.fail(f"{' '.join(command)} did not start:\n{''.join(log)}", pytrace=False)
    # The rest is read on, so that a full pipe never stops the server.
    threading.Thread(target=lambda: log.extend(process.stdout), daemon=True).start()
    try:
        yield Served(process, address, log)
    except Exception:
        print("".join(log[-20:]))  # pytest shows it with the failure
        raise
    finally:
        process.terminate()
        try:
            code = process.wait(timeout=STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            pytest.fail(f"braid serve did not stop within {STOP_SECONDS} s of SIGTERM")
        killed = may_be_killed and code == -signal.SIGKILL
        assert code == 0 or killed, f"braid serve ended with {code}:\n{''.join(log[-20:])}"


def addresses():
    """For a session's fixture: $BRAID_BASE_URL where it is set, else a served braid-tiny's."""
    address = os.environ.get("BRAID_BASE_URL")
    if address:
        yield address.rstrip("/")
        return
    if not os.environ.get("BRAID_BIN"):
        pytest.exit("set BRAID_BIN to the braid binary or BRAID_BASE_URL to a server", returncode=1)
    with serving() as served:
        yield served.address
