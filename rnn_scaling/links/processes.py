"""Runs one measurement in a process of its own, and ends that process if it does not return. No TensorFlow here."""

import dataclasses
import json
import pickle
import signal
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rnn_scaling.links.gemm import Gemm
from rnn_scaling.links.rounds import Tell
from rnn_scaling.links.series import Series
from rnn_scaling.system.processes import process

WORKER = process.our_module("rnn_scaling.links.worker")


@dataclasses.dataclass(frozen=True)
class WorkerOutcome:
    """What a measurement gave: all of it, or with `error` what there was before it failed."""

    series: tuple[Series, ...] = ()
    products: tuple[Gemm, ...] = ()
    gradient_bytes: tuple[tuple[str, int], ...] = ()  # preset -> bytes of its gradients
    error: str = ""
    timed_out: bool = False


def run(
    request: Mapping[str, Any],
    timeout_s: float,
    tell: Tell,
    worker: Sequence[str] = WORKER,
) -> WorkerOutcome:
    """Measures what `request` asks for; `timeout_s`: wall limit in seconds."""
    last = {"what": "its start"}

    def on_line(line: str | None) -> None:
        if line is None or not line.startswith("progress "):
            return
        _, done, total, what = line.split(" ", 3)
        last["what"] = what
        tell(int(done), int(total), what)

    with tempfile.TemporaryDirectory(prefix="links_") as folder:
        asked = Path(folder, "request.json")
        answer = Path(folder, "result")
        asked.write_text(json.dumps(dict(request)))
        ended = process.run_together(
            [process.Task([*worker, str(asked), str(answer)])], timeout_s, on_line
        )
        outcome = (
            pickle.loads(answer.read_bytes()) if answer.exists() else WorkerOutcome()
        )
    error = ""
    if ended.timed_out:
        error = f"did not return within --timeout={timeout_s:g} s, last at: {last['what']}; its process was ended"
    elif ended.returncode:
        error = _why(ended)
    elif not (outcome.series or outcome.products):
        error = "it ended without a result"
    return dataclasses.replace(outcome, error=error, timed_out=ended.timed_out)


def _why(ended: process.Ended) -> str:
    """One line: the error line of the process, otherwise how it ended and its last line."""
    lines = [line for line in ended.lines if not line.startswith("progress ")]
    errors = [
        line.removeprefix("error: ") for line in lines if line.startswith("error: ")
    ]
    if errors:
        return errors[-1]
    how = f"exit status {ended.returncode}"
    if ended.returncode < 0:
        how = f"ended by {signal.Signals(-ended.returncode).name}"
    return f"{how}: {lines[-1][:300]}" if lines else how
