"""`--cache-dir`: what was computed before is reused after a restart, a kill at any moment, or when
memory was too small for it, and every answer is what it would be without.

BRAID_TIER_KILLS=200 kills more often.
"""

import concurrent.futures
import contextlib
import ctypes
import http.client
import json
import os
import pathlib
import random
import re
import signal
import sys
import threading
import time

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from rank_group import Group, TcpGroup, needs_mpi  # noqa: E402
import serving as servers  # noqa: E402

# Keys and values as large on every machine, where memory is meant to be small.
KV = ("--kv-dtype", "bf16")
KILLS = int(os.environ.get("BRAID_TIER_KILLS", "20"))


def serving(*flags, **more):
    return servers.serving(*flags, *KV, **more)


def ask(port, prompt, tokens=24, **more):
    """The tokens' text and log-probabilities, and the usage."""
    body = {"prompt": prompt, "max_tokens": tokens, "temperature": 0, "logprobs": 1,
            "ignore_eos": True, **more}
    connection = http.client.HTTPConnection("localhost", port, timeout=120)
    connection.request("POST", "/v1/completions", json.dumps(body),
                       {"Content-Type": "application/json"})
    response = connection.getresponse()
    answer = json.loads(response.read())
    assert response.status == 200, answer
    choice = answer["choices"][0]
    return (choice["text"], choice["logprobs"]["token_logprobs"]), answer["usage"]


def metric(port, name, label=""):
    """The sum over all labels, or over those with one."""
    connection = http.client.HTTPConnection("localhost", port, timeout=30)
    connection.request("GET", "/metrics")
    return sum(float(line.rsplit(" ", 1)[1])
               for line in connection.getresponse().read().decode().splitlines()
               if line.startswith(name) and label in line)


def prompts(count, length=400, seed=1):
    draw = random.Random(seed)
    return [[draw.randrange(300) for _ in range(length + 7 * i)] for i in range(count)]


@pytest.fixture(scope="module")
def expected():
    """What each prompt's answer is without a tier."""
    with serving("--max-model-len", "2048") as server:
        return [ask(server.port, p)[0] for p in prompts(12)]


@pytest.mark.parametrize("ranks", [("--tp", "2"), ("--dp", "2")], ids=["tp", "dp"])
def test_each_rank_keeps_its_pages(tmp_path, expected, ranks):
    flags = ("--cache-dir", str(tmp_path), "--max-model-len", "2048", "--memory", "256MiB", *ranks)
    for turn in range(2):
        with serving(*flags) as server:
            for prompt, answer in zip(prompts(4), expected):
                got, usage = ask(server.port, prompt)
                assert got == answer
                whole = (len(prompt) - 1) // 64 * 64
                assert usage["prompt_tokens_details"].get("disk_tokens", 0) == whole * turn
            settle(server.port)
    folders = sorted(p.name for p in tmp_path.iterdir())
    assert folders == (["rank-0", "rank-1"] if ranks[0] == "--tp" else ["rank-0"])
    # A rank that has lost its pages costs a miss.
    for file in (tmp_path / folders[-1]).iterdir():
        file.unlink()
    with serving(*flags) as server:
        got, usage = ask(server.port, prompts(1)[0])
        assert got == expected[0]


@contextlib.contextmanager
def processes(start, *flags, rank_seconds=20, **more):
    group = start(*flags, *KV, rank_seconds=rank_seconds, **more)
    try:
        assert group.listening.wait(60), "".join(group.log)
        yield int(group.address.rsplit(":", 1)[1])
        os.kill(group.pid_of(0), signal.SIGTERM)
        assert group.process.wait(timeout=60) == 0, "".join(group.log)
    finally:
        if group.process.poll() is None:
            group.process.kill()


@pytest.mark.parametrize("start", [pytest.param(Group, marks=needs_mpi), TcpGroup],
                         ids=["mpi", "tcp"])
