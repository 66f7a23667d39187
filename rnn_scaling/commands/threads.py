"""python -m rnn_scaling threads: how many inter-op threads do the towers need before dispatch no longer bounds them?"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rnn_scaling.machine.cores import available_cores
from rnn_scaling.machine.gpus import visible_gpus
from rnn_scaling.records.files import write_bytes, write_text
from rnn_scaling.records.record import RunRecord
from rnn_scaling.settings import flags
from rnn_scaling.settings.config import OPTIONS, option
from rnn_scaling.sweeps.conduct import EXIT_FAILED, EXIT_USAGE, TRAINER, ConductOptions, conduct
from rnn_scaling.sweeps.folder import Job
from rnn_scaling.sweeps.plan import Run, interleave, plan
from rnn_scaling.sweeps.traced import split

USAGE = """\
python -m rnn_scaling threads [--num_devices=N,N,...] [--out=DIR] [--repeats=N] [--name=value ...]
(or ./run.sh threads)

From how many inter-op threads on is dispatch no longer the bound? TensorFlow hands operators to these threads; with too
few of them towers wait for each other's dispatch and devices starve. Trains with several numbers of threads on each
number of devices N, in turns, and compares words/s; a trace says how many towers compute at once. What is not given:

    --inter_op_parallelism_threads=1,...,N,N+1,N+2,2N and the trainer's own choice; 8 numbers at most
    --num_devices=1,2,...    the GPUs, or as many CPU devices as there are cores; 1,2,4,... above 8
    --encoder_type=dynamic_rnn         it has more to dispatch
    --variable_update=independent      no exchange in the way

    python -m rnn_scaling threads --num_devices=4
    python -m rnn_scaling threads --num_devices=1,2 --encoder_type=cudnn_lstm,dynamic_rnn --repeats=5
    python -m rnn_scaling threads --device=gpu --num_devices=0 --inter_op_parallelism_threads=1,2,4,8,16,64

Prints the table and, for each number of devices, the smallest number of threads that cannot be told from the fastest,
and where the trainer's default lies; --out gets the records, threads.md, threads.json and threads.png. docs/threads.md
says what the columns are. Every run is a process of its own, bound to its cores; the same command goes on where it
stopped.

Exit status: 0 measured, 1 a run failed or the folder cannot be written, 2 the flags conflict, the folder is in use or
holds records of other flags, 130 interrupted."""

DEFAULTS = {"encoder_type": ["dynamic_rnn"], "variable_update": ["independent"]}
THREADS = "inter_op_parallelism_threads"


@dataclasses.dataclass(frozen=True)
class ThreadsOptions:
    """Threads."""

    out: str = option("results/threads", "folder of the records, threads.md, threads.json and threads.png")
    repeats: int = option(3, "runs of each number of threads; one alone cannot tell", minimum=1)
    trace_batches: int = option(5, "batches that are traced after the measured ones", minimum=1)


def main(argv: Sequence[str] | None = None, trainer: Sequence[str] = TRAINER) -> int:
    """Sweeps the threads and says what they bound; returns the exit status.

    Args:
      argv: the command line; that of the process if None.
      trainer: the command that runs one configuration.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    if flags.wants_help(words):
        print(flags.help_text(USAGE, {"threads": ThreadsOptions, "conduct": ConductOptions}))
        return 0
    try:
        (own, how), lists = split(words, (ThreadsOptions, ConductOptions))
        runs, defaults = plan_threads(lists)
    except flags.FlagErrors as e:
        for line in e.lines:
            print(f"error: {line}", file=sys.stderr)
        return EXIT_USAGE
    out = Path(own.out)
    jobs = [Job(run, out, run.label) for run in interleave(runs, own.repeats)]
    done = conduct(jobs, out, how, again=["python", "-m", "rnn_scaling", "threads", *words], trainer=trainer)
    if done.exit_status is not None:
        return done.exit_status
    failed = done.print_failures()
    told = _tell(out, [done.records[job.label] for job in jobs], defaults)
    return EXIT_FAILED if failed or not told else 0


def plan_threads(lists: Mapping[str, Sequence[Any]]) -> tuple[list[Run], dict[int, int]]:
    """Values of trainer flags -> (the runs of one round, number of devices -> the trainer's own number of threads).

    Raises:
      FlagErrors: naming every conflict of any combination, once.
    """
    given = list(lists.get(THREADS, []))
    most = OPTIONS[THREADS].metadata["maximum"]
    wrong = [
        f"--{THREADS}={number} must be from 1 to {most} here: numbers of threads are compared"
        for number in given
        if not 1 <= number <= most
    ]
    num_gpus, num_cores = visible_gpus(), len(available_cores())
    others = {**DEFAULTS, **{name: values for name, values in lists.items() if name != THREADS}}
    try:
        bases = plan(others, num_gpus=num_gpus, num_cores=num_cores)
    except flags.FlagErrors as e:
        raise flags.FlagErrors([*wrong, *e.lines]) from None
    if wrong:
        raise flags.FlagErrors(wrong)
    from rnn_scaling.analysis.steps.dispatch_threads import thread_counts
    from rnn_scaling.settings.thread_pools import pool_sizes

    runs, defaults = [], {}
    for base in bases:
        devices = base.config.devices.num_devices
        defaults[devices] = pool_sizes(base.config, num_cores)[0]
        for number in dict.fromkeys(given or thread_counts(devices, defaults[devices])):
            measure = dataclasses.replace(base.config.measure, inter_op_parallelism_threads=number)
            config = dataclasses.replace(base.config, measure=measure)
            name = f"{base.name}-threads={number}"
            runs.append(Run(name, {**base.flags, THREADS: number}, config))
    return runs, defaults


def _tell(out: Path, records: Sequence[RunRecord], defaults: Mapping[int, int]) -> bool:
    """Prints and writes what the records say; returns whether there is anything to say and it was written."""
    from rnn_scaling.analysis.steps import dispatch_threads
    from rnn_scaling.reports import threads_table

    found = dispatch_threads.probes(records, defaults)
    print(threads_table.summary(found), end="", flush=True)
    if all(probe.best is None for probe in found):
        print("error: no run measured anything", file=sys.stderr)
        return False
    try:
        write_text(threads_table.markdown(found), out / "threads.md")
        write_text(threads_table.to_json(found), out / "threads.json")
        write_bytes(threads_table.picture(found), out / "threads.png")
    except OSError as e:
        print(f"error: --out={out}: {e.strerror or e}", file=sys.stderr)
        return False
    print(f"\nwrote {out / 'threads.md'}, threads.json and threads.png", file=sys.stderr)
    return True
