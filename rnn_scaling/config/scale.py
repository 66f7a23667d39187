"""Find the size of a configuration, and the option that grows along its series.

Rows, plans and reports ask here for the number of devices.
"""

from collections.abc import Mapping
from typing import Any

from rnn_scaling.config import registry

AXES = ("num_devices", "num_workers")
# Changes to a configuration that give its baseline.
ON_ONE_DEVICE = dict.fromkeys(AXES, 1)


def find_axis(config: Mapping[str, Any]) -> str:
    """Return the option in which the configurations of a series differ."""
    mode = registry.find_mode(config.get("variable_update"))
    return "num_workers" if mode.is_distributed else "num_devices"


def count_workers(config: Mapping[str, Any]) -> int:
    """Return the number of worker processes; 1 if the mode has only one process."""
    mode = registry.find_mode(config.get("variable_update"))
    return config.get("num_workers", 1) if mode.is_distributed else 1


def count_devices(config: Mapping[str, Any]) -> int:
    """Return the devices of all workers."""
    return config["num_devices"] * count_workers(config)


def describe(workers: int, devices_per_worker: int) -> str:
    """Return "2 devices", or "4 workers of one device each"."""
    plural = "" if devices_per_worker == 1 else "s"
    if workers == 1:
        return f"{devices_per_worker} device{plural}"
    count = "one" if devices_per_worker == 1 else devices_per_worker
    return f"{workers} workers of {count} device{plural} each"
