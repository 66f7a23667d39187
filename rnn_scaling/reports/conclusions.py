"""Statements that answer which series is fastest, and how far it scales.

Two rates differ if the interval of their ratio excludes 1. Among several series,
Bonferroni's correction over all pairs keeps the chance of any false difference at 5 %.
A number without an interval over processes is never compared with another.
"""

import itertools
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
from rnn_scaling.records.record import RunRecord
from rnn_scaling.reports import certificates, cluster
from rnn_scaling.reports import series_statements as one_series
from rnn_scaling.reports.numbers import has_interval
from rnn_scaling.reports.summary import RowSummary, Scaling, SeriesSummary, Summary
from rnn_scaling.reports.wording import sentences
from rnn_scaling.system.files.terminal import counted
from rnn_scaling.system.machine.load import NOTICEABLE

MOST_ANSWERS = 3  # scalings of many models that have an answer each
MOST_LOADED = 3  # more disturbed runs are not worth repeating: the machine is busy


def answer_text(summary: Summary) -> str:
    """Return the answer in English."""
    return sentences(answer_statements(summary))


def overview_text(summary: Summary) -> str:
    """Return the range over several series in English; "" for one series."""
    return sentences(overview_statements(summary))


def answer_statements(summary: Summary) -> list[Statement]:
    """Return how far the only series scales, or which series is fastest.

    Weak and strong scaling have an answer each, because they are never compared.
    """
    if not summary.measured:
        return [Statement("no-run-succeeded")]
    found = certificates.alarms(summary)
    if summary.has_many_models:
        for name, series in summary.tables:
            found += _model_statements(summary, name, series)
    for name, series in _answered_scalings(summary):
        found += _title_statement(summary, name)
        found += _fastest_statements(series)
        found += _cost_statements(summary, series)
    found += disturbed_left_out(summary)
    # Disturbed runs that do not count change no number.
    loaded = [
        name for name, row in few_disturbed_runs(summary) if not row.disturbed_runs
    ]
    if loaded:
        found.append(Statement("loaded-runs", values={"files": loaded}))
    if trainers := summary.trainers_of_unknown_work:
        found.append(Statement("unknown-work", values={"trainers": trainers}))
    return [*found, *summary.checked_predictions]


def overview_statements(summary: Summary) -> list[Statement]:
    """Return the range over several series, and how many can be judged."""
    found = []
    for name, series in _answered_scalings(summary):
        if ranges := _range_statements(series):
            found += [*_title_statement(summary, name), *ranges]
    return found


def _answered_scalings(summary: Summary) -> list[Scaling]:
    """Return the scalings that have answers; [] if a report has too many of models."""
    if summary.has_many_models and len(summary.scalings) > MOST_ANSWERS:
        return []
    return summary.scalings


def _title_statement(summary: Summary, name: str) -> list[Statement]:
    return [Statement("scaling", name)] if len(summary.scalings) > 1 else []


def _model_statements(
    summary: Summary, name: str, series: Sequence[SeriesSummary]
) -> list[Statement]:
    """Return the range of the models' efficiencies.

    In modes that train one model, also return whether the efficiencies follow the work
    per exchanged MB.
    """
    found = []
    if len(summary.tables) > 1 or _answered_scalings(summary):
        found.append(Statement("scaling", name))
    without_range = Statement("none-on-several", values={"series": len(series)})
    found += _range_statements(series) or [without_range]
    found += _unranked_statements(series)
    if not registry.mode_of(series[0].mode).trains_one_model:
        return found

    works: dict[int, list[float]] = {}
    efficiencies: dict[int, list[float]] = {}
    for member in series:
        for row in member.rows:
            count = row.row.num_devices
            work = row.row.metric(WORK_PER_EXCHANGE)
            if work and row.efficiency and count > 1:
                works.setdefault(count, []).append(work.value)
                efficiencies.setdefault(count, []).append(row.efficiency.value)
    # The number of devices that most models have.
    count = max(works, key=lambda count: (len(works[count]), count), default=0)
    follows = significance.state_efficiency_trend(
        works.get(count, []), efficiencies.get(count, [])
    )
    return [*found, follows]


