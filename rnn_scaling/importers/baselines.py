"""Imported rates -> speedup and efficiency: which runs on one device a row is compared with, or why with none. Pure.

A row is compared with runs on one device of its own batch size a device (weak scaling), only where there are none with
runs of its global batch size (strong scaling); never with both. Those of its own series come first; else those of one
series that differs in nothing but how values are exchanged serve, which a sentence says.
"""

import dataclasses
import statistics
from collections.abc import Iterable, Sequence

from rnn_scaling.importers import outliers
from rnn_scaling.importers.common import ScalingRow

APART = 0.05  # relative: runs on one device whose rates differ by more are named
MOST_REMARKS = 8
WEAK, STRONG, UNSAID = "weak", "strong", ""  # UNSAID: no log says a batch size
_Ones = dict[
    tuple[str, str, str], dict[str, list[ScalingRow]]
]  # (base, scaling, batch size): series: runs


@dataclasses.dataclass(frozen=True)
class Derived:
    # The runs on one device that it is compared with, all of one series and batch size; else none.
    baseline: tuple[ScalingRow, ...]
    # WEAK or STRONG, what speedup and efficiency are of; UNSAID on one device and where no batch size is known.
    scaling: str
    speedup: float | None  # rate / mean rate of the baseline
    efficiency: float | None  # speedup / devices; None without a baseline
    runs: int  # rows of the same series, devices and batch size, this one included
    mean_rate: float | None  # the mean of their rates


def derive(rows: Sequence[ScalingRow]) -> list[Derived]:
    ones = [row for row in rows if row.devices == 1 and row.rate is not None]
    groups: dict[tuple, list[ScalingRow]] = {}
    for row in rows:
        groups.setdefault(_group(row), []).append(row)
    by_work: _Ones = {}
    for baseline in ones:
        for work in works(baseline):
            by_work.setdefault((_base(baseline), *work), {}).setdefault(
                baseline.series, []
            ).append(baseline)
    derived = []
    for row in rows:
        base, scaling = _baseline(row, by_work)
        speedup = row.rate.value / mean(base) if row.rate is not None and base else None
        efficiency = (
            speedup / row.devices if speedup is not None and row.devices else None
        )
        brothers = groups[_group(row)]
        mean_rate = (
            mean(brothers) if any(brother.rate for brother in brothers) else None
        )
        scaling = scaling if row.devices != 1 else UNSAID
        derived.append(
            Derived(tuple(base), scaling, speedup, efficiency, len(brothers), mean_rate)
        )
    return derived


def remarks(rows: Sequence[ScalingRow]) -> list[str]:
    """Sentences on the baselines of some rows of one unit, and on runs far slower than their repeats."""
    derived = derive(rows)
    ones = [row for row in rows if row.devices == 1 and row.rate is not None]
    several = [
        (row, result.baseline)
        for row, result in zip(rows, derived)
        if row.rate and (row.devices or 1) > 1
    ]
    texts = [
        _borrowed(row, baseline) if baseline else _missing(row, ones)
        for row, baseline in several
    ]
    repeated = {
        id(result.baseline[0]): result.baseline
        for result in derived
        if len(result.baseline) > 1
    }
    texts += map(_spread, repeated.values())
    sentences = [*_slow_runs(rows), *filter(None, dict.fromkeys(texts))]
    if len(sentences) > MOST_REMARKS:
        sentences[MOST_REMARKS:] = [
            f"and {len(sentences) - MOST_REMARKS} more sentences of this kind"
        ]
    return sentences


def mean(rows: Iterable[ScalingRow]) -> float:
    """The mean of the rates of those rows that have one."""
    return statistics.fmean(row.rate.value for row in rows if row.rate is not None)


def name(row: ScalingRow) -> str:
    """A row's series for a sentence."""
    return row.series or "the runs"


def _group(row: ScalingRow) -> tuple:
    return (
        row.series,
        row.devices,
        *(cell and cell.value for cell in (row.batch_size, row.global_batch_size)),
    )


def _base(row: ScalingRow) -> str:
    """What a run on one device must share with a row to be its baseline."""
    return row.series if row.base is None else row.base


