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
from rnn_scaling.settings import config as configs
from rnn_scaling.settings import flags, sweep_options
from rnn_scaling.settings.naming import NAMED
from rnn_scaling.settings.read_when import is_read
from rnn_scaling.settings.spelling import spell
from rnn_scaling.sweeps import largest_batch as batches
from rnn_scaling.sweeps.batch_runs import BatchSearch
from rnn_scaling.sweeps.conduct import ConductOptions, conduct
from rnn_scaling.sweeps.folder import Job
from rnn_scaling.sweeps.our_trainer import OurTrainer
from rnn_scaling.sweeps.plan import Run, name_of, round_order, with_distinct_names
from rnn_scaling.sweeps.ranks import TRAINER, Starter
from rnn_scaling.sweeps.rounds import Records, Rounds, Seconds, conduct_rounds

if TYPE_CHECKING:  # what these load, a wrong flag need not wait for
    from rnn_scaling.analysis.recommendation.factors import Candidate
    from rnn_scaling.analysis.recommendation.search import Rates, Search, Trial

FORMATS = ("text", "markdown", "json")
USAGE = """\
Which mode, placement, all-reduce, threads, arithmetic and batch size to take for this model on this machine? Measures
a handful of configurations on all devices: the modes that train one model, then the options of the fastest one at a
time, in interleaved rounds, each run a process of its own. Any flag of the trainer (./run.sh train --help) may be given
and is fixed then; a list is what is compared.

    ./run.sh recommend
    ./run.sh recommend --model=lm --num_units=512 --minutes=20 --out=results/mine
    ./run.sh recommend --allow=dtype,batch_size           what changes training is taken only when allowed
    ./run.sh recommend --variable_update=replicated --all_reduce_spec=auto,collective,xring
    ./run.sh recommend --largest_batch --model=lm         how many samples a device fit into memory

Prints the alternatives, one sentence, and the command line to copy; nothing is called faster that its interval does not
show. --out gets the records, recommend.md and recommend.json; the same command goes on where it stopped. Ctrl-C says
what can be said. docs/recommend.md has the rules.

--largest_batch doubles --batch_size until a batch does not fit, and searches between. A run that uses more memory than
--memory_gib is ended at once (Linux), so neither swap nor the out-of-memory killer is met.

Exit status: 0 done, 1 nothing could be measured or the folder cannot be written, 2 the flags conflict, the folder is in
use or holds records of other flags, 130 interrupted."""


def _allowed(text: str) -> frozenset[str]:
    from rnn_scaling.analysis.recommendation import factors  # here: --help does not wait for it

    return factors.allowed(text)


@dataclasses.dataclass(frozen=True)
class RecommendOptions:
    """Recommend."""

    out: str = option("results/recommend", "folder of the records, recommend.md and recommend.json")
    minutes: float = option(10.0, "time for all of it; a run that has begun is ended", minimum=0.1, maximum=10_000.0)
    allow: frozenset[str] = option(
        frozenset(),
        "what may be taken though it changes training: some of batch_size, dtype, relaxed, staged_vars, compression "
        "(default: none)",
        parse=_allowed,
        shown="LIST",
        whole=True,
    )
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


