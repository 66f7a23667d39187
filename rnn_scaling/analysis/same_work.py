"""Which runs of several programs do the same work, as far as they tell: only these are ranked against each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rnn_scaling.analysis.comparison.differences import WORK_OPTIONS
from rnn_scaling.analysis.rows import Row
from rnn_scaling.settings import config as configs
from rnn_scaling.settings import scale
from rnn_scaling.settings.naming import HOW_RUN, TRAINER, told_work

SIZES = ("model", "batch_size", "global_batch_size", *scale.AXES)  # judged by themselves


def of_each(rows: Sequence[Row]) -> list[tuple[str, ...]]:
    """What tells the work of each row, in words; rows with the same words do the same work.

    Where one trainer made all rows of a workload, nothing does: what they differ in is what was tried. Where several
    did, the samples a step do, and every option that all of these trainers tell, not always alike, and that may change
    the work.
    """
    if len({row.config.get(TRAINER) for row in rows}) < 2:
        return [()] * len(rows)
    known = [row for row in rows if told_work(row.known)]
    tellers: dict[Any, set[str]] = {}
    for row in known:
        trainer = row.config.get(TRAINER)
        tellers[trainer] = tellers.get(trainer, set(row.known)) & set(row.known)
    common = set.intersection(*tellers.values()) if tellers else set()
    shared = sorted(name for name in common if _may_change_work(name) and len({row.known[name] for row in known}) > 1)
    return [_words(row.known, shared) if told_work(row.known) else (_unknown(row),) for row in rows]


def _words(options: Mapping[str, Any], shared: Sequence[str]) -> tuple[str, ...]:
    size = "global_batch_size" if options.get("global_batch_size") else "batch_size"
    return tuple(f"{name}={options[name]}" for name in (size, *shared))


def _unknown(row: Row) -> str:
    return f"{row.config[TRAINER]}, whose batch size is not known"


def _may_change_work(name: str) -> bool:
    """Of options that are none of ours nobody here knows it, unless they say how a run is made and read."""
    if name in SIZES or name == TRAINER or name in HOW_RUN:
        return False
    return name in WORK_OPTIONS or name not in configs.OPTIONS
