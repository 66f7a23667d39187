"""A grid -> a ScalingTable: which column is which field, which cells are one point, what is compared with what."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence

from rnn_scaling.audit.scaling_table import ASIDE, Cell, GridRow, ScalingRow, ScalingTable, exact
from rnn_scaling.audit.tables import asides, columns, grid
from rnn_scaling.audit.tables.columns import Column
from rnn_scaling.audit.tables.grid import Grid, RawTable

# Fields that a wide table repeats for each thing that it compares ("images/sec | speedup | images/sec | speedup").
REPEATED = ("rate", "speedup", "efficiency")
POSITIVE = ("batch_size", "global_batch_size", "batches", "seconds", "rate", "speedup", "efficiency", "work")


@dataclasses.dataclass(frozen=True)
class _Layout:
    """Columns by number: of labels, shared by all groups, and of each group (name, field -> column)."""

    labels: tuple[int, ...]
    shared: Mapping[str, int]
    groups: tuple[tuple[str, Mapping[str, int]], ...]
    notes: tuple[str, ...]


def interpret(raw: RawTable) -> ScalingTable:
    """The points of a raw table; `rows` is empty when none of its columns is understood."""
    table = grid.build(raw)
    kinds = [_kind(table, k) for k in range(len(table.columns))]
    table, kinds = asides.apply(table, kinds)
    layout = _layout(table, kinds)
    rows = [row for line in table.rows for row in _points(raw.source, table, kinds, layout, line)]
    roles = {table.columns[k]: field for field, k in layout.shared.items()}
    roles.update({table.columns[k]: field for _, group in layout.groups for field, k in group.items()})
    roles.update({table.columns[k]: ASIDE for k, kind in enumerate(kinds) if kind.role == ASIDE})
    filled = [k for k, name in enumerate(table.columns) if name and any(row.texts[k] for row in table.rows)]
    unread = [table.columns[k] for k in filled if table.columns[k] not in roles and k not in layout.labels]
    notes = [*table.notes, *layout.notes, *asides.not_understood(table, kinds, roles)]
    if unread and roles:
        notes.append(f"line {raw.line}: not understood, compared with their neighbours only: {', '.join(unread)}")
    return ScalingTable(
        raw.source,
        raw.line,
        raw.title,
        table.columns,
        tuple(_series_by_setting(_series_by_batch(rows))) if _says_enough(roles) else (),
        table.rows,
        tuple(notes),
        roles,
    )


def _says_enough(roles: Mapping[str, str]) -> bool:
    """Whether the columns tell a measurement: a rate, speedup or time, not a batch size alone."""
    return bool({"rate", "speedup", "efficiency", "seconds"} & set(roles.values()))


def _kind(table: Grid, k: int) -> Column:
    if table.quantity and k > 0:
        return columns.recognise(table.quantity)
    kind = columns.recognise(table.base[k])
    if not kind.role and table.sub[k] and columns.recognise(table.columns[k]).role != "devices":
        kind = columns.recognise(table.columns[k])
    cells = [row.cells[k] for row in table.rows]
    if kind.role == "devices" and _is_index(table.base[k], cells):
        return Column()
    if kind.role and not any(cells):
        return Column()  # a label with a familiar name: "GPU: Tesla M60"
    return kind


def _is_index(header: str, cells: Sequence[Cell | None]) -> bool:
    """Whether a "GPU" column numbers the devices from 0 instead of counting them."""
    values = [cell.value for cell in cells if cell]
    return not re.search(r"s\b|number|count|num", columns.plain(header)) and values == list(range(len(values)))


def _layout(table: Grid, kinds: Sequence[Column]) -> _Layout:
    labels = tuple(k for k, kind in enumerate(kinds) if not kind.role and _is_label(table, k))
    places: dict[str, list[int]] = {}
    for k, kind in enumerate(kinds):
        if kind.role and kind.role != ASIDE:
            places.setdefault(kind.role, []).append(k)
    notes: list[str] = []
    counts = {len(places[field]) for field in REPEATED if field in places}
    size = max(counts, default=1)
    if table.quantity:
        members = [k for k in range(1, len(kinds)) if kinds[k].role]
        groups = tuple((f"{table.base[k]} {table.sub[k]}".strip(), {kinds[k].role: k}) for k in members)
        return _Layout((), {"devices": 0}, groups, ())
    shared: dict[str, int] = {}
    grouped: list[dict[str, int]] = [{} for _ in range(size)]
    for field, where in places.items():
        if size > 1 and len(where) == size:
            for group, k in zip(grouped, _aligned(table, where, places)):
                group[field] = k
        elif len(where) == 1 and (size == 1 or field not in REPEATED):
            shared[field] = where[0]
        elif field == "seconds":
            shared[field] = _main_time(table, kinds, where, places.get("speedup", []))
        elif size > 1 and field in REPEATED:
            notes.append(f"column {table.columns[where[0]]!r}: one for {size} compared things; not read as a scaling")
        else:
            shared[field] = where[0]
    if size == 1:
        return _Layout(labels, shared, (("", {}),), tuple(notes))
    names = [_group_name(table, kinds, group, index) for index, group in enumerate(grouped)]
    return _Layout(labels, shared, tuple(zip(names, grouped)), tuple(notes))


def _aligned(table: Grid, where: Sequence[int], places: Mapping[str, Sequence[int]]) -> list[int]:
    """Columns of one field in the order of the things that the first repeated field names ("Throughput - FP32")."""
    first = next(places[field] for field in REPEATED if field in places and len(places[field]) == len(where))
    names = [_said_of(table.columns[k]) for k in first]
    own = {_said_of(table.columns[k]): k for k in where}
    fits = len(own) == len(where) and set(own) == set(names)
    return [own[name] for name in names] if fits else list(where)


def _said_of(column: str) -> str:
    """What a header says behind its last dash or comma: "FP32" of "Weak scaling - FP32 (tok/s)"."""
    return re.sub(r"[\[(].*?[\])]", "", re.split(r" - |, |: ", columns.plain(column))[-1]).strip()


def _is_label(table: Grid, k: int) -> bool:
    texts = [(row.texts[k], row.cells[k]) for row in table.rows if row.texts[k]]
    return bool(texts) and 2 * sum(cell is None for _, cell in texts) > len(texts) and not _all_missing(texts)


def _all_missing(texts: Sequence[tuple[str, Cell | None]]) -> bool:
    return all(asides.is_missing(text) for text, _ in texts)


def _main_time(table: Grid, kinds: Sequence[Column], where: Sequence[int], speedups: Sequence[int]) -> int:
    """The time that the speedup is of: named by its header, else the one of a number of batches, else the total."""
    words = set(re.findall(r"[a-z]+", " ".join(columns.plain(table.base[k]) for k in speedups))) - {"speedup", "time"}
    named = [k for k in where if words & set(re.findall(r"[a-z]+", columns.plain(table.base[k])))]
    batches = [k for k in where if kinds[k].batches]
    total = [k for k in where if "total" in columns.plain(table.base[k])]
    return (named or batches or total or list(where))[0]


def _group_name(table: Grid, kinds: Sequence[Column], group: Mapping[str, int], index: int) -> str:
    k = min(group.values())
    if table.sub[k]:
        return table.sub[k]
    words = [set(re.findall(r"[\w-]+", table.base[column])) for column in group.values()]
    common = set.intersection(*words) if len(words) > 1 else set()
    return " ".join(word for word in re.findall(r"[\w-]+", table.base[k]) if word in common) or f"group {index + 1}"


def _points(source: str, table: Grid, kinds: Sequence[Column], layout: _Layout, line: GridRow) -> list[ScalingRow]:
    labels = [line.texts[k] for k in layout.labels if line.texts[k]]
    used = {k for _, group in layout.groups for k in group.values()} | set(layout.shared.values())
    extra = {
        table.columns[k]: cell
        for k, cell in enumerate(line.cells)
        if cell and k not in used and k not in layout.labels and kinds[k].role != ASIDE
    }
    points = []
    for name, group in layout.groups:
        places = {**layout.shared, **group}
        if group and not any(line.cells[k] for k in group.values()):
            continue
        read = ((field, scaled(line.cells[k], kinds[k])) for field, k in places.items() if field in POSITIVE)
        numbers = {field: cell for field, cell in read if cell and cell.value > 0}
        batches = kinds[places["seconds"]].batches if "seconds" in places else None
        if batches and "batches" not in places:
            numbers["batches"] = exact(batches)
        if "batch_size" in numbers and numbers["batch_size"].unit in ("in all", "in total"):
            numbers.setdefault("global_batch_size", numbers.pop("batch_size"))
        if not any(cell for field, cell in numbers.items() if field != "batches"):
            continue
        count = line.cells[places["devices"]] if "devices" in places else None
        series = " / ".join([name, *labels] if name else labels)
        unit = kinds[places["rate"]].unit if "rate" in places else ""
        unit = unit or (numbers["rate"].unit if "rate" in numbers else "")
        points.append(ScalingRow(source, line.line, series, as_devices(count), rate_unit=unit, extra=extra, **numbers))
    return points


def as_devices(cell: Cell | None) -> int | None:
    """A whole number of devices from 1 up, else None."""
    return int(cell.value) if cell and cell.value >= 1 and float(cell.value).is_integer() else None


def scaled(cell: Cell | None, kind: Column) -> Cell | None:
    """A cell in seconds, or as a fraction where the header says per cent."""
    if cell is None or (cell.unit == "%" and kind.role in ("efficiency", "speedup")):
        return cell
    scale = kind.scale
    if kind.role == "seconds" and cell.unit in columns.TIME_UNITS:
        scale = columns.TIME_UNITS[cell.unit]
    if kind.role == "efficiency" and scale == 1.0 and cell.value > 3:
        scale = 0.01  # "96.4" under "efficiency" is per cent
    if scale == 1.0:
        return cell
    if scale in (0.01, 1e-3, 1e-6):
        shift = {0.01: 2, 1e-3: 3, 1e-6: 6}[scale]
        unit = "%" if scale == 0.01 else cell.unit
        value, spread = float(cell.value) / 10**shift, cell.spread / 10**shift
        return dataclasses.replace(cell, value=value, digits=cell.digits + shift, unit=unit, spread=spread)
    # Minutes: one more decimal keeps the bounds at least as wide as the print's.
    digits = cell.digits - len(str(int(scale)))
    return dataclasses.replace(cell, value=cell.value * scale, digits=digits, spread=cell.spread * scale)


def _series_by_setting(rows: list[ScalingRow]) -> list[ScalingRow]:
    """Puts a numeric setting into the series (sequence length) where only it tells points of the same devices apart."""
    seen: dict[tuple[str, int | None], int] = {}
    for row in rows:
        seen[row.series, row.devices] = seen.get((row.series, row.devices), 0) + 1
    repeated = {series for (series, devices), count in seen.items() if count > 1 and devices}
    if not repeated:
        return rows
    for column in dict.fromkeys(name for row in rows[:100] for name in row.extra):
        keys = [(r.series, r.devices, r.extra[column].text if column in r.extra else "") for r in rows]
        few = len({key[2] for key in keys}) <= max(2, len(rows) // 2)
        if few and len(set(keys)) == len(rows):
            return [
                dataclasses.replace(row, series=" / ".join(filter(None, [row.series, f"{column} {key[2]}"])))
                if row.series in repeated
                else row
                for row, key in zip(rows, keys)
            ]
    return rows


def _series_by_batch(rows: list[ScalingRow]) -> list[ScalingRow]:
    """Puts the batch size into the series where the same devices were measured with several."""
    sizes: dict[tuple[str, int], set[float]] = {}
    for row in rows:
        if row.devices and row.batch_size:
            sizes.setdefault((row.series, row.devices), set()).add(row.batch_size.value)
    several = {series for (series, _), values in sizes.items() if len(values) > 1}
    return [
        dataclasses.replace(row, series=" / ".join(filter(None, [row.series, f"batch {row.batch_size.text}"])))
        if row.series in several and row.batch_size
        else row
        for row in rows
    ]
