"""python -m rnn_scaling sweep: every combination of some flags' values, each run a process of its own."""

from __future__ import annotations

import dataclasses
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rnn_scaling import entry, registry
from rnn_scaling.machine.cores import available_cores
from rnn_scaling.machine.gpus import visible_gpus
from rnn_scaling.models import kernels
from rnn_scaling.models.config import option
from rnn_scaling.records.lock import BusyError
from rnn_scaling.records.record import RunRecord
from rnn_scaling.settings import flags, sweep_options
from rnn_scaling.settings.config import OPTIONS
from rnn_scaling.sweeps import certificates, command_plan, folder
from rnn_scaling.sweeps.command_plan import TrainerOptions
from rnn_scaling.sweeps.command_trainer import CommandTrainer
from rnn_scaling.sweeps.conduct import ConductOptions, Outcome, conduct
from rnn_scaling.sweeps.folder import Job
from rnn_scaling.sweeps.plan import Run, interleave, plan
from rnn_scaling.sweeps.ranks import TRAINER
from rnn_scaling.sweeps.runs import AnyRun, Trainer
from rnn_scaling.sweeps.suite_trainer import SuiteTrainer

FEWEST, MOST = 2, 3  # rounds where none are asked for
ENOUGH = 5  # half-width of an efficiency's interval in points, from which on no further round is made

_ENCODERS = kernels.of_cell(str(OPTIONS["unit_type"].default))
USAGE = f"""\
Runs the trainer for every combination of the values; any of its flags (./run.sh train --help) takes a list. What is
not given:

    --encoder_type={",".join(_ENCODERS)} --variable_update={",".join(registry.swept(registry.VARIABLE_UPDATES))}
    --num_devices=1,2,...,N    N: the GPUs, or as many CPU devices as there are cores; 1,2,4,... above 8
    --preset=seed on GPUs, small on CPUs                                   (./run.sh sweep alone is this)

With another --unit_type the encoders are those that compute it: of gru {",".join(kernels.of_cell("gru"))}.
With --framework=tensorflow,torch they are --encoder_type={_ENCODERS[0]} --variable_update=independent,replicated
--data_source=constant.
With --num_workers=1,2,4 these are --variable_update={",".join(registry.swept(registry.VARIABLE_UPDATES, True))}
--num_devices=1. Processes of a run are started on this machine, or by a launcher: --launch="srun -K" makes each run
srun -K -n PROCESSES.

A flag that only some of the runs read goes to those. Writes the records to --out, then the report of that folder.

    ./run.sh sweep --num_devices=1,2,4 --repeats=3 --out=results/mine --dry_run    what would run?

Every run is a process of its own. One that crashes, is killed, runs out of memory or takes longer than --run_timeout
is a failed row with its reason; the others go on. All are run {FEWEST} times, in a random order and back again, and a
further time while an efficiency (without one: a rate) is not known to ±{ENOUGH} %, at most {MOST} times;
--repeats=N makes exactly N. Ctrl-C, or any other end: the same command goes on where it stopped. More values or
repeats with the same --out add runs; docs/sweeps.md has the rules. --certify first compares each configuration with
serial training (./run.sh verify --help), in processes of its own: a mode that trains wrong is named beside its speed.

A trainer of your own, in any framework (docs/any_trainer.md): --trainer="COMMAND" with {{num_devices}} and what else
varies in braces. Its numbers come from the record of a Recorder at {{result_file}}, or from what it prints.

    ./run.sh sweep --trainer="torchrun --nproc-per-node={{num_devices}} my.py --to={{result_file}}" --num_devices=1,2
    ./run.sh sweep --trainer="python my.py --hidden={{hidden}}" --axis:hidden=256,512 --num_devices=1 \\
        --log_format="regex:words/s: {{number}}" --unit=words

Exit status: 0 all runs done, 1 a run failed, a mode trains wrong or the folder cannot be written, 2 the flags conflict,
the folder is in use or holds records of other flags, 130 interrupted."""


@dataclasses.dataclass(frozen=True)
class SweepOptions:
    """Sweep."""

    out: str = option("results/default", "folder of the records and the report")
    repeats: int = option(
        0, f"runs of each combination; 0: {FEWEST} to {MOST}, as many as the answer needs", minimum=0, maximum=1000
    )
    certify: bool = option(
        False, "first compare each configuration with serial training, and put the verdict beside its speed"
    )


@entry.command
def main(
    words: Sequence[str], trainer: Sequence[str] = TRAINER, verifier: Sequence[str] = certificates.VERIFIER
) -> int:
    """Runs a sweep; returns the exit status."""
    groups = [SweepOptions, ConductOptions, TrainerOptions]
    flags.answer(words, USAGE, groups, "sweep")
    axes, rest = command_plan.split_axes(words)
    (own, how, theirs), lists = sweep_options.split(rest, groups)
    if theirs.trainer:
        return _sweep(*_of_theirs(own, how, theirs, axes, lists), own, how, words)
    if lines := command_plan.missing_trainer(theirs, axes):
        raise flags.FlagErrors(lines)
    runs = plan(lists, num_gpus=visible_gpus(), num_cores=len(available_cores()))
    out = Path(own.out)
    certified, failed = _certified(runs, out, how, words, verifier) if own.certify else (None, None)
    if failed is not None:
        return failed
    return _sweep(runs, SuiteTrainer(trainer, how.launch), own, how, words, certified)


