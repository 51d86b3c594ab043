"""Codex CLI, headless, over the Responses API: developer messages, tools, schemas, two turns."""

import json
import os
import pathlib
import subprocess

import pytest

CODEX = pathlib.Path(__file__).parent / "node/node_modules/.bin/codex"
CONFIG = """
model = "braid-tiny"
model_provider = "braid"
model_context_window = 8192
model_reasoning_effort = "none"
model_instructions_file = "{folder}/instructions.md"
check_for_update_on_startup = false
[analytics]
enabled = false
[model_providers.braid]
name = "braid"
base_url = "{address}/v1"
wire_api = "responses"
request_max_retries = 0
stream_max_retries = 0
"""
SCHEMA = {"type": "object", "required": ["animal", "count"], "additionalProperties": False,
          "properties": {"animal": {"type": "string", "maxLength": 8},
                         "count": {"type": "integer", "minimum": 0, "maximum": 9}}}


@pytest.fixture
def codex(tmp_path):
    """codex(address, *words): the events that it prints."""
    home, work = tmp_path / "home", tmp_path / "work"
    home.mkdir()
    work.mkdir()
    # Its own instructions alone are half of what braid-tiny can read.
    (tmp_path / "instructions.md").write_text("You are a helpful assistant.")
    (tmp_path / "schema.json").write_text(json.dumps(SCHEMA))

    def run(address, *words):
        (home / "config.toml").write_text(CONFIG.format(folder=tmp_path, address=address))
        done = subprocess.run(
            [CODEX, "exec", *words[:-1], "--skip-git-repo-check", "--json", words[-1]], cwd=work,
            capture_output=True, text=True, timeout=300, stdin=subprocess.DEVNULL,
            env={**os.environ, "CODEX_HOME": str(home)})
        lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
        return [json.loads(line) for line in lines]

    run.schema = str(tmp_path / "schema.json")
    return run


def said(events):
    (message,) = [event["item"]["text"] for event in events if event["type"] == "item.completed"
                  and event["item"]["type"] == "agent_message"]
    return json.loads(message)


def test_codex_answers_in_a_schema_and_goes_on(serve, codex):
    # Without a tool parser the schema alone decides what the model may say.
    with serve("--tool-parser", "none") as served:
        first = codex(served.address, "--output-schema", codex.schema, "How many foxes are there?")
        assert first[-1]["type"] == "turn.completed", first
        assert 0 <= said(first)["count"] <= 9
        second = codex(served.address, "resume", "--last", "--output-schema", codex.schema,
                       "And how many hens?")
        assert second[-1]["type"] == "turn.completed", second
        assert len(said(second)["animal"]) <= 8


def test_what_codex_asks_with_its_tools_is_taken(serve, codex):
    # The model was not trained for these tools; whatever it says ends with the context.
    with serve("--max-model-len", "4096") as served:
        events = codex(served.address, "--sandbox", "read-only", "What is 706 + 778?")
        ends = ("max_output_tokens", "ran out of room")
        assert events[-1]["type"] == "turn.completed" or any(
            end in json.dumps(events[-1]) for end in ends), events
        assert any("/v1/responses prompt" in line and "error" not in line
                   for line in served.log), served.log
