"""Several ranks give the answers of one, as threads and as processes of mpirun, and a lost process
ends the others."""

import json
import os
import shutil
import signal
import subprocess
import threading
import time
import urllib.request

import pytest

from conftest import BINARY, TINY

PROMPT = ["--token-ids", json.dumps(list(range(40, 340))), "--json", "--max-tokens", "40",
          "--temperature", "0.8", "--seed", "5", "--logprobs", "2"]  # fmt: skip
MPIRUN = shutil.which("mpirun")
needs_mpi = pytest.mark.skipif(MPIRUN is None, reason="no mpirun")


def launch(ranks):
    return [MPIRUN, "--allow-run-as-root", "--oversubscribe", "--enable-recovery", "-n", str(ranks)]


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


@needs_mpi
@pytest.mark.parametrize("ranks, mesh", [(2, "--tp 2 --ep 2"), (4, "--dp 2 --tp 2 --ep 4")])
def test_processes_answer_as_one(alone, ranks, mesh):
    command = [*launch(ranks), BINARY, "run", TINY, *PROMPT, "--threads", "1", *mesh.split()]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout) == alone  # and nobody else printed


@needs_mpi
def test_another_number_of_processes_is_refused(tiny):
    command = [*launch(2), BINARY, "run", str(tiny), *PROMPT, "--tp", "4"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert "mpirun has started 2 processes, and dp 1 x tp 4 x ep 1 has 4 ranks" in ran.stderr


class Group:
    """`braid serve` as two processes; lines of all of them in `log`."""

    def __init__(self):
        command = [*launch(2), BINARY, "serve", str(TINY), "--port", "0", "--tp", "2",
                   "--threads", "1", "--rank-seconds", "2"]  # fmt: skip
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self.log, self.address = [], None
        self.listening = threading.Event()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.process.stdout:
            self.log.append(line)
            if "listening on http" in line:
                self.address = line.split()[-1].rstrip("/")
                self.listening.set()

    def pid_of(self, rank):
        children = f"/proc/{self.process.pid}/task/{self.process.pid}/children"
        for pid in pathlib_read(children).split():
            environment = pathlib_read(f"/proc/{pid}/environ")
            if f"OMPI_COMM_WORLD_RANK={rank}\0" in environment:
                return int(pid)
        raise AssertionError(f"rank {rank} is not there")

    def ends_naming(self, rank):
        self.process.wait(timeout=20)  # 0 with --enable-recovery
        assert any(f"no word from rank {rank}" in line for line in self.log), "".join(self.log)


def pathlib_read(path):
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()


@pytest.fixture
def group():
    group = Group()
    yield group
    if group.process.poll() is None:
        group.process.kill()


@needs_mpi
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


@needs_mpi
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


@needs_mpi
def test_sigterm_ends_all_ranks_in_order(group):
    assert group.listening.wait(60), "".join(group.log)
    os.kill(group.pid_of(0), signal.SIGTERM)
    assert group.process.wait(timeout=30) == 0, "".join(group.log)
