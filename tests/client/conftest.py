"""What the client tests share: a server on braid-tiny and the official `openai` Python client.

The server is $BRAID_BASE_URL where that is set, else $BRAID_BIN serving models/braid-tiny.
"""

import pathlib
import re
import sys
import time
import urllib.request

import openai
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from serving import addresses  # noqa: E402


@pytest.fixture(scope="session")
def base_url():
    yield from addresses()


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
