"""The report's answer in sentences: how far each series scales and where the rest goes; no more than was measured."""

from __future__ import annotations

from collections.abc import Sequence

from rnn_scaling.attribution import Attribution, Part, command
from rnn_scaling.reports.summary import RowSummary, SeriesSummary, Summary, devices
from rnn_scaling.reports.table import plus_minus
from rnn_scaling.statistics import Interval

TOO_WIDE = 0.5  # half an interval over its number, from which on the number says nothing
MORE = "more repeats on a quieter machine would tell"


def lead(summary: Summary) -> str:
    """The first sentence: the only series' own, or that of the fastest series which trains one model."""
    if not summary.measured:
        return "No run succeeded, so nothing can be said about scaling; the reasons stand below."
    if len(summary.series) == 1:
        return sentence(summary.series[0])
    judged = _judged(summary)
    if not judged:
        scaled = [each for each in summary.measured if each.largest and each.largest.row.num_devices > 1]
        if any(each.largest and each.largest.efficiency for each in scaled):
            return f"The runs vary too much to tell how any of the {len(summary.series)} series scales; {MORE}."
        return f"None of the {len(summary.series)} series was measured both on one device and on several."
    one_model = [each for each in judged if _mode(each) != "independent"]
    fastest = sorted(one_model or judged, key=lambda each: -_rate(each).value)
    which = "The fastest series" + (" that trains one model" if one_model and len(one_model) < len(judged) else "")
    if len(fastest) == 1:
        which = "The only series that trains one model" if len(judged) > 1 else "The only series that can be judged"
    elif _overlap(_rate(fastest[0]), _rate(fastest[1])):
        which += f" (with {fastest[1].title}, from which its speed is not distinguishable)"
    return f"{which}: {sentence(fastest[0])}"


def overview(summary: Summary) -> str:
    """The range over several series, and how many could be judged; empty for one series."""
    if len(summary.series) < 2:
        return ""
    judged = sorted(_judged(summary), key=lambda each: _known(each).value)
    if not judged:
        return ""
    unjudged = len(summary.series) - len(judged)
    rest = f"; {unjudged} can not be judged" if unjudged else ""
    if len(judged) == 1:
        return f"1 of {len(summary.series)} series can be judged."
    low, high = judged[0], judged[-1]
    span = f"between {_at(low)} ({low.title}) and {_at(high)} ({high.title})"
    return f"{len(judged)} series reach {span} of the ideal{rest}."


def sentence(series: SeriesSummary) -> str:
    """One series at its most devices: its efficiency, and what the lost points are."""
    row, title = series.largest, series.title
    if row is None:
        return f"{title}: no run succeeded."
    if row.row.num_devices == 1:
        text = f"{title}: {plus_minus(row.row.rate, 1)} words/s on 1 device, and no run on more"
    elif row.efficiency is None:
        text = (
            f"{title}: {plus_minus(row.row.rate, 1)} words/s on {row.devices}; how it scales needs its run on 1 device"
        )
    elif _too_wide(row.efficiency):
        low, high = row.efficiency.low, row.efficiency.high
        text = (
            f"{title}: the runs vary too much to tell how it scales on {row.devices} (efficiency "
            f"{row.efficiency.value:.1f} %, 95 % interval {low:.1f} to {high:.1f} %); {MORE}"
        )
    else:
        text = f"{title} {_kept(row)}{_where(row.loss)}"
    return text + _failed_above(series, row) + "."


def missing(series: SeriesSummary) -> list[str]:
    """Commands that supply what the sentence could not say, each once and with as many repeats as the series has."""
    row = series.largest
    if row is None:
        return []
    if row.row.num_devices == 1:
        lines = [command(row.row.config, num_devices=2)] if len(series.rows) == 1 else []
    elif row.efficiency is None:
        lines = [command(row.row.config, num_devices=1)]
    else:
        lines = [line for part in (row.loss.parts if row.loss else ()) for line in part.commands]
    repeats = f" --repeats={len(row.row.records)}" if len(row.row.records) > 1 else ""
    return [f"{line}{repeats}" for line in dict.fromkeys(lines)]


