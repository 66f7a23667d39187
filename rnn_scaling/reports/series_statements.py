"""Statements about one series: its scaling, its lost points, and load."""

import math
from collections.abc import Sequence
from typing import Any

from rnn_scaling.analysis import disturbance
from rnn_scaling.analysis.attribution import (
    OVERSUBSCRIPTION,
    UNEXPLAINED,
    Attribution,
    LossPart,
)
from rnn_scaling.analysis.confidence import Interval
from rnn_scaling.analysis.metrics import SPEEDUP
from rnn_scaling.analysis.significance import REPEATS
from rnn_scaling.analysis.statements import Statement, interval_values
from rnn_scaling.records.record import RunRecord
from rnn_scaling.reports import cluster
from rnn_scaling.reports.summary import RowSummary, SeriesSummary
from rnn_scaling.reports.wording import sentences

TOO_WIDE = 0.5  # half an interval / its number, above which the number says nothing
NOISE = "the noise"
NOISE_OR_LOAD = "the noise or the load of other processes"


def series_text(series: SeriesSummary) -> str:
    """Return the statements about a series in English."""
    return sentences(statements(series))


def statements(series: SeriesSummary) -> list[Statement]:
    """Return the scaling of a series on its most devices, and faults of its runs."""
    row = series.largest_row
    if row is None:
        return [Statement("series-failed", series.title)]
    first, *further = scaling_statements(series)
    found = [
        first,
        *shared_core_statements(row),
        *further,
        *cluster.worker_statements(row.row, series.title),
        *other_load_statements(records_behind(row)),
        *failure_statements(series),
    ]
    if series.num_diverged:
        runs = sum(len(row.row.good_runs) for row in series.rows)
        values = {"diverged": series.num_diverged, "runs": runs}
        found.append(Statement("diverged", series.title, values))
    return found


def scaling_statements(series: SeriesSummary) -> list[Statement]:
    """Return where a series is fastest, if not on its most devices, and how it scales."""
    scaling = _largest_row_statements(series)
    fastest = series.faster_on_fewer_devices
    if fastest is None or fastest.row.rate is None:
        return scaling

    values = {
        "devices": fastest.devices,
        "rate": interval_values(fastest.row.rate),
        "unit": series.unit,
    }
    kind = "fastest-on-fewer"
    speedup = fastest.row.metric(SPEEDUP)
    if speedup is not None and fastest.row.num_devices > 1:
        kind = "fastest-on-fewer-scaled"
        values["speedup"] = interval_values(speedup)
    found = [Statement(kind, series.title, values)]
    if not is_known(fastest.row.rate):
        found.append(Statement("single-runs"))
    return [*found, *scaling]


def _largest_row_statements(series: SeriesSummary) -> list[Statement]:
    """Return the scaling of a measured series, and the parts of the lost points."""
    row = series.largest_row
    assert row and row.row.rate
    title = series.title
    rate_values = {
        "rate": interval_values(row.row.rate),
        "unit": series.unit,
        "devices": row.devices,
    }
    rate = Statement("rate", title, rate_values)
    if row.row.num_devices == 1:
        if series.failed_above:
            return [rate]
        return [rate, Statement("not-run-on-more-devices")]

    efficiency = row.efficiency
    if efficiency is None:
        return [rate, Statement("needs-run-on-one-device")]
    if not is_known(efficiency):
        return [
            Statement("reaches-about", title, _efficiency_values(row)),
            _single_run_statement(row),
            Statement("repeats-would-show-spread", values={"repeats": REPEATS[0]}),
        ]
    if is_too_wide(efficiency):
        values = {"devices": row.devices, **interval_values(efficiency)}
        kind = "efficiency-unknown"
        if efficiency.is_wide:
            kind = "efficiency-unknown-spread"
        few_digits = efficiency.rounding_half_width > (efficiency.half_width or 0.0) / 2
        reason = Statement("few-digits" if few_digits else "runs-vary")
        return [Statement(kind, title, values), reason]
    return [
        Statement("reaches", title, _efficiency_values(row)),
        *_loss_statements(row.loss),
    ]


