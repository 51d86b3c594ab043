"""Several ranks give the answers of one, as threads and as processes of mpirun, and a lost process
ends the others."""

import json
import os
import shutil
import signal
import subprocess
import time
import urllib.request

import pytest

from conftest import BINARY, TINY
from rank_group import (Group, TcpGroup, free_port, launch, needs_mpi,
                        torchrun_environments)

PROMPT = ["--token-ids", json.dumps(list(range(40, 340))), "--json", "--max-tokens", "40",
          "--temperature", "0.8", "--seed", "5", "--logprobs", "2"]  # fmt: skip
@pytest.fixture(scope="module")
def alone():
    ran = subprocess.run([BINARY, "run", TINY, *PROMPT], capture_output=True, text=True, check=True)
    return json.loads(ran.stdout)


@pytest.mark.parametrize("mesh", ["--tp 2", "--tp 2 --ep 2", "--dp 2 --ep 2", "--dp 2 --tp 2"])
def test_threads_answer_as_one(braid, tiny, alone, mesh):
    ran = braid("run", tiny, *PROMPT, *mesh.split())
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout) == alone


def test_a_mesh_that_does_not_divide_is_refused_with_one_that_does(braid, tiny):
    ran = braid("run", tiny, *PROMPT, "--tp", "5")
    assert ran.returncode == 1
    assert "the nearest that would do is dp 1 x tp 4" in ran.stderr


@pytest.mark.parametrize("form", ["throughput", "latency"])
def test_both_ways_to_experts_give_the_same(braid, tiny, alone, form):
    ran = braid("run", tiny, *PROMPT, "--dp", "2", "--ep", "2", "--ep-dispatch", form)
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout) == alone


@pytest.mark.parametrize(
    "flags, said",
    [("--ep 2 --tp 2", None), ("--tp 2", "needs --ep of 2 or more"),
     ("--tp 2 --ep 2 --redundant-experts 2", "leave out redundant experts"),
     ("--tp 2 --ep 2 --balance-experts", "leave out --balance-experts")],
)  # fmt: skip
def test_sums_by_rank_are_an_exception_with_conditions(braid, tiny, alone, flags, said):
    ran = braid("run", tiny, *PROMPT, "--reduce", "fast", *flags.split())
    if said is not None:
        assert ran.returncode == 1 and said in ran.stderr
        return
    assert ran.returncode == 0, ran.stderr
    answer = json.loads(ran.stdout)
    assert len(answer["token_ids"]) == len(alone["token_ids"])


def test_halves_of_a_batch_need_ranks(braid, tiny):
    ran = braid("run", tiny, *PROMPT, "--two-batch-overlap", "on")
    assert ran.returncode != 0 and "needs several ranks" in ran.stderr


def test_halves_of_a_batch_give_the_same(braid, tiny, alone):
    ran = braid("run", tiny, *PROMPT, "--tp", "2", "--ep", "2", "--two-batch-overlap", "on")
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout) == alone


@needs_mpi
@pytest.mark.parametrize("ranks, mesh", [(2, "--tp 2 --ep 2 --two-batch-overlap on"),
                                         (4, "--dp 2 --tp 2 --ep 4")])  # fmt: skip
def test_processes_answer_as_one(alone, ranks, mesh):
    command = [*launch(ranks), BINARY, "run", TINY, *PROMPT, "--threads", "1", *mesh.split()]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout) == alone  # and nobody else printed


def slurm_environments(ranks):
    """What `srun` sets, as far as ranks read it."""
    common = {"SLURM_STEP_NUM_TASKS": str(ranks), "SLURM_STEP_NODELIST": "localhost",
              "SLURM_STEP_TASKS_PER_NODE": str(ranks), "SLURM_NODEID": "0",
              "BRAID_RANKS_PORT": str(free_port()), "BRAID_RANKS_SECRET": "xyzzy"}  # fmt: skip
    return [{**os.environ, **common, "SLURM_PROCID": str(rank)} for rank in range(ranks)]


def test_a_wrong_variable_of_a_launcher_ends_the_command():
    environment = {**os.environ, "WORLD_SIZE": "2", "RANK": "0", "LOCAL_WORLD_SIZE": "2",
                   "MASTER_ADDR": "localhost", "BRAID_RANKS_PORT": "70000"}  # fmt: skip
    ran = subprocess.run([BINARY, "run", TINY, *PROMPT, "--tp", "2"], env=environment, text=True,
                         capture_output=True, timeout=60, check=False)  # fmt: skip
    assert ran.returncode != 0 and ran.stdout == ""
    assert "BRAID_RANKS_PORT=70000: expected a number from 1 to 65535" in ran.stderr


def lws_environments(ranks):
    """What a LeaderWorkerSet sets in its pods."""
    common = {"LWS_GROUP_SIZE": str(ranks), "LWS_LEADER_ADDRESS": "localhost",
              "BRAID_RANKS_PORT": str(free_port()), "BRAID_RANKS_SECRET": "xyzzy"}  # fmt: skip
    return [{**os.environ, **common, "LWS_WORKER_INDEX": str(rank)} for rank in range(ranks)]


