"""Grammars that take any amount of time or memory to compile: they are refused within their budget,
nobody else notices, and they do not keep a process alive."""

import concurrent.futures
import json
import pathlib
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from serving import serving  # noqa: E402

LETTERS = "abcdefghijklmnopqrstuvwxyz"
PLAIN = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4}
# Generous: two bombs may have all the cores of a small machine, and others use it too.
SOON = 60


def all_of(count):
    return {"allOf": [{"type": "string", "pattern": f"[a-z]*{c}"} for c in LETTERS[:count]]}


def multiple_of(value):
    return {"type": "integer", "multipleOf": value}


def of_schema(schema, **more):
    return PLAIN | {"max_tokens": 64, "response_format": {
        "type": "json_schema", "json_schema": {"name": "x", "schema": schema}}} | more


def ask(served, body, key=None, timeout=SOON):
    """(status, answer)"""
    headers = {"Content-Type": "application/json"}
    if key:
        headers["Authorization"] = f"Bearer {key}"
    request = urllib.request.Request(f"{served.address}/v1/chat/completions",
                                     json.dumps(body).encode(), headers)
    try:
        with urllib.request.urlopen(request, timeout=timeout) as response:
            return response.status, json.load(response)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def give_up(served, body, seconds, key=None):
    try:
        ask(served, body, key, timeout=seconds)
    except TimeoutError:
        pass


def resident_mib(pid):
    text = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+) kB", text)[1]) / 1024


def grammar_bytes(served):
    with urllib.request.urlopen(f"{served.address}/metrics", timeout=SOON) as response:
        text = response.read().decode()
    return float(re.search(r"^braid:grammar_bytes{.*} (.+)$", text, re.M)[1])


def test_a_client_that_left_two_bombs_does_not_hold_up_a_plain_chat():
    with serving() as served:
        for value in (9999991, 9999989):
            give_up(served, of_schema(multiple_of(value)), 0.5)
        status, _ = ask(served, PLAIN)
        assert status == 200
        assert grammar_bytes(served) == 0
        status, answer = ask(served, of_schema({"type": "integer", "maximum": 3}))
        assert status == 200, answer
        assert grammar_bytes(served) > 0


def test_what_is_over_its_budget_is_told_which_limit():
    with serving("--grammar-cpu-ms", "300") as served:
        for schema in (multiple_of(9999991), all_of(20)):
            status, answer = ask(served, of_schema(schema))
            assert status == 400, answer
            error = answer["error"]
            assert error["code"] == "grammar_too_complex", error
            assert error["param"] == "response_format.json_schema.schema"
            assert re.search(r"300 ms of CPU|MiB of memory|units of work", error["message"]), error
        # The verdict is kept: it does not cost anything again.
        begin = time.monotonic()
        assert ask(served, of_schema(multiple_of(9999991)))[0] == 400
        assert time.monotonic() - begin < 0.25
    with serving("--grammar-memory", "16M", "--grammar-cpu-ms", "30000") as served:
        status, answer = ask(served, of_schema(multiple_of(9999991)))
        assert status == 400 and "16 MiB of memory" in answer["error"]["message"], answer


def test_a_bomb_does_not_take_the_servers_memory():
    with serving("--memory", "1G") as served:
        ask(served, PLAIN)
        before = resident_mib(served.process.pid)
        status, answer = ask(served, of_schema(all_of(26)))
        assert status == 400, answer
        status, answer = ask(served, of_schema(multiple_of(9999991)))
        assert status == 400, answer
        assert resident_mib(served.process.pid) - before < 100


def test_a_keys_bombs_do_not_delay_another_keys_schemas(tmp_path):
    keys = tmp_path / "keys.json"
    keys.write_text(json.dumps({"keys": [{"name": "ann", "key": "key-of-ann"},
                                         {"name": "ben", "key": "key-of-ben"}]}))
    with serving("--api-key-file", str(keys)) as served, \
            concurrent.futures.ThreadPoolExecutor(8) as pool:
        bombs = [pool.submit(ask, served, of_schema(multiple_of(9999991 - 2 * i)), "key-of-ann")
                 for i in range(6)]
        time.sleep(0.2)
        schema = {"type": "object", "properties": {"a": {"type": "integer", "maximum": 9}},
                  "required": ["a"], "additionalProperties": False}
        status, answer = ask(served, of_schema(schema), "key-of-ben")
        assert status == 200, answer
        assert not all(bomb.done() for bomb in bombs), "the bombs were over before the schema"
        for bomb in bombs:
            assert bomb.result()[0] in (400, 429)


def test_a_second_sigterm_ends_the_process_whatever_is_compiled():
    with serving() as served, concurrent.futures.ThreadPoolExecutor(2) as pool:
        for value in (9999991, 9999989):
            pool.submit(give_up, served, of_schema(multiple_of(value)), 1)
        time.sleep(0.5)
        served.process.send_signal(signal.SIGTERM)
        time.sleep(0.2)
        served.process.send_signal(signal.SIGTERM)
        served.process.wait(timeout=10)


def trial_of(pid):
    found = subprocess.run(["pgrep", "-P", str(pid), "-f", "grammar-trial"], capture_output=True,
                           text=True, check=False).stdout.split()
    return [int(p) for p in found]


def test_the_trial_process_is_started_again_and_ends_with_its_server():
    with serving() as served:
        (trial,) = trial_of(served.process.pid)
        subprocess.run(["kill", "-9", str(trial)], check=True)
        status, answer = ask(served, of_schema({"type": "integer", "maximum": 7}))
        assert status == 200, answer
        (again,) = trial_of(served.process.pid)
        assert again != trial
        served.process.kill()
        served.process.wait()
        end = time.monotonic() + 20
        while pathlib.Path(f"/proc/{again}/exe").exists():
            assert time.monotonic() < end
            time.sleep(0.05)
        served.process.returncode = 0  # as asked
