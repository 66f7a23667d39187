"""The commands that measure something anew, in a folder of its own."""

from collections.abc import Mapping, Sequence
from typing import Any

from rnn_scaling.analysis.rows import Row
from rnn_scaling.config import registry, scale
from rnn_scaling.config.spelling import command
from rnn_scaling.reports.summary import SeriesSummary

AGAIN = "results/again"  # where a command that repeats runs writes them


def commands(series: SeriesSummary) -> list[str]:
    """The sweeps that measure a series anew, with the runs that the parts of its loss need.

    A sweep leaves out what one of its configurations does not read, and one that is named twice runs once.
    """
    last = series.rows[-1].row
    if not last.is_ours:
        return []
    axis = scale.axis(last.options)
    grown = [row.row.options[axis] for row in series.rows]
    if series.largest_row is None or series.largest_row.loss is None:
        return [repeat_command(last, {axis: grown})]
    mode: str = last.options["variable_update"]
    against: dict[str, Sequence[Any]] = {}
    if registry.mode_of(mode).trains_one_model:
        against["variable_update"] = [registry.mode_of(mode).without_exchange, mode]
    source: str = last.options["data_source"]
    if source != (without := registry.without_input(source)):
        against["data_source"] = [without, source]
    if scale.num_devices({**last.options, axis: 1}) == 1:
        sweeps = [repeat_command(last, {axis: sorted({1, *grown}), **against})]
    else:  # workers of several devices each
        sweeps = [
            repeat_command(last, {axis: grown, **against}),
            repeat_command(last, against, **scale.ON_ONE_DEVICE),
        ]
    if series.is_strong_scaling:
        counts = sorted({row.row.num_devices for row in series.rows} - {1})
        shares = dict.fromkeys(
            -(-last.options["global_batch_size"] // count) for count in counts
        )
        on_one: dict[str, Any] = {**scale.ON_ONE_DEVICE, "global_batch_size": 0}
        sweeps += [
            repeat_command(last, against, **on_one, batch_size=share)
            for share in shares
        ]
    return sweeps


def repeat_command(row: Row, lists: Mapping[str, Sequence[Any]], **changes: Any) -> str:
    """The sweep that repeats a row in a folder of its own, over lists of values; "" for a user's program."""
    if not row.is_ours:
        return ""
    words = command(row.options, **changes).split(" ")
    for name, values in lists.items():
        text = f"--{name}={','.join(map(str, values))}"
        words = [text if word.startswith(f"--{name}=") else word for word in words]
    repeats = [f"--repeats={len(row.records)}"] if len(row.records) > 1 else []
    return " ".join([*words, *repeats, f"--out={AGAIN}"])
