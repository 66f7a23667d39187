"""The report's answer in sentences: how far each series scales and where the rest goes; no more than was measured.

A short statement first, with the tables' own numbers; what qualifies it follows in sentences of its own. A number whose
interval over processes is not known is never weighed against one that has it. Two numbers are told apart by the
interval of their ratio; among several, Bonferroni's correction over all pairs keeps the chance of any false one at 5 %.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from rnn_scaling import registry
from rnn_scaling.analysis import disturbance
from rnn_scaling.analysis.attribution import ALL, REPEATS, Attribution
from rnn_scaling.analysis.confidence import LEVEL, POWER, Interval, ratio
from rnn_scaling.analysis.metrics import SPEEDUP
from rnn_scaling.analysis.student import t_detectable, t_quantile
from rnn_scaling.records.record import RunRecord
from rnn_scaling.reports import certified, cluster
from rnn_scaling.reports.loss_text import parts_sentence, rounded_up, untold
from rnn_scaling.reports.numbers import plus_minus, share
from rnn_scaling.reports.summary import RowSummary, SeriesSummary, Summary, devices, listed
from rnn_scaling.settings import scale
from rnn_scaling.settings.spelling import command

TOO_WIDE = 0.5  # half an interval over its number, from which on the number says nothing
MOST_NAMED = 6  # series in one sentence


def lead(summary: Summary) -> str:
    """What to know first: the only series' own sentence, or which series is fastest, as far as that can be told.

    Weak and strong scaling have one each: they are never compared with each other.
    """
    if not summary.measured:
        return "No run succeeded, so nothing can be said about scaling; the reasons stand below."
    return " ".join([*certified.alarms(summary), _of_each_scaling(summary, _lead)])


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
    several = [each for each in series if _most(each) > 1]
    if not several:
        return f"None of the {len(series)} series was measured on several devices."
    one_model = [each for each in several if registry.trains_one_model(_mode(each))]
    candidates = one_model or several
    training = " that train one model" if one_model and len(one_model) < len(several) else ""
    if len(candidates) == 1:
        only = "trains one model" if training else "was measured on several devices"
        return f"One of the {len(series)} series {only}. {sentence(candidates[0])}"
    count = _common_count(candidates)
    if count is None:
        text = f"The series{training} have no number of devices above 1 in common. None of them is called the fastest."
        return " ".join([text, *_conditions(candidates, None)])
    return " ".join(_fastest(candidates, count, training))


def _fastest(series: Sequence[SeriesSummary], count: int, training: str) -> list[str]:
    """Which of several series has the highest rate on so many devices, or that it cannot be told; what slowed them."""
    ordered = sorted(series, key=lambda each: -_rate(each, count).value)
    first, best = ordered[0], _rate(ordered[0], count)
    rivals = [each for each in ordered[1:] if not _is_slower(each, count, best, len(series))]
    where, unit = f"on {_places(series, count)}", f"{first.unit}/s"
    where += ", the most that all have," if any(_most(each) != count for each in series) else ""
    if not rivals:
        text = f"The fastest of the {len(series)} series{training} {where} is {first.title}: {_number(best)} {unit}."
        return [text, _about(first), *_conditions(series, count, first)]
    tied = [first, *rivals]
    named = [f"{each.title} ({_number(_rate(each, count))} {unit})" for each in tied[:MOST_NAMED]]
    named += [f"{len(tied) - MOST_NAMED} more"] if len(tied) > MOST_NAMED else []
    others = len(series) - len(tied)
    slower = f"; the other{f' {others} are' if others > 1 else ' is'} slower than the first" if others else ""
    text = f"Which of the {len(series)} series{training} is fastest {where} cannot be told."
    text += f" {listed(named)} cannot be told apart{slower}."
    if all(is_above(best, _rate(each, count), len(series)) and not _lost(each.at(count)) for each in rivals):
        would_tell = "Other processes slowed the slower ones: runs without them would tell."
    else:
        would_tell = _would_tell([_rate(each, count) for each in tied], len(series))
    return [text, would_tell, *_conditions(series, count)]


def _is_slower(series: SeriesSummary, count: int, best: Interval, among: int) -> bool:
    """Whether a series, with all its workers, is slower than the best one whatever others took from its runs."""
    row = series.at(count)
    if _lost(row):
        return False
    lost = disturbance.taken(row.row.good) if row else 0.0
    return lost < 1 and is_above(best, _rate(series, count).scaled(1 / (1 - lost)), among)


def _about(series: SeriesSummary) -> str:
    """The sentence of a series that was just named."""
    text = " ".join([*_statement(series), *(cluster.remarks(series.largest.row) if series.largest else [])])
    return f"It{text.removeprefix(series.title)}" if text.startswith(f"{series.title} ") else text


def _would_tell(rates: Sequence[Interval], among: int) -> str:
    """How many runs of each would show which differences from the first of these rates, in 80 of 100 cases."""
    now = max(1, min(count for rate in rates for count in rate.processes or (1,)))
    if any(rate.standard_error is None or rate.ends is None for rate in rates):
        return f"--repeats={REPEATS[0]} would show how much runs differ."
    repeats = next((each for each in REPEATS if each >= 2 * now), 2 * now)
    grown = repeats / now
    changes = [ratio(rates[0], rate) for rate in rates[1:]]
    effects = [
        (each.standard_error or 0.0) / each.value * t_detectable(_quantile(among), POWER, each.degrees * grown)
        for each in changes
    ]
    least = -100 * math.expm1(-max(effects) / math.sqrt(grown))
    return f"--repeats={repeats} would most likely show differences of {rounded_up(least)} %."


def _overview(series: Sequence[SeriesSummary]) -> str:
    scaled = [each for each in series if each.largest and _most(each) > 1 and each.largest.efficiency]
    if len(series) < 2 or not scaled:
        return ""
    judged = sorted((each for each in scaled if _is_judged(each)), key=lambda each: _efficiency(each).value)
    once = sorted((each for each in scaled if not is_known(_efficiency(each))), key=lambda e: _efficiency(e).value)
    texts = []
    if len(judged) > 1:
        low, high = judged[0], judged[-1]
        texts = [f"{len(judged)} series reach {_span(low, high)}."]
        if not is_above(_efficiency(high), _efficiency(low), len(judged)):
            texts += ["These two cannot be told apart."]
    if len(once) > 1 and not judged:
        low, high = once[0], once[-1]
        texts += [f"Going by one run each, {len(once)} series reach {_span(low, high)}; how sure that is nobody knows."]
    elif once:
        texts += [f"{len(once)} of {len(series)} series went by one run, so nobody knows how sure their numbers are."]
    if unjudged := len(series) - len(judged) - len(once):
        texts += [f"{unjudged} of {len(series)} series cannot be judged."]
    return " ".join(texts)


def sentence(series: SeriesSummary) -> str:
    """One series at its most devices: its efficiency, what the lost points are, and what else slowed its runs."""
    row = series.largest
    if row is None:
        return f"{series.title}: no run succeeded."
    first, *others = _statement(series)
    crowding = [text] if (text := crowding_sentence(row)) else []
    workers = cluster.remarks(row.row)
    return " ".join([first, *crowding, *others, *workers, *_of_load(_records(row)), *_failed_above(series, row)])


def _statement(series: SeriesSummary) -> list[str]:
    """How far a measured series scales, as far as that can be told, and what the lost points are."""
    row, title = series.largest, series.title
    if row is None:
        raise ValueError("expected a measured series")
    rate = f"{title}: {_number(row.row.rate)} {series.unit}/s on {row.devices}."
    if row.row.num_devices == 1:
        return [rate, "It was not run on more devices."]
    if row.efficiency is None:
        return [rate, "How it scales needs its run on 1 device."]
    if not is_known(row.efficiency):
        reached = f"{title} reaches about {_reached(row)}, {_one_run(row)}."
        return [reached, f"--repeats={REPEATS[0]} would show how sure that is."]
    if _too_wide(row.efficiency):
        low, high = (f"{end:.0f}" for end in row.efficiency.ends or ())
        text = f"{title}: the runs vary too much to tell how it scales on {row.devices}"
        return [f"{text} ({low} to {high} % of the ideal).", "More repeats would tell."]
    return [f"{title} reaches {_reached(row)}.", *_where(row.loss)]


def missing(series: SeriesSummary) -> list[str]:
    """Commands that supply what the sentence could not say, each once and with as many repeats as the series has."""
    row = series.largest
    if row is None or not row.row.is_ours:
        return []
    if row.row.num_devices == 1:
        lines = [command(row.row.config, **{scale.axis(row.row.config): 2})] if len(series.rows) == 1 else []
    elif row.efficiency is None:
        lines = [command(row.row.config, **scale.ON_ONE_DEVICE)]
    else:
        lines = [line for part in (row.loss.parts if row.loss else ()) for line in part.commands]
    repeats = f" --repeats={len(row.row.records)}" if len(row.row.records) > 1 else ""
    return [f"{line}{repeats}" for line in dict.fromkeys(lines)]


def all_missing(summary: Summary) -> list[str]:
    """The commands of all series that add missing runs to the folder, each once."""
    commands = (command for each in summary.series for command in missing(each))
    return [summary.supplying(command) for command in dict.fromkeys(commands)]


def kinds(series: Sequence[SeriesSummary]) -> list[str]:
    """What "±" is in the sentences, each kind once, with the numbers that have it where kinds differ."""
    columns_of: dict[str, dict[str, None]] = {}
    for row in (each.largest for each in series if each.largest):
        parts = [part.points for part in row.loss.shown] if row.loss else []
        name, main = "speedup and efficiency", row.efficiency
        if main is None or row.row.num_devices == 1:
            name, main = f"{row.row.unit}/s", row.row.rate
        for what, value in [(name, main), *(("parts", points) for points in parts)]:
            if value is not None and value.half_width and is_known(value):
                columns_of.setdefault(value.kind, {})[what] = None
    if len(columns_of) < 2:
        return list(columns_of)
    return [f"{', '.join(names)}: {kind}" for kind, names in columns_of.items()]


def is_known(value: Interval) -> bool:
    """Whether an interval over processes is known; one over the batches of a process says nothing about others."""
    return value.ends is not None


def is_above(a: Interval, b: Interval, among: int = 2) -> bool:
    """Whether `a` is above `b`: the interval of their ratio, as `confidence.ratio` gives it, lies above 1.

    Args:
      a, b: rates, or efficiencies; False where the interval of one is not known.
      among: how many numbers they were picked from, as the highest or the lowest; the interval is then wide enough
        that all of their pairs hold at once.
    """
    change = ratio(a, b)
    if not is_known(change) or change.standard_error is None:
        return False
    # An efficiency does not tell what it shares with another one, so the degrees of both are never added.
    degrees = change.degrees if a.scatter and b.scatter else min(a.degrees, b.degrees)
    return math.log(change.value) > t_quantile(_quantile(among), degrees) * change.standard_error / change.value


def _quantile(among: int) -> float:
    """The probability of Student's t at which all pairs of so many numbers together have 5 % false alarms."""
    return 1 - (1 - LEVEL) / 2 / math.comb(among, 2)


