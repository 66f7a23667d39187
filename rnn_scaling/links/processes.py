"""Run one measurement in another process with a time limit, without TensorFlow.

worker.py is the other process. The keys of requests (from plan.py), the progress lines
and the pickled `WorkerOutcome` must be the same in both.

`measuring` calls `run` for each task of a plan.
"""

import dataclasses
import json
import pickle
import signal
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rnn_scaling.links.gemm import Gemm
from rnn_scaling.links.rounds import Report
from rnn_scaling.links.series import Series
from rnn_scaling.system.processes import process

WORKER = process.make_module_command("rnn_scaling.links.worker")


@dataclasses.dataclass(frozen=True)
class WorkerOutcome:
    """The results of a measurement; with `error`, the results before the failure."""

    series: tuple[Series, ...] = ()
    products: tuple[Gemm, ...] = ()
    gradient_bytes: tuple[tuple[str, int], ...] = ()  # preset, bytes of its gradients
    error: str = ""
    timed_out: bool = False


def run(
    request: Mapping[str, Any],
    timeout_s: float,
    report: Report,
    worker: Sequence[str] = WORKER,
) -> WorkerOutcome:
    """Run the measurement of a request, `timeout_s` seconds at most."""
    step = "its start"

    def read_progress(line: str | None) -> None:
        nonlocal step
        if line is not None and line.startswith("progress "):
            _, rounds_done, total, step = line.split(" ", 3)
            report(int(rounds_done), int(total), step)

    with tempfile.TemporaryDirectory(prefix="links_") as folder:
        request_file = Path(folder, "request.json")
        request_file.write_text(json.dumps(dict(request)))
        result_file = Path(folder, "result")
        task = process.Task([*worker, str(request_file), str(result_file)])
        process_end = process.run_together([task], timeout_s, read_progress)
        outcome = WorkerOutcome()
        if result_file.exists():
            outcome = pickle.loads(result_file.read_bytes())
    error = ""
    if process_end.timed_out:
        error = (
            f"it did not finish within --timeout={timeout_s:g} s (last step: {step}); "
            "its process was ended"
        )
    elif process_end.returncode:
        error = _format_failure(process_end)
    elif not (outcome.series or outcome.products):
        error = "it ended without a result"
    return dataclasses.replace(outcome, error=error, timed_out=process_end.timed_out)


def _format_failure(process_end: process.ProcessOutcome) -> str:
    """Return the last error line of a process, or its exit status and last line."""
    lines = [line for line in process_end.lines if not line.startswith("progress ")]
    errors = [line for line in lines if line.startswith("error: ")]
    if errors:
        return errors[-1].removeprefix("error: ")
    status = f"exit status {process_end.returncode}"
    if process_end.returncode < 0:
        status = f"ended by {signal.Signals(-process_end.returncode).name}"
    return f"{status}: {lines[-1][:300]}" if lines else status
