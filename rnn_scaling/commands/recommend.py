"""python -m rnn_scaling recommend: which settings to take for this model on this machine, and the largest batch."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rnn_scaling import entry
from rnn_scaling.files.output_files import write_text
from rnn_scaling.files.terminal import tell
from rnn_scaling.machine.cores import available_cores
from rnn_scaling.machine.gpus import visible_gpus
from rnn_scaling.models.config import option
from rnn_scaling.models.workloads import WORKLOADS
from rnn_scaling.settings import flags, sweep_options
from rnn_scaling.settings.spelling import spell
from rnn_scaling.sweeps import largest_batch as batches
from rnn_scaling.sweeps.batch_runs import BatchSearch
from rnn_scaling.sweeps.conduct import ConductOptions, conduct
from rnn_scaling.sweeps.folder import Job
from rnn_scaling.sweeps.ranks import TRAINER, Starter
from rnn_scaling.sweeps.rounds import Rounds, conduct_rounds
from rnn_scaling.sweeps.suite_trainer import SuiteTrainer

if TYPE_CHECKING:  # what these load, a wrong flag need not wait for
    pass

FORMATS = ("text", "markdown", "json")
USAGE = """\
Measures the update modes that train one model on all devices of this machine and prints the command that trains
fastest. Every flag of the trainer (./run.sh train --help) may be given; a list of values is compared.

    ./run.sh recommend
    ./run.sh recommend --model=lm --num_units=512 --minutes=20
    ./run.sh recommend --variable_update=replicated --all_reduce_spec=auto,collective,xring
    ./run.sh recommend --batch_size=32,64,128
    ./run.sh recommend --largest_batch --model=lm

Each configuration runs two or three times, in interleaved rounds. The records, recommend.md and recommend.json go to
--out. The same command continues where it stopped. docs/recommend.md has the rules.

--largest_batch searches the largest --batch_size that fits in memory. A run that exceeds --memory_gib is ended at once
(Linux), before the machine swaps.

