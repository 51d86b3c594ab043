"""Faults around a running `braid serve`: killed and started again, stopped under load, a full disk,
a log that nobody reads, a clock that jumps."""

import contextlib
import http.client
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from serving import ROOT, serving  # noqa: E402

TEXT = {"prompt": "Once", "max_tokens": 3, "ignore_eos": True, "temperature": 0}
# Under a sanitizer, which slows everything down, an answer takes as long with fewer tokens.
SANITIZED = os.environ.get("BRAID_PRESET", "release") != "release"
STREAM = {**TEXT, "max_tokens": 60 if SANITIZED else 300, "stream": True}


def post(port, body, timeout=60):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    with contextlib.closing(connection):
        connection.request("POST", "/v1/completions", json.dumps(body),
                           {"Content-Type": "application/json"})
        response = connection.getresponse()
        return response.status, response.read()


def metric(port, name):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    with contextlib.closing(connection):
        connection.request("GET", "/metrics")
        text = connection.getresponse().read().decode()
    return sum(map(float, re.findall(rf"^braid:{name}(?:{{[^}}]*}})? (\S+)$", text, re.M)))


def start(port, *flags, **more):
    """A server at this port that the test itself ends."""
    binary = os.environ.get("BRAID_BIN", str(ROOT / "build/release/braid"))
    process = subprocess.Popen(
        [binary, "serve", str(ROOT / "models/braid-tiny"), "--port", str(port), *flags],
        stdout=subprocess.PIPE, text=True, **more)
    assert process.stdout.readline().startswith("listening on ")
    return process


def free_port():
    with socket.socket() as any_port:
        any_port.bind(("127.0.0.1", 0))
        return any_port.getsockname()[1]


def test_killed_and_started_again_it_serves_the_same(tmp_path):
    port, log = free_port(), tmp_path / "requests.log"
    flags = ["--request-log", str(log), "--log-json", "--event-log", str(tmp_path / "events")]
    first = start(port, *flags, stderr=subprocess.DEVNULL)
    wanted = json.loads(post(port, TEXT)[1])["choices"]
    broken = []

    def stream():
        try:
            broken.append(post(port, {**STREAM, "max_tokens": 100000}))
        except (OSError, http.client.HTTPException) as error:
            broken.append(error)

    threads = [threading.Thread(target=stream) for _ in range(5)]
    for thread in threads:
        thread.start()
    time.sleep(0.5)
    first.kill()
    first.wait()
    for thread in threads:
        thread.join(30)
    assert len(broken) == 5
    assert all(isinstance(end, Exception) for end in broken), "a cut stream is no whole one"
    second = start(port, *flags, stderr=subprocess.DEVNULL)
    try:
        assert json.loads(post(port, TEXT)[1])["choices"] == wanted
        deadline = time.monotonic() + 10  # a step after the answer's last token
        while metric(port, "num_requests_running") > 0 and time.monotonic() < deadline:
            time.sleep(0.05)
        assert metric(port, "num_requests_running") == 0
    finally:
        second.terminate()
        assert second.wait(30) == 0
    for line in log.read_text().splitlines():
        json.loads(line)


def test_f8_stopped_under_load_it_finishes_what_runs_and_refuses_the_rest():
    port = free_port()
    process = start(port, stderr=subprocess.DEVNULL)
    answers, refused = [], []

    def stream():
        answers.append(post(port, STREAM))

    threads = [threading.Thread(target=stream) for _ in range(20)]
    for thread in threads:
        thread.start()
    while metric(port, "num_requests_running") < 20:
        time.sleep(0.01)
    process.send_signal(signal.SIGTERM)
    time.sleep(0.2)
    try:
        refused.append(post(port, TEXT)[0])
    except OSError as error:
        refused.append(error)
    for thread in threads:
        thread.join(60)
    assert process.wait(40) == 0
    assert isinstance(refused[0], OSError) or refused[0] == 503
    assert len(answers) == 20
    for status, data in answers:
        assert status == 200 and data.endswith(b"data: [DONE]\n\n") and b'"error"' not in data