def _fastest_statements(series: Sequence[SeriesSummary]) -> list[Statement]:
    """Return which series of a scaling is fastest, and which are not ranked."""
    if len(series) == 1:
        return one_series.statements(series[0])
    unranked = _unranked_statements(series)
    several = [member for member in series if most_devices(member) > 1]
    if not several:
        measured, excluded = _select_sound([s for s in series if s.row_on(1)])
        first = fastest(measured, 1) if len(measured) > 1 else []
        none = Statement("none-on-several", values={"series": len(series)})
        return [*first, *excluded, none, *unranked]

    rivals = _select_one_model(several) or several
    candidates, excluded = _select_sound(rivals)
    if len(rivals) < len(several):
        excluded = [Statement("ranked-one-model"), *excluded]
    if not candidates:
        none = Statement("none-sound", values={"series": len(rivals)})
        return [none, *excluded, *unranked]

    found = _fastest_on_one_device(candidates)
    if len(candidates) == 1:
        found.append(Statement("one-ranked", values={"series": len(series)}))
    return [*found, *_fastest_on_several(candidates), *excluded, *unranked]


def _select_one_model(series: Sequence[SeriesSummary]) -> list[SeriesSummary]:
    """Return the series whose devices train one model."""
    return [
        member for member in series if registry.mode_of(member.mode).trains_one_model
    ]


def _cost_statements(
    summary: Summary, series: Sequence[SeriesSummary]
) -> list[Statement]:
    """Return the lowest cost, if machines have prices.

    Series that do not train one model count only if no series trains one.
    """
    priced = []
    for member in _select_one_model(series) or series:
        if member.num_diverged:
            continue
        for row in member.rows:
            cost = row.row.metric(COST)
            if cost and row.row.priced:
                priced.append((cost, row.row, row.row.priced))
    if not priced:
        return []
    cost, cheapest, machine = min(priced, key=lambda item: item[0].value)
    values = {
        "cost": interval_values(cost),
        "currency": machine.currency,
        "machine": machine.name,
        "unit": cheapest.unit,
        "devices": cheapest.devices,
    }
    return [Statement("lowest-cost", summary.row_titles[cheapest], values)]


def _unranked_statements(series: Sequence[SeriesSummary]) -> list[Statement]:
    """Return which series cannot be the fastest, by the reason."""
    names: dict[str, list[str]] = {}
    for member in series:
        if kind := _reason_not_ranked(member):
            names.setdefault(kind, []).append(member.title)
    return [Statement(kind, values={"names": titles}) for kind, titles in names.items()]


def _reason_not_ranked(series: SeriesSummary) -> str:
    """Return the kind of the statement about a series that is not ranked, or ""."""
    if series.num_diverged:
        return "not-ranked-diverged"
    if series.largest_row is None:
        return "not-ranked-failed"
    if series.failed_above and most_devices(series) == 1:
        return "not-ranked-failed-on-several"
    return ""


def _select_sound(
    series: Sequence[SeriesSummary],
) -> tuple[list[SeriesSummary], list[Statement]]:
    """Return the series whose training is not known to be wrong or to diverge.

    Returns:
      The series, and a statement if others are known to train wrong.
    """
    stable = [member for member in series if not member.num_diverged]
    sound = [member for member in stable if not certificates.trains_wrong(member)]
    return sound, [Statement("ranked-right")] if len(sound) < len(stable) else []


def _fastest_on_one_device(series: Sequence[SeriesSummary]) -> list[Statement]:
    """Return which program is fastest on one device; [] of a single program."""
    measured = [member for member in series if member.row_on(1)]
    programs = {program(member.rows[0].row.options) for member in measured}
    return fastest(measured, 1) if len(programs) > 1 else []


def _fastest_on_several(candidates: Sequence[SeriesSummary]) -> list[Statement]:
    """Return which series is fastest on the most devices that all have."""
    if len(candidates) == 1:
        return one_series.statements(candidates[0])
    common_counts = set.intersection(*map(_measured_counts, candidates)) - {1}
    if not common_counts:
        return [Statement("no-common-devices"), *conditions(candidates, None)]
    return fastest(candidates, max(common_counts))


