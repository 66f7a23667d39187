"""A trainer with planted faults, and sweeps that are killed at an exact moment.

    python -m tests.support.faults FOLDER trainer --flags...
        one run, with the fault that FOLDER/faults.json plants in it
    python -m tests.support.faults FOLDER sweep|ab DIE_AT --flags...
        a sweep with that trainer, forked

FOLDER/log gets a line "start LABEL PID" and "finish LABEL PID" for each run, and
"rankN LABEL PID" for each of its further ranks. DIE_AT is "never", "before:N" or
"after:N": kill -9 of the sweep right before or after it puts its N-th file in place.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import types
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rnn_scaling.config import flags
from rnn_scaling.config import run_config as config
from rnn_scaling.records import record
from rnn_scaling.system import entry
from rnn_scaling.system.processes import process
from tests.support.records import make_record
from tests.support.stand_in_forks import make_subprocess_stand_in

# The throughput of an interrupted run.
HALF = {"items": 5, "seconds": 1.0, "items_per_second": 5.0}
SMALL = ["--encoder_type=cudnn_lstm", "--variable_update=independent"]
# Equal to the FOLDER in rnn_scaling.sweeps.certifying_runs, whose import would take a
# third of a run's time.
FOLDER = "certificates"
EQUAL = {"verdict": "equal within 1e-5", "holds": True, "sentence": "Equal."}
WRONG = {"verdict": "sum", "holds": False, "sentence": "WRONG: it sums."}


def make_trainer_words(folder: Path) -> list[str]:
    return [sys.executable, "-m", "tests.support.faults", str(folder), "trainer"]


def command(folder: Path, name: str, *words: str, die_at: str = "never") -> list[str]:
    """Return the command that starts a sweep or an ab as a process of its own."""
    start = [sys.executable, "-m", "tests.support.faults", str(folder)]
    return [*start, name, die_at, *words]


def make_forking_subprocess() -> types.SimpleNamespace:
    """Return a replacement for `subprocess` in `process` that forks this trainer."""
    return make_subprocess_stand_in(
        faults=lambda words: _Trainer(Path(words[0]), list(words[2:])).run()
    )


def plant(folder: Path, **faults: str) -> Path:
    """Write the fault of each run by its label, with "_" for "-" and "."; return `folder`.

    Runs that are not named end well.
    """
    folder.mkdir(exist_ok=True)
    (folder / "faults.json").write_text(json.dumps(faults))
    return folder


def _log_lines(folder: Path) -> list[list[str]]:
    """Return the event, the label and the PID of each line of the log."""
    path = folder / "log"
    text = path.read_text() if path.exists() else ""
    return [line.split() for line in text.splitlines()]


def list_logged(folder: Path, event: str) -> list[str]:
    """Return the labels of the runs that started or finished, in order."""
    return [label for found, label, _ in _log_lines(folder) if found == event]


def list_started_pids(folder: Path) -> list[int]:
    """Return the PIDs of all runs that started, and their children's ("child" lines)."""
    return [int(pid) for *_, pid in _log_lines(folder)]


def is_alive(pid: int) -> bool:
    """Return whether a process runs; a zombie does not."""
    try:
        return _stat(Path(f"/proc/{pid}"))[0] not in "ZX"
    except OSError:
        return False


def _stat(folder: Path) -> list[str]:
    """Return the fields of a process from its state on."""
    return (folder / "stat").read_text().rsplit(")", 1)[1].split()


def wait_until(condition, what: str) -> None:
    """Wait up to a minute for a condition, which `what` describes in the error."""
    for _ in range(3000):
        if condition():
            return
        time.sleep(0.02)
    raise AssertionError(f"never: {what}")


def jump_clock(monkeypatch, happened) -> None:
    """Advance the clock of time limits by a million seconds per event.

    `happened` returns the number of events so far.
    """
    monkeypatch.setattr(
        process,
        "time",
        types.SimpleNamespace(
            monotonic=lambda: time.monotonic() + 1e6 * happened(), sleep=time.sleep
        ),
    )


