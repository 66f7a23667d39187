"""Find the cores that this process may use, and bind it to some of them.

`bind_to_cores` changes this process; all other functions only ask.
"""

import os
from collections.abc import Sequence

from rnn_scaling.system.machine.system import read_first_line


def list_available_cores() -> list[int]:
    """Return the numbers of the cores that this process may use."""
    return sorted(os.sched_getaffinity(0))


def share_of_cores(local_size: int) -> int:
    """Return the number of cores per process if `local_size` run on this machine.

    If a launcher bound this process to cores, it has all of them.
    """
    cores = len(list_available_cores())
    return max(1, cores // local_size) if cores == os.cpu_count() else cores


def bind_to_cores(count: int, local_rank: int = 0) -> list[int]:
    """Bind the calling thread, and threads that it starts later, to `list_first_cores`.

    Call it before TensorFlow starts its threads.

    Returns:
      The numbers of the cores.
    """
    cores = list_first_cores(count, local_rank)
    os.sched_setaffinity(0, cores)
    return cores


def list_first_cores(count: int, local_rank: int = 0) -> list[int]:
    """Return `count` of this process's cores, or all if it has fewer.

    Physical cores come first, so that two devices do not get hyper-threads of one core.

    Args:
      count: Number of cores.
      local_rank: Number of the process on this machine. Each of them gets other cores,
        as long as there are enough.
    """

    def sort_key(core: int) -> tuple[int, int]:
        return sum(sibling < core for sibling in _read_siblings(core)), core

    ordered = sorted(list_available_cores(), key=sort_key)
    first = local_rank * count % len(ordered)
    return sorted([*ordered[first:], *ordered[:first]][:count])


def compute_max_efficiency(num_devices: int, cores: int, busy_each: int = 1) -> float:
    """Return the highest efficiency that the number of cores allows; 1 if they suffice.

    Args:
      num_devices: Devices that compute at the same time.
      cores: Number of cores for all devices.
      busy_each: Cores that each device keeps busy.
    """
    return min(1.0, cores / (num_devices * busy_each))


def share_a_core(cores: Sequence[int]) -> bool:
    """Return whether two of the cores are hyper-threads of one physical core."""
    return any(set(_read_siblings(core)) & set(cores) - {core} for core in cores)


def _read_siblings(core: int) -> list[int]:
    """Return all hyper-threads of a core's physical core; empty if unknown."""
    path = f"/sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list"
    text = read_first_line(path) or ""
    siblings: list[int] = []
    for entry in filter(None, text.split(",")):
        first, _, last = entry.partition("-")
        siblings += range(int(first), int(last or first) + 1)
    return siblings
