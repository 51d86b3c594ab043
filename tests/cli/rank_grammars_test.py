"""Grammars on ranks that are processes, each with a library of its own: no step waits for a rank
that compiles one."""

import concurrent.futures
import json
import os
import pathlib
import re
import signal
import time
import urllib.error
import urllib.request

import pytest

from rank_group import TcpGroup, pathlib_read

RANK_SECONDS = 5
WAIT = 8  # longer: a step that waited would end the group
SOON = 60


@pytest.fixture
def group():
    group = TcpGroup(rank_seconds=RANK_SECONDS, mesh=("--dp", "2", "--ep", "2"))
    yield group
    for process in group.processes:
        process.kill()
        process.wait()


def trial_of(pid):
    """The process in which the process tries grammars."""
    for children in pathlib.Path(f"/proc/{pid}/task").glob("*/children"):
        for child in pathlib_read(children).split():
            if "grammar-trial" in pathlib_read(f"/proc/{child}/cmdline"):
                return int(child)
    raise AssertionError(f"process {pid} tries no grammars")


def post(group, body, timeout=SOON):
    request = urllib.request.Request(
        f"{group.address}/v1/completions", json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )  # fmt: skip
    return urllib.request.urlopen(request, timeout=timeout)


def text_of(group, **more):
    """What is answered."""
    try:
        with post(group, {"prompt": "Once", "max_tokens": 8, **more}) as response:
            return json.load(response)["choices"][0]["text"]
    except urllib.error.HTTPError as error:
        raise AssertionError(error.read().decode()) from error


def test_no_step_waits_for_a_rank_that_compiles_a_grammar(group):
    assert group.listening.wait(SOON), "".join(group.log)
    trial = trial_of(group.pid_of(1))
    os.kill(trial, signal.SIGSTOP)
    try:
        # A long answer of the first group of ranks: the next request is the second group's.
        long = {"prompt": "Once", "max_tokens": 1500, "stream": True, "ignore_eos": True}
        with post(group, long) as stream, concurrent.futures.ThreadPoolExecutor() as pool:
            assert stream.readline()
            waiting = pool.submit(text_of, group, regex="[0-9]{3}")
            end = time.monotonic() + WAIT
            while time.monotonic() < end:
                text_of(group)
            assert not waiting.done(), waiting.result()
            os.kill(trial, signal.SIGCONT)
            assert re.fullmatch("[0-9]{3}", waiting.result(timeout=SOON))
    finally:
        os.kill(trial, signal.SIGCONT)
    # New grammars and known ones at the same time, on either rank.
    with concurrent.futures.ThreadPoolExecutor() as pool:
        asked = [(pool.submit(text_of, group, regex=regex), regex)
                 for regex in ("[0-9]{3}", "[a-c]{4}", "[x-z]{2}") * 4]  # fmt: skip
        for future, regex in asked:
            assert re.fullmatch(regex, future.result(timeout=SOON))
    assert all(process.poll() is None for process in group.processes), "".join(group.log)


def test_a_client_that_leaves_ends_its_request_that_waits_for_a_rank(group):
    assert group.listening.wait(SOON), "".join(group.log)
    trial = trial_of(group.pid_of(1))
    os.kill(trial, signal.SIGSTOP)
    try:
        with pytest.raises(TimeoutError):
            post(group, {"prompt": "Once", "regex": "[0-9]{3}"}, timeout=4)
    finally:
        os.kill(trial, signal.SIGCONT)
    text_of(group)
    os.kill(group.pid_of(0), signal.SIGTERM)  # ends when no request is left
    assert group.process.wait(timeout=30) == 0, "".join(group.log)
