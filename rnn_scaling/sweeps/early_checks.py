"""Warnings before a sweep starts: devices beyond the cores, and load of other processes."""

import time
from collections.abc import Callable, Sequence

from rnn_scaling.config.run_config import RunConfig
from rnn_scaling.system.machine.cores import available_cores, most_of_ideal
from rnn_scaling.system.machine.load import NOTICEABLE, LoadMeter

WATCHED_S = 0.3  # how long the load is measured


def crowding(configs: Sequence[RunConfig], num_cores: int) -> list[str]:
    """A line for each kind of run that needs more cores, or has more threads, than there are cores."""
    lines = []
    for config in configs:
        devices, threads = config.devices, config.measure.intra_op_parallelism_threads
        if devices.device != "cpu":
            continue
        workers = (
            f"--num_workers={config.cluster.num_workers}, "
            if config.cluster.num_workers > 1
            else ""
        )
        flag = f"{workers}--num_devices={devices.num_devices}"
        lines += crowded(
            flag, config.num_towers, devices.cpu_cores_per_device, num_cores
        )
        if threads > num_cores:
            lines.append(
                f"--intra_op_parallelism_threads={threads} is more than the {num_cores} cores: threads wait"
            )
    return list(dict.fromkeys(lines))


def crowded(flag: str, count: int, cores_per_device: int, num_cores: int) -> list[str]:
    """A line if `count` devices need more cores than there are."""
    if count == 1 and cores_per_device > num_cores:
        return [
            f"--cpu_cores_per_device={cores_per_device}: a device gets only the {num_cores} cores of this machine"
        ]
    if count == 1 or count * cores_per_device <= num_cores:
        return []
    most = most_of_ideal(count, num_cores, min(cores_per_device, num_cores))
    return [
        f"{flag} needs {count * cores_per_device} cores but this machine has {num_cores}: if "
        f"each device uses its cores fully, efficiency is at most {100 * most:.0f} % and runs take "
        f"{1 / most:.3g} times as long"
    ]


def load_now(
    cores: Sequence[int] | None = None,
    sleep: Callable[[float], None] = time.sleep,
    meter: Callable[[Sequence[int]], LoadMeter] = LoadMeter,
) -> list[str]:
    """A line if other processes use the cores now; `cores`: to watch; this process's when not given."""
    cores = available_cores() if cores is None else cores
    watched = meter(cores)
    sleep(WATCHED_S)
    load = watched.read()
    if load is None or load.others + load.steal <= NOTICEABLE:
        return []
    return [
        f"other processes use {load.others + load.steal:.0%} of the {len(cores)} cores: expect lower rates and wider "
        "intervals; stop them first"
    ]
