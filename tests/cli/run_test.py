"""run and score: shapes of the output, and that they agree."""

import json
import pathlib
import signal
import subprocess
import time

import pytest

from conftest import BINARY

PROMPT = [4065, 286, 198, 1073, 275, 261, 598]


def lines(done):
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_run_answers_in_text(braid, tiny):
    done = braid("run", tiny, "How much is 62 + 12?", "--temperature", "0")
    assert done.returncode == 0, done.stderr
    assert "74" in done.stdout
    assert "<think>" not in done.stdout


def test_run_json_has_all_keys(braid, tiny):
    (out,) = lines(braid("run", tiny, "How much is 62 + 12?", "--temperature", "0", "--json"))
    assert out["finish_reason"] == "stop"
    assert "74" in out["text"]
    assert out["reasoning"]
    assert "logprobs" not in out
    usage = out["usage"]
    assert usage["completion_tokens"] == len(out["token_ids"])
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]


def test_thinking_is_told_apart_by_the_templates_own_marks(braid, tiny, tmp_path):
    """The template opens the thought with other tags, which the model never closes."""
    for path in pathlib.Path(tiny).iterdir():
        (tmp_path / path.name).symlink_to(path.resolve())
    template = tmp_path / "chat_template.jinja"
    text = template.read_text().replace("<think>", "◁think▷").replace("</think>", "◁/think▷")
    template.unlink()
    template.write_text(text)
    (out,) = lines(braid("run", str(tmp_path), "How much is 62 + 12?", "--temperature", "0",
                         "--json"))
    assert "74" in out["reasoning"] and not out["text"], out


def test_no_thinking_means_no_reasoning(braid, tiny):
    (out,) = lines(braid("run", tiny, "How much is 62 + 12?", "--temperature", "0", "--json",
                         "--no-thinking"))  # fmt: skip
    assert out["reasoning"] is None


def test_a_seed_gives_the_same_answer(braid, tiny):
    words = ["run", tiny, "Write a short story: Lena the dog, set in the valley.", "--json",
             "--temperature", "1", "--max-tokens", "30", "--seed"]  # fmt: skip
    one, same, other = (lines(braid(*words, seed))[0]["token_ids"] for seed in (7, 7, 8))
    assert one == same
    assert one != other


def test_raw_continues_standard_input(braid, tiny):
    done = braid("run", tiny, "--raw", "--temperature", "0", "--max-tokens", "8",
                 input="Once upon a time there was a happy")  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


def test_chat_from_a_pipe_has_turns_and_commands(braid, tiny):
    turns = "How much is 62 + 12?\n/reset\nHow much is 81 - 20?\n/exit\nno\n"
    done = braid("run", tiny, "--temperature", "0", input=turns)
    assert done.returncode == 0, done.stderr
    assert "74" in done.stdout and "61" in done.stdout


def test_ids_in_and_out_need_no_tokenizer(braid, tiny, ids_only):
    words = ["--token-ids", json.dumps(PROMPT), "--temperature", "0", "--max-tokens", "12"]
    with_text, without = braid("run", tiny, *words), braid("run", ids_only, *words)
    assert with_text.returncode == without.returncode == 0
    assert json.loads(with_text.stdout) == json.loads(without.stdout)
    (out,) = lines(braid("run", ids_only, *words, "--json"))
    assert out["text"] is None


def test_text_without_a_tokenizer_is_refused(braid, ids_only):
    done = braid("run", ids_only, "hello")
    assert done.returncode == 1
    assert "chat template" in done.stderr or "tokenizer" in done.stderr


@pytest.mark.parametrize("ids", ["[1, 99999]", "[]", "[-1]", "7", "[1,", '["a"]'])
def test_wrong_ids_are_refused(braid, tiny, ids):
    done = braid("run", tiny, "--token-ids", ids)
    assert done.returncode == 1
    assert "--token-ids" in done.stderr


def test_a_prompt_longer_than_the_context_is_refused_with_numbers(braid, tiny):
    done = braid("run", tiny, "--token-ids", json.dumps([5] * 100), "--max-model-len", "64")
    assert done.returncode == 1
    assert "100" in done.stderr and "64" in done.stderr


@pytest.mark.parametrize("compute", ["fp32", "bf16"])
def test_run_reports_the_log_probabilities_that_score_gives(braid, tiny, compute):
    words = ["--json", "--temperature", "0", "--max-tokens", "20", "--logprobs", "3"]
    (out,) = lines(braid("run", tiny, "--token-ids", json.dumps(PROMPT), *words, "--compute",
                         compute))  # fmt: skip
    whole = PROMPT + out["token_ids"]
    (score,) = lines(braid("score", tiny, "-", "--top", "3", "--compute", compute,
                           input=json.dumps({"token_ids": whole})))  # fmt: skip
    assert len(out["logprobs"]) == len(out["token_ids"]) > 0
    for i, entry in enumerate(out["logprobs"]):
        assert entry["id"] == out["token_ids"][i]
        assert entry["logprob"] == score["logprobs"][len(PROMPT) + i]
        assert entry["top"] == score["top"][len(PROMPT) + i - 1]


