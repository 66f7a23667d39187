"""recommend: measures the update modes of a model, or searches its largest batch, within a time limit."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rnn_scaling import entry
from rnn_scaling.machine.gpus import machine_size
from rnn_scaling.models.config import option
from rnn_scaling.settings import flags
from rnn_scaling.sweeps.conduct import (
    ConductOptions,
    SweepOutcome,
    conduct,
    conduct_rounds,
)
from rnn_scaling.sweeps.folder import Job
from rnn_scaling.sweeps.plan import Run, split
from rnn_scaling.sweeps.suite_trainer import SuiteTrainer

if TYPE_CHECKING:  # these load numpy, and a wrong flag is reported sooner without it
    from rnn_scaling.analysis.statements import Advice
    from rnn_scaling.sweeps.batch_search import BatchSearch
    from rnn_scaling.sweeps.mode_search import ModeSearch

MEMORY_SHARE = (
    0.8  # of the free memory, for all processes of a run: the machine needs some, too
)


@dataclasses.dataclass(frozen=True)
class RecommendOptions:
    """Recommend."""

    out: str = option(
        "results/recommend", "folder of the records, recommend.md and recommend.json"
    )
    minutes: float = option(
        10.0,
        "time limit; a run that has started finishes",
        minimum=0.1,
        maximum=10_000.0,
    )
    format: str = option(
        "text", "what is printed", choices=("text", "markdown", "json")
    )
    largest_batch: bool = option(
        False, "search the largest batch that fits in memory instead", bare=True
    )
    memory_gib: float = option(
        0.0,
        f"largest_batch, on CPUs: memory limit of a whole run (0: {MEMORY_SHARE:.0%} of the free memory)",
        minimum=0.0,
    )


GROUPS = (RecommendOptions, ConductOptions)


def find(
    words: Sequence[str], trainer: Sequence[str]
) -> tuple[RecommendOptions, "Advice | None", SweepOutcome]:
    """Searches what the command line asks for; no advice: the outcome's exit status is why. Raises FlagErrors."""
    (options, how), lists = split(words, GROUPS)
    if options.memory_gib and not options.largest_batch:
        raise flags.FlagErrors(
            [
                f"--memory_gib={options.memory_gib:g} would be ignored; it needs --largest_batch"
            ]
        )
    search, first_runs, runner = _search(options, how, lists, trainer)
    out, again = Path(options.out), ["recommend", *words]
    if how.dry_run:
        jobs = [Job(run, out, run.label) for run in first_runs]
        return options, None, conduct(jobs, out, how, again=again, trainer=runner)
    rounds = conduct_rounds(search.choose, out, how, options.minutes, again, runner)
    if rounds.exit_status not in (None, entry.EXIT_INTERRUPTED):
        return options, None, rounds
    for label, record in rounds.records.items():
        if (
            record.status != "ok" and not options.largest_batch
        ):  # a batch that does not fit fails as intended
            entry.warn(
                f"{label}: {record.error.message if record.error else record.status}"
            )
    return options, search.advice(rounds.records, how.launch), rounds


def _search(
    options: RecommendOptions,
    how: ConductOptions,
    lists: Mapping[str, Sequence[Any]],
    trainer: Sequence[str],
) -> tuple["ModeSearch | BatchSearch", list[Run], SuiteTrainer]:
    """(the search, its runs as far as they are known before it starts, the trainer); prints what will happen."""
    from rnn_scaling.sweeps import batch_search, mode_search

    limit = f"time limit --minutes={options.minutes:g}"
    if options.largest_batch:
        batches = batch_search.BatchSearch(
            lists, options.memory_gib, MEMORY_SHARE, trainer
        )
        entry.note(
            f"memory limit of a process: {batches.limit_words}; {limit}; the batch doubles until it does not fit"
        )
        return (
            batches,
            [batches.run(batches.start)],
            SuiteTrainer(batches.trainer, how.launch),
        )
    modes = mode_search.ModeSearch(mode_search.candidates(lists, **machine_size()))
    planned, runner = modes.planned(), SuiteTrainer(trainer, how.launch)
    about = runner.estimator().in_words([run.identity for run in planned])
    entry.note(f"{len(modes.runs)} configurations, 2 or 3 runs each: {about}; {limit}")
    return modes, planned, runner
