"""Statements about one series: its scaling, its lost points, and load.

`conclusions`, tables and the page show these statements.
"""

import math
from collections.abc import Sequence
from typing import Any

from rnn_scaling.analysis import disturbance
from rnn_scaling.analysis.attribution import (
    OVERSUBSCRIPTION,
    UNEXPLAINED,
    Attribution,
    LossPart,
    LossPartName,
)
from rnn_scaling.analysis.confidence import Interval
from rnn_scaling.analysis.metrics import SPEEDUP
from rnn_scaling.analysis.rows import Row
from rnn_scaling.analysis.significance import REPEATS
from rnn_scaling.analysis.statements import Statement, list_interval_values, state
from rnn_scaling.records.record import RunRecord
from rnn_scaling.reports import cluster
from rnn_scaling.reports.repeat_commands import repeat_quietly
from rnn_scaling.reports.summary import SeriesSummary
from rnn_scaling.reports.wording import write_sentences

_MIN_LOAD_POINTS = 0.5  # smallest effect of other processes that is printed
_NOISE = "the noise"
_NOISE_OR_LOAD = "the noise or the load of other processes"


def format_series(series: SeriesSummary) -> str:
    """Return the statements about a series in English."""
    return write_sentences(make_statements(series))


def make_statements(series: SeriesSummary) -> list[Statement]:
    """Return the scaling of a series on its most devices, and faults of its runs."""
    row = series.largest_row
    if row is None:
        return [state("series-failed", series.title)]
    first, *details = state_scaling(series)
    facts = [
        first,
        *state_shared_cores(row, series.largest_loss),
        *details,
        *cluster.state_workers(row, series.title),
        *state_other_load(list_records_behind(row, series.largest_loss)),
        *state_failures(series),
    ]
    if series.num_diverged:
        runs = sum(len(row.good_runs) for row in series.rows)
        facts.append(
            state("diverged", series.title, diverged=series.num_diverged, runs=runs)
        )
    return facts


def state_scaling(series: SeriesSummary) -> list[Statement]:
    """State where a series is fastest, if not on its most devices, and how it scales."""
    scaling = _state_largest_row(series)
    fastest = series.faster_on_fewer_devices
    if fastest is None or fastest.rate is None:
        return scaling

    values = {
        "devices": fastest.devices,
        "rate": fastest.rate,
        "unit": series.unit,
    }
    kind = "fastest-on-fewer"
    speedup = fastest.shown_metric(SPEEDUP)
    if speedup is not None and fastest.num_devices > 1:
        kind = "fastest-on-fewer-scaled"
        values["speedup"] = speedup
    scaling_facts = [
        state(kind, series.title, **values),
        *state_rate_corrections([fastest]),
    ]
    if not has_interval_over_runs(fastest.rate):
        scaling_facts.append(state("single-runs"))
    return [*scaling_facts, *scaling]


def _state_largest_row(series: SeriesSummary) -> list[Statement]:
    """Return the scaling of a measured series, and the parts of the lost points."""
    row = series.largest_row
    assert row and row.rate
    title = series.title
    rate = state("rate", title, rate=row.rate, unit=series.unit, devices=row.devices)
    rates = [rate, *state_rate_corrections([row])]
    if row.num_devices == 1:
        if series.failed_above:
            return rates
        return [*rates, state("not-run-on-more-devices")]

    if row.is_speedup_hidden:
        hidden = state("scaling-hidden-by-load", devices=row.devices)
        return [*rates, hidden, repeat_quietly([series])]
    efficiency = row.efficiency_percent
    if efficiency is None:
        return [*rates, state("needs-run-on-one-device")]
    if not has_interval_over_runs(efficiency):
        return [
            state("reaches-about", title, **_list_efficiency_values(row)),
            *_state_corrections(row),
            _state_single_run(row),
            state("repeats-would-show-spread", repeats=REPEATS[0]),
        ]
    if efficiency.is_too_wide:
        values = {"devices": row.devices, **list_interval_values(efficiency)}
        kind = "efficiency-unknown"
        if efficiency.is_wide:
            kind = "efficiency-unknown-spread"
        few_digits = efficiency.rounding_half_width > (efficiency.half_width or 0.0) / 2
        reason = state("few-digits" if few_digits else "runs-vary")
        return [state(kind, title, **values), reason]
    return [
        state("reaches", title, **_list_efficiency_values(row)),
        *_state_corrections(row),
        *_state_losses(series.largest_loss),
    ]


def _state_corrections(row: Row) -> list[Statement]:
    return [state("scaling-corrected")] if is_corrected(row) else []


