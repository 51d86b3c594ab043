"""Programs that need version 2 of the Python client `openai`, from .venv-openai2: instructor, the
proxy of LiteLLM, the load generator guidellm."""

import contextlib
import json
import os
import pathlib
import secrets
import socket
import subprocess
import time
import urllib.request

import openai
import pytest
from serving import ROOT

FOLDER = pathlib.Path(__file__).parent / "openai2"
PROGRAMS = ROOT / ".venv-openai2/bin"
STORY = "Tell me a story about a fox named Finn in the meadow."
QUESTION = "What is 706 + 778? Use the calculator."
CALCULATE = {"type": "function",
             "function": {"name": "calculate", "description": "Evaluate an expression.",
                          "parameters": {"type": "object",
                                         "properties": {"expression": {"type": "string"}},
                                         "required": ["expression"]}}}
NO_THINKING = {"chat_template_kwargs": {"enable_thinking": False}}


def test_instructor_gets_objects(base_url):
    done = subprocess.run([PROGRAMS / "python", FOLDER / "structured.py", base_url],
                          capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    for found in json.loads(done.stdout).values():
        assert len(found["name"]) <= 12 and 0 <= found["age"] <= 120


@pytest.fixture(scope="module")
def litellm(base_url, tmp_path_factory):
    """The OpenAI client of a LiteLLM proxy in front of the server."""
    folder = tmp_path_factory.mktemp("litellm")
    (folder / "config.yaml").write_text(json.dumps({"model_list": [
        {"model_name": "tiny", "litellm_params": {
            "model": "openai/braid-tiny", "api_base": f"{base_url}/v1", "api_key": "none"}}]}))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    key = f"sk-{secrets.token_hex(32)}"
    # Prices of models come with the package, not from the network.
    environment = {**os.environ, "LITELLM_LOCAL_MODEL_COST_MAP": "True", "NO_DOCS": "True",
                   "LITELLM_MASTER_KEY": key}
    log = (folder / "log").open("w+")
    process = subprocess.Popen(
        [PROGRAMS / "litellm", "--config", folder / "config.yaml", "--host", "127.0.0.1", "--port",
         str(port), "--num_workers", "1"], stdout=log, stderr=log, env=environment, cwd=folder)
    address = f"http://127.0.0.1:{port}"
    try:
        end = time.monotonic() + 240
        while True:
            with contextlib.suppress(OSError):
                if urllib.request.urlopen(f"{address}/health/liveliness").status == 200:
                    break
            said = pathlib.Path(log.name).read_text()[-3000:]
            assert time.monotonic() < end and process.poll() is None, said
            time.sleep(0.2)
        yield openai.OpenAI(base_url=f"{address}/v1", api_key=key, max_retries=0, timeout=120)
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        log.close()


def test_litellm_passes_on_what_is_said_whole_and_streamed(litellm):
    request = {"model": "tiny", "temperature": 0, "max_tokens": 120, "extra_body": NO_THINKING,
               "messages": [{"role": "user", "content": STORY}]}
    whole = litellm.chat.completions.create(**request)
    assert "Finn" in whole.choices[0].message.content and whole.usage.completion_tokens > 0
    streamed = litellm.chat.completions.create(**request, stream=True)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in streamed if chunk.choices
                   ) == whole.choices[0].message.content


def test_litellm_passes_on_a_loop_of_tools(litellm):
    messages = [{"role": "user", "content": QUESTION}]
    request = {"model": "tiny", "temperature": 0, "max_tokens": 120, "extra_body": NO_THINKING,
               "tools": [CALCULATE]}
    asked = litellm.chat.completions.create(messages=messages, **request).choices[0].message
    (call,) = asked.tool_calls
    assert json.loads(call.function.arguments) == {"expression": "706 + 778"}
    messages += [asked.model_dump(exclude_none=True),
                 {"role": "tool", "tool_call_id": call.id, "content": '{"result": 1484}'}]
    said = litellm.chat.completions.create(messages=messages, **request)
    assert "1484" in said.choices[0].message.content


def test_litellm_passes_on_responses_and_errors(litellm):
    said = litellm.responses.create(model="tiny", input=STORY, max_output_tokens=120,
                                    temperature=0, extra_body=NO_THINKING)
    assert "Finn" in said.output_text
    with pytest.raises(openai.BadRequestError) as failure:
        litellm.chat.completions.create(model="tiny", messages=[{"role": "user", "content": "a"}],
                                        temperature=9)
    assert "temperature" in failure.value.message


def test_guidellm_measures_a_server(base_url, tmp_path):
    found = tmp_path / "found.json"
    environment = {name: value for name, value in os.environ.items() if name != "HF_HUB_OFFLINE"}
    done = subprocess.run(
        [PROGRAMS / "guidellm", "benchmark", "run", "--target", base_url, "--model", "braid-tiny",
         "--processor", ROOT / "models/braid-tiny", "--rate-type", "concurrent", "--rate", "4",
         "--max-requests", "20", "--data", "prompt_tokens=100,output_tokens=20", "--output-path",
         found, "--disable-progress"],
        capture_output=True, text=True, timeout=600, env=environment, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    (benchmark,) = json.loads(found.read_text())["benchmarks"]
    totals = benchmark["request_totals"]
    assert totals["successful"] == 20 and totals["errored"] == 0
    assert benchmark["metrics"]["output_token_count"]["successful"]["mean"] == 20
    assert 0 < benchmark["metrics"]["time_to_first_token_ms"]["successful"]["mean"]
