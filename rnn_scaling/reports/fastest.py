"""Which of several series is fastest, or that it is not clear, and what slowed their runs.

Two rates are separated by the interval of their ratio; among several, Bonferroni's correction over all pairs keeps the
chance of any false one at 5 %. A number whose interval over processes is not known is never weighed against another.
"""

import math
from collections.abc import Sequence
from typing import Any

from rnn_scaling.analysis import disturbance
from rnn_scaling.analysis.confidence import Interval, ratio
from rnn_scaling.analysis.significance import REPEATS, foreseen, is_above, more_repeats
from rnn_scaling.analysis.statements import Statement, interval_values
from rnn_scaling.reports import cluster
from rnn_scaling.reports.loss_statements import rounded_up
from rnn_scaling.reports.series_statements import crowding, failed_above, other_load, records_behind, scaling
from rnn_scaling.reports.summary import RowSummary, SeriesSummary
from rnn_scaling.reports.wording import counted


def fastest(series: Sequence[SeriesSummary], count: int) -> list[Statement]:
    """Which of several series has the highest rate on so many devices, or that it is not clear; what slowed them."""
    ordered = sorted(series, key=lambda member: -_rate(member, count).value)
    first, best = ordered[0], _rate(ordered[0], count)
    rivals = [member for member in ordered[1:] if not _is_slower(member, count, best, len(series))]
    values: dict[str, Any] = {"series": len(series), "devices": places(series, count)}
    differ = count > 1 and any(most_devices(member) != count for member in series)
    common = [Statement("most-common-devices", values=values)] if differ else []
    if not rivals:
        values |= {"rate": interval_values(best), "unit": first.unit}
        about = scaling(first) + _of_workers(first, None) if count > 1 else []
        conditions_ = conditions(series, count, first if about else None)
        made = [Statement("fastest", first.title, values), *common, *about]
        return [*made, *_elsewhere(ordered, count, first), *conditions_]
    below = [member for member in rivals if is_above(best, _rate(member, count), len(series))]
    slowed = [member for member in below if not _lost(member.at(count))]
    all_slowed = len(slowed) == len(rivals)
    tied = [first, *(member for member in rivals if member not in slowed or all_slowed)]
    made = [Statement("fastest-unclear", values={**values, "tied": _rated(tied, count)}), *common]
    if others := len(series) - 1 - len(rivals):
        made.append(Statement("others-slower", values={"others": others}))
    if slowed and not all_slowed:
        made.append(Statement("slowed-by-load", values={"slowed": _rated(slowed, count)}))
    rates = [_rate(member, count) for member in tied]
    made.append(Statement("quiet-runs-would-tell") if all_slowed else _would_tell(rates, len(series)))
    return [*made, *_elsewhere(ordered, count), *conditions(series, count)]


def _elsewhere(series: Sequence[SeriesSummary], count: int, named: SeriesSummary | None = None) -> list[Statement]:
    """Which series but `named` are faster on fewer devices than their most, and of which no run succeeded on more."""
    if count == 1:
        return []
    peaks = [scaling(member)[0] for member in series if member.peak and member is not named]
    return [*peaks, *(statement for member in series for statement in failed_above(member))]


def _rated(series: Sequence[SeriesSummary], count: int) -> list[dict[str, Any]]:
    rates = [interval_values(_rate(member, count)) for member in series]
    return [{"name": member.title, "rate": rate, "unit": member.unit} for member, rate in zip(series, rates)]


def _is_slower(series: SeriesSummary, count: int, best: Interval, among: int) -> bool:
    """Whether a series, with all its workers, is slower than the best one whatever others took from its runs."""
    row = series.at(count)
    if _lost(row):
        return False
    lost = disturbance.taken(row.row.good) if row else 0.0
    return lost < 1 and is_above(best, _rate(series, count).scaled(1 / (1 - lost)), among)


def _would_tell(rates: Sequence[Interval], among: int) -> Statement:
    """How many runs of each would show which differences from the first of these rates, in 80 of 100 cases."""
    now, repeats = more_repeats(rates)
    if any(rate.standard_error is None or rate.ends is None for rate in rates):
        return Statement("repeats-would-show-spread", values={"repeats": REPEATS[0]})
    changes = [ratio(rates[0], rate) for rate in rates[1:]]
    known = [((change.standard_error or 0.0) / change.value, change.degrees) for change in changes]
    effects = [foreseen(error, degrees, now, repeats, among) for error, degrees in known]
    rounding = max(change.rounding for change in changes)
    if not max(effects):  # of logs that print few digits
        return Statement("few-digits" if rounding else "same-rates")
    least = -100 * math.expm1(-max(effects) - rounding)
    return Statement("repeats-would-show-differences", values={"repeats": repeats, "percent": rounded_up(least)})


def conditions(
    series: Sequence[SeriesSummary], count: int | None, split: SeriesSummary | None = None
) -> list[Statement]:
    """What slowed runs of several series that are compared, on 1 device and `count` (None: on every number)."""
    rows = [row for member in series for row in member.rows if count is None or row.row.num_devices in (1, count)]
    crowded = next((statements for row in rows if (statements := crowding(row))), [])
    others = [member for member in series if member is not split]
    workers = [statement for member in others for statement in _of_workers(member, count)]
    runs = {id(record): record for row in rows for record in row.row.good}
    runs |= {id(record): record for record in (records_behind(split.largest) if split and split.largest else ())}
    return [*crowded, *workers, *other_load([*runs.values()])]


def _of_workers(series: SeriesSummary, count: int | None) -> list[Statement]:
    """What must be said of a series' workers on so many devices; None: on its most."""
    row = series.largest if count is None else series.at(count)
    return cluster.remarks(row.row, series.title) if row else []


def _lost(row: RowSummary | None) -> bool:
    """Whether a run of a row went on without some of its workers."""
    return row is not None and bool(cluster.runs_with_losses(row.row))


def places(series: Sequence[SeriesSummary], count: int) -> str:
    """ "4 workers of one device each" where all series have them so, else "4 devices"."""
    words = {row.devices for member in series if (row := member.at(count))}
    return words.pop() if len(words) == 1 else counted(count, "device")


def common_count(series: Sequence[SeriesSummary]) -> int | None:
    """The largest number of devices above 1 on which all of them were measured."""
    counts = [{row.row.num_devices for row in member.rows if row.row.rate is not None} for member in series]
    return max(set.intersection(*counts) - {1}, default=None)


def _rate(series: SeriesSummary, count: int) -> Interval:
    row = series.at(count)
    if row is None or row.row.rate is None:
        raise ValueError(f"expected a series with a run on {counted(count, 'device')}")
    return row.row.rate


def most_devices(series: SeriesSummary) -> int:
    return series.largest.row.num_devices if series.largest else 0
