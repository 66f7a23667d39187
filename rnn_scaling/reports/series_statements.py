"""One series as statements: how far it scales, where the rest goes, and what else slowed its runs."""

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

TOO_WIDE = (
    0.5  # half an interval over its number, from which on the number says nothing
)
NOISE, NOISE_OR_LOAD = "the noise", "the noise or the load of other processes"


def series_text(series: SeriesSummary) -> str:
    """All that holds of one series, in English."""
    return sentences(statements(series))


def statements(series: SeriesSummary) -> list[Statement]:
    """One series on its most devices: its efficiency, what the lost points are, and what else slowed its runs."""
    row = series.largest_row
    if row is None:
        return [Statement("series-failed", series.title)]
    first, *others = scaling_statements(series)
    load = other_load_statements(records_behind(row))
    further = [
        *shared_core_statements(row),
        *others,
        *cluster.worker_statements(row.row, series.title),
        *load,
    ]
    runs = sum(len(row.row.good_runs) for row in series.rows)
    values = {"diverged": series.num_diverged, "runs": runs}
    diverged = (
        [Statement("diverged", series.title, values)] if series.num_diverged else []
    )
    return [first, *further, *failure_statements(series), *diverged]


def scaling_statements(series: SeriesSummary) -> list[Statement]:
    """How far a measured series scales and what the lost points are; first, if not there, where it is fastest."""
    made, peak = _scaling(series), series.faster_on_fewer_devices
    if peak is None or peak.row.rate is None:
        return made
    values = {
        "devices": peak.devices,
        "rate": interval_values(peak.row.rate),
        "unit": series.unit,
    }
    single = [] if is_known(peak.row.rate) else [Statement("single-runs")]
    speedup = peak.row.metric(SPEEDUP)
    if speedup is None or peak.row.num_devices == 1:
        return [Statement("fastest-on-fewer", series.title, values), *single, *made]
    values["speedup"] = interval_values(speedup)
    return [Statement("fastest-on-fewer-scaled", series.title, values), *single, *made]


def _scaling(series: SeriesSummary) -> list[Statement]:
    row, title = series.largest_row, series.title
    assert row and row.row.rate
    values = {
        "rate": interval_values(row.row.rate),
        "unit": series.unit,
        "devices": row.devices,
    }
    measured = Statement("rate", title, values)
    if row.row.num_devices == 1:
        return [
            measured,
            *([] if series.failed_above else [Statement("not-run-on-more-devices")]),
        ]
    if row.efficiency is None:
        return [measured, Statement("needs-run-on-one-device")]
    if not is_known(row.efficiency):
        again = Statement("repeats-would-show-spread", values={"repeats": REPEATS[0]})
        return [Statement("reaches-about", title, _reached(row)), _basis(row), again]
    if is_too_wide(row.efficiency):
        few_digits = (
            row.efficiency.rounding_half_width > (row.efficiency.half_width or 0.0) / 2
        )
        kind = (
            "efficiency-unknown-spread"
            if row.efficiency.is_wide
            else "efficiency-unknown"
        )
        why = Statement("few-digits" if few_digits else "runs-vary")
        return [
            Statement(
                kind, title, {"devices": row.devices, **interval_values(row.efficiency)}
            ),
            why,
        ]
    return [Statement("reaches", title, _reached(row)), *_where(row.loss)]


def _reached(row: RowSummary) -> dict[str, Any]:
    speedup = row.row.metric(SPEEDUP)
    assert row.efficiency and speedup
    return {
        "devices": row.devices,
        "efficiency": interval_values(row.efficiency),
        "speedup": interval_values(speedup),
    }


def _basis(row: RowSummary) -> Statement:
    """Which side of a ratio is a single process."""
    base = row.row.baseline
    single = [
        side
        for side in (base, row.row)
        if side is not None and len(side.counted_runs) == 1
    ]
    if len(single) == 2 and base is not row.row:
        return Statement("single-runs")
    if single:
        return Statement("single-run-on", values={"devices": single[0].devices})
    return Statement("interval-unknown")


def is_known(value: Interval) -> bool:
    """Whether an interval over processes is known; one over the batches of a process says nothing about others."""
    return value.ends is not None


def is_too_wide(value: Interval) -> bool:
    """Whether the interval is so wide that the number says nothing."""
    return value.half_width is not None and value.half_width > TOO_WIDE * value.value


def other_load_statements(records: Sequence[RunRecord]) -> list[Statement]:
    """What other processes used of the cores during these runs; empty where that was not noticed."""
    loads = [load for record in records if (load := disturbance.load(record))]
    values = {
        "share": max(loads, default=0.0),
        "loaded": len(loads),
        "runs": len(records),
    }
    return [Statement("other-load", values=values)] if loads else []


def shared_core_statements(row: RowSummary) -> list[Statement]:
    """Return that devices shared cores, and their bound if no row of the table is above its own."""
    base = row.row.baseline
    cores = disturbance.shared_cores(row.row.good_runs)
    if base is None or row.loss is None or not cores:
        return []
    alone = max(
        (len(disturbance.bound_cores(record)) for record in base.good_runs), default=0
    )
    kind = "shared-cores-alone" if alone > 1 else "shared-cores"
    values = {"devices": row.devices, "cores": cores, "alone": alone}
    made = [Statement(kind, values=values)]
    if row.loss.is_bound:
        made.append(
            Statement("shared-cores-bound", values={"share": row.loss.max_efficiency})
        )
    return made