def contains_zero(value: Interval) -> bool:
    """Whether the interval is known and 0 lies in it."""
    return value.ends is not None and value.ends[0] <= 0 <= value.ends[1]


def load_sentence(records: Sequence[RunRecord]) -> str:
    """What other processes took of the cores while these runs were measured; empty where it was not noticed."""
    loads = [load for record in records if (load := disturbance.load(record))]
    if not loads:
        return ""
    all_runs = "the run" if len(records) == 1 else f"all {len(records)} runs"
    runs = all_runs if len(loads) == len(records) else f"{len(loads)} of the {len(records)} runs"
    return f"Other processes took up to {share(max(loads))} of the cores during {runs} behind these numbers."


def crowding_sentence(row: RowSummary) -> str:
    """That devices shared cores, and what they can reach at most unless they reached more; empty if none share."""
    base, cores = row.row.baseline, disturbance.shared_cores(row.row)
    if base is None or row.loss is None or not cores:
        return ""
    alone = max((len(disturbance.cores_of(record)) for record in base.good), default=0)
    shared = f"{row.devices} share {cores} core{'' if cores == 1 else 's'}"
    shared += f", of which one alone had {alone}" if alone > 1 else ""
    most, reached = row.loss.most, row.efficiency.value if row.efficiency else 0.0
    is_bound = most < 1 and reached <= ALL * most
    return f"{shared}{f', so {share(most)} of the ideal is the most that they can reach' if is_bound else ''}."