def _efficiency_values(row: RowSummary) -> dict[str, Any]:
    speedup = row.row.metric(SPEEDUP)
    assert row.efficiency and speedup
    return {
        "devices": row.devices,
        "efficiency": interval_values(row.efficiency),
        "speedup": interval_values(speedup),
    }


def _single_run_statement(row: RowSummary) -> Statement:
    """Return which side of a speedup is a single run."""
    baseline = row.row.baseline
    sides = [side for side in (baseline, row.row) if side is not None]
    single = [side for side in sides if len(side.counted_runs) == 1]
    if len(single) == 2 and baseline is not row.row:
        return Statement("single-runs")
    if single:
        return Statement("single-run-on", values={"devices": single[0].devices})
    return Statement("interval-unknown")


def is_known(value: Interval) -> bool:
    """Return whether the interval over processes is known.

    An interval over the batches of one process says nothing about other processes.
    """
    return value.ends is not None


def is_too_wide(value: Interval) -> bool:
    """Return whether the interval is so wide that the number says nothing."""
    return value.half_width is not None and value.half_width > TOO_WIDE * value.value


def other_load_statements(records: Sequence[RunRecord]) -> list[Statement]:
    """Return what other processes used of the cores during runs; [] if nothing."""
    loads = [load for load in map(disturbance.load, records) if load]
    if not loads:
        return []
    values = {"share": max(loads), "loaded": len(loads), "runs": len(records)}
    return [Statement("other-load", values=values)]


def shared_core_statements(row: RowSummary) -> list[Statement]:
    """Return that devices shared cores, and the bound that follows.

    The bound is left out if a row of the table is above its own bound.
    """
    baseline = row.row.baseline
    cores = disturbance.shared_cores(row.row.good_runs)
    if baseline is None or row.loss is None or not cores:
        return []
    baseline_cores = max(
        (len(disturbance.bound_cores(record)) for record in baseline.good_runs),
        default=0,
    )
    kind = "shared-cores-alone" if baseline_cores > 1 else "shared-cores"
    values = {"devices": row.devices, "cores": cores, "alone": baseline_cores}
    found = [Statement(kind, values=values)]
    if row.loss.is_bound:
        bound = {"share": row.loss.max_efficiency}
        found.append(Statement("shared-cores-bound", values=bound))
    return found


def records_behind(row: RowSummary) -> list[RunRecord]:
    """Return the runs of a row, of its baseline, and of the parts of its loss."""
    rows = [row.row]
    baseline = row.row.baseline
    if baseline and baseline is not row.row:
        rows.append(baseline)
    is_judged = (
        row.efficiency and is_known(row.efficiency) and not is_too_wide(row.efficiency)
    )
    if row.loss and is_judged and row.loss.is_split:
        known = {id(member) for member in rows}
        rows += [member for member in row.loss.rows if id(member) not in known]
    records: list[RunRecord] = []
    for member in rows:
        records += member.counted_runs
    return records


def _loss_statements(loss: Attribution | None) -> list[Statement]:
    """Return the parts of the lost points; the loss has an interval."""
    if loss is None:
        return []
    if loss.is_split:
        return (
            part_statements(loss) if loss.is_significant else unsplit_statements(loss)
        )
    ends = loss.loss_points.ends
    if ends is None or not ends[0] <= 0 <= ends[1]:
        return [Statement("above-ideal")]
    found = [Statement("near-ideal")]
    repeats, points = loss.would_show()
    if points:
        values = {"repeats": repeats, "points": round_up(points)}
        found.append(Statement("repeats-would-show-loss", values=values))
    return found


def failure_statements(series: SeriesSummary) -> list[Statement]:
    """Return that no run on more devices succeeded; [] if none was tried."""
    if not series.failed_above:
        return []
    *failed, last = series.failed_above
    counts = []
    for row in failed:
        counts.append(str(row.num_workers if row.is_distributed else row.num_devices))
    values = {"devices": [*counts, last.devices]}
    return [Statement("failed-above", series.title, values)]


