"""What parts the points of a table into series: a setting, a batch size that the same devices were measured with."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from rnn_scaling.audit.scaling_table import ScalingRow

_SETTINGS = 64  # columns that are tried as the one setting


def by_setting(rows: Sequence[ScalingRow]) -> Sequence[ScalingRow]:
    """Puts a numeric setting into the series (sequence length) where only it tells points of the same devices apart."""
    seen: dict[tuple[str, int | None], int] = {}
    for row in rows:
        seen[row.series, row.devices] = seen.get((row.series, row.devices), 0) + 1
    repeated = {series for (series, devices), count in seen.items() if count > 1 and devices}
    if not repeated:
        return rows
    for column in list(dict.fromkeys(name for row in rows[:100] for name in row.extra))[:_SETTINGS]:
        keys = [(r.series, r.devices, r.extra[column].text if column in r.extra else "") for r in rows]
        few = len({key[2] for key in keys}) <= max(2, len(rows) // 2)
        if few and len(set(keys)) == len(rows):
            return [
                dataclasses.replace(row, series=" / ".join(filter(None, [row.series, f"{column} {key[2]}"])))
                if row.series in repeated
                else row
                for row, key in zip(rows, keys)
            ]
    return rows


def by_batch(rows: Sequence[ScalingRow]) -> Sequence[ScalingRow]:
    """Puts the batch size into the series where the same devices were measured with several."""
    sizes: dict[tuple[str, int], set[float]] = {}
    for row in rows:
        if row.devices and row.batch_size:
            sizes.setdefault((row.series, row.devices), set()).add(row.batch_size.value)
    several = {series for (series, _), values in sizes.items() if len(values) > 1}
    if not several:
        return rows
    return [
        dataclasses.replace(row, series=" / ".join(filter(None, [row.series, f"batch {row.batch_size.text}"])))
        if row.series in several and row.batch_size
        else row
        for row in rows
    ]
