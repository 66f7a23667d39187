"""The commands that measure something anew, in a folder of its own."""

from collections.abc import Mapping, Sequence
from typing import Any

from rnn_scaling import registry
from rnn_scaling.reports.summary import AGAIN, SeriesSummary
from rnn_scaling.settings import scale
from rnn_scaling.settings.spelling import command


def commands(series: SeriesSummary) -> list[str]:
    """The sweeps that measure a series anew, with the runs that the parts of its loss need.

    A sweep leaves out what one of its configurations does not read, and one that is named twice runs once.
    """
    last = series.rows[-1].row
    if not last.is_ours:
        return []
    axis = scale.axis(last.config)
    grown = [row.row.config[axis] for row in series.rows]
    if series.largest is None or series.largest.loss is None:
        return [_sweep(series, {}, {axis: _listed(grown)})]
    mode: str = last.config["variable_update"]
    against: dict[str, str] = {}
    if registry.trains_one_model(mode):
        against["variable_update"] = _listed([registry.without_exchange(mode), mode])
    source: str = last.config["data_source"]
    if source != (without := registry.without_input(source)):
        against["data_source"] = _listed([without, source])
    if scale.num_devices({**last.config, axis: 1}) == 1:
        sweeps = [_sweep(series, {}, {axis: _listed(sorted({1, *grown})), **against})]
    else:  # workers of several devices each
        sweeps = [_sweep(series, {}, {axis: _listed(grown), **against})]
        sweeps.append(_sweep(series, scale.ON_ONE_DEVICE, against))
    if series.strong:
        counts = sorted({row.row.num_devices for row in series.rows} - {1})
        shares = dict.fromkeys(-(-last.config["global_batch_size"] // count) for count in counts)
        one: dict[str, Any] = {**scale.ON_ONE_DEVICE, "global_batch_size": 0}
        sweeps += [_sweep(series, {**one, "batch_size": share}, against) for share in shares]
    return sweeps


def _sweep(series: SeriesSummary, changes: Mapping[str, Any], lists: Mapping[str, str]) -> str:
    """The sweep of a series."""
    row = series.rows[-1].row
    words = command(row.config, **changes).split(" ")
    for name, values in lists.items():
        words = [f"--{name}={values}" if word.startswith(f"--{name}=") else word for word in words]
    repeats = [f"--repeats={len(row.records)}"] if len(row.records) > 1 else []
    return " ".join([*words, *repeats, f"--out={AGAIN}"])


def _listed(values: Sequence[Any]) -> str:
    return ",".join(str(value) for value in values)