def uneven_environments(ranks):
    """What torchrun sets on two machines, of which the second has one rank."""
    environments = torchrun_environments(ranks)
    for environment, here in zip(environments, [ranks - 1] * (ranks - 1) + [1]):
        environment["LOCAL_WORLD_SIZE"] = str(here)
    return environments


def run_all(environments, *words, models=None):
    """Runs a process in each; (exit code, stdout, stderr) of all."""
    processes = [
        subprocess.Popen([BINARY, "run", model, *PROMPT, "--threads", "1", *words], text=True,
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment)
        for environment, model in zip(environments, models or [TINY] * len(environments))
    ]  # fmt: skip
    ended = []
    for process in processes:
        out, err = process.communicate(timeout=120)
        ended.append((process.returncode, out, err))
    return ended


@pytest.mark.parametrize(
    "environments, ranks, mesh",
    [(torchrun_environments, 4, "--dp 2 --tp 2 --ep 4"),
     (slurm_environments, 2, "--tp 2 --ep 2 --two-batch-overlap on"),
     (lws_environments, 2, "--dp 2 --ep 2"),
     (uneven_environments, 4, "--dp 2 --tp 2 --ep 4")],
)  # fmt: skip
def test_processes_that_other_launchers_start_answer_as_one(alone, environments, ranks, mesh):
    ended = run_all(environments(ranks), *mesh.split())
    assert [code for code, _, _ in ended] == [0] * ranks, ended
    assert json.loads(ended[0][1]) == alone
    assert not any(out for _, out, _ in ended[1:])


def test_a_rank_with_other_weights_of_the_same_shape_is_refused(tmp_path):
    other = tmp_path / "other"
    shutil.copytree(TINY, other)
    weights = bytearray((other / "model.safetensors").read_bytes())
    weights[-1] ^= 1
    (other / "model.safetensors").write_bytes(weights)
    ended = run_all(torchrun_environments(2), "--tp", "2", models=[TINY, other])
    assert all(code != 0 for code, _, _ in ended), ended
    assert "rank 1 was started otherwise than rank 0: it has \"digest of weights" in ended[1][2]


@pytest.mark.parametrize("words", ["load", "agentic --cache-share 0.5"])
def test_what_loads_more_than_once_is_refused_to_a_launcher(words):
    command, *flags = words.split()
    done = subprocess.run([BINARY, "bench", command, TINY, "--tp", "2", *flags], timeout=30,
                          env=torchrun_environments(2)[1], capture_output=True, text=True)
    assert done.returncode == 1 and "start it alone" in done.stderr, done.stderr


def test_ranks_that_connect_by_tcp_need_a_secret():
    environment = torchrun_environments(2)[0]
    del environment["BRAID_RANKS_SECRET"]
    [(code, _, err)] = run_all([environment], "--tp", "2")
    assert code == 1 and "set BRAID_RANKS_SECRET to the same secret" in err


@needs_mpi
def test_another_number_of_processes_is_refused(tiny):
    command = [*launch(2), BINARY, "run", str(tiny), *PROMPT, "--tp", "4"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert "mpirun has started 2 processes, and dp 1 x tp 4 x ep 1 has 4 ranks" in ran.stderr


@pytest.fixture(params=[pytest.param([Group], marks=needs_mpi), [TcpGroup],
                        [TcpGroup, "--two-batch-overlap", "on"]], ids=["mpi", "tcp", "tcp-halves"])
def group(request):
    kind, *flags = request.param
    group = kind(*flags)
    yield group
    if group.process.poll() is None:
        group.process.kill()


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_a_rank_that_is_lost_while_idle_ends_the_group(group, how):
    assert group.listening.wait(60), "".join(group.log)
    lost = group.pid_of(1)
    os.kill(lost, how)
    try:
        deadline = time.monotonic() + 15
        while os.path.exists(f"/proc/{group.pid_of(0)}") and time.monotonic() < deadline:
            time.sleep(0.1)
            if any("no word from rank 1" in line for line in group.log):
                break
    except AssertionError:
        pass  # rank 0 has ended
    finally:
        if how == signal.SIGSTOP:
            os.kill(lost, signal.SIGKILL)
    group.ends_naming(1)


def test_clients_get_an_error_when_a_rank_is_lost_while_they_wait(group):
    assert group.listening.wait(60), "".join(group.log)
    body = {"prompt": "Once", "max_tokens": 1500, "stream": True, "ignore_eos": True}
    request = urllib.request.Request(
        f"{group.address}/v1/completions", json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )  # fmt: skip
    with urllib.request.urlopen(request, timeout=30) as answer:
        assert answer.readline()
        os.kill(group.pid_of(1), signal.SIGKILL)
        rest = answer.read().decode()
    assert "the group of ranks has ended: no word from rank 1" in rest
    group.ends_naming(1)


def test_sigterm_ends_all_ranks_in_order(group):
    assert group.listening.wait(60), "".join(group.log)
    os.kill(group.pid_of(1), signal.SIGHUP)  # is for rank 0 alone
    time.sleep(0.5)
    os.kill(group.pid_of(0), signal.SIGTERM)
    assert group.process.wait(timeout=30) == 0, "".join(group.log)