def _list_efficiency_values(row: Row) -> dict[str, Any]:
    speedup = row.shown_metric(SPEEDUP)
    assert row.efficiency_percent and speedup
    return {
        "devices": row.devices,
        "efficiency": row.efficiency_percent,
        "speedup": speedup,
    }


def _state_single_run(row: Row) -> Statement:
    """State which side of a speedup is a single run."""
    baseline = row.baseline
    sides = [side for side in (baseline, row) if side is not None]
    single_run_sides = [side for side in sides if len(side.counted_runs) == 1]
    if len(single_run_sides) == 2 and baseline is not row:
        return state("single-runs")
    if single_run_sides:
        return state("single-run-on", devices=single_run_sides[0].devices)
    return state("interval-unknown")


def has_interval_over_runs(value: Interval) -> bool:
    """Return whether the interval over runs is known.

    An interval over the batches of one run does not cover other runs.
    """
    return value.ends is not None


def is_precise(value: Interval | None) -> bool:
    """Return whether the interval is known and narrow enough to be useful."""
    return value is not None and has_interval_over_runs(value) and not value.is_too_wide


def is_corrected(row: Row) -> bool:
    """Return whether a speedup contains a rate that is corrected for load."""
    speedup = row.metric(SPEEDUP)
    return speedup is not None and speedup.is_corrected


def state_rate_corrections(rows: Sequence[Row]) -> list[Statement]:
    """State how many of the stated rates are corrected for load; [] if none is."""
    corrected = [row for row in rows if row.corrected is not None]
    if not corrected:
        return []
    if len(rows) == 1:
        return [state("scaling-corrected")]
    return [state("rates-corrected", corrected=len(corrected), rates=len(rows))]


def state_other_load(records: Sequence[RunRecord]) -> list[Statement]:
    """State what other processes used of the cores during runs; [] if nothing."""
    loads = [load for load in map(disturbance.load, records) if load]
    if not loads:
        return []
    return [state("other-load", share=max(loads), loaded=len(loads), runs=len(records))]


def state_shared_cores(row: Row, loss: Attribution | None) -> list[Statement]:
    """State that devices shared cores, and the bound that follows.

    The bound is left out if a row of the table is above its own bound.
    """
    baseline = row.baseline
    cores = disturbance.count_shared_cores(row.good_runs)
    if baseline is None or baseline is row or not cores:
        return []
    baseline_cores = max(
        (len(disturbance.bound_cores(record)) for record in baseline.good_runs),
        default=0,
    )
    kind = "shared-cores-alone" if baseline_cores > 1 else "shared-cores"
    core_statements = [
        state(kind, devices=row.devices, cores=cores, alone=baseline_cores)
    ]
    if loss is not None and loss.is_bound:
        core_statements.append(state("shared-cores-bound", share=loss.max_efficiency))
    return core_statements


def list_records_behind(row: Row, loss: Attribution | None) -> list[RunRecord]:
    """Return the runs of a row, its baseline, and the parts of its loss."""
    rows = [row]
    baseline = row.baseline
    if baseline and baseline is not row:
        rows.append(baseline)
    if loss and is_precise(row.efficiency_percent) and loss.is_split:
        rows += loss.rows
    records: dict[int, RunRecord] = {}
    for member in rows:
        records.update((id(record), record) for record in member.counted_runs)
    return list(records.values())


def _state_losses(attribution: Attribution | None) -> list[Statement]:
    """Return the parts of the lost points; the loss has an interval."""
    if attribution is None:
        return []
    if attribution.is_split:
        return (
            _state_parts(attribution)
            if attribution.is_significant
            else state_unsplit_losses(attribution)
        )
    ends = attribution.loss_points.ends
    if ends is None or not ends[0] <= 0 <= ends[1]:
        return [state("above-ideal")]
    loss_statements = [state("near-ideal")]
    repeats, points = attribution.useful_repeats()
    if is_corrected(attribution.row):
        # Repeats do not reduce the error of a correction.
        loss_statements.append(state("quiet-machine"))
    elif points:
        loss_statements.append(
            state("repeats-would-show-loss", repeats=repeats, points=round_up(points))
        )
    return loss_statements


def state_failures(series: SeriesSummary) -> list[Statement]:
    """State that no run on more devices succeeded; [] if none was tried."""
    if not series.failed_above:
        return []
    *failed_rows, last = series.failed_above
    counts = []
    for row in failed_rows:
        counts.append(str(row.num_workers if row.is_distributed else row.num_devices))
    return [state("failed-above", series.title, devices=[*counts, last.devices])]


