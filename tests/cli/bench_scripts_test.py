"""The scripts of bench/: what they count, and that both sides of a comparison are the same."""

import asyncio
import http.server
import importlib
import json
import os
import pathlib
import subprocess
import sys
import threading
import types
import unittest.mock
import urllib.parse

import pytest

BENCH = pathlib.Path(__file__).resolve().parents[2] / "bench"
sys.path[:0] = [str(BENCH), str(BENCH / "peers")]

import compare_llama_cpp  # noqa: E402
import measure_server  # noqa: E402
import plan_vs_measured  # noqa: E402
import streams  # noqa: E402

FOUND = {
    "time_to_first_token_ms": 1, "decode_tokens_per_second": 1, "prefill_tokens_per_second": 1,
    "drafts": 10, "drafts_accepted": 6, "hardware": {"numbers": {}},
    "results": [{"throughput": {"ns": 1e6, "bytes": 1e6, "messages": 4}}],
    "without_overlap": {"first_token_seconds": 1, "inter_token_seconds": 1},
}  # fmt: skip
CPUS = [3, 5]


# ---------------------------------------------------------------- streams


def event(text="", tokens=None, finish=None, choices=True):
    found = {"choices": [{"text": text, "finish_reason": finish}] if choices else []}
    return found if tokens is None else {**found, "usage": {"completion_tokens": tokens}}


# A token, three at once, one without text, another one, and the end without a token.
DRAFTED = [event("a", 1), event("bcd", 4), event("", 5), event("e", 6), event("", 6, "length"),
           event(tokens=6, choices=False)]  # fmt: skip
PLAIN = [event("a"), event("b"), event("", 6, "length")]  # the number of tokens only at the end
BROKEN = [event("a", 1), {"error": {"message": "no room"}}]


@pytest.fixture
def serve():
    """serve(events) -> the port of a server that streams them to each client."""
    servers = []

    def start(events):
        class Answer(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                self.rfile.read(int(self.headers["Content-Length"]))
                self.send_response(200)
                self.send_header("Connection", "close")
                self.end_headers()
                for data in events:
                    text = json.dumps(data, separators=(",", ":"))
                    self.wfile.write(f"data: {text}\n\n".encode())
                self.wfile.write(b"data: [DONE]\n\n")

            def log_message(self, *_):
                pass

        servers.append(http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answer))
        threading.Thread(target=servers[-1].serve_forever, daemon=True).start()
        return servers[-1].server_port

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def times_of(port):
    async def collect():
        return [at async for at in streams.token_times(port, prompt=[1], max_tokens=6)]

    return asyncio.run(collect())


def test_streams_yield_a_time_for_each_token(serve):
    times = times_of(serve(DRAFTED))
    assert len(times) == 6
    assert times[1] == times[2] == times[3]


def test_streams_end_with_the_servers_error(serve):
    with pytest.raises(SystemExit, match="no room"):
        times_of(serve(BROKEN))


def stream_of(port, tokens=6):
    url = urllib.parse.urlparse(f"http://127.0.0.1:{port}")
    stream = measure_server.Stream(url, {"max_tokens": tokens})
    stream.run()
    return stream


@pytest.mark.parametrize("events, counts", [(DRAFTED, [1, 4, 5, 6]), (PLAIN, [3, 6])])
def test_measure_server_counts_tokens_not_events(serve, events, counts):
    stream = stream_of(serve(events))
    assert stream.error is None
    assert [tokens for _, tokens in stream.events] == counts
    assert stream.tokens_by(stream.events[-1][0]) == 6
    assert stream.tokens_by(stream.events[0][0] - 1) == 0


@pytest.mark.parametrize("events, tokens, error", [(DRAFTED, 7, "6 tokens instead of 7"),
                                                   (BROKEN, 6, "no room")])  # fmt: skip
def test_measure_server_refuses_answers_that_are_not_whole(serve, events, tokens, error):
    assert error in stream_of(serve(events), tokens).error


# ---------------------------------------------------------------- peers


def test_engines_are_compared_without_drafts(monkeypatch):
    commands = []
    monkeypatch.setattr(compare_llama_cpp, "run",
                        lambda command: commands.append(command) or json.dumps(FOUND))
    args = types.SimpleNamespace(braid="braid", model="model", threads=2, input_tokens=8,
                                 output_tokens=8, braid_flags="")  # fmt: skip
    compare_llama_cpp.measure_braid(args, 1)
    for name in ("torch", "transformers"):
        monkeypatch.setitem(sys.modules, name, unittest.mock.MagicMock())
    compare_transformers = importlib.import_module("compare_transformers")
    monkeypatch.delitem(sys.modules, "compare_transformers")
    commands.append(compare_transformers.Braid("braid", "model", 2, []).command)
    assert all("--draft off" in " ".join(command) for command in commands)


# ---------------------------------------------------------------- plan_vs_measured


class Recorder(plan_vs_measured.Bench):
    """Notes command lines instead of running them."""

    lines = []

    def run(self, *words, before=()):
        self.lines.append(" ".join(map(str, [*before, "braid", *words])))
        return json.dumps(FOUND) + "\n"

    def host_seconds(self, model, sequences):
        return 1e-5


