"""The commands that repeat measurements in a new folder."""

from collections.abc import Mapping, Sequence
from typing import Any

from rnn_scaling.analysis.rows import Row
from rnn_scaling.config import registry, scale
from rnn_scaling.config.spelling import command
from rnn_scaling.reports.summary import SeriesSummary

REPEATS_FOLDER = "results/again"  # the folder of repeated runs

OptionLists = Mapping[str, Sequence[Any]]  # option -> values of a sweep


def commands(series: SeriesSummary) -> list[str]:
    """Return the sweeps that repeat a series, with the runs that split its loss.

    A sweep omits options that one of its configurations does not read, and runs equal
    configurations once. There are no commands for other trainers.
    """
    last = series.rows[-1].row
    if not last.is_ours:
        return []
    axis = scale.axis(last.options)
    counts = [row.row.options[axis] for row in series.rows]
    if series.largest_row is None or series.largest_row.loss is None:
        return [repeat_command(last, {axis: counts})]

    compared = _compared_options(last)
    has_one_device_per_process = scale.num_devices({**last.options, axis: 1}) == 1
    if has_one_device_per_process:
        sweeps = [repeat_command(last, {axis: sorted({1, *counts}), **compared})]
    else:
        sweeps = [
            repeat_command(last, {axis: counts, **compared}),
            repeat_command(last, compared, **scale.ON_ONE_DEVICE),
        ]
    if series.is_strong_scaling:
        total = last.options["global_batch_size"]
        device_counts = sorted({row.row.num_devices for row in series.rows} - {1})
        # The batch size of each device, rounded up.
        shares = dict.fromkeys(-(-total // count) for count in device_counts)
        for share in shares:
            options = {
                **scale.ON_ONE_DEVICE,
                "global_batch_size": 0,
                "batch_size": share,
            }
            sweeps.append(repeat_command(last, compared, **options))
    return sweeps


def _compared_options(row: Row) -> OptionLists:
    """Return the values of options that split the loss: without exchange or input."""
    compared: dict[str, Sequence[Any]] = {}
    mode: str = row.options["variable_update"]
    if registry.mode_of(mode).trains_one_model:
        compared["variable_update"] = [registry.mode_of(mode).without_exchange, mode]
    source: str = row.options["data_source"]
    source_without_input = registry.without_input(source)
    if source != source_without_input:
        compared["data_source"] = [source_without_input, source]
    return compared


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
    words = command(row.options, **changes).split(" ")
    for name, values in lists.items():
        flag = f"--{name}={','.join(map(str, values))}"
        words = [flag if word.startswith(f"--{name}=") else word for word in words]
    if len(row.records) > 1:
        words.append(f"--repeats={len(row.records)}")
    return " ".join([*words, f"--out={REPEATS_FOLDER}"])
