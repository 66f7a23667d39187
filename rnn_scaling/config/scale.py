"""How large a configuration is, and which option grows along a series: devices of one process, or workers."""

from collections.abc import Mapping
from typing import Any

from rnn_scaling.config import registry

AXES = ("num_devices", "num_workers")
ON_ONE_DEVICE = dict.fromkeys(
    AXES, 1
)  # the changes that make a configuration its own baseline


def axis(config: Mapping[str, Any]) -> str:
    """The option in which the rows of a series differ: the workers of a distributed mode, else the devices."""
    return (
        "num_workers"
        if registry.mode_of(config.get("variable_update")).is_distributed
        else "num_devices"
    )


def num_workers(config: Mapping[str, Any]) -> int:
    """Worker processes; 1 in a mode of one process, whatever the option says."""
    return (
        config.get("num_workers", 1)
        if registry.mode_of(config.get("variable_update")).is_distributed
        else 1
    )


def num_devices(config: Mapping[str, Any]) -> int:
    """Devices of all workers."""
    return config["num_devices"] * num_workers(config)


def in_words(workers: int, devices_each: int) -> str:
    """ "2 devices", "4 workers of one device each"."""
    if workers == 1:
        return f"{devices_each} device{'' if devices_each == 1 else 's'}"
    return f"{workers} workers of {'one device' if devices_each == 1 else f'{devices_each} devices'} each"