def unsplit_statements(loss: Attribution) -> list[Statement]:
    """Return why no part is shown, and a remedy; [] if a part is shown."""
    if loss.is_significant:
        return []
    known = []
    for part in loss.parts:
        if part.points and part.points.ends != (0.0, 0.0):
            known.append(part.name)
    if not known:
        missing = _missing_parts(loss)
        return [_unsplit_points(loss.loss_points), *missing] if missing else []

    found = _parts_hidden_by_load(loss)
    hidden = _names_hidden_by_load(loss)
    within_noise = [name for name in known if name not in hidden]
    if within_noise:
        values = {"parts": within_noise}
        found.append(Statement("parts-within-noise", values=values))
        found.append(_remedy_for_noise(loss))
    if hidden:
        found.append(Statement("quiet-machine"))
    return [*found, *_missing_parts(loss)]


def part_statements(loss: Attribution) -> list[Statement]:
    """Return each measured part, and the rest."""
    significant = [part for part in loss.significant_parts if _value(part)]
    found = [_part_statement(part) for part in significant]
    if any(part.name == OVERSUBSCRIPTION for part in significant):
        found.append(Statement("part-computed", OVERSUBSCRIPTION))

    rest = loss.unexplained.points
    if rest is None or rest.ends == (0.0, 0.0):
        return found
    hidden_by_load = _parts_hidden_by_load(loss)
    if any(part.points is None for part in loss.parts):
        return [
            *found,
            _unsplit_points(rest),
            *_missing_parts(loss),
            *hidden_by_load,
        ]
    names = [
        part.name for part in loss.parts if not part.is_significant and _value(part)
    ]
    values = {"parts": names or [UNEXPLAINED], "points": interval_values(rest)}
    if loss.unexplained.is_significant:
        return [*found, Statement("rest-not-separated", values=values), *hidden_by_load]
    kind = "rest-within-noise-or-load" if _may_be_load(loss) else "rest-within-noise"
    return [*found, Statement(kind, values=values)]


def noise_text(losses: Sequence[Attribution]) -> str:
    """Return what hides the parts in the rest of losses: noise, or load as well."""
    return NOISE_OR_LOAD if any(map(_may_be_load, losses)) else NOISE


def round_up(points: float) -> str:
    """Return points with one significant digit and never less: "3", "0.4"."""
    exponent = min(0, math.floor(math.log10(points))) if points else 0
    place = 10.0**exponent
    decimals = max(0, round(-math.log10(place)))
    return f"{math.ceil(round(points / place, 9)) * place:.{decimals}f}"


def _part_statement(part: LossPart) -> Statement:
    points = part.points
    assert points
    if points.value > 0:
        return Statement("part", part.name, {"points": interval_values(points)})
    gained = points.subtracted_from(0.0) or points
    return Statement("part-gains", part.name, {"points": interval_values(gained)})


def _unsplit_points(points: Interval) -> Statement:
    return Statement("points-not-split", values={"points": interval_values(points)})


def _remedy_for_noise(loss: Attribution) -> Statement:
    """Return what would show the parts that are within the noise."""
    known = [part.points for part in loss.parts if part.points]
    repeats, points = loss.would_show()
    if points is None and all(value.rounding and value.ends for value in known):
        return Statement("few-digits")
    if points is None or any(value.ends is None for value in known):
        return Statement("repeats-would-show-spread", values={"repeats": repeats})
    values = {"repeats": repeats, "points": round_up(points)}
    return Statement("repeats-would-show-parts", values=values)


def _names_hidden_by_load(loss: Attribution) -> list[str]:
    return [part.name for part in loss.parts if part.may_be_load]


def _may_be_load(loss: Attribution) -> bool:
    return bool(_names_hidden_by_load(loss)) or loss.unexplained.may_be_load


def _parts_hidden_by_load(loss: Attribution) -> list[Statement]:
    hidden = _names_hidden_by_load(loss)
    if not hidden:
        return []
    loads: list[float] = []
    for row in loss.rows:
        loads.extend(disturbance.load(record) for record in row.counted_runs)
    values = {"parts": hidden, "share": max(loads)}
    return [Statement("parts-hidden-by-load", values=values)]


def _missing_parts(loss: Attribution) -> list[Statement]:
    names = [part.name for part in loss.missing]
    return [Statement("parts-need-runs", values={"parts": names})] if names else []


def _value(part: LossPart) -> float:
    return part.points.value if part.points else 0.0