def _measured_counts(series: SeriesSummary) -> set[int]:
    """Return the numbers of devices on which a series was measured."""
    return {row.row.num_devices for row in series.rows if row.row.rate is not None}


def _range_statements(series: Sequence[SeriesSummary]) -> list[Statement]:
    """Return the range of efficiencies; [] of one series, or without efficiencies."""
    scaled = []
    for member in series:
        row = member.largest_row
        if row and row.row.num_devices > 1 and row.efficiency:
            scaled.append(member)
    if len(series) < 2 or not scaled:
        return []
    ordered = sorted(scaled, key=lambda member: _efficiency(member).value)
    single = []
    judged = []
    for member in ordered:
        if not one_series.is_known(_efficiency(member)):
            single.append(member)
        elif not one_series.is_too_wide(_efficiency(member)):
            judged.append(member)

    found = []
    if len(judged) > 1:
        found.append(_range_statement(judged))
        if not is_above(_efficiency(judged[-1]), _efficiency(judged[0]), len(judged)):
            found.append(Statement("range-within-noise"))
    if len(single) > 1 and not judged:
        found += [_range_statement(single), Statement("single-runs")]
    elif single:
        values = {"single": len(single), "series": len(series)}
        found.append(Statement("series-of-single-runs", values=values))
    if unjudged := len(series) - len(judged) - len(single):
        values = {"unjudged": unjudged, "series": len(series)}
        found.append(Statement("series-unjudged", values=values))
    return found


def _range_statement(ordered: Sequence[SeriesSummary]) -> Statement:
    """Return the lowest and the highest efficiency of series in this order."""
    low = ordered[0]
    high = ordered[-1]
    values: dict[str, Any] = {
        "series": len(ordered),
        "low": interval_values(_efficiency(low)),
        "high": interval_values(_efficiency(high)),
        "low_name": low.title,
        "high_name": high.title,
        "low_devices": devices_text([low], most_devices(low)),
        "high_devices": devices_text([high], most_devices(high)),
    }
    if most_devices(low) != most_devices(high):
        return Statement("efficiency-range-mixed", values=values)
    values["devices"] = devices_text([low, high], most_devices(low))
    return Statement("efficiency-range", values=values)


def missing_run_commands(series: SeriesSummary) -> list[str]:
    """Return the commands of missing runs, each once, with the repeats of the series."""
    row = series.largest_row
    if row is None or not row.row.is_ours:
        return []
    commands: list[str] = []
    if row.row.num_devices == 1:
        if len(series.rows) == 1:
            axis = scale.axis(row.row.options)
            commands.append(command(row.row.options, **{axis: 2}))
    elif row.efficiency is None:
        commands.append(command(row.row.options, **scale.ON_ONE_DEVICE))
    elif row.loss:
        for part in row.loss.missing:
            commands += part.commands
    repeats = f" --repeats={len(row.row.records)}" if len(row.row.records) > 1 else ""
    return [f"{line}{repeats}" for line in dict.fromkeys(commands)]


def few_disturbed_runs(summary: Summary) -> list[tuple[str, Row]]:
    """Return (file, its row) of the disturbed good runs, if they are few.

    They are worth repeating, whether or not they count.
    """
    num_good = 0
    disturbed = []
    for row in summary.row_summaries:
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
    for row in summary.row_summaries:
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


def all_missing_run_commands(summary: Summary) -> list[str]:
    """Return the commands that complete the folder, each once.

    The first ones repeat the disturbed runs, if they are few.
    """
    commands = []
    for file, row in few_disturbed_runs(summary):
        if row.is_ours:
            path = shlex.quote(f"{summary.name}/{file}")
            repeats = f"--repeats={len(row.records)}"
            commands.append(f"rm {path} && {command(row.options)} {repeats}")
    for series in summary.series:
        commands += missing_run_commands(series)
    return [summary.command_for_folder(line) for line in dict.fromkeys(commands)]


