"""Find which rows did the same work, so that they may be ranked.

Only `reports.summary` asks.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from rnn_scaling.analysis.comparison.differences import WORK_OPTIONS
from rnn_scaling.analysis.rows import Row
from rnn_scaling.config import naming, scale
from rnn_scaling.config.naming import HOW_RUN, TRAINER, find_recorded_work
from rnn_scaling.records.options import DEFAULTS

# Options of the amount of work, which are compared separately.
_SIZES = ("model", "batch_size", "global_batch_size", *scale.AXES)


def describe_work(rows: Sequence[Row]) -> list[tuple[str, ...]]:
    """Describe the work of each row, if the rows are of several trainers.

    Rows of several trainers are ranked only if their descriptions are equal. They have
    the samples per step, and each option that may change the work, that all rows
    record, and whose values differ.

    Returns:
      Empty descriptions for rows of one trainer, which are always ranked.
    """
    trainers = [row.options.get(TRAINER) for row in rows]
    if len(set(trainers)) < 2:
        return [()] * len(rows)
    known_options = [row.options.known for row in rows]
    works = [options for options in known_options if find_recorded_work(options)]
    recorded = set.intersection(*map(set, works)) if works else set()
    candidates = filter(_may_change_work, sorted(recorded))
    differing = naming.find_distinguishing(list(candidates), works)
    descriptions = []
    for options, trainer in zip(known_options, trainers):
        if find_recorded_work(options):
            descriptions.append(_describe_settings(options, differing))
        else:
            descriptions.append((f"{trainer}, whose batch size is not known",))
    return descriptions


def _describe_settings(
    options: Mapping[str, Any], names: Sequence[str]
) -> tuple[str, ...]:
    """Return NAME=VALUE of the batch size and of these options."""
    size = "global_batch_size" if options.get("global_batch_size") else "batch_size"
    return tuple(f"{name}={options[name]}" for name in (size, *names))


def _may_change_work(name: str) -> bool:
    """Return whether an option may change the work.

    Options of a user's program may, unless they only start a run and read its output.
    """
    if name in _SIZES or name == TRAINER or name in HOW_RUN:
        return False
    return name in WORK_OPTIONS or name not in DEFAULTS
