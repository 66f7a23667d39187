"""The programs that netlab drives: whether they are there, and one call of one of them."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence

from rnn_scaling import entry
from rnn_scaling.processes.process import TETHER

CALL_TIMEOUT_S = 30
PACKAGES = {"ip": "iproute2", "tc": "iproute2", "iperf3": "iperf3"}  # program -> package of Debian and Ubuntu
RIGHTS = "Operation not permitted"


class CallFailed(RuntimeError):
    """A program said no; `said` is the line in which it did."""

    def __init__(self, words: tuple[str, ...], said: str) -> None:
        super().__init__(f"{' '.join(words)}: {said}")
        self.said = said


def refusals(packages: Mapping[str, str]) -> list[str]:
    """Why netlab cannot work here, a line each; what the kernel lacks shows when it is asked.

    packages: of the programs that it needs.
    """
    if not os.path.isdir("/proc/sys/net"):
        return ["netlab needs network namespaces, which Linux alone has; run it on Linux"]
    lines = []
    if os.geteuid() != 0:
        lines.append("netlab makes network namespaces and needs root, got another user; run it with sudo")
    missing = sorted({package for program, package in packages.items() if shutil.which(program) is None})
    if missing:
        absent = ", ".join(program for program in packages if shutil.which(program) is None)
        lines.append(f"netlab needs {', '.join(packages)}, found no {absent}; apt install {' '.join(missing)}")
    return lines


def call(*words: str) -> str:
    """What a program prints.

    Raises:
      CallFailed: if it ends with another status than 0 or not within CALL_TIMEOUT_S.
    """
    environment = {**os.environ, "LC_ALL": "C"}
    try:
        done = subprocess.run(
            words, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=CALL_TIMEOUT_S,
            env=environment,
        )  # fmt: skip
    except OSError as e:
        raise CallFailed(words, e.strerror or str(e)) from None
    except subprocess.TimeoutExpired:
        raise CallFailed(words, f"no end after {CALL_TIMEOUT_S} s") from None
    if done.returncode:
        said = next((line for line in done.stderr.splitlines() if line.strip()), f"exit status {done.returncode}")
        raise CallFailed(words, said.strip())
    return done.stdout


def need(feature: str, module: str, *words: str) -> None:
    """Asks the kernel for something that it may not have.

    Raises:
      Refusal: naming the feature and what to do.
    """
    try:
        call(*words)
    except CallFailed as e:
        if RIGHTS in e.said:
            raise entry.Refusal(
                f"netlab needs the right to make network namespaces and links (CAP_SYS_ADMIN, CAP_NET_ADMIN), got "
                f"{e.said!r}; run it outside of the container, or in a privileged one"
            ) from None
        raise entry.Refusal(
            f"netlab needs {feature} of the kernel, got {e.said!r}; modprobe {module}, or use a kernel that has it"
        ) from None


@contextlib.contextmanager
def running(command: Sequence[str]) -> Iterator[subprocess.Popen[str]]:
    """A program that runs while the block does, and dies with this process; its stdin stays open."""
    tethered = [sys.executable, "-I", str(TETHER), str(os.getpid()), *command]
    process = subprocess.Popen(
        tethered, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        start_new_session=True,
    )  # fmt: skip
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout):
            if stream:
                stream.close()
