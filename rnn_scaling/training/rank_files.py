"""Ranks of somebody's trainer meet, and tell rank 0 what they measured, over files beside the result file.

Each rank appends lines of JSON to a file of its own, `.run.json.rank1`, and reads the others'. What lies there from an
earlier run is told by two keys: a rank's first line has its own, a rank that waits at a barrier says rank 0's, and
rank 0 opens it with the keys of all. Every look opens a file anew, which on NFS shows what its writer has closed.
"""

from __future__ import annotations

import json
import os
import socket
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rnn_scaling.cluster.peers import ranks_text
from rnn_scaling.files import input_files
from rnn_scaling.files.output_files import open_new, open_own
from rnn_scaling.processes import alive

POLL_S = 0.002  # how much later than the first one a rank of the same host leaves a barrier, about

Line = dict[str, Any]


class RankError(RuntimeError):
    """Which rank did not come, stay or end as the others, in one line."""


class RankFiles:
    """This process among the ranks of its run."""

    def __init__(
        self,
        result_file: Path,
        rank: int,
        num_ranks: int,
        timeout_s: float,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """num_ranks: of the run, two at least.
        sleep: waits for so many seconds.
        """
        self.rank, self.num_ranks, self._timeout_s, self._sleep = rank, num_ranks, timeout_s, sleep
        self._result_file, self._key = result_file, uuid.uuid4().hex
        self._key_of_0 = ""  # as it was seen last
        self._said = ("", "")  # at which barrier it told that it waits, and the key of rank 0 that it told it to
        result_file.parent.mkdir(parents=True, exist_ok=True)
        self._wait_for_gathering()
        open_new(self._path(rank)).close()
        self._say(key=self._key, host=socket.gethostname(), pid=os.getpid(), process=_process())

    def barrier(self, name: str) -> None:
        """Waits until all ranks have come here.

        Raises:
          RankError: if one has ended or died, or does not come in time.
        """
        deadline = time.monotonic() + self._timeout_s
        passes = self._opens if self.rank == 0 else self._passes
        while not passes(name):
            if time.monotonic() >= deadline:
                raise RankError(self._late(name))
            self._sleep(POLL_S)

    def end(self, report: Line, error: str) -> None:
        """Tells rank 0 all that is to be known of this rank; `error`: why it ended, empty where it is done.

        Rank 0 tells the others, if any are left, that it has failed. What nobody will read is removed.
        """
        if not self._key_of_0:
            self._look_at_0()
        if self.rank == 0 and not self._others_left():
            self._path(0).unlink(missing_ok=True)
            return
        self._say(of=self._key_of_0, report=report, error=error)
        if self.rank and not self._is_awaited():
            self._path(self.rank).unlink(missing_ok=True)

    def _others_left(self) -> list[int]:
        """Rank 0: the ranks that have not ended, as far as is known; removes the files of the others."""
        left = []
        for rank in range(1, self.num_ranks):
            lines = self._lines(rank)
            if any("report" in line for line in lines) or self._dead(rank, lines):
                self._path(rank).unlink(missing_ok=True)
            elif self._path(rank).exists():
                left.append(rank)
        return left

    def _is_awaited(self) -> bool:
        """Another rank: whether rank 0 may still read what this one has told it."""
        if not self._path(0).exists():
            return False
        lines = self._lines(0)  # none where it cannot be read for a moment, as over a network
        is_same = not lines or lines[0].get("key") == self._key_of_0
        return is_same and not any("report" in line for line in lines) and not self._dead(0, lines)

    def gather(self, waits: bool) -> tuple[dict[int, Line], str]:
        """What the other ranks have told at their end, by rank, and what is wrong with the first that is not well."""
        reports: dict[int, Line] = {}
        deadline = time.monotonic() + (self._timeout_s if waits else 0.0)
        while True:
            wrong = self._read_reports(reports)
            missing = [rank for rank in range(1, self.num_ranks) if rank not in reports]
            failed = next(
                (f"rank {rank}: {report['error']}" for rank, report in reports.items() if report["error"]), ""
            )
            if not missing or wrong or failed or time.monotonic() >= deadline:
                late = f"{ranks_text(missing)} had not ended {self._timeout_s:g} s after rank 0" if missing else ""
                return reports, failed or wrong or late
            self._sleep(10 * POLL_S)

    def _read_reports(self, reports: dict[int, Line]) -> str:
        """Adds the reports that have come since; returns why the first rank without one is dead, or ""."""
        wrong = ""
        for rank in (rank for rank in range(1, self.num_ranks) if rank not in reports):
            lines = self._of_run(rank)
            ended = next((line for line in lines if "report" in line), None)
            if ended is None:
                wrong = wrong or self._dead(rank, lines) or ""
            else:
                place = {name: lines[0].get(name) for name in ("host", "pid")}
                reports[rank] = {**place, **ended["report"], "error": ended["error"] or None}
        return wrong

    def remove(self) -> None:
        """Removes the files of all ranks, once nobody needs them."""
        for rank in reversed(range(self.num_ranks)):  # while rank 0's is there a rank waits for the end of its own
            self._path(rank).unlink(missing_ok=True)

    def _wait_for_gathering(self) -> None:
        """Waits until rank 0 has read what this process told at the end of an earlier run at the same place."""
        deadline = time.monotonic() + self._timeout_s
        while self.rank and time.monotonic() < deadline:
            own, of_0 = self._lines(self.rank), self._lines(0)
            gatherer = next((line.get("of") for line in own if "report" in line), None)
            is_this = bool(own) and own[0].get("process") == _process() and own[0].get("pid") == os.getpid()
            if not (gatherer and is_this and of_0 and of_0[0].get("key") == gatherer):
                return
            if any("report" in line for line in of_0):  # it ended with an error, and reads no more
                return
            self._sleep(POLL_S)

    def _opens(self, name: str) -> bool:
        """Rank 0: whether all wait at the barrier, which is then open."""
        keys = {}
        for rank in range(1, self.num_ranks):
            lines = self._of_run(rank)
            if ended := next((line for line in lines if "report" in line), None):
                raise RankError(f"rank {rank} ended before the others: {ended['error'] or 'it took fewer steps'}")
            if dead := self._dead(rank, lines):
                raise RankError(dead)
            if not any(line.get("at") == name for line in lines):
                return False
            keys[str(rank)] = lines[0]["key"]
        self._say(open=name, keys=keys)
        return True

    def _passes(self, name: str) -> bool:
        """Another rank: whether rank 0 has opened the barrier."""
        lines = self._look_at_0()
        opened = [line for line in lines if line.get("keys", {}).get(str(self.rank)) == self._key]
        if any(line["open"] == name for line in opened):
            return True
        if opened:  # before that, it may be the file of an earlier run
            if ended := next((line for line in lines if "report" in line), None):
                raise RankError(f"rank 0 ended before the others: {ended['error'] or 'it took fewer steps'}")
            if dead := self._dead(0, lines):
                raise RankError(dead)
        waits = (name, self._key_of_0)
        if self._key_of_0 and waits != self._said:
            self._said = waits
            self._say(of=self._key_of_0, at=name)
        return False

    def _look_at_0(self) -> list[Line]:
        lines = self._lines(0)
        self._key_of_0 = lines[0].get("key", "") if lines else ""
        return lines

    def _of_run(self, rank: int) -> list[Line]:
        """A rank's first line and those that it wrote since it saw this one, rank 0; none of another run."""
        lines = self._lines(rank)
        own = [line for line in lines if line.get("of") == self._key]
        return [lines[0], *own] if own else []

    def _dead(self, rank: int, lines: list[Line]) -> str | None:
        process = lines[0].get("process") if lines else None
        here = _process()
        if not process or not here or process["where"] != here["where"] or alive.is_alive(process["is"]):
            return None
        if any("report" in line for line in self._lines(rank)):
            return None  # it ended between the two looks
        return f"rank {rank} (host {lines[0]['host']}, process {lines[0]['pid']}) died"

    def _late(self, name: str) -> str:
        others = list(range(1, self.num_ranks)) if self.rank == 0 else [0]
        late = [rank for rank in others if not any(line.get("at") == name for line in self._of_run(rank))]
        return (
            f"{ranks_text(late or others)} did not come within {self._timeout_s:g} s: each of the {self.num_ranks} "
            "ranks needs a Recorder with this result_file and as many warm-up batches, or give rank=0, num_ranks=1"
        )

    def _path(self, rank: int) -> Path:
        return self._result_file.with_name(f".{self._result_file.name}.rank{rank}")

    def _say(self, **line: Any) -> None:
        with os.fdopen(open_own(self._path(self.rank), os.O_WRONLY | os.O_APPEND), "w") as file:
            file.write(json.dumps(line) + "\n")

    def _lines(self, rank: int) -> list[Line]:
        """What a rank has written so far; a last line that is not whole is left out."""
        try:
            *whole, _ = input_files.read_text(self._path(rank)).split("\n")
            return [dict(input_files.parse_json(line)) for line in whole]
        except (OSError, ValueError, TypeError):
            return []


def _process() -> dict[str, str] | None:
    """What tells others on this machine whether this process lives; None where the system does not tell."""
    process = alive.this_process()
    try:
        # Another container may have processes of the same numbers.
        where = f"{socket.gethostname()} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return None
    return {"is": process, "where": where} if process else None
