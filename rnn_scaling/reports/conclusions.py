"""The answer of a report as statements: which series is fastest and how far it scales; no more than was measured.

Two rates are separated by the interval of their ratio; among several, Bonferroni's correction over all pairs keeps the
chance of any false one at 5 %. A number whose interval over processes is not known is never weighed against another.
"""

import math
import shlex
from collections.abc import Sequence
from typing import Any

from rnn_scaling.analysis import disturbance, significance
from rnn_scaling.analysis.confidence import Interval, ratio
from rnn_scaling.analysis.metrics import COST, WORK_PER_EXCHANGE
from rnn_scaling.analysis.rows import Row
from rnn_scaling.analysis.significance import (
    REPEATS,
    foreseen_effect,
    is_above,
    more_repeats,
)
from rnn_scaling.analysis.statements import Statement, interval_values
from rnn_scaling.config import registry, scale
from rnn_scaling.config.naming import program
from rnn_scaling.config.spelling import command
from rnn_scaling.reports import certificates, cluster
from rnn_scaling.reports import series_statements as one_series
from rnn_scaling.reports.numbers import has_interval
from rnn_scaling.reports.summary import RowSummary, SeriesSummary, Summary
from rnn_scaling.reports.wording import sentences
from rnn_scaling.system.files.terminal import counted
from rnn_scaling.system.machine.load import NOTICEABLE

MOST_ANSWERS = (
    3  # of models one after the other; with more, each series has its sentences
)
MOST_LOADED = (
    3  # runs that are worth repeating alone; with more the machine is the problem
)


def answer_text(summary: Summary) -> str:
    return sentences(answer_statements(summary))


def overview_text(summary: Summary) -> str:
    """The range over several series in English; "" for one series."""
    return sentences(overview_statements(summary))


def answer_statements(summary: Summary) -> list[Statement]:
    """What to know first: how far the only series scales, or which series is fastest, as far as that is clear.

    Weak and strong scaling have one answer each: they are never compared with each other.
    """
    if not summary.measured:
        return [Statement("no-run-succeeded")]
    made = [*certificates.alarms(summary)]
    if summary.has_many_models:
        made += [
            statement
            for name, series in summary.tables
            for statement in _of_models(summary, name, series)
        ]
    for name, series in _answered(summary):
        made += [*_title(summary, name), *_lead(series), *_cost(summary, series)]
    made += disturbed_left_out(summary)
    # The others do not count, so nothing depends on them.
    if files := [
        name for name, row in few_disturbed_runs(summary) if not row.disturbed_runs
    ]:
        made.append(Statement("loaded-runs", values={"files": files}))
    if summary.trainers_of_unknown_work:
        made.append(
            Statement(
                "unknown-work", values={"trainers": summary.trainers_of_unknown_work}
            )
        )
    return [*made, *summary.checked_predictions]


def overview_statements(summary: Summary) -> list[Statement]:
    """The range over several series, and how many could be judged; empty for one series."""
    ranges = [(name, _overview(series)) for name, series in _answered(summary)]
    return [
        statement
        for name, made in ranges
        if made
        for statement in (*_title(summary, name), *made)
    ]


def _answered(summary: Summary) -> list[tuple[str, tuple[SeriesSummary, ...]]]:
    """The scalings that have answers of their own: none of a report of more models than can be read."""
    return (
        []
        if summary.has_many_models and len(summary.scalings) > MOST_ANSWERS
        else summary.scalings
    )


def _title(summary: Summary, name: str) -> list[Statement]:
    return [Statement("scaling", name)] if len(summary.scalings) > 1 else []


def _of_models(
    summary: Summary, name: str, series: Sequence[SeriesSummary]
) -> list[Statement]:
    """The range of the models' efficiencies, and whether these follow their work per exchanged MB."""
    pairs: dict[int, list[tuple[float, float]]] = {}
    for member in series:
        for row in member.rows:
            work = row.row.metric(WORK_PER_EXCHANGE)
            if work and row.efficiency and row.row.num_devices > 1:
                pairs.setdefault(row.row.num_devices, []).append(
                    (work.value, row.efficiency.value)
                )
    title = (
        [Statement("scaling", name)]
        if len(summary.tables) > 1 or _answered(summary)
        else []
    )
    ranges = _overview(series) or [
        Statement("none-on-several", values={"series": len(series)})
    ]
    made = [*title, *ranges, *_unranked(series)]
    if not registry.mode_of(series[0].mode).trains_one_model:
        return made
    # On the number of devices that most models have.
    _, most = max(
        pairs.items(), key=lambda pair: (len(pair[1]), pair[0]), default=(0, [])
    )
    return [
        *made,
        significance.state_efficiency_trend([x for x, _ in most], [y for _, y in most]),
    ]