Exit status: 0 done, 1 nothing was measured or the folder cannot be written, 2 the flags conflict, the folder is in use
or holds records of other flags, 130 interrupted."""


@dataclasses.dataclass(frozen=True)
class RecommendOptions:
    """Recommend."""

    out: str = option("results/recommend", "folder of the records, recommend.md and recommend.json")
    minutes: float = option(10.0, "time for all of it; a run that has begun is ended", minimum=0.1, maximum=10_000.0)
    format: str = option("text", "what is printed", choices=FORMATS)
    largest_batch: bool = option(False, "search the largest batch that fits into memory, instead", bare=True)
    memory_gib: float = option(
        0.0,
        f"largest_batch, on CPUs: what all processes of a run may take (0: {batches.SHARE:.0%} of the free memory)",
        minimum=0.0,
    )


@entry.command
def main(words: Sequence[str], trainer: Sequence[str] = TRAINER) -> int:
    """Measures and recommends; returns the exit status."""
    groups = [RecommendOptions, ConductOptions]
    flags.answer(words, USAGE, groups, "recommend")
    (own, how), lists = sweep_options.split(words, groups)
    if own.memory_gib and not own.largest_batch:
        raise flags.FlagErrors([f"--memory_gib={own.memory_gib:g} would be ignored here; it needs --largest_batch"])
    again = ["recommend", *words]
    if own.largest_batch:
        return _largest_batch(own, how, lists, again, trainer)
    return _recommend(own, how, lists, again, trainer)


def _recommend(
    own: RecommendOptions,
    how: ConductOptions,
    lists: Mapping[str, Sequence[Any]],
    again: Sequence[str],
    trainer: Sequence[str],
) -> int:
    from rnn_scaling.reports import recommendation
    from rnn_scaling.sweeps import mode_search

    search = mode_search.ModeSearch(mode_search.candidates(lists, visible_gpus(), len(available_cores())))
    planned = search.planned()
    about = SuiteTrainer(launch=how.launch).estimator().in_words([run.identity for run in planned])
    entry.note(f"{len(search.runs)} configurations, 2 or 3 runs each: {about}; limit --minutes={own.minutes:g}")
    if how.dry_run:
        jobs = [Job(run, Path(own.out), run.label) for run in planned]
        done = conduct(jobs, Path(own.out), how, again=again, trainer=SuiteTrainer(trainer, how.launch))
        return entry.EXIT_OK if done.exit_status is None else done.exit_status
    rounds = conduct_rounds(search.choose, Path(own.out), how, own.minutes, again, trainer)
    if rounds.exit_status not in (None, entry.EXIT_INTERRUPTED):
        return rounds.exit_status
    _print_failures(rounds)
    ranking = search.ranking(rounds.records)
    best = next((run for run in search.runs if ranking and search.title(run) == ranking.reference), None)
    content = recommendation.Advice(
        ranking,
        dict(best.flags) if best else {},
        Starter(launch=how.launch).shown(best.config, [spell(*flag) for flag in best.flags.items()]) if best else "",
        search.runs[0].unit,
        search.failed(rounds.records),
        search.left_out(rounds.records),
        tuple(rounds.records.values()),
    )
    return _finish(recommendation, content, own, rounds, "recommend", ranking is not None)


def _largest_batch(
    own: RecommendOptions,
    how: ConductOptions,
    lists: Mapping[str, Sequence[Any]],
    again: Sequence[str],
    trainer: Sequence[str],
) -> int:
    from rnn_scaling.reports import largest_batch as report

    search = BatchSearch(lists, own.memory_gib, trainer)
    if how.dry_run:
        jobs = [Job(run, Path(own.out), run.label) for run in search.choose({}, 0.0, lambda run: 0.0)]
        done = conduct(jobs, Path(own.out), how, again=again, trainer=SuiteTrainer(search.trainer, how.launch))
        print(f"then twice as many samples, until they need more than {search.limit_words} or do not fit")
        return entry.EXIT_OK if done.exit_status is None else done.exit_status
    entry.note(f"a process may take {search.limit_words}; --minutes={own.minutes:g} is the most")
    rounds = conduct_rounds(search.choose, Path(own.out), how, own.minutes, again, search.trainer)
    if rounds.exit_status not in (None, entry.EXIT_INTERRUPTED):
        return rounds.exit_status
    tries = search.tries(rounds.records)
    known = batches.what_is_known(tries)
    command = "" if known.largest is None else search.command(known.largest, how.launch)
    workload = WORKLOADS[search.config.model.model]
    is_whole = batches.next_batch(search.start, tries) is None
    content = report.Result(tries, search.limit_bytes, workload.samples, workload.unit, is_whole, command)
    is_answered = known.largest is not None and all(each.outcome != batches.FAILED for each in tries)
    return _finish(report, content, own, rounds, "largest_batch", is_answered)


def _print_failures(rounds: Rounds) -> None:
    for label, record in rounds.records.items():
        if record.status != "ok":
            entry.warn(f"{label}: {record.error.message if record.error else record.status}")


def _finish(report: Any, content: Any, own: RecommendOptions, rounds: Rounds, name: str, is_answered: bool) -> int:
    """Prints and writes what was found; returns the exit status."""
    text = report.RENDER[own.format](content)
    if own.format == "text":
        tell(text)
    else:
        print(text, end="", flush=True)
    out = Path(own.out)
    try:
        if rounds.records:
            write_text(report.markdown(content), out / f"{name}.md")
            write_text(report.to_json(content), out / f"{name}.json")
            entry.note(f"\nwrote {out / name}.md and {name}.json; the records are beside them")
    except OSError as e:
        return entry.fail(f"--out={own.out}: {e.strerror or e}")
    if rounds.exit_status is not None:
        return rounds.exit_status
    return entry.EXIT_OK if is_answered else entry.EXIT_FAILED