def interval_kinds(series: Sequence[SeriesSummary]) -> list[str]:
    """Return the kinds of intervals in the sentences, each once.

    If there are several kinds, each follows the numbers that have it.
    """
    columns_by_kind: dict[str, dict[str, None]] = {}
    for member in series:
        row = member.largest_row
        if row is None:
            continue
        name = "speedup and efficiency"
        main = row.efficiency
        if main is None or row.row.num_devices == 1:
            name = f"{row.row.unit}/s"
            main = row.row.rate
        numbers = [(name, main)]
        if row.loss:
            numbers += [("parts", part.points) for part in row.loss.displayed_parts]
        for column, value in numbers:
            if value is not None and has_interval(value):
                columns_by_kind.setdefault(value.kind, {})[column] = None
    if len(columns_by_kind) < 2:
        return list(columns_by_kind)
    return [f"{', '.join(names)}: {kind}" for kind, names in columns_by_kind.items()]


def _efficiency(series: SeriesSummary) -> Interval:
    assert series.largest_row and series.largest_row.efficiency
    return series.largest_row.efficiency


def fastest(series: Sequence[SeriesSummary], count: int) -> list[Statement]:
    """Return which series is fastest, and the load and faults that slowed runs.

    Args:
      series: At least two series, all with a rate on `count` devices.
      count: The number of devices.
    """
    ordered = sorted(series, key=lambda member: -_rate(member, count).value)
    first, *slower = ordered
    rivals = [
        member for member in slower if not _is_slower(member, first, count, len(series))
    ]
    place = {"series": len(series), "devices": devices_text(series, count)}
    common: list[Statement] = []
    if count > 1 and any(most_devices(member) != count for member in series):
        common.append(Statement("most-common-devices", values=place))
    if rivals:
        return [
            *_unclear_statements(ordered, rivals, count, place, common),
            *_statements_elsewhere(ordered, count),
            *conditions(series, count),
        ]

    values: dict[str, Any] = {
        **place,
        "rate": interval_values(_rate(first, count)),
        "unit": first.unit,
    }
    found = [Statement("fastest", first.title, values), *common]
    if count > 1:
        found += one_series.scaling_statements(first)
        found += _worker_statements(first, None)
    found += _statements_elsewhere(ordered, count, first)
    return [*found, *conditions(series, count, first if count > 1 else None)]


def _unclear_statements(
    ordered: Sequence[SeriesSummary],
    rivals: Sequence[SeriesSummary],
    count: int,
    place: dict[str, Any],
    common: Sequence[Statement],
) -> list[Statement]:
    """Return the series that may be the fastest, and the repeats that would decide it.

    Args:
      ordered: All series, the fastest first.
      rivals: Series that may be as fast as the first one.
      count: The number of devices.
      place: Values of the number of series and devices.
      common: The statement after the first one, if the series have more devices.
    """
    first = ordered[0]
    best = _rate(first, count)
    slowed = []
    for member in rivals:
        is_below = is_above(best, _rate(member, count), len(ordered))
        if is_below and not _lost_workers(member.row_on(count)):
            slowed.append(member)
    all_slowed = len(slowed) == len(rivals)
    tied = [first]
    tied += [member for member in rivals if member not in slowed or all_slowed]

    values = {**place, "tied": _rates(tied, count)}
    found = [Statement("fastest-unclear", values=values), *common]
    if num_slower := len(ordered) - 1 - len(rivals):
        found.append(Statement("others-slower", values={"others": num_slower}))
    if all_slowed:
        return [*found, Statement("quiet-runs-would-tell")]
    if slowed:
        values = {"slowed": _rates(slowed, count)}
        found.append(Statement("slowed-by-load", values=values))
    rates = [_rate(member, count) for member in tied]
    return [*found, _useful_repeats(rates, len(ordered))]


def _statements_elsewhere(
    series: Sequence[SeriesSummary], count: int, ranked: SeriesSummary | None = None
) -> list[Statement]:
    """Return which series are faster on fewer devices, and which failed on more.

    Args:
      series: The series that are compared.
      count: The number of devices of the comparison; nothing is stated for 1.
      ranked: The fastest series, whose own statements contain its fastest row.
    """
    if count == 1:
        return []
    found = []
    for member in series:
        if member.faster_on_fewer_devices and member is not ranked:
            found.append(one_series.scaling_statements(member)[0])
    for member in series:
        found += one_series.failure_statements(member)
    return found