def _lead(series: Sequence[SeriesSummary]) -> list[Statement]:
    if len(series) == 1:
        return one_series.statements(series[0])
    several = [member for member in series if most_devices(member) > 1]
    if not several:
        measured, excluded = _sound([member for member in series if member.row_on(1)])
        first = fastest(measured, 1) if len(measured) > 1 else []
        return [
            *first,
            *excluded,
            Statement("none-on-several", values={"series": len(series)}),
            *_unranked(series),
        ]
    one_model = [
        member for member in several if registry.mode_of(member.mode).trains_one_model
    ]
    rivals = one_model or several
    candidates, excluded = _sound(rivals)
    if len(rivals) < len(several):
        excluded = [Statement("ranked-one-model"), *excluded]
    if not candidates:
        return [
            Statement("none-sound", values={"series": len(rivals)}),
            *excluded,
            *_unranked(series),
        ]
    on_several = _on_several(candidates)
    if len(candidates) == 1:
        on_several = [
            Statement("one-ranked", values={"series": len(series)}),
            *on_several,
        ]
    return [*_on_one_device(candidates), *on_several, *excluded, *_unranked(series)]


def _cost(summary: Summary, series: Sequence[SeriesSummary]) -> list[Statement]:
    """The lowest cost, if the machines have prices; among series that train one model, if there are any."""
    candidates = [
        member for member in series if registry.mode_of(member.mode).trains_one_model
    ] or series
    rows = [
        row.row
        for member in candidates
        if not member.num_diverged
        for row in member.rows
    ]
    costs = [
        (cost, row, row.priced)
        for row in rows
        if (cost := row.metric(COST)) and row.priced
    ]
    if not costs:
        return []
    cost, row, priced = min(costs, key=lambda item: item[0].value)
    values = {
        "cost": interval_values(cost),
        "currency": priced.currency,
        "machine": priced.name,
    }
    return [
        Statement(
            "lowest-cost",
            summary.row_titles[row],
            {**values, "unit": row.unit, "devices": row.devices},
        )
    ]


def _unranked(series: Sequence[SeriesSummary]) -> list[Statement]:
    """Which series cannot be the fastest, by what became of their runs."""
    names: dict[str, list[str]] = {}
    for member in series:
        if kind := _failure(member):
            names.setdefault(kind, []).append(member.title)
    return [Statement(kind, values={"names": titles}) for kind, titles in names.items()]


def _failure(series: SeriesSummary) -> str:
    if series.num_diverged:
        return "not-ranked-diverged"
    if series.largest_row is None:
        return "not-ranked-failed"
    return (
        "not-ranked-failed-on-several"
        if series.failed_above and most_devices(series) == 1
        else ""
    )


def _sound(
    series: Sequence[SeriesSummary],
) -> tuple[list[SeriesSummary], list[Statement]]:
    """(those whose training did not diverge and is not known to be wrong; that others are known to be wrong)."""
    calm = [member for member in series if not member.num_diverged]
    right = [member for member in calm if not certificates.trains_wrong(member)]
    return right, [Statement("ranked-right")] if len(right) < len(calm) else []


def _on_one_device(series: Sequence[SeriesSummary]) -> list[Statement]:
    """Which is fastest on one device, where several programs were measured there: what each is worth by itself."""
    measured = [member for member in series if member.row_on(1)]
    programs = {program(member.rows[0].row.options) for member in measured}
    return fastest(measured, 1) if len(programs) > 1 else []