def test_a_full_disk_loses_lines_of_the_log_and_nothing_else():
    with serving("--request-log", "/dev/full") as served:
        for _ in range(20):
            assert post(served.port, TEXT)[0] == 200
        end = time.monotonic() + 10
        while metric(served.port, "request_log_dropped_total") < 20:
            assert time.monotonic() < end
        said = [line for line in served.log if "are lost" in line]
        assert len(said) == 1 and "No space left" in said[0]


def test_a_full_disk_behind_the_output_stops_no_server(tmp_path):
    trace = tmp_path / "trace"
    with open("/dev/full", "w", encoding="utf-8") as full:
        process = start(0, "--trace", str(trace), stderr=full)
        process.terminate()
        assert process.wait(60) == 0
        assert b"traceEvents" in trace.read_bytes()
        process = subprocess.Popen(
            [process.args[0], "serve", str(ROOT / "models/braid-tiny"), "--port", "0"],
            stdout=full, stderr=subprocess.PIPE, text=True)
    assert any(line.endswith(" in all\n") for line in process.stderr)
    process.terminate()
    assert process.wait(60) == 0
    process.stderr.close()


def test_a_log_that_cannot_be_opened_is_named_at_the_start(braid, tiny):
    done = braid("serve", tiny, "--port", "0", "--request-log", "/nowhere/at/all")
    assert done.returncode == 1 and "--request-log /nowhere/at/all" in done.stderr


def test_a_moved_log_goes_on_under_its_name_after_sighup(tmp_path):
    log, moved = tmp_path / "log", tmp_path / "log.1"
    with serving("--request-log", str(log)) as served:
        post(served.port, TEXT)
        end = time.monotonic() + 10
        while not log.read_text():
            assert time.monotonic() < end
        log.rename(moved)
        served.process.send_signal(signal.SIGHUP)
        while not log.exists():
            assert time.monotonic() < end
        post(served.port, TEXT)
        while not log.read_text():
            assert time.monotonic() < end
    assert moved.read_text().count("\n") == 1 and log.read_text().count("\n") == 1


@pytest.mark.parametrize("flags", [[], ["--request-log", "-"]])
def test_a_log_that_nobody_reads_holds_nothing_up(flags):
    port = free_port()
    process = start(port, "--log-level", "debug", *flags, stderr=subprocess.PIPE)
    try:
        begin = time.monotonic()
        for _ in range(15):  # each is refused with a line; together far more than a pipe holds
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            for _ in range(40):
                connection.request("POST", "/v1/completions", "{}" + " " * 10,
                                   {"Content-Type": "application/json",
                                    "X-Request-Id": "r" * 120})
                assert connection.getresponse().read()
            connection.close()
        assert post(port, TEXT)[0] == 200
        assert time.monotonic() - begin < 60
    finally:
        process.terminate()
        assert process.wait(30) == 0


@pytest.mark.parametrize("mesh", [[], ["--dp", "2"]])
def test_weights_that_are_no_numbers_end_only_the_requests_that_meet_them(tmp_path, braid, mesh):
    """One token's embedding is NaN: who sends it gets an error and no token, others get theirs."""
    model = tmp_path / "model"
    done = braid("make-model", str(model), "--shape", "tiny,tie_word_embeddings=false")
    assert done.returncode == 0, done.stderr
    path = next(model.glob("*.safetensors"))
    content = bytearray(path.read_bytes())
    size = int.from_bytes(content[:8], "little")
    table = json.loads(content[8:8 + size])["model.embed_tokens.weight"]
    row = table["shape"][1] * 2
    begin = 8 + size + table["data_offsets"][0] + 7 * row
    assert table["dtype"] == "BF16"
    content[begin:begin + row] = b"\xc0\x7f" * table["shape"][1]
    path.write_bytes(content)
    fields = {"max_tokens": 4, "temperature": 0, "ignore_eos": True}
    with serving(*mesh, model=model) as served:
        good = {"prompt": [1, 2, 3], **fields}
        before = post(served.port, good)
        assert before[0] == 200
        for count, more in ((1, {}), (2, {"prompt_logprobs": 1})):
            status, answer = post(served.port, {"prompt": [1, 2, 7, 3], **fields, **more})
            assert status == 500 and b"not finite" in answer, answer
            assert metric(served.port, "corrupted_requests_total") == count
        status, after = post(served.port, good)
        choices = [json.loads(text)["choices"] for text in (before[1], after)]
        assert status == 200 and choices[0] == choices[1]


