"""Runs from Python: `rnn_scaling.run` and `rnn_scaling.sweep`, each run in its own process."""

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rnn_scaling.config import conflicts
from rnn_scaling.config.flags import FlagErrors
from rnn_scaling.config.spelling import spell
from rnn_scaling.records.record import RunRecord
from rnn_scaling.sweeps import certificates, conduct, estimate, ranks
from rnn_scaling.sweeps import sweep as sweeps
from rnn_scaling.sweeps.folder import Job
from rnn_scaling.sweeps.plan import OUTPUTS, Run
from rnn_scaling.sweeps.suite_trainer import SuiteTrainer
from rnn_scaling.system import entry

# These functions set them, or they are what the command does with a finished sweep.
RESERVED = {*OUTPUTS} - {"log_dir"} | {"history", "certify", "dry_run"}


class RunFailed(RuntimeError):
    """A run, or runs of a sweep, failed; `records` holds their records."""

    def __init__(self, message: str, records: Sequence[RunRecord]) -> None:
        super().__init__(message)
        self.records = list(records)


def run(
    options: Mapping[str, Any],
    *,
    timeout_s: float = 0.0,
    launch: str = "",
    program: Sequence[str] = ranks.TRAINER,
) -> RunRecord:
    try:
        trainer = SuiteTrainer(program, ranks.launcher(launch))
    except ValueError as e:
        raise FlagErrors([f"launch={launch} must be {e}"]) from None
    given, config = conflicts.checked(_words(options))
    with tempfile.TemporaryDirectory(prefix="rnn_scaling.") as place:
        job = Job(Run("run", given, config), Path(place))
        record = conduct.run_job(job, estimate.given_limit(timeout_s), trainer)
    if record.status != "ok":
        raise RunFailed(f"the run: {conduct.reason_of(record)}", [record])
    return record


def sweep(
    out: str | Path,
    options: Mapping[str, Any],
    *,
    repeats: int = 1,
    axes: Mapping[str, Any] | None = None,
    program: Sequence[str] = ranks.TRAINER,
) -> None:
    """`rnn_scaling.sweep` without the rows; `options` are the flags of the command, `axes` those of --axis."""
    if repeats < 1:
        raise FlagErrors([f"repeats={repeats} must be at least 1"])
    given = {"out": out, "repeats": repeats, **options}
    words = _words(
        {**given, **{f"axis:{name}": values for name, values in (axes or {}).items()}}
    )
    made = sweeps.make(words, program, certificates.VERIFIER)
    failures = {
        label: record
        for label, record in made.outcome.records.items()
        if record.status != "ok"
    }
    if failures:
        lines = [
            f"{label}: {conduct.reason_of(record)}"
            for label, record in failures.items()
        ]
        raise RunFailed("\n".join(lines), list(failures.values()))
    if made.exit_status == entry.EXIT_INTERRUPTED:
        raise KeyboardInterrupt
    if made.exit_status:
        raise RunFailed(
            f"{out}: the sweep ended with status {made.exit_status}; stderr has the reason",
            [],
        )


def _words(options: Mapping[str, Any]) -> list[str]:
    """The options as a command line, so that Python and the shell share a parser."""
    if taken := sorted(options.keys() & RESERVED):
        raise FlagErrors([f"{name} is reserved; leave it out" for name in taken])
    given = {name: value for name, value in options.items() if value is not None}
    return [
        spell(n, ",".join(map(str, v)) if isinstance(v, (list, tuple)) else v)
        for n, v in given.items()
    ]
