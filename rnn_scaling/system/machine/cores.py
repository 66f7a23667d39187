"""The cores of this process: how many, which, and binding to them."""

import os
from collections.abc import Sequence

from rnn_scaling.system.machine.system import read_first_line


def available_cores() -> list[int]:
    return sorted(os.sched_getaffinity(0))


def share_of_cores(local_size: int) -> int:
    """How many cores there are for each of so many processes on this machine: those that its launcher gave it alone,
    or its part where it gave none.
    """
    cores = len(available_cores())
    return max(1, cores // local_size) if cores == os.cpu_count() else cores


def bind_to_cores(count: int, local_rank: int = 0) -> list[int]:
    cores = first_cores(count, local_rank)
    os.sched_setaffinity(0, cores)
    return cores


def first_cores(count: int, local_rank: int = 0) -> list[int]:
    """`count` of this process's cores, or all when it has fewer.

    Physical cores come first: two hyper-threads of one core are no two devices' cores.
    """
    ordered = sorted(
        available_cores(),
        key=lambda core: (sum(other < core for other in _siblings(core)), core),
    )
    first = local_rank * count % len(ordered)
    return sorted([*ordered[first:], *ordered[:first]][:count])


def most_of_ideal(num_devices: int, cores: int, busy_each: int = 1) -> float:
    """The share of n times one device that n devices on so many cores can reach, at most; 1 where there are enough."""
    return min(1.0, cores / (num_devices * busy_each))


def share_a_core(cores: Sequence[int]) -> bool:
    """True if two of the cores are hyper-threads of one physical core."""
    return any(set(_siblings(core)) & set(cores) - {core} for core in cores)


def _siblings(core: int) -> list[int]:
    """The hyper-threads of a core's physical core, itself included; empty where the system does not tell."""
    text = (
        read_first_line(
            f"/sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list"
        )
        or ""
    )
    siblings: list[int] = []
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        siblings += range(int(first), int(last or first) + 1)
    return siblings
