"""A Slurm cluster of two nodes on this machine, without systemd: munge, a controller and two slurmds."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.support.faults import wait_until

PROGRAMS = ("srun", "sinfo", "munged")
DAEMONS = ("slurmctld", "slurmd")
SBIN = "/usr/sbin"
# Debian's slurmd needs a different host name for each node; ranks look up the first one.
NODES = (socket.gethostname(), f"{socket.gethostname()}-2")
CONFIGURATION = """\
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmctldPidFile={folder}/slurmctld.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdSpoolDir={folder}/spool-%n
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SelectType=select/linear
MpiDefault=none
ReturnToService=2
KillWait=2
UnkillableStepTimeout=30
{nodes}
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def find_missing() -> str:
    """Return what this machine lacks to run Slurm, or ""."""
    if os.geteuid() != 0:
        return "root"
    path = f"{os.environ.get('PATH', '')}:{SBIN}"
    lacking = [
        name for name in (*PROGRAMS, *DAEMONS) if shutil.which(name, path=path) is None
    ]
    return f"{', '.join(lacking)} (Debian: slurm-wlm, munge)" if lacking else ""


@contextlib.contextmanager
def cluster(folder: Path) -> Iterator[dict[str, str]]:
    """Run the daemons; yield the environment in which `srun` finds them.

    Args:
      folder: For configuration, state and logs. Its path must fit a socket.
    """
    environment = {
        **os.environ,
        "SLURM_CONF": str(_configure(folder)),
        "PATH": f"{os.environ['PATH']}:{SBIN}",
    }
    started: list[subprocess.Popen[bytes]] = []
    try:
        for command in _daemons(folder):
            log = (folder / f"{len(started)}.out").open("wb")
            started.append(
                subprocess.Popen(command, env=environment, stdout=log, stderr=log)
            )
            if len(started) == 1:
                _wait((folder / "munge.socket").exists, folder, started)
        _wait(lambda: count_idle_nodes(environment) == len(NODES), folder, started)
        yield environment
    finally:
        for process in reversed(started):
            process.terminate()
        for process in started:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=20)
            process.kill()
            process.wait()


def _configure(folder: Path) -> Path:
    for name in ("state", *(f"spool-{node}" for node in NODES)):
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / "munge.key").write_bytes(os.urandom(128))
    (folder / "munge.key").chmod(0o600)
    controller, *ports = _free_ports(1 + len(NODES))
    lines = [
        f"NodeName={node} NodeHostname={node} NodeAddr=127.0.0.1 Port={port} CPUs=2 State=UNKNOWN"
        for node, port in zip(NODES, ports)
    ]
    text = CONFIGURATION.format(
        host=socket.gethostname(),
        controller=controller,
        folder=folder,
        nodes="\n".join(lines),
    )
    (folder / "slurm.conf").write_text(text)
    return folder / "slurm.conf"


def _daemons(folder: Path) -> list[list[str]]:
    munged = ["munged", "--foreground", "--force", f"--key-file={folder}/munge.key"]
    files = {
        "socket": "socket",
        "pid-file": "pid",
        "log-file": "log",
        "seed-file": "seed",
    }
    munged += [f"--{flag}={folder}/munge.{name}" for flag, name in files.items()]
    return [
        munged,
        ["slurmctld", "-D"],
        *(["slurmd", "-D", "-N", node] for node in NODES),
    ]


def count_idle_nodes(environment: Mapping[str, str]) -> int:
    """Count the nodes that are idle."""
    command = ["sinfo", "--noheader", "--Node", "--format=%N", "--states=idle"]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=60
    )
    return len(done.stdout.split())


def _wait(is_ready, folder: Path, started: list[subprocess.Popen[bytes]]) -> None:
    def is_over():
        return is_ready() or any(process.poll() is not None for process in started)

    with contextlib.suppress(AssertionError):
        wait_until(is_over, "Slurm is ready")
    if not is_ready():
        logs = [
            f"{path.name}: {path.read_text(errors='replace')[-1500:]}"
            for path in folder.glob("*.[lo]*")
        ]
        raise RuntimeError("\n".join(["Slurm did not start", *logs]))


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in sockets:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in sockets]
