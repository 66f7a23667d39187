"""The commands that repeat measurements in a new folder.

Reports print them, and users paste them. They are made from the options of rows, with
`config.spelling`, so that a renamed flag needs no change here.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rnn_scaling.analysis.rows import Row
from rnn_scaling.analysis.statements import Statement, state
from rnn_scaling.config import registry, scale
from rnn_scaling.config.naming import NAMED
from rnn_scaling.config.spelling import make_sweep_command
from rnn_scaling.reports.summary import SeriesSummary

_REPEATS_FOLDER = "results/again"  # the folder of repeated runs

OptionLists = Mapping[str, Sequence[Any]]  # option -> values of a sweep


def list_commands(series: SeriesSummary) -> list[str]:
    """Return the sweeps that repeat a series, with the runs that split its lost points.

    A sweep omits options that one of its configurations does not read, and runs equal
    configurations once. There are no commands for other trainers.
    """
    last = series.rows[-1]
    if not last.is_ours:
        return []
    axis = scale.find_axis(last.options)
    counts = [row.options[axis] for row in series.rows]
    largest = series.largest_row
    is_split = largest and (series.largest_loss or largest.is_speedup_hidden)
    if not is_split:
        return [repeat_command(last, {axis: counts})]

    compared = _list_compared_options(last)
    has_one_device_per_process = scale.count_devices({**last.options, axis: 1}) == 1
    if has_one_device_per_process:
        sweeps = [repeat_command(last, {axis: sorted({1, *counts}), **compared})]
    else:
        sweeps = [
            repeat_command(last, {axis: counts, **compared}),
            repeat_command(last, compared, **scale.ON_ONE_DEVICE),
        ]
    if series.is_strong_scaling:
        sweeps += _list_share_commands(series, compared)
    return sweeps


def _list_share_commands(series: SeriesSummary, compared: OptionLists) -> Iterator[str]:
    """Yield sweeps on one device with each device's share of the global batch.

    They show which loss is due to the smaller batch of a device.
    """
    last = series.rows[-1]
    total = last.options["global_batch_size"]
    device_counts = sorted({row.num_devices for row in series.rows} - {1})
    shares = dict.fromkeys(math.ceil(total / count) for count in device_counts)
    for share in shares:
        options = {**scale.ON_ONE_DEVICE, "global_batch_size": 0, "batch_size": share}
        yield repeat_command(last, compared, **options)


def repeat_quietly(series: Sequence[SeriesSummary]) -> Statement:
    """Return the advice to measure some series again without other programs."""
    command = _repeat_series_command(series)
    if command:
        return state("repeat-on-quiet-machine", command=command)
    return state("quiet-machine")


def _repeat_series_command(series: Sequence[SeriesSummary]) -> str:
    """Return the sweep that measures some series again.

    It may also run further combinations of their options.

    Returns:
      The command; "" if they are of another trainer.
    """
    rows: list[Row] = []
    for member in series:
        rows += member.rows
    axis = scale.find_axis(rows[-1].options)
    lists: dict[str, list[Any]] = {}
    for name in (axis, *NAMED):
        values = list(dict.fromkeys(row.options.known.get(name) for row in rows))
        if name == axis or len(values) > 1:
            lists[name] = values
    # A device count of 1 is the baseline.
    lists[axis] = sorted({1, *lists[axis]})
    return repeat_command(rows[-1], lists)


def _list_compared_options(row: Row) -> OptionLists:
    """Return option values that split the lost points: without exchange or input."""
    compared: dict[str, Sequence[Any]] = {}
    mode: str = row.options["variable_update"]
    if registry.find_mode(mode).trains_one_model:
        compared["variable_update"] = [
            registry.find_mode(mode).exchange_free_mode,
            mode,
        ]
    source: str = row.options["data_source"]
    source_without_input = registry.find_input_free_source(source)
    if source != source_without_input:
        compared["data_source"] = [source_without_input, source]
    return compared


def run_command(config: Mapping[str, Any]) -> str:
    """Return the command that runs these options once, in a new folder."""
    return f"{make_sweep_command(config)} --repeats=1 --out={_REPEATS_FOLDER}"


def repeat_command(row: Row, lists: OptionLists, **changes: Any) -> str:
    """Return the sweep that repeats a row in a new folder.

    Args:
      row: The row.
      lists: Values of options that are swept.
      **changes: Other values of options.

    Returns:
      The command; "" if the row is from another trainer.
    """
    if not row.is_ours:
        return ""
    words = make_sweep_command(row.options, **changes).split(" ")
    for name, values in lists.items():
        flag = f"--{name}={','.join(map(str, values))}"
        words = [flag if word.startswith(f"--{name}=") else word for word in words]
    if len(row.records) > 1:
        words.append(f"--repeats={len(row.records)}")
    return " ".join([*words, f"--out={_REPEATS_FOLDER}"])