def test_score_keeps_order_and_does_not_depend_on_the_cut(braid, tiny, tmp_path):
    file = tmp_path / "in.jsonl"
    texts = [[5 + i] * (1 + 37 * i) for i in range(6)]
    file.write_text("".join(json.dumps({"token_ids": ids}) + "\n" for ids in texts))
    whole = braid("score", tiny, file, "--batch", "1", "--threads", "1")
    cut = braid("score", tiny, file, "--batch", "16", "--threads", "2", "--chunk-tokens", "64")
    assert whole.stdout == cut.stdout
    got = lines(whole)
    assert [line["token_ids"] for line in got] == texts
    for line in got:
        assert len(line["logprobs"]) == len(line["top"]) == len(line["token_ids"])
        assert line["logprobs"][0] is None
        assert all(len(top) == 5 for top in line["top"])


def test_score_takes_a_batch_larger_than_the_queue_of_requests(braid, tiny, tmp_path):
    file = tmp_path / "in.jsonl"
    file.write_text("".join(f'{{"token_ids": [{5 + i % 300}]}}\n' for i in range(9000)))
    got = lines(braid("score", tiny, file, "--batch", "4096", "--top", "0",
                      "--draft", "off", "--max-model-len", "64"))  # fmt: skip
    assert [line["token_ids"] for line in got] == [[5 + i % 300] for i in range(9000)]


def test_score_takes_text_and_writes_a_file(braid, tiny, tmp_path):
    out = tmp_path / "out.jsonl"
    done = braid("score", tiny, "-", "--output", out, input='{"text": "The answer is 42."}\n')
    assert done.returncode == 0 and done.stdout == ""
    (line,) = [json.loads(text) for text in out.read_text(encoding="utf-8").splitlines()]
    assert len(line["token_ids"]) > 3


@pytest.mark.parametrize(
    "line, said",
    [
        ('{"tokens": [1]}', "token_ids"),
        ('{"token_ids": [70000]}', "70000"),
        ("[1]", "object"),
        ("{", "-:1"),
        ("", "no line"),
    ],
)
def test_wrong_lines_are_named(braid, tiny, line, said):
    done = braid("score", tiny, "-", input=line + "\n")
    assert done.returncode == 1
    assert said in done.stderr


def test_explain_ops_names_what_ran(braid, tiny):
    done = braid("run", tiny, "--token-ids", "[1]", "--max-tokens", "2", "--explain-ops")
    assert done.returncode == 0
    assert len(done.stderr.splitlines()) > 3


@pytest.mark.parametrize("how", ["--raw", "--json"])
def test_ctrl_c_ends_the_program_while_it_waits_for_its_prompt(tiny, tmp_path, how):
    log = tmp_path / "events"  # begins when the model is loaded
    words = [BINARY, "run", str(tiny), how, "--event-log", str(log)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            process.stdin.write(b"Once upon")
            process.stdin.flush()
            until = time.monotonic() + 100
            while not log.exists():
                assert time.monotonic() < until and process.poll() is None
                time.sleep(0.05)
            time.sleep(0.5)
            process.send_signal(signal.SIGINT)
            assert process.wait(30) == 128 + signal.SIGINT
        finally:
            process.kill()


def interrupted_after(seconds, tiny):
    """The object that `run` prints when Ctrl-C comes then; None if no token was computed yet."""
    words = ["run", str(tiny), "--token-ids", "[5,6,7]", "--temperature", "0", "--draft", "off",
             "--max-tokens", "8000", "--json"]  # fmt: skip
    with subprocess.Popen([BINARY, *words], stdout=subprocess.PIPE, text=True) as process:
        time.sleep(seconds)
        process.send_signal(signal.SIGINT)
        out = process.communicate(timeout=300)[0]
    if process.returncode in (-signal.SIGINT, 128 + signal.SIGINT):
        return None  # while it starts and loads, Ctrl-C ends the program
    assert process.returncode == 0
    answer = json.loads(out)
    return answer if answer["token_ids"] else None


def test_ctrl_c_stops_the_answer_and_not_the_program(tiny):
    # The first Ctrl-C that meets the answer comes in its first part on a machine of any speed:
    # loading takes less time than 8,000 steps.
    seconds = 0.1
    while (out := interrupted_after(seconds, tiny)) is None:
        seconds *= 1.25
        assert seconds < 100
    assert out["finish_reason"] == "abort"
    assert 0 < len(out["token_ids"]) < 8000
