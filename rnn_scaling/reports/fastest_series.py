"""Statements that compare the series of one scaling on one number of devices.

`conclusions` and `headline` ask it which series is fastest.
"""

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

from rnn_scaling.analysis.confidence import Interval, divide_rates
from rnn_scaling.analysis.rows import Row, max_slowing_beyond
from rnn_scaling.analysis.significance import (
    MAX_REPEATS,
    REPEATS,
    compute_joint_ratio,
    compute_needed_repeats,
    is_above,
    propose_repeats,
)
from rnn_scaling.analysis.statements import Statement, list_interval_values, state
from rnn_scaling.records.record import RunRecord
from rnn_scaling.reports import cluster
from rnn_scaling.reports import series_statements as one_series
from rnn_scaling.reports.summary import SeriesSummary
from rnn_scaling.system.files.terminal import format_count

# Statements about a tie.
DECISIONS = ("take-either", "seen-difference", "seen-difference-too-small")
# Series that differ by at most this share are near enough to take any of them.
_MAX_TIE_DIFFERENCE = 0.1


def list_measured_counts(series: SeriesSummary) -> set[int]:
    """Return the numbers of devices on which a series was measured."""
    return {row.num_devices for row in series.rows if row.rate is not None}


def state_fastest(series: Sequence[SeriesSummary], count: int) -> list[Statement]:
    """State which series is fastest, and the load and faults that slowed runs.

    Args:
      series: At least two series, all with a rate on `count` devices.
      count: The number of devices.
    """
    ordered = sorted(series, key=lambda member: -_find_rate(member, count).value)
    first, *slower = ordered
    rivals = [
        member for member in slower if not _is_slower(member, first, count, len(series))
    ]
    place = {"series": len(series), "devices": format_devices(series, count)}
    common: list[Statement] = []
    if count > 1 and any(find_most_devices(member) != count for member in series):
        common.append(state("most-common-devices", **place))
    if len(series) > 2:
        common.append(state("pairs-compared", pairs=math.comb(len(series), 2)))
    if rivals:
        return [
            *_state_unclear(
                ordered, rivals=rivals, count=count, place=place, common=common
            ),
            *_state_faster_elsewhere(ordered, count),
            *state_conditions(series, count),
        ]

    facts = [
        state(
            "fastest",
            first.title,
            **place,
            rate=_find_rate(first, count),
            unit=first.unit,
        ),
        *common,
    ]
    scaling = one_series.state_scaling(first) if count > 1 else []
    if all(each.kind != "scaling-corrected" for each in scaling):
        facts += one_series.state_rate_corrections(_list_rows([first], count))
    facts += scaling
    if count > 1:
        facts += _state_workers(first, None)
    facts += _state_faster_elsewhere(ordered, count, first)
    return [*facts, *state_conditions(series, count, first if count > 1 else None)]


def _state_unclear(
    ordered: Sequence[SeriesSummary],
    rivals: Sequence[SeriesSummary],
    count: int,
    place: dict[str, Any],
    common: Sequence[Statement],
) -> Iterator[Statement]:
    """Yield the series that may be the fastest, and the repeats that would decide it.

    Args:
      ordered: All series, the fastest first.
      rivals: Series that may be as fast as the first one.
      count: The number of devices.
      place: Values of the number of series and devices.
      common: The statement after the first one, if the series have more devices.
    """
    first = ordered[0]
    best = _find_rate(first, count)
    slowed = []
    for member in rivals:
        is_below = is_above(best, _find_rate(member, count), len(ordered))
        if is_below and not has_lost_workers(member.row_on(count)):
            slowed.append(member)
    all_slowed = len(slowed) == len(rivals)
    tied_series = [first]
    tied_series += [member for member in rivals if member not in slowed or all_slowed]

    yield state("fastest-unclear", **place, tied=_list_rate_values(tied_series, count))
    yield from one_series.state_rate_corrections(_list_rows(tied_series, count))
    yield from common
    if num_slower := len(ordered) - 1 - len(rivals):
        yield state("others-slower", others=num_slower)
    if all_slowed:
        yield state("quiet-runs-would-tell")
        return
    if slowed:
        yield state("slowed-by-load", slowed=_list_rate_values(slowed, count))
    rates = [_find_rate(member, count) for member in tied_series]
    yield from _state_tie(rates, len(ordered))