@pytest.fixture
def recorded(monkeypatch):
    """The command lines that the script would run, on a machine of many CPUs."""
    monkeypatch.setattr(Recorder, "lines", [])
    monkeypatch.setattr(plan_vs_measured, "Bench", Recorder)
    monkeypatch.setattr(plan_vs_measured, "two_cpus", lambda: CPUS)
    return Recorder.lines


def options(**values):
    return types.SimpleNamespace(**{"braid": "braid", "run_with": "nice", "rounds": 1,
                                    "quick": True, "tokens_max": 16384, "formats": ["bf16"],
                                    "tables": ["cells", "gains", "ranks"], **values})  # fmt: skip


def test_ranks_are_measured_with_the_threads_and_the_mesh_of_their_plan(recorded, tmp_path):
    bench = Recorder("braid", "nice", tmp_path)
    assert list(plan_vs_measured.two_ranks(bench, "hybrid", options()))
    parts = [line for line in recorded if " bench ops " in line]
    assert sorted(line.split(" braid ")[0] for line in parts) == [
        f"nice taskset -c {','.join(map(str, CPUS))} taskset -c {cpu}" for cpu in CPUS]
    assert all("--threads 1" in line for line in parts)
    cells = [line for line in recorded if "--tp 2" in line]
    assert cells and all(line.startswith("nice taskset -c 3,5 braid bench offline ")
                         and "--threads 2" in line and "--ep" not in line
                         for line in cells)  # fmt: skip
    plans = [line for line in recorded if line.startswith("braid plan ")]
    assert plans and all("--mesh tp=2" in line and "ep=" not in line for line in plans)


def test_steps_with_drafts_are_planned_with_as_many_tokens_as_measured(recorded, tmp_path):
    bench = Recorder("braid", "nice", tmp_path)
    plan_vs_measured.one_rank(bench, "hybrid", options(tables=["cells"]))
    plans = [line.split() for line in recorded if "--drafts" in line]
    assert plans
    for words in plans:
        right = float(words[words.index("--draft-acceptance") + 1])
        # 6 of 10 drafts, of which a step has two, are 1.2 tokens a step beside the sampled one.
        assert right + right**2 == pytest.approx(1.2)


def test_parts_of_an_earlier_run_are_not_planned_with(recorded, tmp_path):
    (tmp_path / "hybrid.jsonl").write_text("of an earlier run\n")
    plan_vs_measured.one_rank(Recorder("braid", "", tmp_path), "hybrid", options(tables=["cells"]))
    assert "earlier" not in (tmp_path / "hybrid.jsonl").read_text()


def test_nothing_is_measured_for_tables_that_a_family_is_not_in(recorded, tmp_path):
    bench = Recorder("braid", "", tmp_path)
    assert plan_vs_measured.one_rank(bench, "latent", options(tables=["gains"])) == ([], [])
    assert not recorded


def test_a_calibration_that_fails_ends_the_script(tmp_path, monkeypatch):
    cpu = min(os.sched_getaffinity(0))
    monkeypatch.setattr(plan_vs_measured, "two_cpus", lambda: [cpu, cpu])
    braid = tmp_path / "braid"
    braid.write_text("#!/bin/sh\necho broken >&2\nexit 3\n")
    braid.chmod(0o755)
    bench = plan_vs_measured.Bench(str(braid), "", tmp_path)
    with pytest.raises(SystemExit, match="broken"):
        bench.calibrate(tmp_path / "lines", "model", "bf16", both_cores=True)


def run_main(monkeypatch, tmp_path, *words):
    monkeypatch.setattr(sys, "argv", ["plan_vs_measured.py", "--models", str(tmp_path), *words])
    plan_vs_measured.main()


def test_what_was_measured_before_a_failure_is_printed(recorded, tmp_path, monkeypatch, capsys):
    def one_rank(bench, name, options):
        if name == "latent":
            raise SystemExit("no memory")
        cell = {"prefill": 1, "decode": 1}
        return [((name, "bf16", "", 1, 64), [cell], cell)], []

    monkeypatch.setattr(plan_vs_measured, "one_rank", one_rank)
    with pytest.raises(SystemExit, match="no memory"):
        run_main(monkeypatch, tmp_path, "--families", "hybrid,latent")
    assert "within 15 %: 2 of 2 cells" in capsys.readouterr().out


@pytest.mark.parametrize("flag", ["--families", "--formats", "--tables"])
def test_a_wrong_name_is_refused_before_anything_runs(recorded, tmp_path, monkeypatch, capsys,
                                                      flag):  # fmt: skip
    with pytest.raises(SystemExit):
        run_main(monkeypatch, tmp_path, flag, "hybird")
    assert "hybird" in capsys.readouterr().err
    assert not recorded


# ---------------------------------------------------------------- records


def test_records_without_a_common_case_do_not_pass(tmp_path):
    case = {"family": "norm", "ns_median": 1, "fraction_of_limit": 0, "candidate": "reference"}
    for name in ("old", "new"):
        (tmp_path / name).write_text(json.dumps({"results": [{**case, "name": name}]}))
    done = subprocess.run([sys.executable, BENCH / "compare_results.py", tmp_path / "old",
                           tmp_path / "new"], capture_output=True, text=True)  # fmt: skip
    assert done.returncode == 1 and "no case in common" in done.stderr
