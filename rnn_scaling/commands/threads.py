"""python -m rnn_scaling threads: how many inter-op threads do the towers need before dispatch no longer bounds them?"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from rnn_scaling import entry
from rnn_scaling.models.config import option
from rnn_scaling.settings import flags, sweep_options
from rnn_scaling.settings.config import OPTIONS
from rnn_scaling.sweeps.conduct import ConductOptions, conduct
from rnn_scaling.sweeps.folder import Job
from rnn_scaling.sweeps.plan import interleave
from rnn_scaling.sweeps.ranks import TRAINER
from rnn_scaling.sweeps.suite_trainer import SuiteTrainer
from rnn_scaling.sweeps.threads_plan import plan_threads

USAGE = """\
How many inter-op threads does a run need before dispatch no longer limits it? TensorFlow hands operators to these
threads; with too few, towers wait for each other's dispatch and devices starve. Trains with several numbers of threads
on each number of devices N, in turns, and compares words/s. A trace shows how many towers compute at once. Defaults:

    --inter_op_parallelism_threads=1,...,N,N+1,N+2,2N and the trainer's own choice; 8 numbers at most
    --num_devices=1,2,...    the GPUs, or one CPU device per core; 1,2,4,... above 8
    --encoder_type=dynamic_rnn         it has more to dispatch
    --variable_update=independent      no exchange in the way

    ./run.sh threads --num_devices=4
    ./run.sh threads --num_devices=1,2 --encoder_type=cudnn_lstm,dynamic_rnn --repeats=5
    ./run.sh threads --device=gpu --num_devices=0 --inter_op_parallelism_threads=1,2,4,8,16,64

Prints a table and, for each number of devices, the smallest number of threads that is within the noise of the fastest,
and the trainer's default. The records, threads.md, threads.json and threads.png go to --out. docs/threads.md explains
the columns. Every run is a process, bound to its cores. The same command continues where it stopped.

Exit status: 0 measured, 1 a run failed or the folder cannot be written, 2 the flags conflict, the folder is in use or
holds records of other flags, 130 interrupted."""


@dataclasses.dataclass(frozen=True)
class ThreadsOptions:
    """Threads."""

    out: str = option("results/threads", "folder of the records, threads.md, threads.json and threads.png")
    repeats: int = option(3, "runs of each number of threads; one run alone is not enough to compare", minimum=1)
    trace_batches: int = option(
        5,
        "batches that are traced after the measured ones",
        minimum=1,
        maximum=OPTIONS["trace_batches"].metadata["maximum"],
    )


@entry.command
def main(words: Sequence[str], trainer: Sequence[str] = TRAINER) -> int:
    """Sweeps the threads and says what they bound; returns the exit status."""
    groups = [ThreadsOptions, ConductOptions]
    flags.answer(words, USAGE, groups, "threads")
    (own, how), lists = sweep_options.split(words, groups)
    runs, defaults = plan_threads(lists)
    out = Path(own.out)
    jobs = [Job(run, out, run.label) for run in interleave(runs, own.repeats)]
    done = conduct(jobs, out, how, again=["threads", *words], trainer=SuiteTrainer(trainer, how.launch))
    if done.exit_status is not None:
        return done.exit_status
    from rnn_scaling.reports import threads_report  # loads numpy and matplotlib, which a wrong flag need not wait for

    failed = done.print_failures()
    whole = threads_report.report(out, [done.records[job.label] for job in jobs], defaults)
    return entry.EXIT_OK if whole and not failed else entry.EXIT_FAILED