def _state_tie(rates: Sequence[Interval], num_compared: int) -> Iterator[Statement]:
    """State what to do about a tie, and the repeats that the seen difference needs.

    Args:
      rates: The rates that are not separated, the highest first.
      num_compared: The number of series that are compared.
    """
    if any(rate.relative_error is None for rate in rates):
        yield state("repeats-would-show-spread", repeats=REPEATS[0])
        return
    changes = [divide_rates(rates[0], rate) for rate in rates[1:]]
    if not any(change.relative_error for change in changes):
        is_rounded = any(change.rounding for change in changes)
        yield state("few-digits" if is_rounded else "same-rates")
        return
    bounds = []
    for rate in rates[1:]:
        change = compute_joint_ratio(rates[0], rate, num_compared)
        bounds.append((change.high or change.value) - 1)
    seen_difference = changes[0]
    repeats = None
    if seen_difference.value > 1:
        num_runs, _ = propose_repeats(rates)
        repeats = compute_needed_repeats(
            math.log(seen_difference.value),
            seen_difference.relative_error or 0.0,
            seen_difference.degrees,
            num_runs,
            num_compared,
        )
    if max(bounds) <= _MAX_TIE_DIFFERENCE or repeats is None:
        yield state("take-either", others=len(bounds), within=max(bounds))
    if seen_difference.is_corrected:
        # Repeats do not reduce the error of a correction.
        yield state("quiet-machine")
        return
    kind = "seen-difference" if repeats else "seen-difference-too-small"
    decision = state(
        kind, seen=seen_difference.value - 1, repeats=repeats, most=MAX_REPEATS
    )
    yield decision


def _state_faster_elsewhere(
    series: Sequence[SeriesSummary], count: int, ranked: SeriesSummary | None = None
) -> list[Statement]:
    """State which series are faster on fewer devices, and which failed on more.

    Args:
      series: The series that are compared.
      count: The number of devices of the comparison; nothing is stated for 1.
      ranked: The fastest series, whose own statements contain its fastest row.
    """
    if count == 1:
        return []
    elsewhere_statements = [
        one_series.state_scaling(member)[0]
        for member in series
        if member.faster_on_fewer_devices and member is not ranked
    ]
    for member in series:
        elsewhere_statements += one_series.state_failures(member)
    return elsewhere_statements


def _list_rate_values(
    series: Sequence[SeriesSummary], count: int
) -> list[dict[str, Any]]:
    rates = []
    for member in series:
        rate = list_interval_values(_find_rate(member, count))
        rates.append({"name": member.title, "rate": rate, "unit": member.unit})
    return rates


def _list_rows(series: Sequence[SeriesSummary], count: int) -> list[Row]:
    """Return the rows of series on `count` devices."""
    return [row for member in series if (row := member.row_on(count))]


def _is_slower(
    series: SeriesSummary, best: SeriesSummary, count: int, num_compared: int
) -> bool:
    """Return whether a series is slower than the best one, whatever slowed its runs.

    Args:
      series: The series, which has a rate on `count` devices.
      best: The series with the highest rate on `count` devices.
      count: The number of devices.
      num_compared: The number of series that are compared.

    Returns:
      False if a run lost workers, or if load that only `series` had may explain the
      difference. Load that both had slowed both.
    """
    row = series.row_on(count)
    best_row = best.row_on(count)
    if row is None or best_row is None or has_lost_workers(row):
        return False
    lost_share = max_slowing_beyond(row, best_row)
    if lost_share >= 1:
        return False
    undisturbed = _find_rate(series, count).scaled(1 / (1 - lost_share))
    return is_above(_find_rate(best, count), undisturbed, num_compared)


def state_conditions(
    series: Sequence[SeriesSummary],
    count: int | None,
    ranked: SeriesSummary | None = None,
) -> list[Statement]:
    """State what slowed the runs of series that are compared.

    Args:
      series: The series.
      count: The number of devices, whose rows count with those on one device; None: all
        rows count.
      ranked: The series whose own statements are shown; they contain its workers, and
        the runs behind them count too.
    """
    rows = []
    for row in itertools.chain.from_iterable(member.rows for member in series):
        if count is None or row.num_devices in (1, count):
            rows.append(row)
    records: list[RunRecord] = []
    for row in rows:
        records += row.counted_runs
    if ranked and ranked.largest_row:
        records += one_series.list_records_behind(
            ranked.largest_row, ranked.largest_loss
        )
    different_records = {id(record): record for record in records}

    losses = map(series[0].losses.get, rows)
    shared_cores = map(one_series.state_shared_cores, rows, losses)
    condition_statements = list(next(filter(None, shared_cores), []))
    for member in series:
        if member is not ranked:
            condition_statements += _state_workers(member, count)
    return [
        *condition_statements,
        *one_series.state_other_load([*different_records.values()]),
    ]


def _state_workers(series: SeriesSummary, count: int | None) -> list[Statement]:
    """Return statements about workers on a number of devices; None: on the most."""
    row = series.largest_row if count is None else series.row_on(count)
    return cluster.state_workers(row, series.title) if row else []


def has_lost_workers(row: Row | None) -> bool:
    """Return whether a run of a row continued without some of its workers."""
    return row is not None and bool(cluster.runs_with_losses(row))


def format_devices(series: Sequence[SeriesSummary], count: int) -> str:
    """Return "4 workers of one device each" if all series have these, else "4 devices"."""
    texts = {row.devices for member in series if (row := member.row_on(count))}
    return texts.pop() if len(texts) == 1 else format_count(count, "device")


def _find_rate(series: SeriesSummary, count: int) -> Interval:
    row = series.row_on(count)
    assert row and row.rate
    return row.rate


def find_most_devices(series: SeriesSummary) -> int:
    """Return the most devices on which a series was measured; 0 if all runs failed."""
    return series.largest_row.num_devices if series.largest_row else 0