def _of_theirs(
    own: SweepOptions,
    how: ConductOptions,
    theirs: TrainerOptions,
    axes: Mapping[str, Sequence[str]],
    lists: Mapping[str, Sequence[Any]],
) -> tuple[Sequence[AnyRun], Trainer]:
    """The runs of a trainer of the user's own, and what makes them."""
    lines = ["--certify compares this suite's trainer; leave it out with --trainer"] if own.certify else []
    lines += ["--launch is for this suite's trainer; write the launcher into --trainer"] if how.launch else []
    if lines:
        raise flags.FlagErrors(lines)
    runs = command_plan.plan(theirs, axes, lists, num_gpus=visible_gpus(), num_cores=len(available_cores()))
    return runs, CommandTrainer()


def _sweep(
    runs: Sequence[AnyRun],
    trainer: Trainer,
    own: SweepOptions,
    how: ConductOptions,
    words: Sequence[str],
    certified: Outcome | None = None,
) -> int:
    """Makes the runs round by round, and then the report; returns the exit status.

    Args:
      certified: the verification of each configuration; None: none was asked for.
    """
    out, configurations = Path(own.out), runs
    records: dict[str, RunRecord] = {}
    for rounds in [own.repeats] if own.repeats else range(_begun(runs, out), MOST + 1):
        jobs = [Job(run, out, run.label) for run in interleave(runs, rounds)]
        done = conduct(jobs, out, how, again=["sweep", *words], trainer=trainer)
        if done.exit_status is not None:
            if how.dry_run and done.exit_status == entry.EXIT_OK and rounds < MOST and not own.repeats:
                print(f"and a round more while an efficiency is not known to ±{ENOUGH} %: {MOST} rounds at most")
            return done.exit_status
        records |= done.records
        if rounds in (own.repeats, MOST) or (known := _known_to(records.values())) <= ENOUGH:
            break
        # What failed will fail again.
        runs = [run for run in runs if all(records[label].status == "ok" for label in _labels(run, rounds))]
        if not runs:
            break
        so_far = f"known to ±{known:.0f} % so far" if known < 100 else "hardly known so far"
        print(f"round {rounds + 1} of at most {MOST}: {so_far}, wanted ±{ENOUGH} %", file=sys.stderr)
    done.records = records
    entry.note(*trainer.notes)
    return _report(done, out, configurations, certified, rounds)


def _report(done: Outcome, out: Path, configurations: Sequence[AnyRun], certified: Outcome | None, rounds: int) -> int:
    """Writes the report and says what failed; returns the exit status.

    Args:
      certified: as in `_sweep`.
    """
    try:
        if certified is not None:
            with folder.lock(out):
                certificates.attach(configurations, out, certified.records, rounds)
        from rnn_scaling.reports import writing  # here: what it loads is needed at the end only

        writing.report(out, out)
    except BusyError as e:
        return entry.fail(str(e))
    except entry.Refusal as refusal:
        entry.fail(*refusal.lines)
        done.print_failures()
        return entry.EXIT_FAILED
    except KeyboardInterrupt:
        print(f"\ninterrupted; the records are in {out}", file=sys.stderr)
        return entry.EXIT_INTERRUPTED
    wrong = certified is not None and _print_wrong(certified)
    return entry.EXIT_FAILED if done.print_failures() or wrong else entry.EXIT_OK


def _certified(
    runs: Sequence[Run], out: Path, how: ConductOptions, words: Sequence[str], verifier: Sequence[str]
) -> tuple[Outcome, int | None]:
    """(the verification of each configuration, the exit status of a sweep that must end now)."""
    jobs = certificates.jobs(runs, out)
    print(f"certifying {len(jobs)} configuration{'s' if len(jobs) > 1 else ''}", file=sys.stderr)
    certified = conduct(
        jobs, out / certificates.FOLDER, how, again=["sweep", *words], trainer=SuiteTrainer(verifier, how.launch)
    )
    return certified, None if how.dry_run and certified.exit_status == entry.EXIT_OK else certified.exit_status


def _print_wrong(certified: Outcome) -> bool:
    """Names on stderr each configuration that trains wrong, or that could not be verified; whether there is one."""
    wrong = certified.print_failures()
    for name, result in certified.records.items():
        if result.certificate and not result.certificate.holds:
            wrong = True
            entry.fail(f"{name}: {result.certificate.sentence}")
    return wrong


def _labels(run: AnyRun, rounds: int) -> list[str]:
    return [dataclasses.replace(run, repeat=repeat).label for repeat in range(1, rounds + 1)]


def _begun(runs: Sequence[AnyRun], out: Path) -> int:
    """The round that the folder is at, or FEWEST: a further one that was begun is ended first."""
    further = [run.repeat for run in interleave(runs, MOST) if (out / f"{run.label}.json").exists()]
    return max([FEWEST, *further])


def _known_to(records: Iterable[RunRecord]) -> float:
    """Half the widest interval of an efficiency in points, or of a rate in % if there is none; inf: one is unknown."""
    from rnn_scaling.analysis import machines, metrics, rows  # here: --help does not wait for numpy

    of_machines = machines.by_machine(list(records)).values()
    table = [row for own in of_machines for row in rows.with_baselines(own)]
    efficiencies = [value for row in table if row.num_devices > 1 and (value := row.metric(metrics.EFFICIENCY))]
    rates = [row.rate.scaled(1 / row.rate.value) for row in table if row.rate]
    widths = [each.half_width for each in efficiencies or rates]
    return max((math.inf if width is None else 100 * width for width in widths), default=0.0)