def _where(loss: Attribution | None) -> list[str]:
    """What the lost points are, for a loss with an interval."""
    if loss is None:
        return []
    if _is_split(loss):
        return [parts_sentence(loss) if loss.is_told else untold(loss)]
    if not contains_zero(loss.loss_points):
        return ["That is more than the ideal: check load and clocks of the runs on 1 device, then measure both again."]
    repeats, points = loss.would_show()
    more = f"; --repeats={repeats} would show a loss of {rounded_up(points)} points" if points else ""
    return [f"That cannot be told apart from the ideal{more}."]


def _is_split(loss: Attribution) -> bool:
    """Whether the sentence says something of the parts: nobody asks where more than the ideal went."""
    ends = loss.loss_points.ends
    return ends is not None and ends[1] >= 0 and (loss.is_told or ends[0] > 0)


def _of_load(records: Sequence[RunRecord]) -> list[str]:
    return [text] if (text := load_sentence(records)) else []


def _conditions(series: Sequence[SeriesSummary], count: int | None, split: SeriesSummary | None = None) -> list[str]:
    """What slowed runs of several series that one sentence compares, on 1 device and `count`.

    Args:
      series: that are compared.
      count: of devices; None: on every number of them.
      split: whose loss the sentence splits, too.
    """
    rows = [row for each in series for row in each.rows if count is None or row.row.num_devices in (1, count)]
    crowded = [text for row in rows if (text := crowding_sentence(row))]
    others = [each for each in series if each is not split]
    workers = [f"{each.title}: {text}" for each in others for text in _of_workers(each, count)]
    runs = {id(record): record for row in rows for record in row.row.good}
    runs |= {id(record): record for record in (_records(split.largest) if split and split.largest else ())}
    return [*dict.fromkeys(crowded[:1]), *workers, *_of_load([*runs.values()])]


