"""Ranks as processes, which mpirun starts or which connect by TCP, for tests that disturb them."""

import os
import shutil
import socket
import subprocess
import threading

import pytest

from conftest import BINARY, TINY

MPIRUN = shutil.which("mpirun")
needs_mpi = pytest.mark.skipif(MPIRUN is None, reason="no mpirun")


def launch(ranks):
    return [MPIRUN, "--allow-run-as-root", "--oversubscribe", "--enable-recovery", "-n", str(ranks)]


class Group:
    """`braid serve` as two processes; lines of all of them in `log`."""

    def __init__(self, *flags, rank_seconds=2, mesh=("--tp", "2")):
        command = [*launch(2), BINARY, "serve", str(TINY), "--port", "0", *mesh,
                   "--threads", "1", "--rank-seconds", str(rank_seconds), *flags]  # fmt: skip
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self.log, self.address = [], None
        self.listening = threading.Event()
        threading.Thread(target=self._read, args=[self.process], daemon=True).start()

    def _read(self, process):
        for line in process.stdout:
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


def free_port():
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return listening.getsockname()[1]


def torchrun_environments(ranks, secret="xyzzy"):
    """Of each rank, what torchrun sets. The ranks listen at the port after its own."""
    common = {"WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1",
              "MASTER_PORT": str(free_port() - 1), "BRAID_RANKS_SECRET": secret}  # fmt: skip
    return [{**os.environ, **common, "RANK": str(rank)} for rank in range(ranks)]


class TcpGroup(Group):
    """The same without mpirun."""

    def __init__(self, *flags, rank_seconds=2, mesh=("--tp", "2")):
        command = [BINARY, "serve", str(TINY), "--port", "0", *mesh, "--threads", "1",
                   "--rank-seconds", str(rank_seconds), *flags]  # fmt: skip
        self.processes = [
            subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                             env=environment)
            for environment in torchrun_environments(2)
        ]  # fmt: skip
        self.log, self.address = [], None
        self.listening = threading.Event()
        for self.process in reversed(self.processes):  # that of rank 0 remains
            threading.Thread(target=self._read, args=[self.process], daemon=True).start()

    def pid_of(self, rank):
        return self.processes[rank].pid


def pathlib_read(path):
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()
