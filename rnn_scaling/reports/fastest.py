"""Which of several series is fastest, or that it cannot be told, and what slowed their runs.

Two rates are told apart by the interval of their ratio; among several, Bonferroni's correction over all pairs keeps the
chance of any false one at 5 %. A number whose interval over processes is not known is never weighed against another.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from rnn_scaling.analysis import disturbance
from rnn_scaling.analysis.confidence import Interval, ratio
from rnn_scaling.analysis.significance import REPEATS, foreseen, is_above, more_repeats
from rnn_scaling.reports import cluster
from rnn_scaling.reports.loss_text import rounded_up
from rnn_scaling.reports.series_sentence import (
    crowding_sentence,
    failed_above,
    number,
    of_load,
    records_behind,
    statement,
)
from rnn_scaling.reports.summary import RowSummary, SeriesSummary, devices, listed

MOST_NAMED = 6  # series in one sentence


def fastest(series: Sequence[SeriesSummary], count: int, training: str) -> list[str]:
    """Which of several series has the highest rate on so many devices, or that it cannot be told; what slowed them."""
    ordered = sorted(series, key=lambda each: -_rate(each, count).value)
    first, best = ordered[0], _rate(ordered[0], count)
    rivals = [each for each in ordered[1:] if not _is_slower(each, count, best, len(series))]
    where, unit = f"on {places(series, count)}", f"{first.unit}/s"
    where += ", the most that all have," if count > 1 and any(most_devices(each) != count for each in series) else ""
    if not rivals:
        text = f"The fastest of the {len(series)} series{training} {where} is {first.title}: {number(best)} {unit}."
        about = [_about(first)] if count > 1 else []
        return [text, *about, *_elsewhere(ordered, count, first), *conditions(series, count, first if about else None)]
    slowed = [each for each in rivals if is_above(best, _rate(each, count), len(series)) and not _lost(each.at(count))]
    tied = [first, *(each for each in rivals if each not in slowed or len(slowed) == len(rivals))]
    others = len(series) - 1 - len(rivals)
    text = f"Which of the {len(series)} series{training} is fastest {where} cannot be told."
    text += f" {listed(_named(tied, count))} cannot be told apart"
    if len(slowed) < len(rivals):
        text += f"; other processes slowed {listed(_named(slowed, count))}" if slowed else ""
        would_tell = _would_tell([_rate(each, count) for each in tied], len(series))
    else:
        would_tell = "Other processes slowed the slower ones: runs without them would tell."
    text += f"; the other{f' {others} are' if others > 1 else ' is'} slower than the first." if others else "."
    return [text, would_tell, *_elsewhere(ordered, count), *conditions(series, count)]


def _elsewhere(series: Sequence[SeriesSummary], count: int, named: SeriesSummary | None = None) -> list[str]:
    """Which series but `named` are faster on fewer devices than their most, and of which no run succeeded on more."""
    peaks = [statement(each)[0] for each in series if count > 1 and each.peak and each is not named]
    failed = [(each, text) for each in series if count > 1 for text in failed_above(each)]
    return [*peaks, *(f"{each.title}: {text[0].lower()}{text[1:]}" for each, text in failed)]


def _named(series: Sequence[SeriesSummary], count: int) -> list[str]:
    """Each with its rate on so many devices; of many the first, and how many more there are."""
    names = [f"{each.title} ({number(_rate(each, count))} {each.unit}/s)" for each in series[:MOST_NAMED]]
    return [*names, f"{len(series) - MOST_NAMED} more"] if len(series) > MOST_NAMED else names


def _is_slower(series: SeriesSummary, count: int, best: Interval, among: int) -> bool:
    """Whether a series, with all its workers, is slower than the best one whatever others took from its runs."""
    row = series.at(count)
    if _lost(row):
        return False
    lost = disturbance.taken(row.row.good) if row else 0.0
    return lost < 1 and is_above(best, _rate(series, count).scaled(1 / (1 - lost)), among)


def _about(series: SeriesSummary) -> str:
    """The sentence of a series that was just named."""
    text = " ".join([*statement(series), *(cluster.remarks(series.largest.row) if series.largest else [])])
    return f"It{text.removeprefix(series.title)}" if text.startswith(f"{series.title} ") else text


def _would_tell(rates: Sequence[Interval], among: int) -> str:
    """How many runs of each would show which differences from the first of these rates, in 80 of 100 cases."""
    now, repeats = more_repeats(rates)
    if any(rate.standard_error is None or rate.ends is None for rate in rates):
        return f"--repeats={REPEATS[0]} would show how much runs differ."
    changes = [ratio(rates[0], rate) for rate in rates[1:]]
    effects = [
        foreseen((each.standard_error or 0.0) / each.value, each.degrees, now, repeats, among) for each in changes
    ]
    rounding = max(each.rounding for each in changes)
    if not max(effects):  # of logs that print few digits
        same = "Their rates are the same to the last digit that is told."
        return "Logs with more digits would tell." if rounding else same
    least = -100 * math.expm1(-max(effects) - rounding)
    return f"--repeats={repeats} would most likely show differences of {rounded_up(least)} %."


def conditions(series: Sequence[SeriesSummary], count: int | None, split: SeriesSummary | None = None) -> list[str]:
    """What slowed runs of several series that one sentence compares, on 1 device and `count`.

    Args:
      count: of devices; None: on every number of them.
    """
    rows = [row for each in series for row in each.rows if count is None or row.row.num_devices in (1, count)]
    crowded = [text for row in rows if (text := crowding_sentence(row))]
    others = [each for each in series if each is not split]
    workers = [f"{each.title}: {text}" for each in others for text in _of_workers(each, count)]
    runs = {id(record): record for row in rows for record in row.row.good}
    runs |= {id(record): record for record in (records_behind(split.largest) if split and split.largest else ())}
    return [*dict.fromkeys(crowded[:1]), *workers, *of_load([*runs.values()])]


def _of_workers(series: SeriesSummary, count: int | None) -> list[str]:
    """What must be said of a series' workers on so many devices; None: on its most."""
    row = series.largest if count is None else series.at(count)
    return cluster.remarks(row.row) if row else []


def _lost(row: RowSummary | None) -> bool:
    """Whether a run of a row went on without some of its workers."""
    return row is not None and bool(cluster.runs_with_losses(row.row))


def places(series: Sequence[SeriesSummary], count: int) -> str:
    """ "4 workers of one device each" where all series have them so, else "4 devices"."""
    words = {row.devices for each in series if (row := each.at(count))}
    return words.pop() if len(words) == 1 else devices(count)


def common_count(series: Sequence[SeriesSummary]) -> int | None:
    """The largest number of devices above 1 on which all of them were measured."""
    counts = [{row.row.num_devices for row in each.rows if row.row.rate is not None} for each in series]
    return max(set.intersection(*counts) - {1}, default=None)


def _rate(series: SeriesSummary, count: int) -> Interval:
    row = series.at(count)
    if row is None or row.row.rate is None:
        raise ValueError(f"expected a series with a run on {devices(count)}")
    return row.row.rate


def most_devices(series: SeriesSummary) -> int:
    return series.largest.row.num_devices if series.largest else 0
