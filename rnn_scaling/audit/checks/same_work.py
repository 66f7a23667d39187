"""The same rate x seconds an item in every table of a file: the row, or the table, that is off from all others."""

from __future__ import annotations

from collections.abc import Iterator

from rnn_scaling.audit import rounding, work_model
from rnn_scaling.audit.checks.context import Context, Works
from rnn_scaling.audit.finding import UNLIKELY, Finding, expect, of_row
from rnn_scaling.audit.rounding import Bounds
from rnn_scaling.audit.scaling_table import ScalingTable
from rnn_scaling.audit.work_model import Timed

NAME = "same_work"
_NEAR = 0.01  # rates that are printed for people have few digits, and trailing zeros that nobody can tell from digits
_MAX_ROWS = 10_000  # of one file


def check(table: ScalingTable, context: Context) -> Iterator[Finding | None]:
    """Notes what rate x seconds is an item, where batch size and batches are known; `conclude` compares the tables."""
    items = []
    models = context.models(table)
    for model in models:
        if model.absolute and model.kind in (work_model.WEAK, work_model.STRONG):
            items += [(row, _items(row)) for row, fits in zip(model.rows, model.fits) if fits]
        elif model.absolute and model.kind == work_model.VARIES and len(model.rows) == 2:
            items += [(row, _items(row)) for row in model.rows]
    items += [(row, _items(row)) for row in work_model.alone(table.rows, models) if work_model.has_settings(row)]
    if items and sum(len(works.items) for works in context.works) < _MAX_ROWS:
        context.works.append(Works(table, items))
    yield from ()


def _items(row: Timed) -> Bounds:
    return work_model.product(row) / work_model.samples(row)


def conclude(context: Context) -> Iterator[Finding | None]:
    """Yields a finding for the one table, or rows of it, that differ from two other tables or more."""
    everything = [(works.table, row, value) for works in context.works for row, value in works.items]
    if len(context.works) < 3:
        return
    shared, members = rounding.consensus([value for _, _, value in everything])
    inside = set(members)
    near = [shared.widened(_NEAR).meets(value) for _, _, value in everything]
    odd = [each for k, each in enumerate(everything) if k not in inside and not near[k]]
    agreeing = {id(everything[k][0]) for k in members} - {id(table) for table, _, _ in odd}
    if not odd or len({id(table) for table, _, _ in odd}) > 1 or len(agreeing) < 2 or len(members) < 4:
        yield from [None] * len(members) if not odd else []
        return
    table, row, value = odd[0]
    whole = len(odd) == sum(one is table for one, _, _ in everything)
    others = f" and {len(odd) - 1} other rows" if len(odd) > 1 else ""
    place = "of this table" if whole and len(odd) > 1 else "here"
    stands = f"{row.rate.text} x {row.seconds.text} s = {value.middle:.6g} an item"
    cause = (
        f"rate x seconds an item {place} is {(value / shared).middle:.4g} of that in the {len(agreeing)} other tables "
        "of the file"
    )
    yield of_row(NAME, UNLIKELY, table, row, "rate", expect(shared), cause, others, stands)
