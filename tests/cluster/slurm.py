"""A SLURM of two nodes on this machine: the daemons of Debian's slurm-wlm and munge."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

PROGRAMS = ("slurmctld", "slurmd", "munged", "sbatch", "scontrol", "squeue")
NODES = ("n1", "n2")
CONFIG = """
ClusterName=here
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
CryptoType=crypto/munge
SlurmUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/d.%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/d.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
JobRequeue=1
KillWait=5
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs=1 RealMemory=2000
NodeName=n2 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[2]} CPUs=1 RealMemory=2000
PartitionName=all Nodes=n1,n2 Default=YES MaxTime=INFINITE State=UP
"""


def missing() -> str:
    """Why there can be no SLURM here; "" if there can."""
    if absent := [name for name in PROGRAMS if not shutil.which(name)]:
        return f"{', '.join(absent)} not installed: apt-get install slurm-wlm munge"
    return "" if os.geteuid() == 0 else "only root may start SLURM's daemons"


def wait_for(condition: Callable[[], object], what: str, seconds: float = 120) -> None:
    """
    Raises:
        TimeoutError: it has not come true.
    """
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"after {seconds:.0f} s: {what}")
        time.sleep(0.2)


@dataclass
class Slurm:
    """Two nodes of one core each, and what is asked of them."""

    folder: Path
    _daemons: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def environment(self) -> dict[str, str]:
        return os.environ | {"SLURM_CONF": str(self.folder / "slurm.conf")}

    def start(self) -> None:
        """munged, slurmctld and both slurmd, until the nodes are idle."""
        for name in ("state", "munge", *(f"spool.{node}" for node in NODES)):
            (self.folder / name).mkdir(mode=0o755)
        munge = self.folder / "munge"
        (munge / "key").write_bytes(os.urandom(128))
        (munge / "key").chmod(0o600)
        files = {"key-file": "key", "socket": "socket", "pid-file": "pid", "log-file": "log", "seed-file": "seed"}
        options = [f"--{name}={munge / file}" for name, file in files.items()]
        self._begin("munged", "munged", "--foreground", "--force", *options)
        wait_for((munge / "socket").exists, "munged does not answer")
        with socket.socket() as one, socket.socket() as two, socket.socket() as three:
            ports = []
            for each in (one, two, three):
                each.bind(("127.0.0.1", 0))
                ports.append(each.getsockname()[1])
        config = CONFIG.format(host=socket.gethostname().partition(".")[0], folder=self.folder, ports=ports)
        (self.folder / "slurm.conf").write_text(config)
        self._begin("slurmctld", "slurmctld", "-D")
        for node in NODES:
            self.start_node(node)
        wait_for(lambda: self.states() == ["idle", "idle"], "the nodes are not idle")

    def _begin(self, name: str, *command: str) -> None:
        log = (self.folder / f"{name}.out").open("ab")
        self._daemons[name] = subprocess.Popen(command, env=self.environment, stdout=log, stderr=log)

    def start_node(self, node: str) -> None:
        self._begin(node, "slurmd", "-D", "-N", node)

    def lose_node(self, node: str) -> None:
        """As a power cut would: its daemon and all that runs on it are killed at once."""
        self._daemons[node].kill()
        self._daemons[node].wait()
        for pid in self._of(node):
            _kill(pid)
        self.ask("scontrol", "update", f"nodename={node}", "state=down", "reason=lost")

    def return_node(self, node: str) -> None:
        self.start_node(node)
        self.ask("scontrol", "update", f"nodename={node}", "state=resume")

    def _of(self, node: str) -> list[int]:
        """The processes that a node's jobs have started, and the slurmstepd above them."""
        found, here = set(), self.environment["SLURM_CONF"]
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                environment = process.environ()
                if (environment.get("SLURMD_NODENAME"), environment.get("SLURM_CONF")) == (node, here):
                    parent = process.parent()
                    found |= {process.pid, *([parent.pid] if parent and parent.name() == "slurmstepd" else [])}
        return sorted(found)

    def ask(self, *command: str) -> str:
        """What a command of SLURM prints.

        Raises:
            RuntimeError: it fails.
        """
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)}: {done.stderr or done.stdout}")
        return done.stdout.strip()

    def states(self) -> list[str]:
        return self.ask("sinfo", "-h", "-N", "-o", "%T").split()

    def submit(self, command: Sequence[str], logs: Path, *options: str) -> str:
        """The number of a job whose tasks write their output to `logs`."""
        script = f"#!/bin/sh\nexec {' '.join(command)}\n"
        done = subprocess.run(
            ["sbatch", "--parsable", "--requeue", "--open-mode=append", f"--output={logs}/%A_%a.log", *options],
            input=script,
            env=self.environment,
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout.strip()

    def jobs(self, job: str) -> dict[str, tuple[str, str]]:
        """Task -> its state and its node, of those that wait or run."""
        lines = self.ask("squeue", "-h", "-r", "-j", job, "-o", "%K %T %N").splitlines() if self._knows(job) else []
        return {task: (state, " ".join(node)) for task, state, *node in (line.split() for line in lines)}

    def _knows(self, job: str) -> bool:
        return job in self.ask("squeue", "-h", "-o", "%A %F").split()

    def wait(self, job: str, seconds: float = 900) -> None:
        wait_for(lambda: not self._knows(job), f"job {job} has not ended: {self.ask('squeue')}", seconds)

    def stop(self) -> None:
        for node in NODES:
            for pid in self._of(node):
                _kill(pid)
        for daemon in reversed(self._daemons.values()):
            daemon.terminate()
        for daemon in self._daemons.values():
            daemon.wait(30)


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


@contextmanager
def slurm(folder: Path) -> Iterator[Slurm]:
    """A cluster that ends with the block."""
    cluster = Slurm(folder)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()
