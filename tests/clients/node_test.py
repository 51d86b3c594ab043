"""The npm client `openai`, on node: chat, streams, responses, schemas, a loop of tools, errors."""

import json
import pathlib
import subprocess
import time
import urllib.request

FOLDER = pathlib.Path(__file__).parent / "node"


def test_the_npm_client_of_openai(base_url):
    done = subprocess.run(["node", "openai.mjs", base_url], cwd=FOLDER, capture_output=True,
                          text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert "Finn" in seen["content"] and seen["events"] > 5
    end = time.monotonic() + 10
    while True:  # the stream that it left has ended
        with urllib.request.urlopen(f"{base_url}/v1/running") as response:
            if not json.load(response)["data"]:
                break
        assert time.monotonic() < end