def _on_several(candidates: Sequence[SeriesSummary]) -> list[Statement]:
    if len(candidates) == 1:
        return one_series.statements(candidates[0])
    counts = [
        {row.row.num_devices for row in member.rows if row.row.rate is not None}
        for member in candidates
    ]
    count = max(set.intersection(*counts) - {1}, default=None)
    if count is None:
        return [Statement("no-common-devices"), *conditions(candidates, None)]
    return fastest(candidates, count)


def _overview(series: Sequence[SeriesSummary]) -> list[Statement]:
    scaled = [
        member
        for member in series
        if member.largest_row
        and most_devices(member) > 1
        and member.largest_row.efficiency
    ]
    if len(series) < 2 or not scaled:
        return []
    ordered = sorted(scaled, key=lambda member: _efficiency(member).value)
    single = [
        member for member in ordered if not one_series.is_known(_efficiency(member))
    ]
    judged = [
        member
        for member in ordered
        if member not in single and not one_series.is_too_wide(_efficiency(member))
    ]
    made: list[Statement] = []
    if len(judged) > 1:
        made = [_range(judged)]
        if not is_above(_efficiency(judged[-1]), _efficiency(judged[0]), len(judged)):
            made.append(Statement("range-within-noise"))
    if len(single) > 1 and not judged:
        made += [_range(single), Statement("single-runs")]
    elif single:
        made.append(
            Statement(
                "series-of-single-runs",
                values={"single": len(single), "series": len(series)},
            )
        )
    if unjudged := len(series) - len(judged) - len(single):
        made.append(
            Statement(
                "series-unjudged", values={"unjudged": unjudged, "series": len(series)}
            )
        )
    return made


def _range(ordered: Sequence[SeriesSummary]) -> Statement:
    low, high = ordered[0], ordered[-1]
    values: dict[str, Any] = {
        "series": len(ordered),
        "low": interval_values(_efficiency(low)),
        "high": interval_values(_efficiency(high)),
        "low_name": low.title,
        "high_name": high.title,
        "low_devices": places([low], most_devices(low)),
        "high_devices": places([high], most_devices(high)),
    }
    if most_devices(low) != most_devices(high):
        return Statement("efficiency-range-mixed", values=values)
    return Statement(
        "efficiency-range",
        values={**values, "devices": places([low, high], most_devices(low))},
    )


def missing_run_commands(series: SeriesSummary) -> list[str]:
    """Commands that supply what is missing, each once, with the repeats of the series."""
    row = series.largest_row
    if row is None or not row.row.is_ours:
        return []
    if row.row.num_devices == 1:
        lines = (
            [command(row.row.options, **{scale.axis(row.row.options): 2})]
            if len(series.rows) == 1
            else []
        )
    elif row.efficiency is None:
        lines = [command(row.row.options, **scale.ON_ONE_DEVICE)]
    else:
        lines = [
            line
            for part in (row.loss.missing if row.loss else ())
            for line in part.commands
        ]
    repeats = f" --repeats={len(row.row.records)}" if len(row.row.records) > 1 else ""
    return [f"{line}{repeats}" for line in dict.fromkeys(lines)]