def _baseline(row: ScalingRow, ones: _Ones) -> tuple[list[ScalingRow], str]:
    """The runs on one device to compare a row with, and of which scaling the comparison is.

    Without any of its own series those of the fastest other one serve: the speedup is not flattered by a slow mode.
    """
    if row.rate is None or row.devices is None:
        return [], UNSAID
    for scaling, batch in works(row):
        if by_series := ones.get((_base(row), scaling, batch)):
            return by_series.get(row.series) or max(
                by_series.values(), key=mean
            ), scaling
    return [], UNSAID


def works(row: ScalingRow) -> list[tuple[str, str]]:
    """What a run on one device must share with a row to be compared with it: (scaling, batch size), best first.

    One batch size follows from the other and the devices where the log has one alone.
    """
    per_device, together = (
        cell and cell.value for cell in (row.batch_size, row.global_batch_size)
    )
    devices = row.devices or 1
    if per_device is None and together is None:
        return [(UNSAID, "")]
    per_device, together = (
        per_device or (together or 0.0) / devices,
        together or (per_device or 0.0) * devices,
    )
    return [(WEAK, f"{per_device:.9g}"), (STRONG, f"{together:.9g}")]


def _borrowed(row: ScalingRow, baseline: Sequence[ScalingRow]) -> str:
    series = baseline[0].series
    if series == row.series:
        return ""
    return (
        f"{name(row)}: speedup against one device of {series}, since none of its own mode is among the files; a step "
        "on one device can take longer in one mode than in another"
    )


def _missing(row: ScalingRow, ones: Sequence[ScalingRow]) -> str:
    """Why a row has no speedup: what the nearest run on one device differs in."""
    if not ones:
        return f"{name(row)}: no speedup, since no run on one device is among the files"
    nearest = min(
        ones, key=lambda baseline: (len(_differences(row, baseline)), baseline.series)
    )
    differences = _differences(row, nearest)
    return f"{name(row)} on {row.devices}: no speedup, since the nearest run on one device has {', '.join(differences)}"


def _differences(row: ScalingRow, baseline: ScalingRow) -> list[str]:
    """What a run on one device has otherwise, in words."""
    here, there = _base(row).split(", "), _base(baseline).split(", ")
    differences = [part or "no name" for part in there if part not in here]
    differences += [f"no {part}" for part in here if part and part not in there]
    if not set(works(row)) & set(works(baseline)):
        differences.append(f"batch size {_sizes(baseline)} instead of {_sizes(row)}")
    return differences


def _sizes(row: ScalingRow) -> str:
    if row.batch_size is None and row.global_batch_size is not None:
        return f"{row.global_batch_size.text} global"
    return row.batch_size.text if row.batch_size else "unknown"


def _spread(baseline: Sequence[ScalingRow]) -> str:
    """A word on runs on one device that differ."""
    rates = [row.rate.value for row in baseline if row.rate is not None]
    low, high = min(rates), max(rates)
    if high <= low * (1 + APART):
        return ""
    unit = baseline[0].rate_unit
    batch = (
        f" at batch size {_sizes(baseline[0])}"
        if works(baseline[0]) != [(UNSAID, "")]
        else ""
    )
    return (
        f"{name(baseline[0])}: the {len(rates)} runs on one device{batch} ran at {low:.5g} to {high:.5g} {unit}; "
        "speedups are against their mean"
    )


def _slow_runs(rows: Sequence[ScalingRow]) -> list[str]:
    groups: dict[tuple, list[ScalingRow]] = {}
    for row in rows:
        if row.rate is not None:
            groups.setdefault(_group(row), []).append(row)
    sentences = []
    for group in groups.values():
        rates = [row.rate.value for row in group if row.rate is not None]
        for i in outliers.slow(rates):
            row = group[i]
            sentences.append(
                f"{row.source}:{row.line}: this run of {name(row)} ran at {rates[i]:.5g} {row.rate_unit}, its "
                f"{len(rates) - 1} repeats at about {outliers.middle(rates):.5g}"
            )
    return sentences