def state_unsplit_losses(attribution: Attribution) -> list[Statement]:
    """State why no part is shown, and a remedy; [] if a part is shown."""
    if attribution.is_significant:
        return []
    known_parts = [
        part.name
        for part in attribution.parts
        if part.points and part.points.ends != (0.0, 0.0)
    ]
    if not known_parts:
        missing_statements = _state_missing_parts(attribution)
        return (
            [_state_unsplit_points(attribution.loss_points), *missing_statements]
            if missing_statements
            else []
        )

    unsplit_facts = _state_hidden_by_load(attribution)
    hidden = _names_hidden_by_load(attribution)
    within_noise = [name for name in known_parts if name not in hidden]
    if within_noise:
        unsplit_facts.append(state("parts-within-noise", parts=within_noise))
        unsplit_facts.append(_state_noise_remedy(attribution))
    if hidden:
        unsplit_facts.append(state("quiet-machine"))
    return [*unsplit_facts, *_state_missing_parts(attribution)]


def _state_parts(attribution: Attribution) -> list[Statement]:
    """Return each measured part, and the unexplained points."""
    significant = [
        part for part in attribution.significant_parts if _find_points_or_zero(part)
    ]
    part_facts = []
    for part in significant:
        part_facts.append(_state_part(part))
        if part.load_points >= _MIN_LOAD_POINTS:
            part_facts.append(state("part-with-load", part.name, load=part.load_points))
    if any(part.name == OVERSUBSCRIPTION for part in significant):
        part_facts.append(state("part-computed", OVERSUBSCRIPTION))

    unexplained = attribution.unexplained.points
    if unexplained is None or unexplained.ends == (0.0, 0.0):
        return part_facts
    hidden_by_load = _state_hidden_by_load(attribution)
    if any(part.points is None for part in attribution.parts):
        return [
            *part_facts,
            _state_unsplit_points(unexplained),
            *_state_missing_parts(attribution),
            *hidden_by_load,
        ]
    names = [
        part.name
        for part in attribution.parts
        if not part.is_significant and _find_points_or_zero(part)
    ]
    values = {"parts": names or [UNEXPLAINED], "points": unexplained}
    if attribution.unexplained.is_significant:
        return [*part_facts, state("rest-not-separated", **values), *hidden_by_load]
    kind = (
        "rest-within-noise-or-load"
        if _may_be_load(attribution)
        else "rest-within-noise"
    )
    return [*part_facts, state(kind, **values)]


def format_noise(attributions: Sequence[Attribution]) -> str:
    """Return what hides the parts in the rest of losses: noise, or load as well."""
    return _NOISE_OR_LOAD if any(map(_may_be_load, attributions)) else _NOISE


def round_up(points: float) -> str:
    """Return points with one significant digit and never less: "3", "0.4"."""
    exponent = min(0, math.floor(math.log10(points))) if points else 0
    place = 10.0**exponent
    decimals = max(0, round(-math.log10(place)))
    return f"{math.ceil(round(points / place, 9)) * place:.{decimals}f}"


def _state_part(part: LossPart) -> Statement:
    points = part.points
    assert points
    if points.value > 0:
        return state("part", part.name, points=points)
    gained = points.subtracted_from(0.0) or points
    kind = "part-gains-exchange" if part.name == LossPartName.EXCHANGE else "part-gains"
    return state(kind, part.name, points=gained)


def _state_unsplit_points(points: Interval) -> Statement:
    return state("points-not-split", points=points)


def _state_noise_remedy(attribution: Attribution) -> Statement:
    """Return the remedy for parts that are within the noise."""
    if is_corrected(attribution.row):
        return state("quiet-machine")
    known_points = [part.points for part in attribution.parts if part.points]
    repeats, points = attribution.useful_repeats()
    if points is None and all(value.rounding and value.ends for value in known_points):
        return state("few-digits")
    if points is None or any(value.ends is None for value in known_points):
        return state("repeats-would-show-spread", repeats=repeats)
    return state("repeats-would-show-parts", repeats=repeats, points=round_up(points))


def _names_hidden_by_load(attribution: Attribution) -> list[str]:
    return [part.name for part in attribution.parts if part.may_be_load]


def _may_be_load(attribution: Attribution) -> bool:
    return (
        bool(_names_hidden_by_load(attribution)) or attribution.unexplained.may_be_load
    )


def _state_hidden_by_load(attribution: Attribution) -> list[Statement]:
    hidden = _names_hidden_by_load(attribution)
    if not hidden:
        return []
    loads: list[float] = []
    for row in attribution.rows:
        loads.extend(disturbance.load(record) for record in row.counted_runs)
    return [state("parts-hidden-by-load", parts=hidden, share=max(loads))]


def _state_missing_parts(attribution: Attribution) -> list[Statement]:
    names = [part.name for part in attribution.missing]
    return [state("parts-need-runs", parts=names)] if names else []


def _find_points_or_zero(part: LossPart) -> float:
    return part.points.value if part.points else 0.0