def test_ranks_that_are_processes_keep_their_pages(tmp_path, expected, start):
    flags = ("--cache-dir", str(tmp_path), "--max-model-len", "2048", "--memory", "256MiB")

    def answers(port, restored):
        for prompt, answer in zip(prompts(3), expected):
            got, usage = ask(port, prompt)
            assert got == answer
            whole = (len(prompt) - 1) // 64 * 64
            assert usage["prompt_tokens_details"].get("disk_tokens", 0) == whole * restored
        settle(port)

    with processes(start, *flags) as port:
        answers(port, False)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["rank-0", "rank-1"]
    with processes(start, *flags) as port:
        answers(port, True)
    # What one rank has lost is a miss for all, and is written again.
    for file in (tmp_path / "rank-1").iterdir():
        file.unlink()
    with processes(start, *flags) as port:
        answers(port, False)
        flush = http.client.HTTPConnection("localhost", port, timeout=30)
        flush.request("POST", "/flush_cache")
        assert flush.getresponse().status == 200
        answers(port, False)
    # Threads go on with what processes have left.
    with serving(*flags, "--tp", "2") as server:
        answers(server.port, True)


@pytest.mark.parametrize("start", [pytest.param(Group, marks=needs_mpi), TcpGroup],
                         ids=["mpi", "tcp"])
