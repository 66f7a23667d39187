"""What will lie in a sweep's numbers, said before it starts: devices beyond the cores, and load of other processes."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from rnn_scaling.machine.cores import available_cores, most_of_ideal
from rnn_scaling.machine.load import NOTICEABLE, LoadMeter
from rnn_scaling.settings.config import RunConfig

WATCHED_S = 0.3  # of the cores before a sweep


def before(configs: Sequence[RunConfig], dry_run: bool, elsewhere: bool = False) -> list[str]:
    """What to warn of before runs."""
    if elsewhere:
        return []
    load = None if dry_run else load_now()
    return [*crowding(configs, len(available_cores())), *([load] if load else [])]


def crowding(configs: Sequence[RunConfig], num_cores: int) -> list[str]:
    """A line for each kind of run that wants more cores, or more threads, than there are; each once."""
    lines = []
    for config in configs:
        devices, threads = config.devices, config.measure.intra_op_parallelism_threads
        count, each = config.num_towers, devices.cpu_cores_per_device
        workers = f"--num_workers={config.cluster.num_workers}, " if config.cluster.num_workers > 1 else ""
        if devices.device != "cpu":
            continue
        lines += crowded(f"{workers}--num_devices={devices.num_devices}", count, each, num_cores)
        if threads > num_cores:
            rule = f"more threads than the {num_cores} cores: they wait for each other"
            lines.append(f"--intra_op_parallelism_threads={threads}: {rule}")
    return list(dict.fromkeys(lines))


def crowded(flag: str, count: int, each: int, num_cores: int) -> list[str]:
    """What to say of devices that want more cores than there are, if they do."""
    if count == 1 and each > num_cores:
        return [f"--cpu_cores_per_device={each}: there are {num_cores}, so that a device has no more"]
    if count == 1 or count * each <= num_cores:
        return []
    busy = min(each, num_cores)
    most = most_of_ideal(count, num_cores, busy)
    return [
        f"{flag}: devices share cores, for they want {count * each} of {num_cores}: at most {100 * most:.0f} % of the "
        f"ideal can be reached, and a run takes at least {1 / most:.3g} times as long, if one device keeps "
        f"{'its core' if busy == 1 else f'{busy} cores'} busy"
    ]


def load_now(
    cores: Sequence[int] | None = None,
    sleep: Callable[[float], None] = time.sleep,
    meter: Callable[[Sequence[int]], LoadMeter] = LoadMeter,
) -> str | None:
    """What to say of others that use cores now; None where nobody does.

    Args:
      cores: that are watched; this process's when not given.
      sleep: waits for so many seconds.
    """
    cores = available_cores() if cores is None else cores
    watched = meter(cores)
    sleep(WATCHED_S)
    load = watched.read()
    if load is None or load.others + load.steal <= NOTICEABLE:
        return None
    return (
        f"other processes use {load.others + load.steal:.0%} of the {len(cores)} cores now: rates will be lower by "
        "about as much, and repeats will differ; end these processes first"
    )