@pytest.mark.skipif(SANITIZED, reason="libfaketime and a sanitizer each want to be loaded first")
def test_no_time_runs_out_when_the_clock_jumps(tmp_path):
    shift = tmp_path / "shift"
    shift.write_text("+0")
    (library,) = pathlib.Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1")
    environment = os.environ | {
        "LD_PRELOAD": str(library), "FAKETIME_TIMESTAMP_FILE": str(shift), "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1"}
    port = free_port()
    process = start(port, "--request-seconds", "60", "--queue-seconds", "30",
                    stderr=subprocess.DEVNULL, env=environment)
    idle = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        def created():
            return json.loads(post(port, TEXT)[1])["created"]

        idle.request("GET", "/health")
        assert idle.getresponse().read()
        answers = []
        long = {**STREAM, "max_tokens": 3000, "stream_options": {"include_usage": True}}
        thread = threading.Thread(target=lambda: answers.append(post(port, long)))
        thread.start()
        before = created()
        for seconds in (3600, -3600, 0):
            shift.write_text(f"{seconds:+d}")
            assert abs(created() - before - seconds) < 60, "the server sees the clock jump"
        assert not answers, "the stream went on over every jump"
        thread.join(60)
        ((status, data),) = answers
        assert status == 200 and data.endswith(b"data: [DONE]\n\n") and b'"error"' not in data
        assert b'"completion_tokens":3000' in data
        idle.request("GET", "/health")
        assert idle.getresponse().status == 200, "an idle connection is still open"
    finally:
        idle.close()
        process.terminate()
        assert process.wait(30) == 0


@pytest.fixture
def held_trace(tmp_path):
    """A server that has ended a stream for lack of time, and cannot write its trace: its process,
    the pipe that it writes to, and its --expert-loads."""
    trace, loads, port = tmp_path / "trace.json", tmp_path / "loads.jsonl", free_port()
    process = start(port, "--drain-seconds", "1", "--draft", "off", "--trace", str(trace),
                    "--expert-loads", str(loads), stderr=subprocess.DEVNULL)
    answers = []
    thread = threading.Thread(
        target=lambda: answers.append(post(port, {**STREAM, "max_tokens": 100000})))
    thread.start()
    try:
        while metric(port, "num_requests_running") == 0:
            time.sleep(0.01)
        pipe = tmp_path / "trace.json.tmp"  # the file's name until it is complete
        os.mkfifo(pipe)  # whoever opens it waits for a reader
        process.terminate()
        thread.join(60)
        assert b'"error"' in answers[0][1], "the time was over before the answer"
        yield process, pipe, loads
    finally:
        process.kill()
        process.wait()


def test_a_drain_without_time_left_still_writes_whole_files(held_trace):
    process, pipe, loads = held_trace
    time.sleep(3)
    assert process.poll() is None, "it waits for the trace"
    assert json.loads(pipe.read_text())["traceEvents"]
    assert process.wait(30) == 0
    header, *windows = map(json.loads, loads.read_text().splitlines())
    assert header["experts"] > 0 and sum(window["tokens"] for window in windows) > 0


def test_a_second_signal_ends_a_server_that_writes_files(held_trace):
    process, _, _ = held_trace
    time.sleep(3)
    assert process.poll() is None, "it waits for the trace"
    process.terminate()
    assert process.wait(15) == 0


@pytest.mark.skipif(SANITIZED, reason="a sanitizer's server ends slowly")
def test_a_long_text_does_not_outlast_the_drain():
    """Large bodies are prepared at low priority, so busy cores keep one going for minutes."""
    port = free_port()
    process = start(port, "--drain-seconds", "1")
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"])
            for _ in range(2 * os.cpu_count())]
    body = json.dumps({"prompt": "a quick brown fox jumps. " * 155_000})
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        client.request("POST", "/tokenize", body, {"Content-Type": "application/json"})
        time.sleep(1)
        process.terminate()
        began = time.monotonic()
        assert process.wait(60) == 0
        assert time.monotonic() - began < 15
    finally:
        client.close()
        for other in busy:
            other.kill()
            other.wait()
        process.kill()
