"""Runs from Python, each in its own process.

`rnn_scaling.run` and `rnn_scaling.sweep` are public: their arguments and errors stay.
"""

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rnn_scaling.config import conflicts
from rnn_scaling.config.flags import FlagErrors
from rnn_scaling.records.record import RunRecord
from rnn_scaling.sweeps import certifying_runs, conduct, estimate, ranks, sweep
from rnn_scaling.sweeps.command_lines import TRAINER, format_flags
from rnn_scaling.sweeps.folder import Job
from rnn_scaling.sweeps.plan import OUTPUTS, Run
from rnn_scaling.sweeps.suite_trainer import SuiteTrainer
from rnn_scaling.system import entry

# The functions set these options, or only the command uses them.
_RESERVED = {*OUTPUTS} - {"log_dir"} | {"history", "certify", "dry_run"}


class RunFailed(RuntimeError):
    """A run, or runs of a sweep, failed; `records` contains their records."""

    def __init__(self, message: str, records: Sequence[RunRecord]) -> None:
        super().__init__(message)
        self.records = list(records)


def run(
    options: Mapping[str, Any],
    *,
    timeout_s: float = 0.0,
    launch: str = "",
    program: Sequence[str] = TRAINER,
) -> RunRecord:
    """Run the trainer once for `rnn_scaling.run`."""
    try:
        trainer = SuiteTrainer(program, ranks.check_launcher(launch))
    except ValueError as e:
        raise FlagErrors([f"launch={launch} must be {e}"]) from None
    flags, config = conflicts.check_command_line(_to_command_line(options))
    with tempfile.TemporaryDirectory(prefix="rnn_scaling.") as folder:
        job = Job(Run("run", flags, config), Path(folder))
        record = conduct.run_job(job, estimate.make_user_limit(timeout_s), trainer)
    if record.status != "ok":
        raise RunFailed(f"the run failed: {conduct.format_failure(record)}", [record])
    return record


def run_sweep(
    out: str | Path,
    options: Mapping[str, Any],
    *,
    repeats: int = 1,
    axes: Mapping[str, Any] | None = None,
    program: Sequence[str] = TRAINER,
) -> None:
    """Run the sweep of `rnn_scaling.sweep`.

    Args:
      out: The folder of the records.
      options: The flags of the command.
      repeats: Runs of each combination.
      axes: The values of each --axis.
      program: The command of one rank of the trainer.
    """
    if repeats < 1:
        raise FlagErrors([f"repeats={repeats} must be at least 1"])
    values = {"out": out, "repeats": repeats, **options}
    for name, axis_values in (axes or {}).items():
        values[f"axis:{name}"] = axis_values
    result = sweep.run_sweep(
        _to_command_line(values), program, certifying_runs.VERIFIER
    )
    failures = result.outcome.list_failures()
    if failures:
        lines = [f"{label}: {message}" for label, message in failures.items()]
        records = [result.outcome.records[label] for label in failures]
        raise RunFailed("\n".join(lines), records)
    if result.exit_status == entry.EXIT_INTERRUPTED:
        raise KeyboardInterrupt
    if result.exit_status:
        message = f"{out}: the sweep ended with status {result.exit_status}; stderr has the reason"
        raise RunFailed(message, [])


def _to_command_line(options: Mapping[str, Any]) -> list[str]:
    """Return the options as a command line, so that one parser reads both."""
    if reserved := sorted(options.keys() & _RESERVED):
        raise FlagErrors([f"{name} is reserved; leave it out" for name in reserved])
    values = {}
    for name, value in options.items():
        if isinstance(value, (list, tuple)):
            value = ",".join(map(str, value))
        if value is not None:
            values[name] = value
    return format_flags(values)
