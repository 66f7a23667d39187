"""The report's answer in sentences: how far each series scales and where the rest goes; no more than was measured."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rnn_scaling import registry
from rnn_scaling.analysis.attribution import Attribution, Part
from rnn_scaling.analysis.confidence import Interval
from rnn_scaling.analysis.metrics import SPEEDUP
from rnn_scaling.reports.summary import RowSummary, SeriesSummary, Summary, devices
from rnn_scaling.reports.table import plus_minus
from rnn_scaling.settings.spelling import command

TOO_WIDE = 0.5  # half an interval over its number, from which on the number says nothing
ONE_RUN = "cannot be told from the difference between two processes"
MORE = "more repeats on a quieter machine would tell"


def lead(summary: Summary) -> str:
    """The first sentence: the only series' own, or that of the fastest series which trains one model.

    Weak and strong scaling have one each: they are never compared with each other.
    """
    if not summary.measured:
        return "No run succeeded, so nothing can be said about scaling; the reasons stand below."
    return _of_each_scaling(summary, _lead)


def overview(summary: Summary) -> str:
    """The range over several series, and how many could be judged; empty for one series."""
    return _of_each_scaling(summary, _overview)


def _of_each_scaling(summary: Summary, sentence_of: Callable[[Sequence[SeriesSummary]], str]) -> str:
    texts = [(name, text) for name, series in summary.scalings if (text := sentence_of(series))]
    if len(summary.scalings) == 1:
        return "".join(text for _, text in texts)
    return " ".join(f"{name}: {text}" for name, text in texts)


def _lead(series: Sequence[SeriesSummary]) -> str:
    if len(series) == 1:
        return sentence(series[0])
    judged = _judged(series)
    if not judged:
        if any(each.largest and each.largest.row.num_devices > 1 and each.largest.efficiency for each in series):
            return f"The runs vary too much to tell how any of the {len(series)} series scales; {MORE}."
        return f"None of the {len(series)} series was measured both on one device and on several."
    one_model = [each for each in judged if registry.trains_one_model(_mode(each))]
    candidates = one_model or judged
    training = " that trains one model" if one_model and len(one_model) < len(judged) else ""
    if len(candidates) == 1:
        which = "The only series that trains one model" if len(judged) > 1 else "The only series that can be judged"
        return f"{which}: {sentence(candidates[0])}"
    count = _common_count(candidates)
    if count is None:
        first = max(candidates, key=_most)
        return f"No number of devices is common to all series; the one on the most{training}: {sentence(first)}"
    fastest = sorted(candidates, key=lambda each: -_rate(each, count).value)
    which = f"The fastest series{training}"
    if any(_most(each) != count for each in candidates):
        which += f" on {devices(count)}, the most that all have"
    rates = [_rate(each, count) for each in fastest[:2]]
    if _overlap(*rates):
        which += f" (with {fastest[1].title}, from which its speed is not distinguishable)"
    elif any(rate.processes == (1,) for rate in rates):
        which += ", going by one run"
    return f"{which}: {sentence(fastest[0])}"


def _overview(series: Sequence[SeriesSummary]) -> str:
    judged = sorted(_judged(series), key=lambda each: _known(each).value)
    if len(series) < 2 or not judged:
        return ""
    unjudged = len(series) - len(judged)
    rest = f"; {unjudged} can not be judged" if unjudged else ""
    if len(judged) == 1:
        return f"1 of {len(series)} series can be judged."
    single = sum(each.largest is not None and bool(_one_run(each.largest)) for each in judged)
    by_one = f" ({single} by one run on a side)" if single else ""
    low, high = judged[0], judged[-1]
    span = f"between {_at(low)} ({low.title}) and {_at(high)} ({high.title})"
    return f"{len(judged)} series{by_one} reach {span} of the ideal{rest}."


def sentence(series: SeriesSummary) -> str:
    """One series at its most devices: its efficiency, and what the lost points are."""
    row, title = series.largest, series.title
    if row is None:
        return f"{title}: no run succeeded."
    if row.row.num_devices == 1:
        text = f"{title}: {plus_minus(row.row.rate, 1)} {series.unit}/s on 1 device, and no run on more"
    elif row.efficiency is None:
        text = (
            f"{title}: {plus_minus(row.row.rate, 1)} {series.unit}/s on {row.devices}; how it scales needs its run on "
            "1 device"
        )
    elif _too_wide(row.efficiency):
        low, high = row.efficiency.low, row.efficiency.high
        varied = "batches" if _one_run(row) else "runs"
        text = (
            f"{title}: the {varied} vary too much to tell how it scales on {row.devices} (efficiency "
            f"{row.efficiency.value:.1f} %, 95 % interval {low:.1f} to {high:.1f} %); {MORE}"
        )
    else:
        text = f"{title}{_kept(row)}{_where(row.loss, hedged=bool(_one_run(row)))}"
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


def all_missing(summary: Summary) -> list[str]:
    """The commands of all series that add missing runs to the folder, each once."""
    commands = (command for each in summary.series for command in missing(each))
    return [summary.supplying(command) for command in dict.fromkeys(commands)]


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
    return value.ends is not None and value.ends[0] <= 0 <= value.ends[1]


def kinds(series: Sequence[SeriesSummary]) -> list[str]:
    """What "±" is in the sentences, each kind once, with the numbers that have it where kinds differ."""
    columns_of: dict[str, dict[str, None]] = {}
    for row in (each.largest for each in series if each.largest):
        parts = [part.points for part in row.loss.parts] if row.loss else []
        name, main = "speedup and efficiency", row.efficiency
        if main is None or row.row.num_devices == 1:
            name, main = f"{row.row.unit}/s", row.row.rate
        for what, value in [(name, main), *(("parts", points) for points in parts)]:
            if value is not None and value.half_width:
                columns_of.setdefault(value.kind, {})[what] = None
    if len(columns_of) < 2:
        return list(columns_of)
    return [f"{', '.join(names)}: {kind}" for kind, names in columns_of.items()]


def _kept(row: RowSummary) -> str:
    speedup = row.row.metric(SPEEDUP)
    single = _one_run(row)
    verb = " scales at" if not single else f" ({single}: {ONE_RUN}) ran at"
    return f"{verb} {_percent(_efficiency(row))} on {row.devices} ({plus_minus(speedup, 2)} times the speed of one)"


def _one_run(row: RowSummary) -> str:
    """Which side of a ratio is a single process; empty if none is."""
    base = row.row.baseline
    sides = [each for each in (base, row.row) if each is not None and len(each.good) == 1]
    if len(sides) == 2 and base is not row.row:
        return "one run each"
    return f"one run on {devices(sides[0].num_devices)}" if sides else ""


def _where(loss: Attribution | None, hedged: bool) -> str:
    if loss is None:
        return ""
    if contains_zero(loss.loss_points):
        return ": not distinguishable from the ideal"
    if loss.loss.value < 0:
        return ": more than the ideal, so the run on one device was slow or fits its caches worse"
    known = sorted((part for part in loss.parts if part.value), key=lambda part: -part.value.value if part.value else 0)
    texts = [part_text(part) + ("" if hedged else _by_one_run(part)) for part in known]
    unknown = [part.name for part in loss.parts if part.value is None]
    if unknown:
        texts.append(
            f"{plus_minus(loss.residual_points, 1)} points are not split: {' and '.join(unknown)} {_need(len(unknown))}"
        )
    return ": " + ", ".join(texts)


def _by_one_run(part: Part) -> str:
    return " (by one run on a side)" if part.points and part.points.half_width and 1 in part.points.processes else ""


def _need(count: int) -> str:
    return f"need{'s' if count == 1 else ''} runs that are missing"


def _failed_above(series: SeriesSummary, row: RowSummary) -> str:
    above = [each.row.num_devices for each in series.rows if each.row.num_devices > row.row.num_devices]
    return f"; on {' and '.join(str(n) for n in above[:-1] + [devices(above[-1])])} no run succeeded" if above else ""


def _judged(series: Sequence[SeriesSummary]) -> list[SeriesSummary]:
    """The series with an efficiency on several devices that is known well enough to say something."""
    judged = []
    for each in series:
        row = each.largest
        if row and row.row.num_devices > 1 and row.efficiency and not _too_wide(row.efficiency):
            judged.append(each)
    return judged


def _mode(series: SeriesSummary) -> str:
    return series.rows[0].row.config["variable_update"]


def _most(series: SeriesSummary) -> int:
    return series.largest.row.num_devices if series.largest else 0


def _common_count(series: Sequence[SeriesSummary]) -> int | None:
    """The largest number of devices above 1 on which all of them were measured."""
    counts = [{row.row.num_devices for row in each.rows if row.row.rate is not None} for each in series]
    return max(set.intersection(*counts) - {1}, default=None)


def _rate(series: SeriesSummary, count: int) -> Interval:
    row = series.at(count)
    if row is None or row.row.rate is None:
        raise ValueError(f"expected a series with a run on {devices(count)}")
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
    return bool(a.ends and b.ends and a.ends[0] <= b.ends[1] and b.ends[0] <= a.ends[1])
