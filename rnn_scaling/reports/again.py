"""The commands that measure something anew, in a folder of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rnn_scaling import registry
from rnn_scaling.reports.summary import AGAIN, SeriesSummary
from rnn_scaling.settings.spelling import command

INDEPENDENT, DEVICE = "independent", "device"  # what the parts of a loss are measured against


def commands(series: SeriesSummary) -> list[str]:
    """The sweeps that measure a series anew, with the runs that the parts of its loss need.

    A sweep leaves out what one of its configurations does not read, and one that is named twice runs once.
    """
    last = series.rows[-1].row
    counts = [row.row.num_devices for row in series.rows]
    if series.largest is None or series.largest.loss is None:
        return [_sweep(series, num_devices=_listed(counts))]
    against: dict[str, Any] = {}
    if registry.trains_one_model(last.config["variable_update"]):
        against["variable_update"] = _listed([INDEPENDENT, last.config["variable_update"]])
    if last.config["data_source"] != DEVICE:
        against["data_source"] = _listed([DEVICE, last.config["data_source"]])
    counts = sorted({1, *counts})
    sweeps = [_sweep(series, num_devices=_listed(counts), **against)]
    if series.strong:
        shares = dict.fromkeys(-(-last.config["global_batch_size"] // count) for count in counts if count > 1)
        sweeps += [
            _sweep(series, {"num_devices": 1, "global_batch_size": 0, "batch_size": share}, **against)
            for share in shares
        ]
    return sweeps


def _sweep(series: SeriesSummary, changes: dict[str, Any] | None = None, **lists: str) -> str:
    """The series' sweep with these changes, and with lists in the place of some flags' values."""
    row = series.rows[-1].row
    words = command(row.config, **(changes or {})).split(" ")
    for name, values in lists.items():
        words = [f"--{name}={values}" if word.startswith(f"--{name}=") else word for word in words]
    repeats = [f"--repeats={len(row.records)}"] if len(row.records) > 1 else []
    return " ".join([*words, *repeats, f"--out={AGAIN}"])


def _listed(values: Sequence[Any]) -> str:
    return ",".join(str(value) for value in values)