def records_behind(row: RowSummary) -> list[RunRecord]:
    """The runs behind the numbers of a row: its own, its baseline's, and those that its parts need."""
    base, loss = row.row.baseline, row.loss
    rows = [row.row, *([base] if base and base is not row.row else [])]
    if (
        loss
        and row.efficiency
        and is_known(row.efficiency)
        and not is_too_wide(row.efficiency)
        and loss.is_split
    ):
        rows += [
            needed for needed in loss.rows if all(needed is not known for known in rows)
        ]
    return [record for needed in rows for record in needed.counted_runs]


def _where(loss: Attribution | None) -> list[Statement]:
    """What the lost points are, for a loss with an interval."""
    if loss is None:
        return []
    if loss.is_split:
        return (
            part_statements(loss) if loss.is_significant else unsplit_statements(loss)
        )
    ends = loss.loss_points.ends
    if ends is None or not ends[0] <= 0 <= ends[1]:
        return [Statement("above-ideal")]
    repeats, points = loss.would_show()
    if not points:
        return [Statement("near-ideal")]
    values = {"repeats": repeats, "points": round_up(points)}
    return [
        Statement("near-ideal"),
        Statement("repeats-would-show-loss", values=values),
    ]


def failure_statements(series: SeriesSummary) -> list[Statement]:
    """That no run succeeded on more devices than the most that were measured; empty where none was tried."""
    above = series.failed_above
    counts = [
        str(row.num_workers if row.is_distributed else row.num_devices)
        for row in above[:-1]
    ]
    return (
        [
            Statement(
                "failed-above", series.title, {"devices": [*counts, above[-1].devices]}
            )
        ]
        if above
        else []
    )


def unsplit_statements(loss: Attribution) -> list[Statement]:
    """Why no part is shown, and what would show it; empty where a part is."""
    if loss.is_significant:
        return []
    known = [
        part.name
        for part in loss.parts
        if part.points and part.points.ends != (0.0, 0.0)
    ]
    if not known:
        return [_not_split(loss), *_missing(loss)] if loss.missing else []
    hidden = _hidden(loss)
    made = _hidden_by_load(loss)
    if within_noise := [name for name in known if name not in hidden]:
        made += [
            Statement("parts-within-noise", values={"parts": within_noise}),
            _remedy(loss),
        ]
    if hidden:
        made.append(Statement("quiet-machine"))
    return [*made, *_missing(loss)]


def part_statements(loss: Attribution) -> list[Statement]:
    """Each measured part, and what is left."""
    told = [part for part in loss.significant_parts if _value(part)]
    made = [_part(part) for part in told]
    if any(part.name == OVERSUBSCRIPTION for part in told):
        made.append(Statement("part-computed", OVERSUBSCRIPTION))
    rest = loss.unexplained.points
    if rest is None or rest.ends == (0.0, 0.0):
        return made
    if any(part.points is None for part in loss.parts):
        return [*made, _not_split(loss, rest), *_missing(loss), *_hidden_by_load(loss)]
    names = [
        part.name for part in loss.parts if not part.is_significant and _value(part)
    ]
    values = {"parts": names or [UNEXPLAINED], "points": interval_values(rest)}
    if loss.unexplained.is_significant:
        return [
            *made,
            Statement("rest-not-separated", values=values),
            *_hidden_by_load(loss),
        ]
    kind = "rest-within-noise-or-load" if _may_be_load(loss) else "rest-within-noise"
    return [*made, Statement(kind, values=values)]


def noise_text(losses: Sequence[Attribution]) -> str:
    """What hides the parts in the rest of these losses: the noise, or load of other processes too."""
    return NOISE_OR_LOAD if any(_may_be_load(loss) for loss in losses) else NOISE


def round_up(points: float) -> str:
    """Points with few digits, never less than they are: "3", "0.4"."""
    place = 10.0 ** min(0, math.floor(math.log10(points))) if points else 1.0
    return f"{math.ceil(round(points / place, 9)) * place:.{max(0, round(-math.log10(place)))}f}"


def _part(part: LossPart) -> Statement:
    assert part.points
    if part.points.value > 0:
        return Statement("part", part.name, {"points": interval_values(part.points)})
    gained = part.points.subtracted_from(0.0)
    return Statement(
        "part-gains", part.name, {"points": interval_values(gained or part.points)}
    )


def _not_split(loss: Attribution, points: Interval | None = None) -> Statement:
    return Statement(
        "points-not-split",
        values={"points": interval_values(points or loss.loss_points)},
    )


def _remedy(loss: Attribution) -> Statement:
    known = [part.points for part in loss.parts if part.points]
    repeats, points = loss.would_show()
    if points is None and all(value.rounding and value.ends for value in known):
        return Statement("few-digits")
    if points is None or any(value.ends is None for value in known):
        return Statement("repeats-would-show-spread", values={"repeats": repeats})
    return Statement(
        "repeats-would-show-parts",
        values={"repeats": repeats, "points": round_up(points)},
    )


def _hidden(loss: Attribution) -> list[str]:
    return [part.name for part in loss.parts if part.may_be_load]


def _may_be_load(loss: Attribution) -> bool:
    return bool(_hidden(loss)) or loss.unexplained.may_be_load


def _hidden_by_load(loss: Attribution) -> list[Statement]:
    if not (hidden := _hidden(loss)):
        return []
    loads: list[float] = []
    for row in loss.rows:
        loads.extend(disturbance.load(record) for record in row.counted_runs)
    most = max(loads)
    return [Statement("parts-hidden-by-load", values={"parts": hidden, "share": most})]


def _missing(loss: Attribution) -> list[Statement]:
    names = [part.name for part in loss.missing]
    return [Statement("parts-need-runs", values={"parts": names})] if names else []


def _value(part: LossPart) -> float:
    return part.points.value if part.points else 0.0
