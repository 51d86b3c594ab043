"""Ranks that are killed or stopped, in every phase: the others end within the deadline and name the
lost one, no client sees a wrong token, no process is left. BRAID_RANK_FAULTS says how many faults
are tried; without it there are none here, and ranks_test.py has one of each kind."""

import http.client
import itertools
import json
import os
import random
import signal
import threading
import time
import urllib.request

import pytest

from rank_group import MPIRUN, Group, TcpGroup

FAULTS = int(os.environ.get("BRAID_RANK_FAULTS", "0"))
PHASES = ("load", "prefill", "decode", "idle", "moves")
GROUPS = (TcpGroup,) if MPIRUN is None else (Group, TcpGroup)
KINDS = list(itertools.product(PHASES, GROUPS, (0, 1), (signal.SIGKILL, signal.SIGSTOP)))
RANK_SECONDS = 4  # more than a busy machine lets a process wait
ENDS_WITHIN = 20  # seconds
BODY = {"max_tokens": 100, "ignore_eos": True, "temperature": 0}
PROMPTS = {"prefill": [40 + i % 3000 for i in range(2000)], "decode": list(range(40, 140))}
PROMPTS["moves"] = PROMPTS["decode"]
# Experts that move as often as they may.
MOVING = ("--ep", "2", "--balance-experts", "--balance-every", "10", "--balance-below", "1",
          "--balance-step-bytes", "64K")  # fmt: skip

pytestmark = pytest.mark.skipif(FAULTS == 0, reason="BRAID_RANK_FAULTS is not set")


class Client:
    """Reads an answer as it comes: `text` so far, whether it is complete, the error event."""

    def __init__(self, address, prompt):
        body = {**BODY, "prompt": prompt, "stream": True}
        self.request = urllib.request.Request(
            f"{address}/v1/completions", json.dumps(body).encode(),
            {"Content-Type": "application/json"},
        )  # fmt: skip
        self.text, self.error, self.done = "", None, False
        self.began = threading.Event()
        self.thread = threading.Thread(target=self._read, daemon=True)
        self.thread.start()

    def _read(self):
        try:
            with urllib.request.urlopen(self.request, timeout=120) as answer:
                for line in answer:
                    self._take(line.decode().strip())
        except (OSError, http.client.HTTPException, json.JSONDecodeError) as error:
            self.error = self.error or repr(error)
        if not self.done:
            self.error = self.error or "the connection was closed"
        self.began.set()

    def _take(self, line):
        if not line.startswith("data: "):
            return
        if line == "data: [DONE]":
            self.done = True
            return
        event = json.loads(line[6:])
        if "error" in event:
            self.error = event["error"]["message"]
            return
        self.text += event["choices"][0]["text"]
        self.began.set()


@pytest.fixture(scope="module")
def wanted():
    """The text of each prompt, of a group that nobody disturbs."""
    group = TcpGroup(rank_seconds=RANK_SECONDS)
    assert group.listening.wait(60), "".join(group.log)
    texts = {}
    for phase, prompt in PROMPTS.items():
        client = Client(group.address, prompt)
        client.thread.join(120)
        assert client.done and not client.error, "".join(group.log)
        texts[phase] = client.text
    os.kill(group.pid_of(0), signal.SIGTERM)
    group.process.wait(timeout=30)
    return texts


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def pids_of(group):
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        try:
            return [group.pid_of(0), group.pid_of(1)]
        except (AssertionError, FileNotFoundError, ProcessLookupError):
            time.sleep(0.01)
    raise AssertionError("the ranks do not start")


def ends(pid, group):
    began = time.monotonic()
    while alive(pid):
        assert time.monotonic() < began + ENDS_WITHIN, "".join(group.log)
        time.sleep(0.05)


def reach(phase, group, draw):
    """Waits until the group is in the phase; the client, if the phase has one."""
    if phase == "load":
        time.sleep(draw.uniform(0, 1.5))
        return None
    assert group.listening.wait(60), "".join(group.log)
    if phase == "idle":
        time.sleep(draw.uniform(0, 0.6))
        return None
    client = Client(group.address, PROMPTS[phase])
    if phase == "prefill":
        time.sleep(draw.uniform(0.01, 0.5))
    else:
        assert client.began.wait(60)
        time.sleep(draw.uniform(0, 0.5))
    return client


@pytest.mark.parametrize("number", range(FAULTS))
def test_a_fault_ends_the_group_and_gives_no_wrong_token(number, wanted):
    phase, kind, rank, how = KINDS[number % len(KINDS)]
    draw = random.Random(number)
    group = kind(*(MOVING if phase == "moves" else ()), rank_seconds=RANK_SECONDS)
    try:
        pids = pids_of(group)
        client = reach(phase, group, draw)
        os.kill(pids[rank], how)
        ends(pids[1 - rank], group)
        if how == signal.SIGSTOP:  # it ends too, as soon as it can
            os.kill(pids[rank], signal.SIGCONT)
        ends(pids[rank], group)
        group.process.wait(timeout=ENDS_WITHIN)
        if phase != "load":
            assert f"no word from rank {rank}" in "".join(group.log), "".join(group.log)
        if client is not None:
            client.thread.join(10)
            assert client.text == wanted[phase][: len(client.text)]
            assert client.done or client.error, client.text
            assert not client.done or client.error or client.text == wanted[phase]
    finally:
        for pid in pids:
            if alive(pid):
                os.kill(pid, signal.SIGKILL)
        if group.process.poll() is None:
            group.process.kill()
