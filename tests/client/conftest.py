"""What the client tests share: a server on braid-tiny and the official `openai` Python client.

The server is $BRAID_BASE_URL where that is set, else $BRAID_BIN serving models/braid-tiny.
"""

import os
import pathlib
import re
import subprocess
import threading
import time
import urllib.request

import openai
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
START_SECONDS = 120


def start_braid(binary):
    """Starts the binary on a free port; returns the process and the address that it prints."""
    command = [binary, "serve", str(ROOT / "models/braid-tiny"), "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    timer = threading.Timer(START_SECONDS, process.kill)
    timer.start()
    seen = []
    for line in process.stdout:
        seen.append(line)
        match = re.search(r"listening on (http://\S+)", line)
        if match:
            timer.cancel()
            # The rest is read and dropped, so that a full pipe never stops the server.
            threading.Thread(target=lambda: list(process.stdout), daemon=True).start()
            return process, match[1].rstrip("/")
    timer.cancel()
    pytest.exit(f"{' '.join(command)} did not start:\n{''.join(seen)}", returncode=1)


@pytest.fixture(scope="session")
def base_url():
    address = os.environ.get("BRAID_BASE_URL")
    if address:
        yield address.rstrip("/")
        return
    binary = os.environ.get("BRAID_BIN")
    if not binary:
        pytest.exit("set BRAID_BIN to the braid binary or BRAID_BASE_URL to a server", returncode=1)
    process, address = start_braid(binary)
    yield address
    process.terminate()
    try:
        code = process.wait(timeout=60)
    except subprocess.TimeoutExpired:
        process.kill()
        pytest.fail("braid serve did not stop within 60 s of SIGTERM")
    assert code == 0, f"braid serve ended with {code}"


@pytest.fixture(scope="session")
def client(base_url):
    return openai.OpenAI(base_url=f"{base_url}/v1", api_key="none", max_retries=0, timeout=300)


@pytest.fixture(scope="session")
def async_client(base_url):
    """Makes a client; one for each event loop."""
    return lambda: openai.AsyncOpenAI(base_url=f"{base_url}/v1", api_key="none", max_retries=0,
                                      timeout=600)


@pytest.fixture(scope="session")
def model(client):
    return client.models.list().data[0].id


@pytest.fixture(scope="session")
def metric(base_url):
    """metric(name): the sum of one of the server's metrics over its labels."""

    def read(name):
        with urllib.request.urlopen(f"{base_url}/metrics", timeout=60) as response:
            text = response.read().decode()
        values = re.findall(rf"^braid:{name}(?:{{[^}}]*}})? (\S+)$", text, re.M)
        assert values, f"no metric {name}"
        return sum(map(float, values))

    return read


@pytest.fixture(scope="session")
def wait_for():
    def wait(condition, seconds=10):
        end = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < end, f"did not happen within {seconds} s"
            time.sleep(0.002)

    return wait
