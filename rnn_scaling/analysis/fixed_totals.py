"""Strong scaling of programs that are not ours: their records have the samples of one device, whatever was constant."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

Size = tuple[int, int]  # devices, samples of all of them a step
Run = tuple[Hashable, Size]  # what runs of a group have in common


def fixed_totals(runs: Sequence[Run | None]) -> list[int | None]:
    """The total that a run shares with runs on other numbers of devices; None where it scales weakly, or alone.

    A group scales strongly where more of its sizes share a total than share the samples of a device.

    >>> fixed_totals([("a", (1, 64)), ("a", (2, 64)), ("b", (1, 64)), ("b", (2, 128)), None])
    [64, 64, None, None, None]
    """
    groups: dict[Hashable, set[Size]] = {}
    for group, size in filter(None, runs):
        groups.setdefault(group, set()).add(size)
    strong = {group: _shared(sizes, lambda size: size[1]) for group, sizes in groups.items()}
    weak = {group: _shared(sizes, lambda size: size[1] / size[0]) for group, sizes in groups.items()}
    fixed = {(group, size) for group in groups if len(strong[group]) > len(weak[group]) for size in strong[group]}
    return [run[1][1] if run in fixed else None for run in runs]


def with_total(config: dict[str, Any], total: int | None) -> dict[str, Any]:
    """The options of a run that shares this total."""
    return {**config, "global_batch_size": total} if total else config


def _shared(sizes: set[Size], constant: Callable[[Size], float]) -> list[Size]:
    """The sizes whose constant another number of devices has, too."""
    devices: dict[float, set[int]] = {}
    for size in sizes:
        devices.setdefault(constant(size), set()).add(size[0])
    return [size for size in sizes if len(devices[constant(size)]) > 1]
