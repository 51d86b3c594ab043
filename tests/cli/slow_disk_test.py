"""`--cache-dir` on a file system that is slow, fails or is full: every answer is what it would be
without, requests that wait for the disk wait alone, and the server starts and stops.

BRAID_TIER_FUSE=1 runs it, as root, since it mounts a file system of its own (slow_files.py).
"""

import http.client
import json
import os
import threading
import time
import types

import pytest

from disk_tier_test import (ask, expected, metric, processes, prompts, serving,  # noqa: F401
                            settle)
from rank_group import TcpGroup
from slow_files import slow_files

pytestmark = pytest.mark.skipif(os.environ.get("BRAID_TIER_FUSE") != "1",
                                reason="BRAID_TIER_FUSE=1 runs it")
FLAGS = ("--max-model-len", "2048", "--memory", "256MiB", "--threads", "1")


@pytest.fixture(name="disk")
def mounted(tmp_path):
    with slow_files(tmp_path) as mounted:
        if mounted is None:
            pytest.skip("FUSE cannot be used here")
        yield mounted


class Bystander:
    """A long answer that runs on; the longest time between two of its chunks, and of a scrape of
    the metrics meanwhile."""

    def __init__(self, port, tokens=1500):
        self.gap, self.scrape, self.chunks, self.ends = 0.0, 0.0, 0, False
        self.threads = [threading.Thread(target=self._read, args=[port, tokens]),
                        threading.Thread(target=self._scrape, args=[port])]
        for thread in self.threads:
            thread.start()
        while self.chunks < 3:
            time.sleep(0.01)

    def _read(self, port, tokens):
        while not self.ends:
            connection = http.client.HTTPConnection("localhost", port, timeout=120)
            body = {"prompt": [7] * 70, "max_tokens": tokens, "stream": True, "ignore_eos": True,
                    "cache_salt": str(self.chunks)}
            connection.request("POST", "/v1/completions", json.dumps(body),
                               {"Content-Type": "application/json"})
            answer, before = connection.getresponse(), None
            while not self.ends and answer.readline():
                now = time.monotonic()
                self.gap = max(self.gap, now - (before or now))
                self.chunks, before = self.chunks + 1, now
            connection.close()

    def _scrape(self, port):
        while not self.ends:
            began = time.monotonic()
            metric(port, "braid:")
            self.scrape = max(self.scrape, time.monotonic() - began)
            time.sleep(0.1)

    def longest_gap(self):
        self.ends = True
        for thread in self.threads:
            thread.join()
        return self.gap


def test_a_slow_disk_delays_nobody_else(disk, expected):  # noqa: F811
    folder, faults = disk
    flags = ("--cache-dir", str(folder / "pages"), *FLAGS)
    with serving(*flags) as server:
        faults.write_seconds = 2.0
        bystander = Bystander(server.port)
        for prompt, answer in zip(prompts(4), expected):
            assert ask(server.port, prompt)[0] == answer
        time.sleep(2)
        gap, faults.write_seconds = bystander.longest_gap(), 0
        assert gap < 1.0 and faults.writes > 0
        assert 0 < bystander.scrape < 1.0
    with serving(*flags) as server:
        faults.read_seconds = 0.5
        bystander = Bystander(server.port)
        began = time.monotonic()
        for prompt, answer in zip(prompts(4), expected):
            got, usage = ask(server.port, prompt)
            assert got == answer and usage["prompt_tokens_details"]["disk_tokens"] > 0
        waited = time.monotonic() - began
        gap, faults.read_seconds = bystander.longest_gap(), 0
        assert waited > 4 and gap < waited / 8
        assert 0 < bystander.scrape < 1.0
        assert metric(server.port, "braid:tier_wait_seconds_total") > 2


def test_ranks_that_start_wait_for_one_whose_disk_is_slow(disk, expected, tmp_path):  # noqa: F811
    """A rank that is silent for two seconds is lost; a read of one rank's folder takes three."""
    folder, faults = disk
    faults.draw = types.SimpleNamespace(random=lambda: 0.5)
    pages = tmp_path / "pages"
    pages.mkdir()
    (pages / "rank-1").symlink_to(folder)
    flags = ("--cache-dir", str(pages), "--max-model-len", "2048", "--memory", "256MiB")
    with processes(TcpGroup, *flags) as port:
        assert ask(port, prompts(1)[0])[0] == expected[0]
        settle(port)
    faults.read_seconds, faults.reads = 3.0, 0
    with processes(TcpGroup, *flags, rank_seconds=2) as port:
        assert faults.reads > 0
        faults.read_seconds = 0
        assert ask(port, prompts(1)[0])[0] == expected[0]


@pytest.mark.parametrize("what", ["read_errors", "write_errors", "full", "all"])
def test_a_disk_that_fails_changes_no_answer(disk, expected, what):  # noqa: F811
    folder, faults = disk
    flags = ("--cache-dir", str(folder / "pages"), "--max-model-len", "1024", "--max-num-seqs", "2",
             "--memory", "78MiB", "--threads", "1")
    for turn in range(3):
        with serving(*flags) as server:
            # Slow, so that something is left to be written in each turn.
            faults.read_seconds = faults.write_seconds = 0.02
            if what == "full":
                faults.full = turn == 1
            else:
                faults.read_errors = 0.3 if what != "write_errors" else 0
                faults.write_errors = 0.3 if what != "read_errors" else 0
            wrong = []

            def client(order):
                for i in order:
                    if ask(server.port, prompts(12)[i])[0] != expected[i]:  # noqa: B023
                        wrong.append(i)  # noqa: B023

            clients = [threading.Thread(target=client, args=[range(*order)])
                       for order in ((0, 12), (11, -1, -1))]
            for thread in clients:
                thread.start()
            for thread in clients:
                thread.join()
            assert not wrong
            # Files that a start reads are read again by the next one.
            faults.read_errors = faults.write_errors = faults.full = 0
    assert faults.failed > 0 and faults.reads > 0


def await_quiet(faults):
    """Until something was read, and then nothing for a second."""
    until, before = time.monotonic() + 60, 0
    while (now := faults.reads) == 0 or now != before:
        assert time.monotonic() < until
        before = now
        time.sleep(1)


def test_pages_of_requests_that_wait_are_read_ahead(disk, expected):  # noqa: F811
    folder, faults = disk
    flags = ("--cache-dir", str(folder / "pages"), "--max-model-len", "8192", *FLAGS[2:])
    with serving(*flags) as server:
        for prompt, answer in zip(prompts(2), expected):
            assert ask(server.port, prompt)[0] == answer
        settle(server.port)
    faults.cached = True  # it has nothing of them yet
    with serving(*flags, "--max-num-seqs", "1") as server:
        bystander = Bystander(server.port, tokens=8000)
        faults.reads, faults.bytes_read, faults.read_seconds, got = 0, 0, 0.02, {}

        def client(i):
            got[i] = ask(server.port, prompts(2)[i])

        clients = [threading.Thread(target=client, args=[i]) for i in range(2)]
        for thread in clients:
            thread.start()
        await_quiet(faults)
        assert not got and bystander.chunks < 8000, "the slot was free too early"
        ahead, faults.bytes_read = faults.bytes_read, 0
        bystander.longest_gap()
        for thread in clients:
            thread.join()
        # The kernel may have dropped some pages meanwhile.
        assert faults.bytes_read < ahead / 4
        for i, prompt in enumerate(prompts(2)):
            assert got[i][0] == expected[i]
            whole = (len(prompt) - 1) // 64 * 64
            assert got[i][1]["prompt_tokens_details"]["disk_tokens"] == whole