class _Runs:
    """The runs of a search: trials as processes, and back."""

    def __init__(self, search: Search) -> None:
        self._search = search
        self._trials: dict[str, Trial] = {}  # by the labels of their runs

    def of(self, trial: Trial) -> Run:
        """The run of a trial; runs of one configuration in several stages differ in their number alone."""
        given = self._search.given(trial.candidate)
        config = configs.resolve(
            given, num_gpus=self._search.machine.num_gpus, num_cores=self._search.machine.num_cores
        )
        varied = [*NAMED, *(name for name, _ in trial.candidate.changes if name not in NAMED)]
        read = [name for name in varied if is_read(config, name)]
        run = Run(name_of({**config.flat(), **given}, read), given, config, repeat=trial.repeat)
        return with_distinct_names([run])[0]

    def choose(self, records: Records, left_s: float, seconds: Seconds) -> list[Run]:
        """The runs of the next round; arguments as `conduct_rounds` gives them."""
        from rnn_scaling.analysis.recommendation.search import Budget

        chosen = self._search.next_trials(self.rates(records), Budget(left_s, lambda trial: seconds(self.of(trial))))
        runs = [self.of(trial) for trial in chosen]
        self._trials |= {run.label: trial for run, trial in zip(runs, chosen)}
        return runs

    def rates(self, records: Records) -> Rates:
        """items/s of each trial that was made."""
        from rnn_scaling.analysis.rows import process_rates

        return {
            trial: process_rates([records[label]])[0] if records[label].status == "ok" else None
            for label, trial in self._trials.items()
            if label in records
        }

    def planned(self, stage: int) -> list[Run]:
        """What a stage measures in its fewest rounds, as far as that is known before: of the first mode."""
        from rnn_scaling.analysis.recommendation.search import FEWEST, MODES, Trial

        candidates = self._search.modes if stage == MODES else self._search.options(self._search.modes[0])
        if stage == MODES and len(candidates) < 2:
            return []
        rounds = [[self.of(Trial(stage, number, each)) for each in candidates] for number in range(1, FEWEST + 1)]
        return [run for runs in rounds for run in round_order(runs, runs[0].repeat)]

    def command(self, candidate: Candidate, launch: str) -> str:
        """What a person types to train so."""
        from rnn_scaling.analysis.recommendation.search import Trial

        run = self.of(Trial(0, 1, candidate))
        return Starter(launch=launch).shown(run.config, [spell(name, value) for name, value in run.flags.items()])


def _recommend(
    own: RecommendOptions,
    how: ConductOptions,
    lists: Mapping[str, Sequence[Any]],
    again: Sequence[str],
    trainer: Sequence[str],
) -> int:
    from rnn_scaling.analysis.recommendation.factors import Machine
    from rnn_scaling.analysis.recommendation.search import MODES, OPTIONS, Search
    from rnn_scaling.reports import recommendation

    search = Search(lists, own.allow, Machine(visible_gpus(), len(available_cores())))
    runs = _Runs(search)
    stages = [runs.planned(stage) for stage in (MODES, OPTIONS)]
    entry.note(_plan(stages, own.minutes, how))
    if how.dry_run:
        return _dry_run(stages, own, how, again, trainer)
    rounds = conduct_rounds(runs.choose, Path(own.out), how, own.minutes, again, trainer)
    if rounds.exit_status not in (None, entry.EXIT_INTERRUPTED):
        return rounds.exit_status
    _tell_failures(rounds)
    answer = search.answer(runs.rates(rounds.records))
    command = runs.command(answer.taken, how.launch) if answer.taken is not None else ""
    content = recommendation.Advice(search, answer, tuple(rounds.records.values()), command)
    return _finish(recommendation, content, own, rounds, "recommend", answer.taken is not None)


def _plan(stages: Sequence[Sequence[Run]], minutes: float, how: ConductOptions) -> str:
    """What is going to be measured, and how long it takes."""
    modes = stages[0]
    identities = [run.identity for runs in stages for run in runs]
    estimator = OurTrainer(launch=how.launch).estimator()
    counts = [len({run.name for run in runs}) for runs in stages]
    words = [f"{counts[0]} modes, then"] if modes else []
    words.append(f"{counts[1]} setting{'s' if counts[1] > 1 else ''} of {'the fastest' if modes else 'one mode'}")
    rounds = "two or three times each, in turns"
    about = estimator.in_words(identities)
    return f"{' '.join(words)}, {rounds}: {about}; --minutes={minutes:g} is the most, the first ones are measured first"


def _dry_run(
    stages: Sequence[Sequence[Run]],
    own: RecommendOptions,
    how: ConductOptions,
    again: Sequence[str],
    trainer: Sequence[str],
) -> int:
    """Lists what would run: the modes, and the options as if the first of them were the fastest."""
    jobs = [Job(run, Path(own.out), run.label) for runs in stages for run in runs]
    done = conduct(jobs, Path(own.out), how, again=again, trainer=OurTrainer(trainer, how.launch))
    if stages[0]:
        print("the options are those of the fastest mode, here of the first; undecided ones run a third time")
    return entry.EXIT_OK if done.exit_status is None else done.exit_status


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
        done = conduct(jobs, Path(own.out), how, again=again, trainer=OurTrainer(search.trainer, how.launch))
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


def _tell_failures(rounds: Rounds) -> None:
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
