"""lm-eval on the public files of models/eval: it finds what `braid eval` finds."""

import json
import math
import os
import pathlib
import subprocess
import urllib.request

import lm_eval
import pytest
from lm_eval.tasks import TaskManager
from serving import ROOT

BINARY = os.environ.get("BRAID_BIN", str(ROOT / "build/release/braid"))
MODEL = ROOT / "models/braid-tiny"
END = "<|endoftext|>"
TURN_END = "<|im_end|>"  # eos_token in tokenizer_config.json


def items(name):
    lines = (ROOT / f"models/eval/{name}.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def braid_eval(tmp_path, chosen):
    path = tmp_path / "chosen.jsonl"
    path.write_text("".join(json.dumps(item) + "\n" for item in chosen))
    here = {name: value for name, value in os.environ.items() if name != "BRAID_BASE_URL"}
    done = subprocess.run([BINARY, "eval", MODEL, path, "--json"], capture_output=True, check=True,
                          env=here)
    (task,) = json.loads(done.stdout)["tasks"]
    return task


@pytest.fixture
def evaluate(base_url, monkeypatch):
    """evaluate(model, route, task, **more): the task's samples and its metrics."""
    monkeypatch.chdir(ROOT)
    tasks = TaskManager(include_path=str(pathlib.Path(__file__).parent / "evals"),
                        include_defaults=False)

    def run(model, route, task, **more):
        arguments = {"model": "braid-tiny", "base_url": f"{base_url}/v1/{route}",
                     "tokenizer": str(MODEL), "num_concurrent": 8, "max_retries": 1,
                     "max_length": 4096}
        found = lm_eval.simple_evaluate(model=model, model_args=arguments, tasks=[task],
                                        task_manager=tasks, bootstrap_iters=0, **more)
        return found["samples"][task], found["results"][task]

    return run


def test_chat_answers_are_as_right_as_braid_eval_says(evaluate, tmp_path):
    samples, found = evaluate("local-chat-completions", "chat/completions", "braid_lists",
                              apply_chat_template=True)
    chosen = [item for item in items("lists") if len(item["messages"]) == 1
              and item["check"] == "exact" and not item["thinking"]]
    told = braid_eval(tmp_path, chosen)
    assert len(samples) == told["n"] == len(chosen) > 50
    assert found["exact_match,blanks"] == pytest.approx(told["accuracy"])
    assert told["accuracy"] > 0.9


def tokens_of(base_url, text):
    body = json.dumps({"prompt": text}).encode()
    request = urllib.request.Request(f"{base_url}/tokenize", body,
                                     {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as response:
        return json.load(response)["count"]


def test_log_likelihoods_are_those_of_braid_eval(evaluate, base_url, tmp_path):
    samples, _ = evaluate("local-completions", "completions", "braid_text")
    # lm-eval scores the first token too, behind the tokenizer's eos_token.
    chosen = [item | {"text": TURN_END + item["text"]} for item in items("text")
              if item["check"] == "perplexity"]
    told = braid_eval(tmp_path, chosen)
    assert len(samples) == len(chosen) > 50
    scored = sum(tokens_of(base_url, item["text"] + END) - 1 for item in chosen)
    found = sum(sample["filtered_resps"][0] for sample in samples)
    assert found == pytest.approx(-math.log(told["perplexity"]) * scored, rel=1e-3)
