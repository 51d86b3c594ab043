"""The HTTP client of the JDK, which offers HTTP/2 with every first request."""

import pathlib
import shutil
import subprocess

import pytest

CLIENT = pathlib.Path(__file__).parent / "java/Client.java"


def test_the_client_of_the_jdk_is_answered_in_http_1_1(base_url):
    if not shutil.which("java"):
        pytest.fail("java is missing: make test-clients installs it")
    done = subprocess.run(["java", CLIENT, base_url], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines() == [
        "health 200 HTTP_1_1", "whole 200 HTTP_1_1", "usage true", "stream 200 HTTP_1_1",
        "events true data: [DONE]", "large 200 HTTP_1_1", "distinct 1", "wrong 400 HTTP_1_1",
        "error true"]
