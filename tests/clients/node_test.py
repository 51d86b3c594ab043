"""Clients on node: the npm packages `openai`, `ai` and `@openai/codex`."""

import json
import pathlib
import subprocess
import time
import urllib.request

import pytest

FOLDER = pathlib.Path(__file__).parent / "node"


def seen_by(script, *arguments):
    """What a script of this folder prints."""
    done = subprocess.run(["node", script, *arguments], cwd=FOLDER, capture_output=True, text=True,
                          timeout=300)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("provider", ["openai", "openai-compatible"])
def test_the_npm_package_ai(base_url, provider):
    seen = seen_by("ai.mjs", base_url, provider)
    assert seen["steps"] == 2
    if provider == "openai":
        assert "item_reference" in seen["kinds"], "it names items that the server has stored"


def test_the_npm_client_of_openai(base_url):
    seen = seen_by("openai.mjs", base_url)
    assert "Finn" in seen["content"] and seen["events"] > 5
    end = time.monotonic() + 10
    while True:  # the stream that it left has ended
        with urllib.request.urlopen(f"{base_url}/v1/running") as response:
            if not json.load(response)["data"]:
                break
        assert time.monotonic() < end
