"""Make the runs of `recommend`, which compare modes, batch sizes or threads.

`commands.recommend` reads a `Request` and prints its `Advice`.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rnn_scaling.config import flags
from rnn_scaling.config.flags import option
from rnn_scaling.config.run_config import OPTIONS
from rnn_scaling.sweeps import thread_search
from rnn_scaling.sweeps.conduct import (
    ConductOptions,
    Conductor,
    SweepOutcome,
)
from rnn_scaling.sweeps.folder import Job
from rnn_scaling.sweeps.plan import split
from rnn_scaling.sweeps.suite_trainer import SuiteTrainer
from rnn_scaling.system import entry
from rnn_scaling.system.machine.gpus import describe_machine_size

if TYPE_CHECKING:  # It loads numpy, and a wrong flag is reported sooner without it.
    from rnn_scaling.analysis.statements import Advice

# Share of the free memory for all processes of a run; the machine needs the rest.
_MEMORY_SHARE = 0.8
_THREADS_FOLDER = "results/threads"
_THREADS_REPEATS = 3
_THREADS_TRACED_BATCHES = 5


@dataclasses.dataclass(frozen=True)
class RecommendOptions:
    """Recommend."""

    out: str = option(
        "results/recommend",
        "folder of the records and of recommend.md and recommend.json "
        f"(default: results/recommend; with --threads {_THREADS_FOLDER})",
    )
    minutes: float = option(
        10.0,
        "time limit in minutes; a run in progress is completed, so the "
        "command may take longer",
        minimum=0.1,
        maximum=10_000.0,
    )
    format: str = option(
        "text",
        "output format: text or markdown for reading, json for programs",
        choices=("text", "markdown", "json"),
    )
    largest_batch: bool = option(
        False,
        "search for the largest batch that fits in memory, instead of "
        "comparing settings",
        bare=True,
    )
    memory_gib: float = option(
        0.0,
        "memory limit of a whole run on CPUs, in GiB, for --largest_batch (0: "
        f"{_MEMORY_SHARE:.0%} of the free memory)",
        minimum=0.0,
    )
    threads: bool = option(
        False,
        "find the number of threads that keeps the devices busy, instead of "
        "comparing settings",
        bare=True,
    )
    repeats: int | None = option(
        None,
        "runs per number of threads, for --threads; one run is not enough to "
        f"compare (default: {_THREADS_REPEATS})",
        minimum=1,
    )


@dataclasses.dataclass(frozen=True)
class ThreadsOptions(RecommendOptions):
    """The options with --threads, which has another folder and traces every run."""

    out: str = option(_THREADS_FOLDER, "folder of the records")
    trace_batches: int = option(
        _THREADS_TRACED_BATCHES,
        "number of batches that are traced after the measured ones",
        minimum=1,
        maximum=OPTIONS["trace_batches"].metadata["maximum"],
    )


GROUPS = (RecommendOptions, ConductOptions)
_THREADS_GROUPS = (ThreadsOptions, ConductOptions)


@dataclasses.dataclass(frozen=True)
class Request:
    """The command line of `recommend`."""

    words: Sequence[str]
    options: RecommendOptions
    conduct: ConductOptions
    lists: Mapping[str, Sequence[Any]]  # the values of each flag of the trainer

    @property
    def out(self) -> Path:
        """The folder of the records."""
        return Path(self.options.out)

    @property
    def resume_words(self) -> list[str]:
        """The words that continue an interrupted command."""
        return ["recommend", *self.words]


def read(words: Sequence[str]) -> Request:
    """Read a command line; raise FlagErrors if anything is wrong."""
    known_fields = {**OPTIONS, **flags.collect_fields(_THREADS_GROUPS)}
    values, _ = flags.parse_with_errors(
        words, known_fields, lists=True
    )  # `split` reports mistakes
    has_threads = values.get("threads", [False])[-1]
    groups = _THREADS_GROUPS if has_threads else GROUPS
    (options, conduct_options), lists = split(words, groups)
    lines = []
    if options.memory_gib and not options.largest_batch:
        lines.append(
            f"--memory_gib={options.memory_gib:g} would be ignored here; add "
            "--largest_batch, or leave it out"
        )
    if options.repeats is not None and not options.threads:
        lines.append(
            f"--repeats={options.repeats} would be ignored here; add "
            "--threads, or leave it out"
        )
    if options.threads and options.largest_batch:
        lines.append(
            "--threads and --largest_batch answer different questions; give one of them"
        )
    if options.threads and "minutes" in values:
        lines.append(
            f"--minutes={options.minutes:g} would be ignored here, because "
            "--threads has no time limit; leave it out"
        )
    if lines:
        raise flags.FlagErrors(lines)
    return Request(words, options, conduct_options, lists)


def measure_threads(
    request: Request, trainer: Sequence[str]
) -> tuple[SweepOutcome, dict[int, int]]:
    """Measure several numbers of threads in turns.

    Returns:
      The outcome, and the trainer's own number of threads by number of devices.

    Raises:
      FlagErrors: If the trainer refuses a flag.
    """
    runs, defaults = thread_search.plan_threads(request.lists)
    conductor = _make_conductor(request, trainer)
    repeats = request.options.repeats or _THREADS_REPEATS
    return conductor.run_repeats(runs, repeats), defaults


def _make_conductor(
    request: Request, trainer: Sequence[str], minutes: float = math.inf
) -> Conductor:
    options = request.conduct
    suite_trainer = SuiteTrainer(trainer, options.launch)
    return Conductor(request.out, options, suite_trainer, request.resume_words, minutes)


def find(
    request: Request, trainer: Sequence[str]
) -> "tuple[Advice | None, SweepOutcome]":
    """Search the fastest settings or the largest batch.

    Returns:
      The advice and the outcome of the runs. Without an advice, the outcome has the
      exit status of the command.

    Raises:
      FlagErrors: If the trainer refuses a flag.
    """
    # Imported here, because they load numpy.
    from rnn_scaling.sweeps.batch_search import BatchSearch
    from rnn_scaling.sweeps.mode_search import ModeSearch, plan_candidates

    options = request.options
    limit = f"time limit --minutes={options.minutes:g}"
    search: ModeSearch | BatchSearch
    if options.largest_batch:
        search = BatchSearch(request.lists, options.memory_gib, _MEMORY_SHARE, trainer)
        trainer = search.trainer
        entry.note(
            f"memory limit of a process: {search.limit_text}; {limit}; the batch "
            "doubles until it does not fit"
        )
    else:
        search = ModeSearch(plan_candidates(request.lists, **describe_machine_size()))
        planned = [run.identity for run in search.plan_first_runs()]
        estimator = SuiteTrainer(trainer, request.conduct.launch).make_estimator()
        entry.note(
            f"{len(search.runs)} configurations, 2 or 3 runs each: "
            f"{estimator.describe(planned)}; {limit}"
        )
    conductor = _make_conductor(request, trainer, options.minutes)
    if request.conduct.dry_run:
        conductor.run([Job(run, request.out) for run in search.plan_first_runs()])
        return None, conductor.outcome
    conductor.run_rounds(search.choose)
    outcome = conductor.outcome
    if outcome.exit_status not in (None, entry.EXIT_INTERRUPTED):
        return None, outcome
    # A batch that does not fit fails as intended.
    if not options.largest_batch:
        for label, message in outcome.list_failures().items():
            entry.warn(f"{label}: {message}")
    return search.make_advice(outcome.records, request.conduct.launch), outcome