def test_groups_that_are_processes_keep_their_pages(tmp_path, expected, start):
    flags = ("--cache-dir", str(tmp_path), "--max-model-len", "2048", "--memory", "256MiB")
    restored = []
    for turn in range(2):
        with processes(start, *flags, mesh=("--dp", "2", "--ep", "2")) as port:
            # At once, so that both groups have some.
            with concurrent.futures.ThreadPoolExecutor(4) as pool:
                answers = list(pool.map(lambda p: ask(port, p), prompts(4)))
            assert [got for got, _ in answers] == expected[:4]
            restored.append(sum(usage["prompt_tokens_details"].get("disk_tokens", 0)
                                for _, usage in answers))
            settle(port)
    assert restored == [0, sum((len(p) - 1) // 64 * 64 for p in prompts(4))]


@pytest.mark.parametrize("start, moved", [pytest.param(Group, "written", marks=needs_mpi),
                                          (TcpGroup, "read")], ids=["mpi", "tcp"])
def test_a_rank_that_is_lost_while_pages_move_ends_the_group(tmp_path, expected, start, moved):
    """No report of the lost rank's moves comes; nobody may wait for it."""
    group = start("--cache-dir", str(tmp_path), "--max-model-len", "2048", "--memory", "210MiB",
                  *KV)
    wrong = []

    def client(port, first):
        for i in range(first, first + 1000):
            try:
                got = ask(port, prompts(12)[i % 12])[0]
            except (AssertionError, OSError, http.client.HTTPException, json.JSONDecodeError):
                return
            if got != expected[i % 12]:
                wrong.append(i % 12)

    try:
        assert group.listening.wait(60), "".join(group.log)
        port = int(group.address.rsplit(":", 1)[1])
        threads = [threading.Thread(target=client, args=(port, 6 * i)) for i in range(2)]
        for thread in threads:
            thread.start()
        end = time.monotonic() + 60
        while metric(port, f"braid:tier_{moved}_bytes_total") == 0:
            assert time.monotonic() < end, "".join(group.log)
            if moved == "read":  # what memory has lost comes from the disk
                post(port, "/flush_cache", {"memory_only": True})
            time.sleep(0.05)
        os.kill(group.pid_of(1), signal.SIGKILL)
        for thread in threads:
            thread.join(60)
        group.ends_naming(1)
        assert not wrong
    finally:
        if group.process.poll() is None:
            group.process.kill()


def settle(port):
    """Waits until nothing more is written."""
    before = None
    while (now := [metric(port, name) for name in ("braid:tier_written_bytes_total",
                                                   "braid:tier_parts")]) != before:
        before = now
        time.sleep(0.2)


def test_a_restart_reuses_what_was_computed(tmp_path, expected):
    flags = ("--cache-dir", tmp_path / "pages", "--max-model-len", "2048")
    grammar = {"prompt": prompts(3)[1], "guided_regex": "([a-f]+ [0-9]+ ){4,}",
               "ignore_eos": False}
    with serving(*map(str, flags)) as server:
        for prompt, answer in zip(prompts(3), expected):
            assert ask(server.port, prompt)[0] == answer
        constrained = ask(server.port, **grammar)[0]
    with serving(*map(str, flags)) as server:
        got, usage = ask(server.port, **grammar)
        assert got == constrained and usage["prompt_tokens_details"]["disk_tokens"] > 0
        assert any("pages on disk" in line and " 0 tokens" not in line for line in server.log)
        assert any("conversations of 512 tokens" in line and " on disk" in line
                   for line in server.log)
        for i, (prompt, answer) in enumerate(zip(prompts(3), expected)):
            got, usage = ask(server.port, prompt)
            assert got == answer
            details = usage["prompt_tokens_details"]
            whole = (len(prompt) - 1) // 64 * 64
            assert details["cached_tokens"] == whole
            assert details.get("disk_tokens", 0) == (whole if i != 1 else 0)
        assert metric(server.port, "braid:tier_hits_total") > 1000
        assert metric(server.port, "braid:tier_read_bytes_total") > 0
        # Others do not meet them.
        got, usage = ask(server.port, prompts(3)[0], cache_salt="other")
        assert got == expected[0] and usage["prompt_tokens_details"]["cached_tokens"] == 0
    assert {oct(p.stat().st_mode & 0o777) for p in (tmp_path / "pages").iterdir()} == {"0o600"}
    # Other numbers, other pages.
    with serving(*map(str, flags), "--state-dtype", "int8") as server:
        _, usage = ask(server.port, prompts(3)[0])
        assert usage["prompt_tokens_details"]["cached_tokens"] == 0


def test_pages_of_a_request_that_waits_are_read_ahead(tmp_path, expected):
    name = "braid:tier_read_ahead_bytes_total"
    flags = ("--cache-dir", str(tmp_path), "--max-model-len", "8192")
    with serving(*flags) as server:
        assert ask(server.port, prompts(1)[0])[0] == expected[0]
        settle(server.port)
    with serving(*flags, "--max-num-seqs", "1") as server:
        assert metric(server.port, name) == 0
        holder = http.client.HTTPConnection("localhost", server.port, timeout=120)
        body = {"prompt": [7] * 70, "max_tokens": 8000, "stream": True, "ignore_eos": True}
        holder.request("POST", "/v1/completions", json.dumps(body),
                       {"Content-Type": "application/json"})
        assert holder.getresponse().readline(), "it has the slot"
        with concurrent.futures.ThreadPoolExecutor() as pool:
            waits = pool.submit(ask, server.port, prompts(1)[0])
            until = time.monotonic() + 60
            while metric(server.port, name) == 0:
                assert time.monotonic() < until
                time.sleep(0.05)
            holder.close()
            assert waits.result()[0] == expected[0]


def test_what_memory_cannot_hold_comes_back_from_disk(tmp_path, expected):
    with serving("--cache-dir", str(tmp_path), "--max-model-len", "1024", "--max-num-seqs", "2",
                 "--memory", "78MiB") as server:
        for turn in range(2):
            for prompt, answer in zip(prompts(12), expected):
                assert ask(server.port, prompt)[0] == answer, turn
        settle(server.port)
        assert metric(server.port, "braid:tier_hits_total") > 0
        written = metric(server.port, "braid:tier_written_bytes_total")
        for prompt, answer in zip(prompts(12), expected):
            assert ask(server.port, prompt)[0] == answer
        settle(server.port)
        # Only what is new is written: nothing is.
        assert metric(server.port, "braid:tier_written_bytes_total") <= 1.2 * written


def test_memory_beside_the_cache_is_a_tier_too(expected):
    with serving("--cache-host", "64MiB", "--max-model-len", "1024", "--max-num-seqs", "2",
                 "--memory", "78MiB") as server:
        restored = 0
        for turn in range(2):
            for prompt, answer in zip(prompts(12), expected):
                got, usage = ask(server.port, prompt)
                assert got == answer, turn
                details = usage["prompt_tokens_details"]
                assert "disk_tokens" not in details
                restored += details.get("host_tokens", 0)
            settle(server.port)
        assert restored > 1000
        assert metric(server.port, "braid:tier_hits_total", 'tier="host"') == restored
        assert metric(server.port, "braid:tier_hits_total", 'tier="disk"') == 0
        assert metric(server.port, "braid:tier_parts", 'tier="host"') > 0
        assert metric(server.port, "braid:tier_written_bytes_total") == 0
        assert any("pages in memory beside the cache: at most 64" in line for line in server.log)


def post(port, path, body):
    connection = http.client.HTTPConnection("localhost", port, timeout=120)
    connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
    response = connection.getresponse()
    answer = response.read()
    assert response.status == 200, answer
    return answer


@pytest.mark.parametrize("tier", ["disk", "host"])
def test_every_format_says_what_came_from_the_tier(tmp_path, tier):
    question = [{"role": "user", "content": "What is 17 plus 25? " * 40}]
    common = {"model": "braid-tiny", "temperature": 0}
    formats = [
        ("/v1/chat/completions", {"messages": question, "max_tokens": 4}, "prompt_tokens_details"),
        ("/v1/responses", {"input": question, "max_output_tokens": 4}, "input_tokens_details"),
        ("/v1/messages", {"messages": question, "max_tokens": 4}, None),
    ]
    flags = {"disk": ("--cache-dir", str(tmp_path)), "host": ("--cache-host", "64MiB")}[tier]
    other = {"disk": "host", "host": "disk"}[tier]
    with serving(*flags, "--max-model-len", "2048") as server:
        for turn in range(2):
            for path, body, inside in formats:
                usage = json.loads(post(server.port, path, common | body))["usage"]
                settle(server.port)
                post(server.port, "/flush_cache", {"memory_only": True})
                if turn == 0:
                    continue
                details = usage[inside] if inside else usage
                cached = details["cached_tokens" if inside else "cache_read_input_tokens"]
                assert details[f"{tier}_tokens"] == cached > 64, usage
                assert f"{other}_tokens" not in details


def test_memory_beside_the_cache_is_of_the_node_that_is_named():
    status = pathlib.Path("/proc/self/status").read_text()
    node = re.search(r"Mems_allowed_list:\s*(\d+)", status)
    get_mempolicy = 239
    if (not node or not pathlib.Path(f"/sys/devices/system/node/node{node[1]}").exists()
            or ctypes.CDLL(None).syscall(get_mempolicy, None, None, 0, None, 0) != 0):
        pytest.skip("the kernel has no NUMA nodes, or tells no policies")
    for flags in ((), ("--cache-host-node", node[1])):
        # With one thread no weights are placed.
        with serving("--cache-host", "64MiB", "--max-model-len", "1024", "--threads", "1",
                     *flags) as server:
            maps = pathlib.Path(f"/proc/{server.process.pid}/numa_maps").read_text()
            assert bool(re.search(rf"^\w+ prefer.*:{node[1]}\b", maps, re.M)) == bool(flags)


def test_a_flush_forgets_what_is_on_disk(tmp_path, expected):
    with serving("--cache-dir", str(tmp_path), "--max-model-len", "2048") as server:
        assert ask(server.port, prompts(1)[0])[0] == expected[0]
        settle(server.port)
        connection = http.client.HTTPConnection("localhost", server.port, timeout=30)
        connection.request("POST", "/flush_cache")
        assert connection.getresponse().status == 200
        got, usage = ask(server.port, prompts(1)[0])
        assert got == expected[0] and usage["prompt_tokens_details"]["cached_tokens"] == 0


def test_a_flush_of_memory_only_leaves_what_is_on_disk(tmp_path, expected):
    with serving("--cache-dir", str(tmp_path), "--max-model-len", "2048") as server:
        assert ask(server.port, prompts(1)[0])[0] == expected[0]
        settle(server.port)
        for body, status in (('{"memory_only": "yes"}', 400), ('{"tiers": true}', 400),
                             ('{"memory_only": true}', 200)):
            connection = http.client.HTTPConnection("localhost", server.port, timeout=30)
            connection.request("POST", "/flush_cache", body, {"Content-Type": "application/json"})
            assert connection.getresponse().status == status
        got, usage = ask(server.port, prompts(1)[0])
        details = usage["prompt_tokens_details"]
        assert got == expected[0] and details["disk_tokens"] == details["cached_tokens"] > 0


def test_killed_at_any_moment_it_starts_again_and_says_the_same(tmp_path, expected):
    draw = random.Random(5)
    all_prompts = prompts(12)
    restored, answer_seconds, answered = 0, 0.0, threading.Event()
    for kill in range(KILLS):
        last = kill + 1 == KILLS
        with serving("--cache-dir", str(tmp_path), "--cache-disk", "64MiB", "--max-model-len",
                     "2048", may_be_killed=True) as server:

            def client(first):
                nonlocal answer_seconds
                for i in range(first, first + 12):
                    began = time.monotonic()
                    try:
                        got, usage = ask(server.port, all_prompts[i % 12])
                    except (OSError, http.client.HTTPException, json.JSONDecodeError):
                        return
                    answer_seconds = time.monotonic() - began
                    answered.set()
                    if got != expected[i % 12]:
                        wrong.append(i)
                    disk.append(usage["prompt_tokens_details"].get("disk_tokens", 0))

            wrong, disk = [], []
            threads = [threading.Thread(target=client, args=(draw.randrange(12),))
                       for _ in range(2)]
            for thread in threads:
                thread.start()
            if not last:
                answered.wait(60)  # the first server says how long an answer takes here
                time.sleep(draw.random() * 5 * answer_seconds)
                server.process.send_signal(signal.SIGKILL)
            for thread in threads:
                thread.join()
            assert not wrong, (kill, wrong)
            restored += sum(disk)
    assert restored > 0


@pytest.mark.parametrize("flags, message", [
    (("--no-prefix-cache",), "--cache-dir keeps prefixes; leave out --no-prefix-cache"),
    (("--tp", "2", "--ep", "2", "--reduce", "fast"), "leave out --reduce fast"),
])
def test_what_cannot_go_together_is_said(braid, tiny, tmp_path, flags, message):
    result = braid("run", tiny, "a", "--raw", "--cache-dir", tmp_path, *flags)
    assert result.returncode != 0 and message in result.stderr


@pytest.mark.parametrize("flag", ["--cache-disk", "--cache-host"])
def test_a_tier_too_small_for_a_page_is_refused(braid, tiny, tmp_path, flag):
    result = braid("run", tiny, "a", "--raw", "--cache-dir", tmp_path, flag, "5K")
    # The flag is named once.
    assert result.returncode != 0
    assert f"braid run: {flag} 5.00 KiB has no room for a page" in result.stderr


def test_more_memory_beside_the_cache_than_there_is_is_refused(braid, tiny):
    result = braid("run", tiny, "a", "--raw", "--cache-host", "4096TiB")
    assert result.returncode != 0
    assert re.search(r"braid run: --cache-host wants 4096 TiB on this machine, which has .* free",
                     result.stderr)


def test_a_bound_below_a_conversation_is_written_to_once_a_turn(tmp_path, expected):
    """What is written drops what was written before it; that is not written again and again."""
    with serving("--cache-dir", str(tmp_path), "--cache-disk", "2MiB", "--max-model-len", "2048"
                 ) as server:
        for prompt, answer in zip(prompts(3), expected):
            assert ask(server.port, prompt)[0] == answer
        for _ in range(50):
            before = metric(server.port, "braid:tier_written_bytes_total")
            time.sleep(0.5)
            if 0 < before == metric(server.port, "braid:tier_written_bytes_total"):
                break
        assert 0 < metric(server.port, "braid:tier_written_bytes_total") == before


def test_a_directory_that_cannot_be_used_is_named(braid, tiny, tmp_path):
    (tmp_path / "file").write_text("")
    result = braid("run", tiny, "a", "--raw", "--cache-dir", tmp_path / "file")
    assert result.returncode != 0 and str(tmp_path / "file") in result.stderr


def test_a_bound_without_a_directory_is_refused(braid, tiny):
    result = braid("run", tiny, "a", "--raw", "--cache-disk", "5M")
    assert result.returncode != 0 and "name one with --cache-dir" in result.stderr
