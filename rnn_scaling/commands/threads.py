"""python -m rnn_scaling threads: how many inter-op threads do the towers need before dispatch no longer bounds them?"""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rnn_scaling import entry
from rnn_scaling.machine.gpus import machine_size
from rnn_scaling.models.config import option
from rnn_scaling.settings import flags
from rnn_scaling.settings.config import OPTIONS, pool_sizes
from rnn_scaling.sweeps.conduct import ConductOptions, conduct_sweep
from rnn_scaling.sweeps.plan import Run, is_read, plan, split
from rnn_scaling.sweeps.ranks import TRAINER
from rnn_scaling.sweeps.suite_trainer import SuiteTrainer

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
and the trainer's default. The records, threads.md and threads.json go to --out; ./run.sh report draws them.
docs/threads.md explains the columns. Every run is a process, bound to its cores. The same command continues where it
stopped.

Exit status: 0 measured, 1 a run failed or the folder cannot be written, 2 the flags conflict, the folder is in use or
holds records of other flags, 130 interrupted."""

DEFAULTS = {"encoder_type": ["dynamic_rnn"], "variable_update": ["independent"]}
THREADS = "inter_op_parallelism_threads"
MOST_COUNTS = 8
MOST_TRACED = OPTIONS["trace_batches"].metadata["maximum"]


@dataclasses.dataclass(frozen=True)
class ThreadsOptions:
    """Threads."""

    out: str = option(
        "results/threads", "folder of the records, threads.md and threads.json"
    )
    repeats: int = option(
        3,
        "runs of each number of threads; one run alone is not enough to compare",
        minimum=1,
    )
    trace_batches: int = option(
        5,
        "batches that are traced after the measured ones",
        minimum=1,
        maximum=MOST_TRACED,
    )


@entry.command
def main(words: Sequence[str], trainer: Sequence[str] = TRAINER) -> int:
    groups = [ThreadsOptions, ConductOptions]
    flags.answer(words, USAGE, groups, "threads")
    (options, how), lists = split(words, groups)
    runs, defaults = plan_threads(lists)
    out, runner = Path(options.out), SuiteTrainer(trainer, how.launch)
    done = conduct_sweep(
        runs, options.repeats, out, how, again=["threads", *words], trainer=runner
    )
    if done.exit_status is not None:
        return done.exit_status
    from rnn_scaling.reports import (
        threads_report,
    )  # loads numpy, which a wrong flag need not wait for

    failed = done.print_failures()
    whole = threads_report.report(out, list(done.records.values()), defaults)
    return entry.EXIT_OK if whole and not failed else entry.EXIT_FAILED


def plan_threads(
    lists: Mapping[str, Sequence[Any]],
) -> tuple[list[Run], dict[int, int]]:
    """Values of trainer flags -> (the runs of one round, number of devices -> the trainer's own number of threads)."""
    given = list(lists.get(THREADS, []))
    most = OPTIONS[THREADS].metadata["maximum"]
    outside = [number for number in given if not 1 <= number <= most]
    wrong = [
        f"--{THREADS}={number} must be 1 to {most} to compare numbers of threads"
        for number in outside
    ]
    machine = machine_size()
    read = {name: values for name, values in DEFAULTS.items() if is_read(name, lists)}
    others = {
        **read,
        **{name: values for name, values in lists.items() if name != THREADS},
    }
    try:
        bases = plan(others, **machine)
    except flags.FlagErrors as e:
        raise flags.FlagErrors([*wrong, *e.lines]) from None
    if wrong:
        raise flags.FlagErrors(wrong)
    runs, defaults = [], {}
    for base in bases:
        devices = base.config.devices.num_devices
        defaults[devices] = pool_sizes(base.config, machine["num_cores"])[0]
        for number in dict.fromkeys(given or thread_counts(devices, defaults[devices])):
            measure = dataclasses.replace(
                base.config.measure, inter_op_parallelism_threads=number
            )
            config = dataclasses.replace(base.config, measure=measure)
            name = f"{base.name}-threads={number}"
            runs.append(Run(name, {**base.flags, THREADS: number}, config))
    return runs, defaults


def thread_counts(num_devices: int, default: int) -> list[int]:
    """Numbers of threads to try, ascending: near the number of devices, and the trainer's default."""
    wanted = [
        1,
        num_devices,
        num_devices + 1,
        default,
        2 * num_devices,
        num_devices + 2,
    ]
    # Below the number of devices: all if they are few, otherwise halves.
    wanted += (
        list(range(2, num_devices))
        if num_devices <= 4
        else [num_devices // 2, num_devices // 4, num_devices // 8]
    )
    return sorted(list(dict.fromkeys(n for n in wanted if n >= 1))[:MOST_COUNTS])
