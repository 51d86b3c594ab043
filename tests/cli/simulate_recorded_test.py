"""braid simulate cluster --trace-file LOG: a real run's requests come again as they were."""

import contextlib
import http.client
import json
import pathlib
import re
import sys
import time

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from serving import serving  # noqa: E402

ANN, BEN = "key-of-ann-1", "key-of-ben-1"


class Client:
    """Asks one request after the other, and keeps when, and what the server said of its tokens."""

    def __init__(self, port):
        self.port, self.times, self.usage = port, [], []

    def send(self, key, body):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
        connection.request("POST", "/v1/completions", json.dumps(body), headers)
        return connection, connection.getresponse()

    def ask(self, prompt, tokens, key=ANN, **more):
        """The tokens of the answers, which are as long as they may be unless `more` says else."""
        time.sleep(0.5)
        start = time.monotonic()
        body = {"prompt": prompt, "max_tokens": tokens, "ignore_eos": True, "temperature": 0.7,
                "seed": 3, "return_token_ids": True}  # fmt: skip
        connection, response = self.send(key, body | more)
        with contextlib.closing(connection):
            answer = json.loads(response.read())
            assert response.status == 200, answer
        self.times.append((start, time.monotonic()))
        self.usage.append(answer["usage"])
        return [choice["token_ids"] for choice in answer["choices"]]

    def leave(self, prompt, key=ANN):
        """A request whose client leaves in the middle of the answer."""
        time.sleep(0.5)
        start = time.monotonic()
        body = {"prompt": prompt, "max_tokens": 7000, "ignore_eos": True, "stream": True}
        connection, response = self.send(key, body)
        with contextlib.closing(connection):
            for _ in range(20):
                response.readline()
            response.close()
        self.times.append((start, start))
        while self.metric("num_requests_running") > 0:
            time.sleep(0.02)

    def metric(self, name):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        with contextlib.closing(connection):
            connection.request("GET", "/metrics", headers={"Authorization": f"Bearer {ANN}"})
            text = connection.getresponse().read().decode()
        return sum(map(float, re.findall(rf"^braid:{name}(?:{{[^}}]*}})? (\S+)$", text, re.M)))

    def said(self, name):
        return sum(usage[name] for usage in self.usage)


def prompt_of(tokens, first):
    return [5 + (first * 131 + 7 * i * (first + i)) % 3000 for i in range(tokens)]


def converse(client):
    """Turns, a salt, another tenant, two choices, an end before the limit; 11 requests."""
    client.ask([5], 1)
    first = prompt_of(300, 1)
    (answer,) = client.ask(first, 40)
    turn = first + answer + prompt_of(20, 2)
    client.ask(turn, 10)
    client.ask(turn, 10, cache_salt="s")
    client.ask(turn, 10, cache_salt="s")
    client.ask(turn, 10, key=BEN)
    client.ask(prompt_of(200, 3), 8, n=2)
    greedy = prompt_of(90, 4)
    (answer,) = client.ask(greedy, 30, temperature=0)
    (stopped,) = client.ask(greedy, 30, temperature=0, stop_token_ids=[answer[11]])
    assert len(stopped) == answer.index(answer[11]) + 1
    client.leave(prompt_of(100, 5))


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """(the log, the client that made it, the server's own counts)"""
    folder = tmp_path_factory.mktemp("recorded")
    keys, log = folder / "keys.json", folder / "run.log"
    names = [{"name": "ann", "key": ANN}, {"name": "ben", "key": BEN}]
    keys.write_text(json.dumps({"keys": names}))
    # --explain-ops warms up, by a request that is no client's.
    flags = ["--api-key-file", str(keys), "--event-log", str(log), "--draft", "off",
             "--explain-ops"]  # fmt: skip
    with serving(*flags) as server:
        client = Client(server.port)
        converse(client)
        counts = {name: client.metric(name) for name in ("prefix_cache_queries_total",
                                                         "prefix_cache_hits_total")}  # fmt: skip
    return log, client, counts


def simulate(braid, tiny, log, *words):
    done = braid("simulate", "cluster", tiny, "--trace-file", log, "--max-batch-tokens", "2048",
                 "--json", *words)  # fmt: skip
    assert done.returncode == 0, done.stderr
    (run,) = json.loads(done.stdout)["runs"]
    return run, done.stderr


