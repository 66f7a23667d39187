"""The report's answer in sentences: how far each series scales and where the rest goes; no more than was measured.

A short statement first, with the tables' own numbers; what qualifies it follows in sentences of its own. A number whose
interval over processes is not known is never weighed against one that has it.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence

from rnn_scaling import registry
from rnn_scaling.analysis import disturbance
from rnn_scaling.analysis.confidence import Interval
from rnn_scaling.analysis.rows import Row
from rnn_scaling.analysis.significance import is_above
from rnn_scaling.reports import certified
from rnn_scaling.reports.fastest import MOST_NAMED, common_count, conditions, fastest, most_devices, places
from rnn_scaling.reports.numbers import has_interval
from rnn_scaling.reports.series_sentence import is_known, is_too_wide, percent, sentence
from rnn_scaling.reports.summary import SeriesSummary, Summary, listed
from rnn_scaling.settings import scale
from rnn_scaling.settings.naming import program
from rnn_scaling.settings.spelling import command

MOST_LOADED = 3  # runs that are worth to be repeated alone; with more the machine is the matter


def lead(summary: Summary) -> str:
    """What to know first: the only series' own sentence, or which series is fastest, as far as that can be told.

    Weak and strong scaling have one each: they are never compared with each other.
    """
    if not summary.measured:
        return "No run succeeded, so nothing can be said about scaling; the reasons stand below."
    files = [name for name, _ in loaded(summary)]
    alone = [f"Beside other processes ran only {listed(files)}: repeat {'it' if len(files) == 1 else 'them'} alone."]
    lines = [_of_each_scaling(summary, _lead), *(alone if files else []), *_unlike(summary)]
    return " ".join([*certified.alarms(summary), *lines])


def overview(summary: Summary) -> str:
    """The range over several series, and how many could be judged; empty for one series."""
    return _of_each_scaling(summary, _overview)


def _of_each_scaling(summary: Summary, sentence_of: Callable[[Sequence[SeriesSummary]], str]) -> str:
    texts = [(name, text) for name, series in summary.scalings if (text := sentence_of(series))]
    if len(summary.scalings) == 1:
        return "".join(text for _, text in texts)
    return " ".join(f"{name}: {text}" for name, text in texts)


def _unlike(summary: Summary) -> list[str]:
    """That trainers may do different work, and what would say that they do not."""
    trainers = summary.unlike_programs
    if not trainers:
        return []
    return [
        f"Whether {listed(trainers)} do the same work is not known, so none of them is called faster than another; "
        "records that tell the same model and batch_size are compared (docs/any_trainer.md)."
    ]


def _lead(series: Sequence[SeriesSummary]) -> str:
    if len(series) == 1:
        return sentence(series[0])
    several = [each for each in series if most_devices(each) > 1]
    if not several:
        text = f"None of the {len(series)} series was measured on several devices."
        measured, training = _sound([each for each in series if each.at(1)], "")
        return " ".join([*(fastest(measured, 1, training) if len(measured) > 1 else []), text, *_unranked(series)])
    one_model = [each for each in several if registry.trains_one_model(_mode(each))]
    training = " that train one model" if one_model and len(one_model) < len(several) else ""
    rivals = one_model or several
    candidates, in_common = _sound(rivals, training)
    if not candidates:
        why = " or its loss diverged" if any(each.num_diverged for each in rivals) else ""
        return f"None of the {len(rivals)} series{training} is called the fastest: each is known to train wrong{why}."
    lines = [*_on_one_device(candidates, in_common), *_on_several(series, several, candidates, in_common)]
    return " ".join([*lines, *_unranked(series)])


def _unranked(series: Sequence[SeriesSummary]) -> list[str]:
    """Which series cannot be the fastest for what became of their runs, and why."""
    why = {each.title: _failure(each) for each in series}
    named = [f"{title} ({reason})" for title, reason in why.items() if reason]
    more = [f"{len(named) - MOST_NAMED} more"] if len(named) > MOST_NAMED else []
    return [f"Not ranked: {listed([*named[:MOST_NAMED], *more])}."] if named else []


def _failure(series: SeriesSummary) -> str:
    if series.num_diverged:
        return "its loss diverged"
    if series.largest is None:
        return "no run succeeded"
    return "no run on several devices succeeded" if series.failed_above and most_devices(series) == 1 else ""


def _sound(series: Sequence[SeriesSummary], training: str) -> tuple[Sequence[SeriesSummary], str]:
    """(those whose training did not diverge and is not known to be wrong; what they have in common, for the sentence).

    What diverged is named in a sentence of its own.
    """
    series = [each for each in series if not each.num_diverged]
    right = [each for each in series if not certified.is_wrong(each)]
    if len(right) == len(series):
        return series, training
    return right, f"{training} and are not known to train wrong" if training else " that are not known to train wrong"


def _on_one_device(series: Sequence[SeriesSummary], training: str) -> list[str]:
    """Which is fastest on one device, where several programs were measured there: what each is worth by itself."""
    measured = [each for each in series if each.at(1)]
    programs = {program(each.rows[0].row.config) for each in measured}
    return fastest(measured, 1, training) if len(programs) > 1 else []


def _on_several(
    series: Sequence[SeriesSummary],
    several: Sequence[SeriesSummary],
    candidates: Sequence[SeriesSummary],
    training: str,
) -> list[str]:
    """Which is fastest on the most devices that all have."""
    if len(candidates) == 1:
        only = _of_one(training) or " was measured on several devices"
        only = " can be ranked" if any(each.num_diverged for each in several) else only
        # A series that was measured on one device alone, or failed, may train one model too.
        where = " on several devices" if training and len(several) < len(series) else ""
        among = f"{len(several) if where else len(series)} series{where}"
        return [f"One of the {among}{only}.", sentence(candidates[0])]
    count = common_count(candidates)
    if count is None:
        text = f"The series{training} have no number of devices above 1 in common. None of them is called the fastest."
        return [text, *conditions(candidates, None)]
    return fastest(candidates, count, training)


def _of_one(training: str) -> str:
    """What several series have in common, said of one: " that train and are" as " trains and is"."""
    return training.replace(" that train ", " trains ").replace(" that are ", " is ").replace(" and are ", " and is ")


def _overview(series: Sequence[SeriesSummary]) -> str:
    scaled = [each for each in series if each.largest and most_devices(each) > 1 and each.largest.efficiency]
    if len(series) < 2 or not scaled:
        return ""
    judged = sorted((each for each in scaled if _is_judged(each)), key=lambda each: _efficiency(each).value)
    single = sorted((each for each in scaled if not is_known(_efficiency(each))), key=lambda e: _efficiency(e).value)
    texts = []
    if len(judged) > 1:
        low, high = judged[0], judged[-1]
        texts = [f"{len(judged)} series reach {_span(low, high)}."]
        if not is_above(_efficiency(high), _efficiency(low), len(judged)):
            texts += ["These two cannot be told apart."]
    if len(single) > 1 and not judged:
        low, high = single[0], single[-1]
        runs = "one run each" if all(map(_went_by_one_run_each, single)) else "a single run on a side"
        texts += [f"Going by {runs}, {len(single)} series reach {_span(low, high)}; how sure that is nobody knows."]
    elif single:
        texts += [f"{len(single)} of {len(series)} series went by one run, so nobody knows how sure their numbers are."]
    if unjudged := len(series) - len(judged) - len(single):
        texts += [f"{unjudged} of {len(series)} series cannot be judged."]
    return " ".join(texts)


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
        lines = [line for part in (row.loss.missing if row.loss else ()) for line in part.commands]
    repeats = f" --repeats={len(row.row.records)}" if len(row.row.records) > 1 else ""
    return [f"{line}{repeats}" for line in dict.fromkeys(lines)]


def loaded(summary: Summary) -> list[tuple[str, Row]]:
    """(file, its row) of the good runs beside which other processes ran, where these are few: they are run anew."""
    rows = [row for series in summary.series for row in series.rows]
    good = [(name, row.row, run) for row in rows for name, run in zip(row.files, row.row.records) if run.throughput]
    beside = [(name, row) for name, row, run in good if disturbance.load(run)]
    return beside if len(beside) <= min(MOST_LOADED, len(good) // 6) else []


def all_missing(summary: Summary) -> list[str]:
    """The commands that repeat loaded runs alone, and of all series that add missing runs to the folder, each once."""
    again = [
        f"rm {shlex.quote(f'{summary.name}/{file}')} && {command(row.config)} --repeats={len(row.records)}"
        for file, row in loaded(summary)
        if row.is_ours
    ]
    commands = (command for each in summary.series for command in missing(each))
    return [summary.supplying(command) for command in dict.fromkeys([*again, *commands])]


def kinds(series: Sequence[SeriesSummary]) -> list[str]:
    """What "±" is in the sentences, each kind once, with the numbers that have it where kinds differ."""
    columns_of: dict[str, dict[str, None]] = {}
    for row in (each.largest for each in series if each.largest):
        parts = [part.points for part in row.loss.shown] if row.loss else []
        name, main = "speedup and efficiency", row.efficiency
        if main is None or row.row.num_devices == 1:
            name, main = f"{row.row.unit}/s", row.row.rate
        for what, value in [(name, main), *(("parts", points) for points in parts)]:
            if value is not None and has_interval(value):
                columns_of.setdefault(value.kind, {})[what] = None
    if len(columns_of) < 2:
        return list(columns_of)
    return [f"{', '.join(names)}: {kind}" for kind, names in columns_of.items()]


def _went_by_one_run_each(series: SeriesSummary) -> bool:
    rows = (series.largest.row, series.largest.row.baseline) if series.largest else ()
    return all(len(row.good) == 1 for row in rows if row)


def _is_judged(series: SeriesSummary) -> bool:
    """Whether an efficiency on several devices is known well enough to say something."""
    return is_known(_efficiency(series)) and not is_too_wide(_efficiency(series))


def _mode(series: SeriesSummary) -> str:
    return series.rows[0].row.config["variable_update"]


def _efficiency(series: SeriesSummary) -> Interval:
    row = series.largest
    if row is None or row.efficiency is None:
        raise ValueError("expected a series with a baseline")
    return row.efficiency


def _span(low: SeriesSummary, high: SeriesSummary) -> str:
    """ "between 91 ± 4 % (A) and 95 ± 4 % (B) of the ideal on 2 devices"."""
    alike = most_devices(low) == most_devices(high)
    on = places([low, high], most_devices(low))
    first, second = (
        f"{percent(_efficiency(each))} ({each.title}{'' if alike else f', on {places([each], most_devices(each))}'})"
        for each in (low, high)
    )
    return f"between {first} and {second} of the ideal{f' on {on}' if alike else ''}"
