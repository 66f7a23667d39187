"""One series in sentences: how far it scales, where the rest goes, and what else slowed its runs.

A number whose interval over processes is not known is said without more digits than it deserves, and why.
"""

from __future__ import annotations

from collections.abc import Sequence

from rnn_scaling.analysis import disturbance
from rnn_scaling.analysis.attribution import Attribution
from rnn_scaling.analysis.confidence import Interval
from rnn_scaling.analysis.metrics import SPEEDUP
from rnn_scaling.analysis.shares import ALL
from rnn_scaling.analysis.significance import REPEATS
from rnn_scaling.records.record import RunRecord
from rnn_scaling.reports import cluster
from rnn_scaling.reports.loss_text import parts_sentence, rounded_up, untold
from rnn_scaling.reports.numbers import differing, plus_minus, share
from rnn_scaling.reports.summary import RowSummary, SeriesSummary, listed

TOO_WIDE = 0.5  # half an interval over its number, from which on the number says nothing


def sentence(series: SeriesSummary) -> str:
    """One series at its most devices: its efficiency, what the lost points are, and what else slowed its runs."""
    row = series.largest
    if row is None:
        return f"{series.title}: no run succeeded."
    first, *others = statement(series)
    crowding = [text] if (text := crowding_sentence(row)) else []
    workers = cluster.remarks(row.row)
    load = of_load(records_behind(row))
    return " ".join([first, *crowding, *others, *workers, *load, *failed_above(series), *_diverged(series)])


def statement(series: SeriesSummary) -> list[str]:
    """How far a measured series scales and what the lost points are; first, if not there, where it is fastest."""
    lines, best = _statement(series), series.peak
    if best is None or best.row.rate is None:
        return lines
    known = "" if is_known(best.row.rate) else ", going by single runs"
    speedup = best.row.metric(SPEEDUP)
    times = f", {number(speedup, 2)} times the speed of one" if speedup and best.row.num_devices > 1 else ""
    peak = f"{series.title} is fastest on {best.devices}: {number(best.row.rate)} {series.unit}/s{times}{known}."
    return [peak, lines[0].replace(series.title, "It" if " reaches " in lines[0] else series.title, 1), *lines[1:]]


def _statement(series: SeriesSummary) -> list[str]:
    row, title = series.largest, series.title
    if row is None:
        raise ValueError("expected a measured series")
    rate = f"{title}: {number(row.row.rate)} {series.unit}/s on {row.devices}."
    if row.row.num_devices == 1:
        return [rate, *([] if series.failed_above else ["It was not run on more devices."])]
    if row.efficiency is None:
        return [rate, "How it scales needs its run on 1 device."]
    if not is_known(row.efficiency):
        reached = f"{title} reaches about {_reached(row)}, {_one_run(row)}."
        return [reached, f"--repeats={REPEATS[0]} would show how sure that is."]
    if is_too_wide(row.efficiency):
        why, remedy = "the runs vary too much", "More repeats would tell."
        if row.efficiency.by_digits > (row.efficiency.half_width or 0.0) / 2:
            why, remedy = "its logs printed too few digits", "Logs with more digits would tell."
        return [f"{title}: {why} to tell how it scales on {row.devices} ({between(row.efficiency)}).", remedy]
    return [f"{title} reaches {_reached(row)}.", *_where(row.loss)]


def between(efficiency: Interval) -> str:
    """ "67 to 117 % of the ideal", or by how much runs differ where the interval says nothing."""
    low, high = efficiency.ends or (efficiency.value, efficiency.value)
    return differing(efficiency) if efficiency.is_wide else f"{low:.0f} to {high:.0f} % of the ideal"


def is_known(value: Interval) -> bool:
    """Whether an interval over processes is known; one over the batches of a process says nothing about others."""
    return value.ends is not None


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


def records_behind(row: RowSummary) -> list[RunRecord]:
    """The runs behind the numbers that are said of a row: its own, its baseline's, and those that its parts need."""
    base, loss = row.row.baseline, row.loss
    rows = [row.row, *([base] if base and base is not row.row else [])]
    if loss and row.efficiency and is_known(row.efficiency) and not is_too_wide(row.efficiency) and loss.is_split:
        rows += [each for each in loss.rows if all(each is not other for other in rows)]
    return [record for each in rows for record in each.good]


def _where(loss: Attribution | None) -> list[str]:
    """What the lost points are, for a loss with an interval."""
    if loss is None:
        return []
    if loss.is_split:
        return [text] if (text := parts_sentence(loss) if loss.is_told else untold(loss)) else []
    if not contains_zero(loss.loss_points):
        return ["That is more than the ideal: check load and clocks of the runs on 1 device, then measure both again."]
    repeats, points = loss.would_show()
    more = f"; --repeats={repeats} would show a loss of {rounded_up(points)} points" if points else ""
    return [f"That cannot be told apart from the ideal{more}."]


def of_load(records: Sequence[RunRecord]) -> list[str]:
    return [text] if (text := load_sentence(records)) else []


def is_too_wide(value: Interval) -> bool:
    return value.half_width is not None and value.half_width > TOO_WIDE * value.value


def _reached(row: RowSummary) -> str:
    """ "88.0 ± 1.2 % of the ideal on 2 devices, 1.76 ± 0.02 times the speed of one"."""
    speedup = row.row.metric(SPEEDUP)
    return f"{percent(row.efficiency)} of the ideal on {row.devices}, {number(speedup, 2)} times the speed of one"


def _one_run(row: RowSummary) -> str:
    """Which side of a ratio is a single process."""
    base = row.row.baseline
    sides = [each for each in (base, row.row) if each is not None and len(each.good) == 1]
    if len(sides) == 2 and base is not row.row:
        return "going by one run each"
    return f"going by one run on {sides[0].devices}" if sides else "of which no interval is known"


def failed_above(series: SeriesSummary) -> list[str]:
    """That no run succeeded on more devices than the most that were measured; empty where none was tried."""
    above = series.failed_above
    counts = [str(each.num_workers if each.is_distributed else each.num_devices) for each in above[:-1]]
    return [f"On {listed([*counts, above[-1].devices])} no run succeeded."] if above else []


def _diverged(series: SeriesSummary) -> list[str]:
    """That the loss of some of its runs grew manifold, or beyond all numbers."""
    runs = sum(len(row.row.good) for row in series.rows)
    return [f"The loss diverged in {series.num_diverged} of {runs} runs."] if series.num_diverged else []


def percent(value: Interval | None) -> str:
    return f"{number(value, 1)} %"


def number(value: Interval | None, digits: int = 1) -> str:
    """As in the tables."""
    return plus_minus(value, digits)
