"""Run a user's script on some ranks under the hooks, and read what they recorded.

Only `plan` starts runs. `hooks.ranks` is the other end of the pipe.
"""

import json
import os
import re
import select
import shlex
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from rnn_scaling.hooks.ranks import RESULT
from rnn_scaling.system.processes.process import Child, Task
from rnn_scaling.verification.scripts.script_command import ScriptCommand

MARK = "RNN_SCALING_VERIFY"  # the variable by which leftover processes are found
# On a busy machine, importing a framework takes minutes.
_START_LIMIT_S = 600.0
_ANSWER_GRACE_S = 30.0
PACKAGES = str(Path(__file__).resolve().parents[3])
_IMPORT_HOOKS = """\
sys.path.insert(0, sys.argv[1])
from rnn_scaling.hooks import {module}
del sys.path[0]
"""
# By framework: the program that starts the ranks of each run.
SERVERS = {
    # Torch is imported first, so that no other package of this suite replaces its
    # parts.
    "torch": "import sys, torch\n"
    + _IMPORT_HOOKS.format(module="torch as hooks")
    + "hooks.serve()",
    "jax": "import sys\n"
    + _IMPORT_HOOKS.format(module="ranks")
    + "ranks.serve_programs('jax')",
    "keras": "import sys\n"
    + _IMPORT_HOOKS.format(module="ranks")
    + "ranks.serve_programs('keras', ('-m', 'rnn_scaling.hooks.keras'))",
}
_LOG_LINES = 5
_ERROR = re.compile(r"[\w.]+(?:Error|Exception)\b")  # the last line of a traceback


class ScriptError(Exception):
    """The script cannot be run; the message has the reason and the remedy."""


class Runner:
    """The process that starts the ranks of each run."""

    def __init__(
        self,
        command: ScriptCommand,
        folder: Path,
        limit_s: float,
        max_ranks: int,
        framework: str,
    ) -> None:
        """Start the process.

        Args:
          command: The user's command.
          folder: An empty folder for records.
          limit_s: Time limit of one run, in seconds.
          max_ranks: The largest number of ranks; each rank gets a share of the cores,
            and a single rank gets the same share.
          framework: A name of SERVERS.

        Raises:
          ScriptError: If the framework cannot be imported.
        """
        self._command = command
        self._folder = folder
        self._limit_s = limit_s
        self._max_ranks = max_ranks
        words = [*command.python, "-c", SERVERS[framework], PACKAGES]
        task = Task(words, {MARK: str(folder)}, reads_stdout=True)
        self._child = Child(task, subprocess.PIPE)
        self._buffer = b""
        self._environment: dict[str, str] = {}
        if framework != "torch":
            # The script imports the hooks.
            paths = [PACKAGES, os.environ.get("PYTHONPATH", "")]
            self._environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
        self._lines: list[str] = []
        self.version = self._answer(_START_LIMIT_S)["version"]

    def __enter__(self) -> "Runner":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._child.signal(signal.SIGKILL)
        self._child.reap()
        self._child.stdin.close()
        self._child.close()

    def run(
        self,
        name: str,
        num_ranks: int,
        settings: Mapping[str, Any],
        added_words: Sequence[str] = (),
        limit_s: float | None = None,
    ) -> dict[str, Any]:
        """Run the script once and return the records of all ranks.

        Args:
          name: The name of the run, and of its folder.
          num_ranks: Number of processes.
          settings: The conditions; see `rnn_scaling.hooks.observer.Observer`.
          added_words: Words after the script's own arguments.
          limit_s: Time limit in seconds, if it differs from the usual one.
        """
        folder = self._folder / name
        folder.mkdir()
        limit_s = limit_s or self._limit_s
        num_threads = len(os.sched_getaffinity(0)) // self._max_ranks
        job = {
            "num_ranks": num_ranks,
            "num_threads": max(1, num_threads),
            "words": [*self._command.script_words(num_ranks), *added_words],
            "environment": self._environment,
            "limit_s": limit_s,
            "folder": os.getcwd(),
            "settings": {**settings, "folder": str(folder)},
        }
        began = time.monotonic()
        self._child.stdin.write(json.dumps(job).encode() + b"\n")
        self._child.stdin.flush()
        result = self._answer(limit_s + _ANSWER_GRACE_S)
        seconds = round(time.monotonic() - began, 3)
        ranks = []
        for rank, status in enumerate(result["statuses"]):
            log = _last_lines(folder / f"rank{rank}.log")
            record = _read_rank(folder / f"rank{rank}.jsonl")
            ranks.append({**record, "status": status, "log": log})
        _leave_out_uneven_steps(ranks)
        return {"timed_out": result["timed_out"], "seconds": seconds, "ranks": ranks}

    def _answer(self, limit_s: float) -> dict[str, Any]:
        """Return the server's result, or raise if it ends or the time is up."""
        limit = time.monotonic() + limit_s
        assert self._child.stderr is not None
        number = self._child.stderr.fileno()
        while True:
            while b"\n" in self._buffer:
                line, _, self._buffer = self._buffer.partition(b"\n")
                text = line.decode(errors="replace")
                if text.startswith(RESULT):
                    return dict(json.loads(text.removeprefix(RESULT)))
                self._lines.append(text)
            left = limit - time.monotonic()
            if left <= 0 or not select.select([number], [], [], left)[0]:
                raise ScriptError(f"the hooks did not answer within {limit_s:g} s")
            content = os.read(number, 1 << 16)
            if not content:
                reason = self._lines[-1] if self._lines else "no output"
                python = shlex.join(self._command.python)
                raise ScriptError(f"{python} cannot run the hooks: {reason}")
            self._buffer += content


def _read_rank(path: Path) -> dict[str, Any]:
    """Return the record of one rank; what it did not write is missing or empty."""
    record: dict[str, Any] = {"steps": []}
    if not path.exists():
        return {"start": None, "end": None, **record}
    for line in path.read_text().splitlines():
        try:
            part = json.loads(line)
        except ValueError:  # The rank was killed while it wrote.
            break
        kind = part.pop("kind")
        if kind == "step":
            record["steps"].append(part)
        else:
            record.setdefault(kind, part)
    return {"start": None, "end": None, **record}


def _leave_out_uneven_steps(ranks: list[dict[str, Any]]) -> None:
    """Leave out the steps after some ranks have run out of inputs, and others not."""
    counts = []
    for rank in ranks:
        counts.append(rank.get("joined", {"steps": len(rank["steps"])})["steps"])
    if any("joined" in rank for rank in ranks) and len(set(counts)) > 1:
        for rank in ranks:
            del rank["steps"][min(counts) :]


def _last_lines(path: Path) -> list[str]:
    if not path.exists():
        return []
    lines = path.read_text(errors="replace").splitlines()
    errors = [line for line in lines if _ERROR.match(line)]
    last_lines = [line for line in lines if line.strip()][-_LOG_LINES:]
    # A hint may follow the error.
    return [*last_lines, *errors[-1:]]
