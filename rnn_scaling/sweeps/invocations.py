"""Runs from Python: `rnn_scaling.run` and `rnn_scaling.sweep`, each run in its own process."""

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rnn_scaling import entry
from rnn_scaling.machine.gpus import machine_size
from rnn_scaling.records.record import RunRecord
from rnn_scaling.settings import command_line, flags
from rnn_scaling.settings import config as configs
from rnn_scaling.settings.flags import FlagErrors
from rnn_scaling.settings.spelling import spell
from rnn_scaling.sweeps import command_plan, conduct, limit, ranks
from rnn_scaling.sweeps.command_plan import TrainerOptions
from rnn_scaling.sweeps.command_trainer import CommandTrainer
from rnn_scaling.sweeps.folder import Job
from rnn_scaling.sweeps.plan import OUTPUTS, Run, plan
from rnn_scaling.sweeps.runs import AnyRun, Trainer
from rnn_scaling.sweeps.suite_trainer import SuiteTrainer

RESERVED = OUTPUTS - {"log_dir"}  # these functions set them


class RunFailed(RuntimeError):
    """A run, or runs of a sweep, failed; `records` holds their records."""

    def __init__(self, message: str, records: Sequence[RunRecord]) -> None:
        super().__init__(message)
        self.records = list(records)


def run(
    options: Mapping[str, Any], *, timeout_s: float = 0.0, launch: str = "", program: Sequence[str] = ranks.TRAINER
) -> RunRecord:
    trainer = SuiteTrainer(program, _launcher(launch))
    given, config = command_line.checked(_words(options))
    with tempfile.TemporaryDirectory(prefix="rnn_scaling.") as place:
        job = Job(Run("run", given, config), Path(place), "run")
        record = conduct.run_job(job, limit.given(timeout_s), trainer)
    if record.status != "ok":
        raise RunFailed(_reason("the run", record), [record])
    return record


def sweep(
    out: str | Path,
    options: Mapping[str, Any],
    *,
    repeats: int = 1,
    timeout_s: float | None = None,
    launch: str = "",
    program: Sequence[str] = ranks.TRAINER,
) -> None:
    """`rnn_scaling.sweep` of this suite's trainer, without the rows; `timeout_s` as --run_timeout."""
    words = _words(options)
    lists = flags.parse(words, configs.OPTIONS, lists=True)
    runs = plan(lists, **machine_size())
    how = conduct.ConductOptions(run_timeout=timeout_s, launch=_launcher(launch))
    words += [spell("launch", launch)] if launch else []
    _sweep(out, runs, SuiteTrainer(program, how.launch), how, repeats, words)


def sweep_theirs(
    out: str | Path,
    trainer: str,
    axes: Mapping[str, Any],
    options: Mapping[str, Any],
    *,
    repeats: int = 1,
    timeout_s: float | None = None,
) -> None:
    """`rnn_scaling.sweep` of a trainer of the caller, without the rows."""
    of_trainer = flags.fields([TrainerOptions])
    words = _words({"trainer": trainer, **options}) + _words({f"axis:{name}": values for name, values in axes.items()})
    axis_values, other_words = command_plan.split_axes(words)
    lists = flags.parse(other_words, {**configs.OPTIONS, **of_trainer}, lists=True)
    (trainer_options,) = flags.build(
        [TrainerOptions], {name: lists.pop(name)[0] for name in of_trainer if name in lists}
    )
    runs = command_plan.plan(trainer_options, axis_values, lists, **machine_size())
    _sweep(out, runs, CommandTrainer(), conduct.ConductOptions(run_timeout=timeout_s), repeats, words)


def _sweep(
    out: str | Path,
    runs: Sequence[AnyRun],
    trainer: Trainer,
    how: conduct.ConductOptions,
    repeats: int,
    words: Sequence[str],
) -> None:
    if repeats < 1:
        raise FlagErrors([f"repeats={repeats} must be at least 1"])
    again = ["sweep", f"--out={out}", *words]
    done = conduct.conduct_sweep(runs, repeats, Path(out), how, again=again, trainer=trainer)
    failures = {label: record for label, record in done.records.items() if record.status != "ok"}
    if failures:
        lines = [_reason(label, record) for label, record in failures.items()]
        raise RunFailed("\n".join(lines), list(failures.values()))
    if done.exit_status == entry.EXIT_INTERRUPTED:
        raise KeyboardInterrupt
    if done.exit_status:
        raise RunFailed(f"{out}: the sweep ended with status {done.exit_status}; stderr has the reason", [])


def _words(options: Mapping[str, Any]) -> list[str]:
    """The options as a command line, so that Python and the shell share a parser."""
    if taken := sorted(options.keys() & RESERVED):
        raise FlagErrors([f"{name} is reserved; leave it out" for name in taken])
    given = {name: value for name, value in options.items() if value is not None}
    return [spell(n, ",".join(map(str, v)) if isinstance(v, (list, tuple)) else v) for n, v in given.items()]


def _launcher(text: str) -> str:
    try:
        return ranks.launcher(text)
    except ValueError as e:
        raise FlagErrors([f"launch={text} must be {e}"]) from None


def _reason(name: str, record: RunRecord) -> str:
    return f"{name}: {record.error.message if record.error else record.status}"
