"""Totals that a table prints beside their factors: rate = rate of one x devices, global batch = batch x devices."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

from rnn_scaling.audit import misprints, rounding
from rnn_scaling.audit.checks.context import Context
from rnn_scaling.audit.finding import IMPOSSIBLE, Finding, of_row
from rnn_scaling.audit.rounding import Bounds
from rnn_scaling.audit.scaling_table import Cell, ScalingRow, ScalingTable

NAME = "products"
# total, factor, and the words for the finding
_PRODUCTS = (("rate", "rate_each", "rate of one"), ("global_batch_size", "batch_size", "batch of one"))


def check(table: ScalingTable, context: Context) -> Iterator[Finding | None]:
    """Yields a finding for each total that is not its factor x devices; None for each that is."""
    for total, factor, words in _PRODUCTS:
        rows = [row for row in table.rows if getattr(row, total) and getattr(row, factor)]
        if not any(row.devices for row in rows):  # as many in all rows
            ratios = [rounding.of(getattr(row, total)) / _or_cut(getattr(row, factor)) for row in rows]
            devices = rounding.common_whole(ratios)
            rows = [dataclasses.replace(row, devices=devices) for row in rows]
        rows = [row for row in rows if row.devices]
        if rows:
            yield from _product(table, rows, total, factor, words, _borne_out(table, context, total))


def _borne_out(table: ScalingTable, context: Context, total: str) -> set[int]:
    """Rows, by their ids, whose total gives the speedup or the efficiency beside it."""
    out = set()
    for judged in context.judged(table):
        related = judged.verdict.by_speedup or judged.verdict.by_efficiency
        if related and related.reading.field == total:
            holds = related.fit.holds.items()
            out |= {id(judged.verdict.rows[k]) for k, good in holds if good and k not in related.fit.anchors}
    return out


def _product(
    table: ScalingTable, rows: Sequence[ScalingRow], total: str, factor: str, words: str, borne_out: set[int]
) -> Iterator[Finding | None]:
    made = [_or_cut(getattr(row, factor)) * (row.devices or 1) for row in rows]
    ratios = [rounding.of(getattr(row, total)) / value for row, value in zip(rows, made)]
    if total == "global_batch_size" and not all(ratio.meets(rounding.point(1.0)) for ratio in ratios):
        ratios = [_exactly(row.global_batch_size) / _exactly(row.batch_size) / (row.devices or 1) for row in rows]
    holds = [ratio.meets(rounding.point(1.0)) for ratio in ratios]
    if not all(holds):  # accumulated steps: all totals are as many times the product
        shared, members = rounding.consensus(ratios)
        steps = next((number for number in shared.integers() if number >= 2), None)
        if steps and len(members) > sum(holds) and 2 * len(members) > len(rows) and len(members) >= 3:
            made = [value * steps for value in made]
            holds = [k in set(members) for k in range(len(rows))]
    if total == "global_batch_size" and 4 * sum(holds) < 3 * len(rows):
        return  # each row accumulates as it likes, or some devices share one batch
    for row, value, good in zip(rows, made, holds):
        if not good and id(row) in borne_out:
            yield _of_factor(table, row, total, factor)
        else:
            yield None if good else _finding(table, row, total, factor, words, value)


def _or_cut(cell: Cell) -> Bounds:
    """What a number was before it was rounded, or its last digits cut off: the factor is made from the total."""
    return Bounds(rounding.of(cell).low, max(cell.high, cell.value + 2 * cell.half_ulp))


def _exactly(cell: Cell | None) -> Bounds:
    """A count as printed: nobody rounds it."""
    return rounding.point(cell.value if cell else 1.0)


def _finding(table: ScalingTable, row: ScalingRow, total: str, factor: str, words: str, value: Bounds) -> Finding:
    cause = f"not the {words}, {getattr(row, factor).text}, x {row.devices} devices"
    guess = misprints.guess(getattr(row, total), value)
    return of_row(NAME, IMPOSSIBLE, table, row, total, value, f"{cause}: {guess}")


def _of_factor(table: ScalingTable, row: ScalingRow, total: str, factor: str) -> Finding:
    cell: Cell = getattr(row, total)
    one: Cell = getattr(row, factor)
    value = rounding.of(cell) / (row.devices or 1)
    cause = f"not the total, {cell.text}, / {row.devices} devices, which the numbers beside it bear out"
    return of_row(NAME, IMPOSSIBLE, table, row, factor, value, f"{cause}: {misprints.guess(one, value)}")