def children(pid: int) -> list[int]:
    """Return the PIDs of a process's children, except a cluster's network namespace."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = _stat(folder)
            if b"network_namespace.py" in (folder / "cmdline").read_bytes():
                continue
        except OSError:
            continue
        if int(fields[1]) == pid and fields[0] not in "ZX":
            found.append(int(folder.name))
    return found


class _Trainer:
    """One run that writes the same files as the real trainer, and its planted fault."""

    def __init__(self, folder: Path, words: list[str]) -> None:
        given = flags.parse(words, config.OPTIONS)
        self._folder, self._path = folder, Path(given["result_file"])
        side = self._path.parent.name
        self._certifies = side == FOLDER
        self._label = self._path.stem
        if side in ("a", "b", FOLDER):
            self._label = f"{side}/{self._label}"
        self._config = config.resolve(given, num_gpus=0, num_cores=2).flat()
        faults = json.loads((folder / "faults.json").read_text())
        self._fault = faults.get(re.sub(r"[-./]", "_", self._label), "ok")
        self._sweep = os.getppid()

    def run(self) -> int:
        if rank := int(os.environ.get("RNN_SCALING_RANK", "0")):
            return self._follow(rank)
        self._log("start")
        self._kill_sweep_at("first")
        self._fail("Killed", "no result yet")
        print(
            "warm-up: 2/5 batches, 1 words/s, loss 1, 9 s left",
            file=sys.stderr,
            flush=True,
        )
        self._kill_sweep_at("middle")
        if self._fault in ("hang", "interrupt", "stubborn"):
            self._hang()
        if self._fault.startswith("signal_"):
            os.kill(os.getpid(), int(self._fault.removeprefix("signal_")))
        if self._fault == "rank_dies":
            wait_until(
                lambda: self._label in list_logged(self._folder, "dead"), "rank 1 dies"
            )
            self._fail("ClusterError", "worker 1 is lost")
            return 1
        if self._fault in ("crash", "full", "junk", "silent"):
            return self._end_without_result()
        if self._fault == "flood":
            os.write(2, b"x" * 3_000_000 + b"\n" + b"y\n" * 100_000)
        if self._fault == "removes_folder":
            shutil.rmtree(self._path.parent)
        if self._fault == "leaves_child":
            self._log("child", subprocess.Popen(["sleep", "600"]).pid)
        if self._fault == "fails":
            self._fail("ValueError", "no such luck")
        else:
            self._succeed()
        self._log("finish")
        self._kill_sweep_at("last")
        return int(self._fault == "fails")

    def _follow(self, rank: int) -> int:
        self._log(f"rank{rank}")
        if self._fault == "rank_dies" and rank == 1:
            self._log("dead")
            os.kill(os.getpid(), signal.SIGKILL)
        ends = ("finish", "dead")
        wait_until(
            lambda: any(self._label in list_logged(self._folder, end) for end in ends),
            "rank 0 or 1 is done",
        )
        return 0

    def _hang(self) -> None:
        if (
            self._fault == "stubborn"
        ):  # ignores signals, and has a child that holds stderr open
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                signal.signal(number, signal.SIG_IGN)
            self._log("child", subprocess.Popen(["sleep", "600"]).pid)
        else:
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, self._interrupted)
        self._log("ready")
        if self._fault == "interrupt":
            os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(600)

    def _interrupted(self, number: int, frame: types.FrameType | None) -> None:
        error = {"type": "KeyboardInterrupt", "message": "x"}
        self._write(
            "interrupted",
            error=error,
            seconds=[1.0, 1.0],
            items=[5, 5],
            warmup=1,
            throughput=HALF,
        )
        os._exit(130)

    def _end_without_result(self) -> int:
        if self._fault == "crash":
            print("error: the disk is on fire\nand so on", file=sys.stderr)
            return 3
        if self._fault == "full":
            said = f"--result_file={self._path}: No space left on device; the record was not written"
            print(f"error: {said}", file=sys.stderr)
            return 1
        if self._fault == "junk":
            self._path.write_text('{"schema": "rnn_sca')
        return 0

    def _kill_sweep_at(self, moment: str) -> None:
        if self._fault == f"kill_sweep_{moment}":
            os.kill(self._sweep, signal.SIGKILL)
            time.sleep(600)

    def _succeed(self) -> None:
        # No two processes take the same time.
        seconds = (4.0 if self._fault == "slow" else 1.0) + os.getpid() / 1e9
        parts = {"seconds": [seconds] * 2, "items": [5, 5], "phases": {"total": 30.0}}
        if self._certifies:
            parts["certificate"] = WRONG if self._fault == "wrong" else EQUAL
        self._write("ok", **parts)

    def _fail(self, kind: str, message: str) -> None:
        self._write("failed", error={"type": kind, "message": message})

    def _write(self, status: str, **parts: Any) -> None:
        record.write(make_record(status, config=self._config, **parts), self._path)

    def _log(self, event: str, pid: int | None = None) -> None:
        with (self._folder / "log").open("a") as file:
            file.write(f"{event} {self._label} {pid or os.getpid()}\n")


def _die_at(at: str) -> None:
    moment, number = at.split(":")
    replace = os.replace
    sweep = os.getpid()
    count = 0

    def die_if(now):
        if moment == now and count == int(number):
            os.kill(sweep, signal.SIGKILL)

    def replace_and_die(source, target):
        nonlocal count
        count += os.getpid() == sweep  # and no forked trainer
        die_if("before")
        replace(source, target)
        die_if("after")

    os.replace = replace_and_die


def of_words(words: Sequence[str]) -> int:
    folder, role, *words = words
    if role == "trainer":
        return _Trainer(Path(folder), words).run()
    if words[0] != "never":
        _die_at(words[0])
    process.subprocess = make_forking_subprocess()

    # Imported here because most processes are trainers, which need neither.
    from rnn_scaling.commands import ab, sweep

    return {"sweep": sweep, "ab": ab}[role].main(
        words[1:], trainer=make_trainer_words(Path(folder))
    )


if __name__ == "__main__":
    # No process under test waits for the disk; conftest.py does the same.
    os.fsync = lambda descriptor: None
    entry.leave(lambda: of_words(sys.argv[1:]))
