"""What the tests with other people's programs share: a server on braid-tiny.

They need more than `make test` installs; `make test-clients` brings it and runs them.
"""

import os
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from serving import addresses, serving  # noqa: E402

# What the tests load lies in this repository; nobody is asked for a newer one.
os.environ["HF_HUB_OFFLINE"] = "1"


@pytest.fixture(scope="session")
def base_url():
    yield from addresses()


@pytest.fixture
def serve():
    """serving(*flags) for a server of the test's own."""
    return serving
