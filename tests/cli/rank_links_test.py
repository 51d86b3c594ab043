"""Ranks on two hosts, for which network namespaces stand in: the answer of one rank over a link
that loses packets, and the name of the lost rank when the link goes down."""

import json
import os
import shutil
import subprocess
import threading

import pytest

from conftest import BINARY, TINY
from rank_group import torchrun_environments

PROMPT = ["--token-ids", json.dumps(list(range(40, 340))), "--json", "--max-tokens", "40",
          "--temperature", "0.8", "--seed", "5"]  # fmt: skip
HOSTS = [f"braid-{os.getpid()}-{rank}" for rank in range(2)]
ADDRESSES = ["10.99.7.1", "10.99.7.2"]


def ip(*words):
    return subprocess.run(["ip", *words], capture_output=True, text=True, check=False)


def on(rank, *words):
    return ["ip", "netns", "exec", HOSTS[rank], *words]


@pytest.fixture(name="link")
def two_hosts():
    if shutil.which("ip") is None or shutil.which("tc") is None:
        pytest.skip("no ip and tc (Debian: iproute2)")
    ends = [f"b{os.getpid()}-{rank}" for rank in range(2)]
    try:
        for host in HOSTS:
            if ip("netns", "add", host).returncode != 0:
                pytest.skip("no network namespaces")
        ip("link", "add", ends[0], "type", "veth", "peer", "name", ends[1])
        for rank in range(2):
            ip("link", "set", ends[rank], "netns", HOSTS[rank], "name", "eth0")
            for words in (["ip", "address", "add", f"{ADDRESSES[rank]}/24", "dev", "eth0"],
                          ["ip", "link", "set", "lo", "up"],
                          ["ip", "link", "set", "eth0", "up"]):  # fmt: skip
                subprocess.run(on(rank, *words), check=True)
        yield HOSTS
    finally:
        for host in HOSTS:
            ip("netns", "del", host)


def environments():
    both = torchrun_environments(2)
    return [{**e, "MASTER_ADDR": ADDRESSES[0], "LOCAL_WORLD_SIZE": "1"} for e in both]


def test_a_link_that_loses_packets_changes_no_answer(link):
    alone = subprocess.run([BINARY, "run", TINY, *PROMPT], capture_output=True, check=True)
    for rank in range(2):  # a short queue: what does not fit is lost
        subprocess.run(on(rank, "tc", "qdisc", "add", "dev", "eth0", "root", "tbf", "rate",
                          "100mbit", "burst", "10kb", "limit", "20kb"), check=True)  # fmt: skip
    processes = [
        subprocess.Popen(on(rank, BINARY, "run", TINY, *PROMPT, "--threads", "1", "--tp", "2"),
                         env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for rank, environment in enumerate(environments())
    ]  # fmt: skip
    answers = [process.communicate(timeout=120) for process in processes]
    assert processes[0].returncode == 0, answers
    assert json.loads(answers[0][0]) == json.loads(alone.stdout)
    shown = subprocess.run(on(0, "tc", "-s", "qdisc", "show", "dev", "eth0"), capture_output=True,
                           text=True, check=True).stdout  # fmt: skip
    lost = int(shown.split("dropped ")[1].split(",")[0])
    assert lost > 0, shown


def test_a_link_that_goes_down_is_a_lost_rank(link):
    command = [BINARY, "serve", str(TINY), "--port", "0", "--tp", "2", "--threads", "1",
               "--rank-seconds", "3"]  # fmt: skip
    processes = [
        subprocess.Popen(on(rank, *command), env=environment, stdout=subprocess.PIPE,
                         stderr=subprocess.STDOUT, text=True)
        for rank, environment in enumerate(environments())
    ]  # fmt: skip
    try:
        killer = threading.Timer(100, processes[0].kill)
        killer.start()
        for line in processes[0].stdout:
            if "listening on http" in line:
                break
        subprocess.run(on(1, "ip", "link", "set", "eth0", "down"), check=True)
        said = [process.communicate(timeout=30)[0] for process in processes]
        killer.cancel()
        assert "no word from rank 1 within 3000 ms" in said[0]
        assert "no word from rank 0 within 3000 ms" in said[1]
    finally:
        for process in processes:
            process.kill()
