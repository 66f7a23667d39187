"""Warn before a sweep starts if cores are too few, or if other processes use them.

Trainers call these checks before their first run.
"""

import time
from collections.abc import Callable, Sequence

from rnn_scaling.config.run_config import RunConfig
from rnn_scaling.system.machine.cores import (
    compute_max_efficiency,
    list_available_cores,
)
from rnn_scaling.system.machine.load import NOTICEABLE_LOAD, LoadMeter

WATCHED_S = 0.3  # how long the load is measured


def check_cores(configs: Sequence[RunConfig], num_cores: int) -> list[str]:
    """Return a line for each kind of run that needs more cores than exist."""
    lines = []
    for config in configs:
        devices = config.devices
        if devices.device != "cpu":
            continue
        flag = f"--num_devices={devices.num_devices}"
        if config.cluster.num_workers > 1:
            flag = f"--num_workers={config.cluster.num_workers}, {flag}"
        lines += check_device_cores(
            flag, config.num_towers, devices.cpu_cores_per_device, num_cores
        )
        num_threads = config.measure.intra_op_parallelism_threads
        if num_threads > num_cores:
            lines.append(
                f"--intra_op_parallelism_threads={num_threads} exceeds the "
                f"number of cores of this machine ({num_cores}): threads wait "
                "for cores"
            )
    return list(dict.fromkeys(lines))


def check_device_cores(
    flag: str, num_devices: int, cores_per_device: int, num_cores: int
) -> list[str]:
    """Return a line if devices need more cores than exist, or nothing.

    Args:
      flag: The flag that chooses the number of devices.
      num_devices: Devices of the run on this machine.
      cores_per_device: Cores that each device uses.
      num_cores: Cores that exist.
    """
    needed_cores = num_devices * cores_per_device
    if needed_cores <= num_cores:
        return []
    if num_devices == 1:
        return [
            f"--cpu_cores_per_device={cores_per_device} exceeds the number of "
            f"cores of this machine ({num_cores}): the device gets only these"
        ]
    share = compute_max_efficiency(
        num_devices, num_cores, min(cores_per_device, num_cores)
    )
    return [
        f"{flag} needs {needed_cores} cores but this machine has {num_cores}: if each "
        f"device uses its cores fully, efficiency is at most {100 * share:.0f} % and "
        f"runs take {1 / share:.3g} times as long"
    ]


def check_load(
    cores: Sequence[int] | None = None,
    sleep: Callable[[float], None] = time.sleep,
    meter: Callable[[Sequence[int]], LoadMeter] = LoadMeter,
) -> list[str]:
    """Return a line if other processes use the cores now, or nothing.

    Args:
      cores: The cores to watch; None for all cores of this process.
      sleep: Waits for a number of seconds.
      meter: Makes the meter of some cores.
    """
    if cores is None:
        cores = list_available_cores()
    started_meter = meter(cores)
    sleep(WATCHED_S)
    load = started_meter.read()
    if load is None or load.others + load.steal <= NOTICEABLE_LOAD:
        return []
    return [
        f"other processes use {load.others + load.steal:.0%} of the cores "
        f"({len(cores)}): expect lower rates and wider intervals; stop these "
        "processes first"
    ]
