"""Runs one measurement in a process of its own, and ends that process if it does not return. No TensorFlow here."""

import dataclasses
import json
import signal
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rnn_scaling.links.rounds import Tell
from rnn_scaling.links.series import Series, from_json
from rnn_scaling.processes import process

WORKER = process.our_module("rnn_scaling.links.worker")


@dataclasses.dataclass(frozen=True)
class WorkerOutcome:
    """What a measurement gave: all of it, or with `error` what there was before it failed."""

    series: tuple[Series, ...] = ()
    error: str = ""
    timed_out: bool = False
    facts: Mapping[str, Any] = dataclasses.field(default_factory=dict)


def run(request: Mapping[str, Any], timeout_s: float, tell: Tell, worker: Sequence[str] = WORKER) -> WorkerOutcome:
    """Measures what `request` asks for; `timeout_s`: wall limit in seconds."""
    last = {"what": "its start"}

    def on_line(line: str | None) -> None:
        if line is None or not line.startswith("progress "):
            return
        _, done, total, what = line.split(" ", 3)
        last["what"] = what
        tell(int(done), int(total), what)

    with tempfile.TemporaryDirectory(prefix="links_") as folder:
        asked, answer = Path(folder, "request.json"), Path(folder, "result.json")
        asked.write_text(json.dumps(dict(request)))
        ended = process.run([*worker, str(asked), str(answer)], timeout_s, on_line)
        content = json.loads(answer.read_text()) if answer.exists() else {"series": []}
    error = ""
    if ended.timed_out:
        error = f"did not return within --timeout={timeout_s:g} s, last at: {last['what']}; its process was ended"
    elif ended.returncode:
        error = _why(ended)
    elif not any(content.values()):
        error = "it ended without a result"
    facts = {name: value for name, value in content.items() if name != "series"}
    return WorkerOutcome(tuple(from_json(fields) for fields in content["series"]), error, ended.timed_out, facts)


def _why(ended: process.Ended) -> str:
    """One line: the error line of the process, otherwise how it ended and its last line."""
    lines = [line for line in ended.lines if not line.startswith("progress ")]
    errors = [line.removeprefix("error: ") for line in lines if line.startswith("error: ")]
    if errors:
        return errors[-1]
    how = f"exit status {ended.returncode}"
    if ended.returncode < 0:
        how = f"ended by {signal.Signals(-ended.returncode).name}"
    return f"{how}: {lines[-1][:300]}" if lines else how
