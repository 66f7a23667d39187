"""Imported rates -> speedup and efficiency: which runs on one device a row is compared with, or why with none. Pure.

Rows are compared within their series. A row without a run on one device in its own series is compared with runs on one
device that differ in nothing but how values are exchanged: on one device nothing is.
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Iterable, Sequence

from rnn_scaling.audit.scaling_table import Cell, ScalingRow
from rnn_scaling.importers import outliers
from rnn_scaling.importers.common import ImportedRow

APART = 0.05  # relative: runs on one device whose rates differ by more are named
MOST_REMARKS = 8


@dataclasses.dataclass(frozen=True)
class Derived:
    """What follows from a row and its baseline.

    baseline: the runs on one device that it is compared with, none where there is none.
    speedup: rate / mean rate of the baseline; efficiency: speedup / devices; None without a baseline.
    runs: rows of the same series, devices and batch size, this one included; mean_rate: the mean of their rates.
    """

    baseline: tuple[ScalingRow, ...]
    speedup: float | None
    efficiency: float | None
    runs: int
    mean_rate: float | None


def derive(rows: Sequence[ScalingRow]) -> list[Derived]:
    """What follows for each of some rows of one unit."""
    ones = [row for row in rows if row.devices == 1 and row.rate is not None]
    groups: dict[tuple, list[ScalingRow]] = {}
    for row in rows:
        groups.setdefault(_group(row), []).append(row)
    by_base: dict[str, list[ScalingRow]] = {}
    for one in ones:
        by_base.setdefault(_base(one), []).append(one)
    derived = []
    for row in rows:
        base = _baseline(row, by_base.get(_base(row), []))
        speedup = row.rate.value / mean(base) if row.rate is not None and base else None
        brothers = groups[_group(row)]
        derived.append(
            Derived(
                tuple(base),
                speedup,
                speedup / row.devices if speedup is not None and row.devices else None,
                len(brothers),
                mean(brothers) if any(each.rate for each in brothers) else None,
            )
        )
    return derived


def remarks(rows: Sequence[ScalingRow]) -> list[str]:
    """Sentences on the baselines of some rows of one unit, and on runs far slower than their repeats."""
    derived = derive(rows)
    sentences: dict[str, None] = {}
    ones = [row for row in rows if row.devices == 1 and row.rate is not None]
    for row, one in zip(rows, derived):
        if row.rate is None or not row.devices or row.devices == 1:
            continue
        text = _borrowed(row, one.baseline) if one.baseline else _missing(row, ones)
        if text:
            sentences.setdefault(text)
    for base in {id(one.baseline[0]): one.baseline for one in derived if len(one.baseline) > 1}.values():
        sentences.setdefault(_spread(base))
    sentences.pop("", None)
    said = [*_slow_runs(rows), *sentences]
    if len(said) > MOST_REMARKS:
        said[MOST_REMARKS:] = [f"and {len(said) - MOST_REMARKS} more sentences of this kind"]
    return said


def mean(rows: Iterable[ScalingRow]) -> float:
    """The mean of the rates of those rows that have one."""
    return statistics.fmean(row.rate.value for row in rows if row.rate is not None)


def name(row: ScalingRow) -> str:
    """A row's series for a sentence."""
    return row.series or "the runs"


def _group(row: ScalingRow) -> tuple:
    return row.series, row.devices, *(cell and cell.value for cell in (row.batch_size, row.global_batch_size))


def _base(row: ScalingRow) -> str:
    """What a run on one device must share with a row to be its baseline."""
    return row.base if isinstance(row, ImportedRow) else row.series


def _baseline(row: ScalingRow, candidates: Sequence[ScalingRow]) -> list[ScalingRow]:
    """The runs on one device to compare a row with: those of its own series, else those of other modes."""
    if row.rate is None or row.devices is None:
        return []
    fitting = [one for one in candidates if _same_batch(row, one)]
    return [one for one in fitting if one.series == row.series] or fitting


def _same_batch(row: ScalingRow, other: ScalingRow) -> bool:
    """Whether two rows have one batch size a device (weak scaling) or one global batch size (strong scaling)."""
    pairs = [(row.batch_size, other.batch_size), (row.global_batch_size, other.global_batch_size)]
    known = [(a, b) for a, b in pairs if a is not None and b is not None]
    return not known or any(a.value == b.value for a, b in known)


def _borrowed(row: ScalingRow, baseline: Sequence[ScalingRow]) -> str:
    others = sorted({one.series for one in baseline} - {row.series})
    if not others or any(one.series == row.series for one in baseline):
        return ""
    return (
        f"{name(row)}: speedup against one device of {' and of '.join(others)}; on one device nothing is exchanged, so "
        "how it would be does not matter"
    )


def _missing(row: ScalingRow, ones: Sequence[ScalingRow]) -> str:
    """Why a row has no speedup: what the nearest run on one device differs in."""
    if not ones:
        return f"{name(row)}: no speedup, since no run on one device is among the files"
    nearest = min(ones, key=lambda one: (len(_differences(row, one)), one.series))
    differences = _differences(row, nearest)
    return f"{name(row)} on {row.devices}: no speedup, since the nearest run on one device has {', '.join(differences)}"


def _differences(row: ScalingRow, one: ScalingRow) -> list[str]:
    """What a run on one device has otherwise, in words."""
    here, there = _base(row).split(", "), _base(one).split(", ")
    differences = [part or "no name" for part in there if part not in here]
    differences += [f"no {part}" for part in here if part and part not in there]
    if not _same_batch(row, one):
        differences.append(f"batch size {_sizes(one)} instead of {_sizes(row)}")
    return differences


def _sizes(row: ScalingRow) -> str:
    def text(cell: Cell | None) -> str:
        return "?" if cell is None else cell.text

    return (
        text(row.batch_size) if row.batch_size or not row.global_batch_size else f"{text(row.global_batch_size)} global"
    )


def _spread(baseline: Sequence[ScalingRow]) -> str:
    """A word on runs on one device that differ."""
    rates = [one.rate.value for one in baseline if one.rate is not None]
    low, high = min(rates), max(rates)
    if high <= low * (1 + APART):
        return ""
    unit = baseline[0].rate_unit
    return (
        f"{name(baseline[0])}: the {len(rates)} runs on one device ran at {low:.5g} to {high:.5g} {unit}; speedups are "
        "against their mean"
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