def part_text(part: Part) -> str:
    """One part in words: "23.1 ± 2.0 points are exchange", or what can be said instead."""
    points = part.points
    if points is None:
        return f"{part.name} is not known"
    if not points.value and not points.half_width:
        return f"{part.name} takes nothing"
    if contains_zero(points):
        return f"{part.name} is not distinguishable from 0 ({plus_minus(points, 1)})"
    unknown = "" if points.half_width is not None else " (no interval)"
    if points.value < 0:
        return f"{part.name} gives back {plus_minus(negated(points), 1)} points{unknown}"
    return f"{plus_minus(points, 1)} points are {part.name}{unknown}"


def negated(value: Interval) -> Interval:
    """The interval of the number with its sign turned."""
    low = None if value.high is None else -value.high
    high = None if value.low is None else -value.low
    return Interval(-value.value, low, high, value.kind, value.standard_error, value.degrees, value.processes)


def contains_zero(value: Interval) -> bool:
    """Whether the interval is known and 0 lies in it."""
    return value.low is not None and value.high is not None and value.low <= 0 <= value.high


def kinds(series: Sequence[SeriesSummary]) -> list[str]:
    """What "±" is in the sentences, each kind once."""
    rows = [each.largest for each in series if each.largest]
    found: dict[str, None] = {}
    for row in rows:
        for value in (row.efficiency, row.row.rate):
            if value is not None and value.half_width and value.degrees != float("inf"):
                found[value.kind] = None
                break
    return list(found)


def _kept(row: RowSummary) -> str:
    speedup = row.row.metric("speedup")
    return f"scales at {_percent(_efficiency(row))} on {row.devices} ({plus_minus(speedup, 2)} times the speed of one)"


def _where(loss: Attribution | None) -> str:
    if loss is None:
        return ""
    if contains_zero(loss.loss_points):
        return ": not distinguishable from the ideal"
    if loss.loss.value < 0:
        return ": more than the ideal, so the run on one device was slow or fits its caches worse"
    known = sorted((part for part in loss.parts if part.value), key=lambda part: -part.value.value)
    said = [part_text(part) for part in known]
    unknown = [part.name for part in loss.parts if part.value is None]
    if unknown:
        said.append(
            f"{plus_minus(loss.residual_points, 1)} points are not split: {' and '.join(unknown)} {_need(len(unknown))}"
        )
    return ": " + ", ".join(said)


def _need(count: int) -> str:
    return f"need{'s' if count == 1 else ''} runs that are missing"


def _failed_above(series: SeriesSummary, row: RowSummary) -> str:
    above = [each.row.num_devices for each in series.rows if each.row.num_devices > row.row.num_devices]
    return f"; on {' and '.join(str(n) for n in above[:-1] + [devices(above[-1])])} no run succeeded" if above else ""


def _judged(summary: Summary) -> list[SeriesSummary]:
    """The series with an efficiency on several devices that is known well enough to say something."""
    found = []
    for each in summary.measured:
        row = each.largest
        if row and row.row.num_devices > 1 and row.efficiency and not _too_wide(row.efficiency):
            found.append(each)
    return found


def _mode(series: SeriesSummary) -> str:
    return series.rows[0].row.config["variable_update"]


def _rate(series: SeriesSummary) -> Interval:
    row = series.largest
    if row is None or row.row.rate is None:
        raise ValueError("expected a measured series")
    return row.row.rate


def _known(series: SeriesSummary) -> Interval:
    row = series.largest
    if row is None:
        raise ValueError("expected a measured series")
    return _efficiency(row)


def _too_wide(value: Interval) -> bool:
    return value.half_width is not None and value.half_width > TOO_WIDE * value.value


def _at(series: SeriesSummary) -> str:
    row = series.largest
    return f"{_percent(_known(series))} on {row.devices}" if row else ""


def _percent(value: Interval) -> str:
    return f"{plus_minus(value, 1)} %"


def _efficiency(row: RowSummary) -> Interval:
    if row.efficiency is None:
        raise ValueError("expected a row with a baseline")
    return row.efficiency


def _overlap(a: Interval, b: Interval) -> bool:
    if None in (a.low, a.high, b.low, b.high):
        return False
    return a.low <= b.high and b.low <= a.high