def _of_workers(series: SeriesSummary, count: int | None) -> list[str]:
    """What must be said of a series' workers on so many devices; None: on its most."""
    row = series.largest if count is None else series.at(count)
    return cluster.remarks(row.row) if row else []


def _lost(row: RowSummary | None) -> bool:
    """Whether a run of a row went on without some of its workers."""
    return row is not None and bool(cluster.runs_with_losses(row.row))


def _places(series: Sequence[SeriesSummary], count: int) -> str:
    """ "4 workers of one device each" where all series have them so, else "4 devices"."""
    words = {row.devices for each in series if (row := each.at(count))}
    return words.pop() if len(words) == 1 else devices(count)


def _records(row: RowSummary) -> list[RunRecord]:
    """The runs behind the numbers that are said of a row: its own, its baseline's, and those that its parts need."""
    base, loss = row.row.baseline, row.loss
    rows = [row.row, *([base] if base and base is not row.row else [])]
    if loss and row.efficiency and is_known(row.efficiency) and not _too_wide(row.efficiency) and _is_split(loss):
        rows += [each for each in loss.rows if all(each is not other for other in rows)]
    return [record for each in rows for record in each.good]


def _reached(row: RowSummary) -> str:
    """ "88.0 ± 1.2 % of the ideal on 2 devices, 1.76 ± 0.02 times the speed of one"."""
    speedup = row.row.metric(SPEEDUP)
    return f"{_percent(row.efficiency)} of the ideal on {row.devices}, {_number(speedup, 2)} times the speed of one"


def _one_run(row: RowSummary) -> str:
    """Which side of a ratio is a single process."""
    base = row.row.baseline
    sides = [each for each in (base, row.row) if each is not None and len(each.good) == 1]
    if len(sides) == 2 and base is not row.row:
        return "going by one run each"
    return f"going by one run on {sides[0].devices}" if sides else "of which no interval is known"


def _failed_above(series: SeriesSummary, row: RowSummary) -> list[str]:
    above = [each.row for each in series.rows if each.row.num_devices > row.row.num_devices]
    counts = [str(each.num_workers if each.is_distributed else each.num_devices) for each in above[:-1]]
    return [f"On {listed([*counts, above[-1].devices])} no run succeeded."] if above else []


def _is_judged(series: SeriesSummary) -> bool:
    """Whether an efficiency on several devices is known well enough to say something."""
    return is_known(_efficiency(series)) and not _too_wide(_efficiency(series))


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


def _efficiency(series: SeriesSummary) -> Interval:
    row = series.largest
    if row is None or row.efficiency is None:
        raise ValueError("expected a series with a baseline")
    return row.efficiency


def _too_wide(value: Interval) -> bool:
    return value.half_width is not None and value.half_width > TOO_WIDE * value.value


def _span(low: SeriesSummary, high: SeriesSummary) -> str:
    """ "between 91 ± 4 % (A) and 95 ± 4 % (B) of the ideal on 2 devices"."""
    alike = _most(low) == _most(high)
    on = _places([low, high], _most(low))
    first, second = (
        f"{_percent(_efficiency(each))} ({each.title}{'' if alike else f', on {_places([each], _most(each))}'})"
        for each in (low, high)
    )
    return f"between {first} and {second} of the ideal{f' on {on}' if alike else ''}"


def _percent(value: Interval | None) -> str:
    return f"{_number(value, 1)} %"


def _number(value: Interval | None, digits: int = 1) -> str:
    """As in the tables."""
    return plus_minus(value, digits)