def test_a_recorded_run_is_a_load_with_its_prompts_reuse_and_answers(braid, tiny, recorded):
    log, client, counts = recorded
    run, said = simulate(braid, tiny, log)
    assert said == ""
    # The request with two choices counts its prompt once in its usage, and twice in the scheduler.
    assert run["requests"] == run["finished"] == len(client.times) + 1 == 11
    left, twice, again = 100, 200, 192
    assert run["input_tokens"] == client.said("prompt_tokens") + twice + left
    reused = sum(usage["prompt_tokens_details"]["cached_tokens"] for usage in client.usage)
    assert reused == 2 * 320 + 64 and run["reused_tokens"] == reused + again
    warm_up = 8
    assert counts["prefix_cache_queries_total"] == run["input_tokens"] + warm_up
    assert counts["prefix_cache_hits_total"] == run["reused_tokens"]
    # Of the cancelled request the log knows what it had got; a row may have been in flight.
    replayed = braid("replay", log)
    assert replayed.returncode == 0, replayed.stderr
    sampled = int(re.search(r"are equal, (\d+) tokens", replayed.stdout)[1]) - 2  # the warm-up's
    assert sampled - 1 <= run["output_tokens"] <= sampled
    assert run["output_tokens"] > client.said("completion_tokens") + 5


def test_requests_of_a_recorded_run_come_when_they_came(braid, tiny, recorded):
    log, client, _ = recorded
    first = client.times[0][0]
    run, _ = simulate(braid, tiny, log)
    span = run["requests"] / run["requests_per_second"]
    assert span == pytest.approx(client.times[-1][0] - first, abs=0.4)
    # Between two requests, those before it have come and the others have not.
    for i in range(2, len(client.times)):
        between = (client.times[i - 1][1] + client.times[i][0]) / 2 - first
        early, _ = simulate(braid, tiny, log, "--minutes", f"{between / 60:.6f}")
        assert early["requests"] == i + (i > 6)  # with two choices


def test_the_same_seed_replays_the_same_and_the_log_decides_about_requests(braid, tiny, recorded):
    log, *_ = recorded
    words = ["--engines", "2", "--route", "prefix", "--fail-every", "2", "--repair", "0.5"]
    runs = [simulate(braid, tiny, log, *words, "--seed", seed)[0] for seed in "778"]
    assert runs[0] == runs[1] != runs[2]
    assert runs[0]["failures"] > 0
    for name in ("requests", "finished", "input_tokens", "output_tokens"):
        assert runs[0][name] == runs[2][name]
    # With engines for prompts: all but the first one, which is less than a block, are sent.
    run, _ = simulate(braid, tiny, log, "--engines", "3", "--prefill-engines", "1")
    assert run["finished"] == runs[0]["finished"] == run["transfers"] + 1


def test_a_run_that_a_crash_cut_off_is_replayed_up_to_there(braid, tiny, tmp_path, recorded):
    log = tmp_path / "run.log"
    with serving("--event-log", str(log), may_be_killed=True) as server:
        client = Client(server.port)
        client.ask(prompt_of(100, 1), 5)
        body = {"prompt": [5, 6], "max_tokens": 7000, "ignore_eos": True, "stream": True}
        connection, response = client.send(ANN, body)
        for _ in range(20):
            response.readline()
        server.process.kill()
        connection.close()
    run, said = simulate(braid, tiny, log)
    assert "ends before its run does" in said and str(log) in said
    assert run["requests"] == run["finished"] == 2 and run["output_tokens"] > 5 + 5
    cut = tmp_path / "cut.log"
    cut.write_bytes(recorded[0].read_bytes()[:-3])
    run, said = simulate(braid, tiny, cut)
    assert "ends before its run does" in said and run["requests"] == 11


def test_bad_logs_are_refused_with_what_is_wrong(braid, tiny, tmp_path, recorded):
    whole, log = recorded[0].read_bytes(), tmp_path / "bad.log"

    def refusal(content):
        log.write_bytes(content)
        done = braid("simulate", "cluster", tiny, "--trace-file", log)
        assert done.returncode == 1 and done.stdout == ""
        return done.stderr

    middle = len(whole) // 2
    damaged = refusal(whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :])
    offset = int(re.search(r"the record before byte (\d+) is damaged", damaged)[1])
    assert middle < offset < middle + 4096
    older = whole[:8] + (6).to_bytes(4, "little") + whole[12:]
    assert "an event log of version 6; this program reads version 7" in refusal(older)
    assert "an event log of version 6" in braid("replay", log).stderr
    assert "ends before its start record does" in refusal(whole[:30])
    with serving("--event-log", str(log)):
        pass
    done = braid("simulate", "cluster", tiny, "--trace-file", log)
    assert done.returncode == 1 and "the event log has no request" in done.stderr
    done = braid("simulate", "cluster", tiny, "--trace-file", log, "--rate", "2")
    assert done.returncode == 1 and "leave out --load and --rate" in done.stderr