def few_disturbed_runs(summary: Summary) -> list[tuple[str, Row]]:
    """Return (file, its row) of the disturbed good runs, if they are few.

    They are worth repeating, whether or not they count.
    """
    num_good = 0
    disturbed = []
    for row in _all_rows(summary):
        good = {id(run) for run in row.row.good_runs}
        num_good += len(good)
        for name, run in zip(row.files, row.row.records):
            if id(run) in good and disturbance.is_disturbed(run):
                disturbed.append((name, row.row))
    is_few = len(disturbed) <= min(MOST_LOADED, num_good // 6)
    return disturbed if is_few else []


def disturbed_left_out(summary: Summary) -> list[Statement]:
    """Return which good runs do not count because they were disturbed; [] if none."""
    files = []
    loads = []
    num_good = 0
    for row in _all_rows(summary):
        num_good += len(row.row.good_runs)
        left_out = {id(run) for run in row.row.disturbed_runs}
        for name, run in zip(row.files, row.row.records):
            if id(run) in left_out:
                files.append(name)
                loads.append(disturbance.load(run))
    if not files:
        return []
    values = {
        "files": files,
        "runs": num_good,
        "share": max(loads),
        "threshold": NOTICEABLE,
    }
    return [Statement("disturbed-left-out", values=values)]


def _all_rows(summary: Summary) -> list[RowSummary]:
    rows: list[RowSummary] = []
    for series in summary.series:
        rows.extend(series.rows)
    return rows


def all_missing_run_commands(summary: Summary) -> list[str]:
    """The commands that repeat loaded runs alone, and of all series that add missing runs to the folder, each once."""
    repeats = [
        f"rm {shlex.quote(f'{summary.name}/{file}')} && {command(row.options)} --repeats={len(row.records)}"
        for file, row in few_disturbed_runs(summary)
        if row.is_ours
    ]
    commands = (
        command for member in summary.series for command in missing_run_commands(member)
    )
    return [
        summary.command_for_folder(command)
        for command in dict.fromkeys([*repeats, *commands])
    ]


def interval_kinds(series: Sequence[SeriesSummary]) -> list[str]:
    """What "±" is in the sentences, each kind once, with the numbers that have it where kinds differ."""
    columns_of: dict[str, dict[str, None]] = {}
    for row in (member.largest_row for member in series if member.largest_row):
        parts = [part.points for part in row.loss.displayed_parts] if row.loss else []
        name, main = "speedup and efficiency", row.efficiency
        if main is None or row.row.num_devices == 1:
            name, main = f"{row.row.unit}/s", row.row.rate
        for column, value in [(name, main), *(("parts", points) for points in parts)]:
            if value is not None and has_interval(value):
                columns_of.setdefault(value.kind, {})[column] = None
    if len(columns_of) < 2:
        return list(columns_of)
    return [f"{', '.join(names)}: {kind}" for kind, names in columns_of.items()]


def _efficiency(series: SeriesSummary) -> Interval:
    assert series.largest_row and series.largest_row.efficiency
    return series.largest_row.efficiency


def fastest(series: Sequence[SeriesSummary], count: int) -> list[Statement]:
    """Which of several series has the highest rate on so many devices, or that it is not clear; what slowed them."""
    ordered = sorted(series, key=lambda member: -_rate(member, count).value)
    first, best = ordered[0], _rate(ordered[0], count)
    rivals = [
        member
        for member in ordered[1:]
        if not _is_slower(member, first, count, len(series))
    ]
    values: dict[str, Any] = {"series": len(series), "devices": places(series, count)}
    differ = count > 1 and any(most_devices(member) != count for member in series)
    common = [Statement("most-common-devices", values=values)] if differ else []
    if not rivals:
        values |= {"rate": interval_values(best), "unit": first.unit}
        about = (
            one_series.scaling_statements(first) + _of_workers(first, None)
            if count > 1
            else []
        )
        conditions_ = conditions(series, count, first if about else None)
        made = [Statement("fastest", first.title, values), *common, *about]
        return [*made, *_elsewhere(ordered, count, first), *conditions_]
    below = [
        member for member in rivals if is_above(best, _rate(member, count), len(series))
    ]
    slowed = [member for member in below if not _lost(member.row_on(count))]
    all_slowed = len(slowed) == len(rivals)
    tied = [first, *(member for member in rivals if member not in slowed or all_slowed)]
    made = [
        Statement("fastest-unclear", values={**values, "tied": _rated(tied, count)}),
        *common,
    ]
    if others := len(series) - 1 - len(rivals):
        made.append(Statement("others-slower", values={"others": others}))
    if slowed and not all_slowed:
        made.append(
            Statement("slowed-by-load", values={"slowed": _rated(slowed, count)})
        )
    rates = [_rate(member, count) for member in tied]
    made.append(
        Statement("quiet-runs-would-tell")
        if all_slowed
        else _would_tell(rates, len(series))
    )
    return [*made, *_elsewhere(ordered, count), *conditions(series, count)]


def _elsewhere(
    series: Sequence[SeriesSummary], count: int, named: SeriesSummary | None = None
) -> list[Statement]:
    """Which series but `named` are faster on fewer devices than their most, and of which no run succeeded on more."""
    if count == 1:
        return []
    peaks = [
        one_series.scaling_statements(member)[0]
        for member in series
        if member.faster_on_fewer_devices and member is not named
    ]
    return [
        *peaks,
        *(
            statement
            for member in series
            for statement in one_series.failure_statements(member)
        ),
    ]


def _rated(series: Sequence[SeriesSummary], count: int) -> list[dict[str, Any]]:
    rates = [interval_values(_rate(member, count)) for member in series]
    return [
        {"name": member.title, "rate": rate, "unit": member.unit}
        for member, rate in zip(series, rates)
    ]


def _is_slower(
    series: SeriesSummary, best: SeriesSummary, count: int, among: int
) -> bool:
    """Return whether a series is slower than the best one, whatever slowed its runs.

    Args:
      series: The series, which has a rate on `count` devices.
      best: The series with the highest rate on `count` devices.
      count: The number of devices.
      among: The number of series that are compared.

    Returns:
      False if a run lost workers, or if load that only `series` had may explain the
      difference. Load that both had slowed both.
    """
    row = series.row_on(count)
    best_row = best.row_on(count)
    if row is None or best_row is None or _lost(row):
        return False
    taken = disturbance.max_slowing_beyond(
        row.row.counted_runs, best_row.row.counted_runs
    )
    if taken >= 1:
        return False
    undisturbed = _rate(series, count).scaled(1 / (1 - taken))
    return is_above(_rate(best, count), undisturbed, among)


def _would_tell(rates: Sequence[Interval], among: int) -> Statement:
    """How many runs of each would show which differences from the first of these rates, in 80 of 100 cases."""
    now, repeats = more_repeats(rates)
    if any(rate.standard_error is None or rate.ends is None for rate in rates):
        return Statement("repeats-would-show-spread", values={"repeats": REPEATS[0]})
    changes = [ratio(rates[0], rate) for rate in rates[1:]]
    known = [
        ((change.standard_error or 0.0) / change.value, change.degrees)
        for change in changes
    ]
    effects = [
        foreseen_effect(error, degrees, now, repeats, among) for error, degrees in known
    ]
    rounding = max(change.rounding for change in changes)
    if not max(effects):  # of logs that print few digits
        return Statement("few-digits" if rounding else "same-rates")
    least = -100 * math.expm1(-max(effects) - rounding)
    return Statement(
        "repeats-would-show-differences",
        values={"repeats": repeats, "percent": one_series.round_up(least)},
    )


def conditions(
    series: Sequence[SeriesSummary],
    count: int | None,
    split: SeriesSummary | None = None,
) -> list[Statement]:
    """What slowed runs of several series that are compared, on 1 device and `count` (None: on every number)."""
    rows = [
        row
        for member in series
        for row in member.rows
        if count is None or row.row.num_devices in (1, count)
    ]
    crowded = next(
        (
            statements
            for row in rows
            if (statements := one_series.shared_core_statements(row))
        ),
        [],
    )
    others = [member for member in series if member is not split]
    workers = [
        statement for member in others for statement in _of_workers(member, count)
    ]
    runs = {id(record): record for row in rows for record in row.row.counted_runs}
    runs |= {
        id(record): record
        for record in (
            one_series.records_behind(split.largest_row)
            if split and split.largest_row
            else ()
        )
    }
    return [*crowded, *workers, *one_series.other_load_statements([*runs.values()])]


def _of_workers(series: SeriesSummary, count: int | None) -> list[Statement]:
    """What must be said of a series' workers on so many devices; None: on its most."""
    row = series.largest_row if count is None else series.row_on(count)
    return cluster.worker_statements(row.row, series.title) if row else []


def _lost(row: RowSummary | None) -> bool:
    """Whether a run of a row went on without some of its workers."""
    return row is not None and bool(cluster.runs_with_losses(row.row))


def places(series: Sequence[SeriesSummary], count: int) -> str:
    """ "4 workers of one device each" where all series have them so, else "4 devices"."""
    words = {row.devices for member in series if (row := member.row_on(count))}
    return words.pop() if len(words) == 1 else counted(count, "device")


def _rate(series: SeriesSummary, count: int) -> Interval:
    row = series.row_on(count)
    assert row and row.row.rate
    return row.row.rate


def most_devices(series: SeriesSummary) -> int:
    return series.largest_row.row.num_devices if series.largest_row else 0
