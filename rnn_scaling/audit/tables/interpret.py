"""A grid -> a ScalingTable: which column is which field, which cells are one point, what is compared with what."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from rnn_scaling.audit.scaling_table import ASIDE, Cell, ScalingRow, ScalingTable, exact
from rnn_scaling.audit.tables import (
    asides,
    bearing,
    columns,
    comparisons,
    devices,
    grid,
    kinds,
    layout,
    unnamed,
)
from rnn_scaling.audit.tables import series as series_of
from rnn_scaling.audit.tables.columns import COMPARED, Column
from rnn_scaling.audit.tables.devices import Devices
from rnn_scaling.audit.tables.grid import Grid, RawTable
from rnn_scaling.audit.tables.layout import Layout

_POSITIVE = (
    *("batch_size", "global_batch_size", "batches", "seconds", "rate", "rate_each", "speedup", "efficiency", "work"),
    "accumulation",
)


def interpret(raw: RawTable, source: str) -> ScalingTable:
    """The points of a raw table of the file `source`; `rows` is empty when none of its columns is understood."""
    table = _in_seconds(grid.build(raw))
    said, pair = kinds.of(table)
    table, said = asides.apply(table, said)
    counted = devices.find(table, said)
    counted = counted if counted.columns or counted.labels or table.quantity else devices.by_efficiency(table, said)
    table = _with_counts(table, counted)
    said = [
        Column() if kind.role in ("devices", "ids", "per_part") and k not in counted.columns else kind
        for k, kind in enumerate(said)
    ]
    against = comparisons.borne_out(table, said, counted) if not table.quantity else {}
    said = [Column(COMPARED) if k in against else kind for k, kind in enumerate(said)]
    plan = layout.of(table, said, counted, (raw.caption, raw.title))
    stated = columns.stated_scaling(raw.caption, raw.title)
    rows = bearing.borne_out(_Points(source, table, plan, counted, stated).all(), plan)
    roles = _roles(table, plan, counted, rows)
    notes = [*table.notes, *counted.notes, *plan.notes, *asides.not_understood(table, plan.kinds, roles)]
    ratios = {
        **comparisons.stated(table, plan.kinds, pair),
        **{table.columns[k]: (table.columns[a], table.columns[b]) for k, (a, b) in against.items()},
    }
    used = {column for pair in ratios.values() for column in pair}
    unread = [name for name in _not_understood(table, plan, roles) if name not in used]
    if unread and roles:
        notes.append(f"line {raw.line}: columns not understood: {', '.join(unread)}")
    return ScalingTable(
        source,
        raw.line,
        raw.title,
        table.columns,
        tuple(series_of.by_setting(series_of.by_batch(rows))) if set(columns.MEASURED) & set(roles.values()) else (),
        table.rows,
        tuple(notes),
        roles,
        ratios,
    )


def _in_seconds(table: Grid) -> Grid:
    """The grid with all times in seconds, where the cells of one table have several units ("24 min", "36 sec")."""
    units = {cell.unit for row in table.rows for cell in row.cells if cell and cell.unit in columns.words.TIME_UNITS}
    if len({columns.words.TIME_UNITS[unit] for unit in units}) < 2:
        return table
    rows = tuple(
        dataclasses.replace(row, cells=tuple(_seconds_of(cell) if cell else None for cell in row.cells))
        for row in table.rows
    )
    return dataclasses.replace(table, rows=rows)


def _seconds_of(cell: Cell) -> Cell:
    scale = columns.words.TIME_UNITS.get(cell.unit)
    return dataclasses.replace(cell.times(scale), unit="s") if scale else cell


def _with_counts(table: Grid, counted: Devices) -> Grid:
    """The grid with the numbers of devices as the cells of their column, where a cell says more than a number."""
    k = counted.column
    if counted.values is None or counted.labels or table.rows == ():
        return table
    own = [
        None if cell is None and row.texts[k] == "0" else cell if cell and cell.text == row.texts[k] else row.cells[k]
        for row, cell in zip(table.rows, counted.values)
    ]
    if all(cell is row.cells[k] for row, cell in zip(table.rows, own)):
        return table
    rows = tuple(
        dataclasses.replace(row, cells=(*row.cells[:k], cell, *row.cells[k + 1 :]))
        for row, cell in zip(table.rows, own)
    )
    return dataclasses.replace(table, rows=rows)


def _roles(table: Grid, plan: Layout, counted: Devices, rows: Sequence[ScalingRow]) -> dict[str, str]:
    """The role of each column that was read, the devices first."""
    names = table.columns
    roles = {names[k]: "devices" for k in counted.columns if k not in plan.labels}
    if table.quantity:
        roles[names[0]] = "devices"
    if counted.column >= 0 and counted.column not in plan.labels:
        roles = {names[counted.column]: "devices", **roles}
    roles.update({names[k]: field for field, k in plan.shared.items()})
    borne = {field for field in ("speedup", "efficiency") if any(getattr(row, field) for row in rows)}
    for group in plan.groups:
        for field, k in group.places.items():
            roles[names[k]] = "rate" if field == unnamed.BY_UNIT else field
    for k, kind in enumerate(plan.kinds):
        if not kind.sure and kind.role not in borne and roles.get(names[k]) == kind.role:
            del roles[names[k]]
    roles.update({names[k]: ASIDE for k, kind in enumerate(plan.kinds) if kind.role == ASIDE})
    return roles


def _not_understood(table: Grid, plan: Layout, roles: Mapping[str, str]) -> list[str]:
    """Columns with something in them that nobody knows the meaning of."""
    known = {*plan.labels, *plan.unread}
    return [
        name for k, (name, kind) in enumerate(zip(table.columns, plan.kinds))
        if name and name not in roles and k not in known and not kind.other and kind.role != COMPARED
        and any(row.texts[k] for row in table.rows)
    ]  # fmt: skip


@dataclasses.dataclass(frozen=True)
class _Points:
    """Makes the points of a table; `stated`: weak or strong, where the texts above it say so."""

    source: str
    table: Grid
    plan: Layout
    counted: Devices
    stated: str

    def all(self) -> list[ScalingRow]:
        """Every point, row by row."""
        used = {k for group in self.plan.groups for k in group.places.values()}
        used |= {*self.plan.shared.values(), *self.plan.labels, *self.counted.columns}
        names = self.table.columns
        kept = [
            (k, names[k])
            for k, kind in enumerate(self.plan.kinds)
            if k not in used and kind.role not in (ASIDE, COMPARED)
        ]
        rests = dict(self.counted.labels)
        groups = [self._group(group) for group in self.plan.groups]
        points = []
        for i, line in enumerate(self.table.rows):
            extra = {name: cell for k, name in kept if (cell := line.cells[k])}
            labels = [text for k in self.plan.labels if (text := rests[k][i] if k in rests else line.texts[k])]
            for name, places, count, fixed, own in groups:
                if own and not any(line.cells[k] for k in own):
                    continue
                numbers = _numbers(line.cells, places)
                if not numbers:
                    continue
                n = count if count is not None else self._devices(i)
                series = " / ".join([name, *labels] if name else labels)
                _put_batch(numbers, n)
                unit = fixed.get("rate_unit") or _unit_of(numbers)
                scaling = fixed.get("scaling") or (self._stated_in(labels) if labels else "")
                same: dict[str, Any] = {**fixed, "rate_unit": unit, "scaling": scaling, **numbers}
                points.append(ScalingRow(self.source, line.line, series, n, extra=extra, **same))
        return points

    def _group(
        self, group: layout.Group
    ) -> tuple[str, list[tuple[str, int, Column]], int | None, dict[str, Any], tuple[int, ...]]:
        """(name, (field, column, kind) of each, devices, what is the same in all rows, the group's own columns)."""
        places = {**self.plan.shared, **group.places}
        of = self.plan.kinds
        read = [(field, k, of[k]) for field, k in places.items() if field in (*_POSITIVE, unnamed.BY_UNIT)]
        rate = next((of[places[f]] for f in columns.RATES if f in places), Column())
        stated = next((of[k].scaling for k in places.values() if of[k].scaling), "") or self.stated
        fixed: dict[str, Any] = {"rate_unit": rate.unit, "rate_scope": rate.scope, "scaling": stated}
        if "speedup" in places:
            fixed["baseline_devices"] = of[places["speedup"]].baseline
        return group.name, read, group.devices, fixed, tuple(group.places.values())

    def _devices(self, i: int) -> int | None:
        if self.table.quantity:
            return _as_devices(self.table.rows[i].cells[0])
        return _as_devices(self.counted.values[i]) if self.counted.values is not None else None

    @staticmethod
    def _stated_in(labels: Sequence[str]) -> str:
        return next(
            (low for text in labels if (low := text.lower()) in ("weak", "strong")), columns.stated_scaling(*labels)
        )


def _numbers(cells: Sequence[Cell | None], places: Sequence[tuple[str, int, Column]]) -> dict[str, Cell]:
    """The numbers above zero of a point by field; {} where none of them was measured."""
    numbers: dict[str, Cell] = {}
    measured = False
    batches: int | None = None
    for field, k, kind in places:
        cell = cells[k]
        if field == unnamed.BY_UNIT and cell:
            kind = columns.of_unit(cell.unit)
            field = kind.role
        cell = scaled(cell, kind) if cell else None
        if cell and cell.value > 0:
            numbers[field] = cell
            measured = measured or field not in ("batches", "accumulation")
        if field == "seconds" and kind.batches:
            batches = kind.batches
    if not measured:
        return {}
    if batches and not any(field == "batches" for field, _, _ in places):
        numbers["batches"] = exact(batches)
    return numbers


def _put_batch(numbers: dict[str, Cell], devices: int | None) -> None:
    """Batches as they are meant: "64 in all" is of all devices, and so is one that is accumulated."""
    batch, accumulated = numbers.get("batch_size"), numbers.pop("accumulation", None)
    if batch and batch.unit in ("in all", "in total", "global", "total"):
        numbers.setdefault("global_batch_size", numbers.pop("batch_size"))
    elif batch and accumulated and accumulated.value > 1:
        # A step is `accumulated` passes; whether the batch is that of a pass or of a step, nobody says.
        del numbers["batch_size"]
        together = numbers.get("global_batch_size")
        if together is None and devices and accumulated.value.is_integer() and batch.value.is_integer():
            whole = batch.value * accumulated.value * devices
            numbers["global_batch_size"] = Cell(whole, 0, f"{batch.text} x {accumulated.text} x {devices}")


def _unit_of(numbers: Mapping[str, Cell]) -> str:
    rate = numbers.get("rate") or numbers.get("rate_each")
    return columns.recognise(rate.unit).unit if rate and rate.unit else ""


def _as_devices(cell: Cell | None) -> int | None:
    """A whole number of devices from 1 up, else None."""
    return int(cell.value) if cell and cell.value >= 1 and float(cell.value).is_integer() else None


def scaled(cell: Cell, kind: Column) -> Cell:
    """A cell in seconds, a second, or as a fraction where the header says per cent."""
    if cell.unit == "%" and kind.role in ("efficiency", "speedup"):
        return cell
    scale = kind.scale
    if kind.role == "seconds" and cell.unit in columns.words.TIME_UNITS:
        scale = columns.words.TIME_UNITS[cell.unit]
    if kind.role == "efficiency" and scale == 1.0 and cell.value > 3:
        scale = 0.01  # "96.4" under "efficiency" is per cent
    if scale == 1.0:
        return cell
    out = cell.times(scale)
    return dataclasses.replace(out, unit="%") if scale == 0.01 else out
