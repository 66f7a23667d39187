"""Plan the runs of `recommend --threads`: numbers of threads per device count.

`recommend --threads` runs the plan; `analysis.steps.dispatch_threads` reads the runs.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from rnn_scaling.config import flags
from rnn_scaling.config.run_config import OPTIONS, choose_pool_sizes
from rnn_scaling.sweeps.plan import Run, is_read, plan
from rnn_scaling.system.machine.gpus import describe_machine_size

_THREADS = "inter_op_parallelism_threads"
# dynamic_rnn has more operators to dispatch. Without an exchange, towers wait for each
# other only if they have too few threads.
_DEFAULTS = {"encoder_type": ["dynamic_rnn"], "variable_update": ["independent"]}
_MAX_COUNTS = 8
_MAX_DEVICES_WITH_ALL_COUNTS = 4


class ThreadPlan(NamedTuple):
    """The runs that compare numbers of threads.

    Attributes:
      runs: The runs of one round.
      defaults: Number of devices -> the trainer's own number of threads.
    """

    runs: list[Run]
    defaults: dict[int, int]


def plan_threads(lists: Mapping[str, Sequence[Any]]) -> ThreadPlan:
    """Plan one run per configuration and number of threads.

    Args:
      lists: The user's values of each flag of the trainer.

    Raises:
      FlagErrors: For every value that the trainer refuses, and every number of threads
        that cannot be compared.
    """
    user_counts = list(lists.get(_THREADS, []))
    max_count = OPTIONS[_THREADS].metadata["maximum"]
    mistakes = []
    for count in user_counts:
        if not 1 <= count <= max_count:
            mistakes.append(
                f"--{_THREADS}={count} must be 1 to {max_count} to compare numbers of "
                "threads"
            )
    values: dict[str, Sequence[Any]] = {}
    for name, default_values in _DEFAULTS.items():
        if is_read(name, lists):
            values[name] = default_values
    values |= lists
    values.pop(_THREADS, None)
    machine = describe_machine_size()
    try:
        bases = plan(values, **machine)
    except flags.FlagErrors as e:
        raise flags.FlagErrors([*mistakes, *e.lines]) from None
    if mistakes:
        raise flags.FlagErrors(mistakes)

    runs = []
    defaults = {}
    for base in bases:
        num_devices = base.config.devices.num_devices
        default = choose_pool_sizes(base.config, machine["num_cores"])[0]
        defaults[num_devices] = default
        counts = user_counts or list_thread_counts(num_devices, default)
        runs += [_set_threads(base, count) for count in dict.fromkeys(counts)]
    return ThreadPlan(runs, defaults)


def _set_threads(base: Run, num_threads: int) -> Run:
    """Return a run with this number of threads, which its name contains."""
    measure = dataclasses.replace(
        base.config.measure, inter_op_parallelism_threads=num_threads
    )
    return Run(
        f"{base.name}-threads={num_threads}",
        {**base.flags, _THREADS: num_threads},
        dataclasses.replace(base.config, measure=measure),
    )


def list_thread_counts(num_devices: int, default: int) -> list[int]:
    """Return the numbers of threads to try, ascending.

    They are close to the number of devices, and include the trainer's default.
    """
    counts = [
        1,
        num_devices,
        num_devices + 1,
        default,
        2 * num_devices,
        num_devices + 2,
    ]
    if num_devices <= _MAX_DEVICES_WITH_ALL_COUNTS:
        counts += range(2, num_devices)
    else:
        counts += [num_devices // 2, num_devices // 4, num_devices // 8]
    distinct = list(dict.fromkeys(count for count in counts if count >= 1))
    return sorted(distinct[:_MAX_COUNTS])
