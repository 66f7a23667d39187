"""Numbers of inter-op threads -> the runs that compare them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from rnn_scaling.machine.cores import available_cores
from rnn_scaling.machine.gpus import visible_gpus
from rnn_scaling.settings import flags
from rnn_scaling.settings.config import OPTIONS
from rnn_scaling.settings.thread_pools import pool_sizes
from rnn_scaling.sweeps.plan import Run, is_read, plan

DEFAULTS = {"encoder_type": ["dynamic_rnn"], "variable_update": ["independent"]}
THREADS = "inter_op_parallelism_threads"
MOST_COUNTS = 8


def plan_threads(lists: Mapping[str, Sequence[Any]]) -> tuple[list[Run], dict[int, int]]:
    """Values of trainer flags -> (the runs of one round, number of devices -> the trainer's own number of threads).

    Raises:
      FlagErrors: naming every conflict of any combination, once.
    """
    given = list(lists.get(THREADS, []))
    most = OPTIONS[THREADS].metadata["maximum"]
    wrong = [
        f"--{THREADS}={number} must be 1 to {most} to compare numbers of threads"
        for number in given
        if not 1 <= number <= most
    ]
    num_gpus, num_cores = visible_gpus(), len(available_cores())
    read = {name: values for name, values in DEFAULTS.items() if is_read(name, lists)}
    others = {**read, **{name: values for name, values in lists.items() if name != THREADS}}
    try:
        bases = plan(others, num_gpus=num_gpus, num_cores=num_cores)
    except flags.FlagErrors as e:
        raise flags.FlagErrors([*wrong, *e.lines]) from None
    if wrong:
        raise flags.FlagErrors(wrong)
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


def thread_counts(num_devices: int, default: int) -> list[int]:
    """Numbers of threads to try, ascending: near the number of devices, and the trainer's default."""
    wanted = [1, num_devices, num_devices + 1, default, 2 * num_devices, num_devices + 2]
    # Below the number of devices: all if they are few, otherwise halves.
    wanted += (
        list(range(2, num_devices)) if num_devices <= 4 else [num_devices // 2, num_devices // 4, num_devices // 8]
    )
    return sorted(list(dict.fromkeys(n for n in wanted if n >= 1))[:MOST_COUNTS])