def _rates(series: Sequence[SeriesSummary], count: int) -> list[dict[str, Any]]:
    rates = []
    for member in series:
        rate = interval_values(_rate(member, count))
        rates.append({"name": member.title, "rate": rate, "unit": member.unit})
    return rates


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
    if row is None or best_row is None or _lost_workers(row):
        return False
    lost_share = disturbance.max_slowing_beyond(
        row.row.counted_runs, best_row.row.counted_runs
    )
    if lost_share >= 1:
        return False
    undisturbed = _rate(series, count).scaled(1 / (1 - lost_share))
    return is_above(_rate(best, count), undisturbed, among)


def _useful_repeats(rates: Sequence[Interval], among: int) -> Statement:
    """Return how many repeats would show which difference, in 80 of 100 cases.

    Args:
      rates: The rates that are not separated, the highest first.
      among: The number of series that are compared.
    """
    now, repeats = more_repeats(rates)
    if any(rate.standard_error is None or rate.ends is None for rate in rates):
        return Statement("repeats-would-show-spread", values={"repeats": REPEATS[0]})
    effects = []
    rounding = 0.0
    for rate in rates[1:]:
        change = ratio(rates[0], rate)
        error = (change.standard_error or 0.0) / change.value
        effects.append(foreseen_effect(error, change.degrees, now, repeats, among))
        rounding = max(rounding, change.rounding)
    if not max(effects):
        return Statement("few-digits" if rounding else "same-rates")
    smallest = -100 * math.expm1(-max(effects) - rounding)
    values = {"repeats": repeats, "percent": one_series.round_up(smallest)}
    return Statement("repeats-would-show-differences", values=values)


def conditions(
    series: Sequence[SeriesSummary],
    count: int | None,
    ranked: SeriesSummary | None = None,
) -> list[Statement]:
    """Return what slowed the runs of series that are compared.

    Args:
      series: The series.
      count: The number of devices, whose rows count with those on one device; None: all
        rows count.
      ranked: The series whose own statements are shown; they contain its workers, and
        the runs behind them count too.
    """
    rows = []
    for row in itertools.chain.from_iterable(member.rows for member in series):
        if count is None or row.row.num_devices in (1, count):
            rows.append(row)
    records: list[RunRecord] = []
    for row in rows:
        records += row.row.counted_runs
    if ranked and ranked.largest_row:
        records += one_series.records_behind(ranked.largest_row)
    different_records = {id(record): record for record in records}

    shared_cores = filter(None, map(one_series.shared_core_statements, rows))
    found = list(next(shared_cores, []))
    for member in series:
        if member is not ranked:
            found += _worker_statements(member, count)
    return [*found, *one_series.other_load_statements([*different_records.values()])]


def _worker_statements(series: SeriesSummary, count: int | None) -> list[Statement]:
    """Return statements about workers on a number of devices; None: on the most."""
    row = series.largest_row if count is None else series.row_on(count)
    return cluster.worker_statements(row.row, series.title) if row else []


def _lost_workers(row: RowSummary | None) -> bool:
    """Return whether a run of a row continued without some of its workers."""
    return row is not None and bool(cluster.runs_with_losses(row.row))


def devices_text(series: Sequence[SeriesSummary], count: int) -> str:
    """Return "4 workers of one device each" if all series have these, else "4 devices"."""
    texts = {row.devices for member in series if (row := member.row_on(count))}
    return texts.pop() if len(texts) == 1 else counted(count, "device")


def _rate(series: SeriesSummary, count: int) -> Interval:
    row = series.row_on(count)
    assert row and row.row.rate
    return row.row.rate


def most_devices(series: SeriesSummary) -> int:
    """Return the most devices on which a series was measured; 0 if all runs failed."""
    return series.largest_row.row.num_devices if series.largest_row else 0
