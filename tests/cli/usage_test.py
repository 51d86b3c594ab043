"""Help, suggestions, exit codes and the environment."""

import json
import re
import subprocess

import pytest

from conftest import BINARY, ROOT

COMMANDS = [["serve"], ["router"], ["run"], ["score"], ["eval"], ["bench", "offline"],
            ["bench", "agentic"], ["bench", "drafts"], ["inspect"], ["plan"], ["experts", "plan"],
            ["simulate", "cluster"], ["convert"], ["doctor"], ["make-model"],
            ["version"]]  # fmt: skip


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_help_shows_usage_and_examples(braid, words):
    for command in (["help", *words], [*words, "--help"]):
        done = braid(*command)
        assert done.returncode == 0
        assert "Usage: braid " + " ".join(words) in done.stdout
        assert "Examples:\n  " in done.stdout


def test_help_lists_all_commands(braid):
    done = braid("help")
    assert done.returncode == 0
    for words in COMMANDS:
        assert "  " + " ".join(words) in done.stdout


def test_every_flag_is_documented(braid):
    text = (ROOT / "docs/cli.md").read_text()
    documented = set(re.findall(r"(?<![\w-])--[a-z][a-z0-9-]*", text))
    listed = re.findall(r"^  ((?:[a-z-]+ )*[a-z-]+) +[A-Z]", braid("help").stdout, re.M)
    assert {" ".join(words) for words in COMMANDS} <= set(listed)
    for command in listed:
        shown = re.findall(r"^  (--[a-z0-9-]+)", braid("help", *command.split()).stdout, re.M)
        missing = set(shown) - documented
        assert not missing, f"docs/cli.md does not name {missing} of `braid {command}`"


def test_no_command_is_wrong_usage(braid):
    assert braid().returncode == 2
    assert braid("bench").returncode == 2


@pytest.mark.parametrize(
    "words, said",
    [
        (["srve"], 'did you mean "serve"?'),
        (["bench", "offlin"], 'did you mean "offline"?'),
        (["run", "DIR", "--max-tokns", "3"], 'did you mean "--max-tokens"?'),
        (["score", "DIR", "F", "--chunk-token=3"], 'did you mean "--chunk-tokens"?'),
        (["inspect", "DIR", "--jsn"], 'did you mean "--json"?'),
    ],
)
def test_mistyped_words_get_a_suggestion(braid, words, said):
    done = braid(*words)
    assert done.returncode == 2
    assert said in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize(
    "words, said",
    [
        (["run", "DIR", "--compute", "int3"], "int3 is none of fp32|bf16|auto"),
        (["run", "DIR", "--temperature", "warm"], "warm is not a number from 0"),
        (["run", "DIR", "--threads", "0"], "0 is not an integer from 1 to 1024"),
        (["serve", "DIR", "--port", "70000"], "70000 is not an integer from 0 to 65535"),
        (["serve", "DIR", "--memory", "lots"], "lots is not a size"),
        (["inspect"], "MODEL"),
        (["inspect", "A", "B"], '"B"'),
    ],
)
def test_wrong_values_are_named(braid, words, said):
    done = braid(*words)
    assert done.returncode == 2
    assert said in done.stderr


# What fits into one buffer is written at the end only.
@pytest.mark.parametrize("words", [["version"], ["help", "serve"], ["inspect", "MODEL", "--json"]])
def test_output_that_is_lost_is_an_error(tiny, words):
    words = [str(tiny) if word == "MODEL" else word for word in words]
    with open("/dev/full", "w", encoding="utf-8") as full:
        done = subprocess.run([BINARY, *words], stdout=full, stderr=subprocess.PIPE, text=True,
                              timeout=60, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("braid: cannot write "), done.stderr


def test_flags_come_from_the_environment_and_the_command_line_wins(braid, tiny):
    words = ["run", tiny, "--token-ids", "[5,6,7]", "--json", "--temperature", "0"]
    done = braid(*words, env={"BRAID_MAX_TOKENS": "3"})
    assert len(json.loads(done.stdout)["token_ids"]) <= 3
    done = braid(*words, "--max-tokens", "1", env={"BRAID_MAX_TOKENS": "3"})
    assert len(json.loads(done.stdout)["token_ids"]) == 1


def test_aliases_mean_the_same(braid, tiny):
    words = ["run", tiny, "--token-ids", "[5,6,7]", "--json", "--temp", "0", "-n", "1", "-c", "64"]
    assert braid(*words).returncode == 0


def test_a_model_that_is_not_there_is_one_message(braid, tmp_path):
    for words in (["inspect"], ["run"], ["serve"]):
        done = braid(*words, tmp_path / "none", *(["--port", "0"] if words == ["serve"] else []))
        assert done.returncode == 1
        assert "none is not a directory" in done.stderr
        assert done.stdout == ""


def test_a_truncated_checkpoint_is_one_message(braid, tiny, tmp_path):
    (tmp_path / "config.json").symlink_to(tiny / "config.json")
    whole = (tiny / "model.safetensors").read_bytes()
    (tmp_path / "model.safetensors").write_bytes(whole[: len(whole) // 2])
    done = braid("run", tmp_path, "--token-ids", "[1]")
    assert done.returncode == 1
    assert "model.safetensors" in done.stderr


def test_too_high_an_instruction_set_is_refused(braid, tiny):
    flags = open("/proc/cpuinfo", encoding="utf-8").read()
    if "amx_bf16" in flags:
        pytest.skip("this CPU has all of them")
    done = braid("run", tiny, "--token-ids", "[1]", "--isa", "amx")
    assert done.returncode == 1
    assert "this CPU" in done.stderr
