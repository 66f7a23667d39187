"""Which column, or which columns together, say how many devices a row was measured on."""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Sequence

from rnn_scaling.audit import rounding
from rnn_scaling.audit.scaling_table import Cell
from rnn_scaling.audit.tables import columns, counts
from rnn_scaling.audit.tables import vocabulary as words
from rnn_scaling.audit.tables.columns import Column
from rnn_scaling.audit.tables.counts import Count
from rnn_scaling.audit.tables.grid import Grid

_MOST = 10_000_000  # devices of a row; a larger number is something else
_BOTH = re.compile(r"\d+\s*\((\d+)\)")
_LETTERS = ("n", "p", "np", "# p", "#p")


@dataclasses.dataclass(frozen=True)
class Devices:
    """Where a table says its devices.

    values: of each row, None where it does not say; None altogether: no column says devices.
    column: the one that says them, or the coarser of two that are multiplied; columns: all that count something.
    labels: the text that is left of a label column once its count is read, by column.
    """

    values: Sequence[Cell | None] | None = None
    column: int = -1
    columns: tuple[int, ...] = ()
    labels: tuple[tuple[int, tuple[str, ...]], ...] = ()
    notes: tuple[str, ...] = ()


def find(table: Grid, kinds: Sequence[Column]) -> Devices:
    """The devices of each row: from a column, a product of two, a list of indices, or "4 GPUs" in a label."""
    counted = {k: _values(table, k, kinds[k]) for k, kind in enumerate(kinds) if kind.role in ("devices", "ids")}
    counted = {k: values for k, values in counted.items() if values}
    each = {k: _values(table, k, kinds[k]) for k, kind in enumerate(kinds) if kind.role == "per_part"}
    every = (*counted, *each)
    for k, values in each.items():
        part, _, whole = kinds[k].unit.partition("/")
        totals = [i for i in counted if kinds[i].unit == part]
        if totals and _consistent(counted[totals[0]], values):
            return Devices(counted[totals[0]], totals[0], every)
        wholes = [i for i in counted if kinds[i].unit == whole]
        for i, made in ((i, _product(counted[i], values)) for i in wholes if values):
            total = next((j for j in counted if j != i and _same(counted[j], made)), None)
            if total is not None:  # ranks x threads per rank = workers
                return Devices(counted[total], total, every)
        if len(wholes) == 1 and values:
            return Devices(_product(counted[wholes[0]], values), wholes[0], every)
    if not counted and len(each) == 1:  # "threads/processes": the one or the other; or all of one node
        counted = {k: values for k, values in each.items() if values}
    if not counted:
        return _in_labels(table, kinds)
    if len(counted) == 1:
        (k,) = counted
        return Devices(counted[k], k, every)
    return _of_several(table, kinds, counted)


def by_efficiency(table: Grid, kinds: Sequence[Column]) -> Devices:
    """The column whose whole numbers are speedup / efficiency in three lines and all but one: "slots", "K", "nw"."""
    where = {role: [k for k, kind in enumerate(kinds) if kind.role == role] for role in ("speedup", "efficiency")}
    if [len(columns_of) for columns_of in where.values()] != [1, 1]:
        return Devices()
    ((gain,), (share,)) = where.values()
    found = []
    for k, kind in enumerate(kinds):
        if kind.role not in ("", "work"):
            continue
        known = [
            (row.cells[k], row.cells[gain], row.cells[share])
            for row in table.rows
            if row.cells[k] and row.cells[gain] and row.cells[share]
        ]
        fits = [
            (rounding.of(a) / rounding.of(b)).meets(rounding.point(n.value))
            for n, a, b in known
            if n and a and b and n.value != 1 and n.value.is_integer()
        ]
        if sum(fits) > 2 and sum(fits) >= len(fits) - 1 and len({n.value for n, _, _ in known if n}) > 2:
            found.append(k)
    if len(found) != 1:
        return Devices()
    (k,) = found
    return Devices([row.cells[k] for row in table.rows], k, (k,))


def _values(table: Grid, k: int, kind: Column) -> list[Cell | None]:
    """The number of devices of each cell of a column; [] where it is none: an index, a list of indices, a label."""
    texts = [row.texts[k] for row in table.rows]
    if kind.role == "ids":
        lists = [counts.in_list(text) for text in texts]
        enough = any(number and number > 1 for number in lists)
        return [Cell(float(n), 0, text) if n else None for n, text in zip(lists, texts)] if enough else []
    if _is_index(table.base[k], [row.cells[k] for row in table.rows]) or any(map(counts.is_list, texts)):
        return []
    both = re.fullmatch(rf"(?P<a>{words.COUNTED}) ?\((?P<b>{words.COUNTED})\)", columns.plain(table.base[k]))
    inner = bool(both) and columns.noun(both["b"]) != "nodes" if both else False  # "Nodes (GPUs)": "2 (16)" is 16
    grouped = all(re.fullmatch(r"[1-9]\d{0,2}(?:\.\d{3})+|\d{0,3}", text) for text in texts)  # "1.152" GPUs are 1152
    out = [
        cell if cell and not inner and not (grouped and "." in text) else _cell(text, inner)
        for text, cell in zip(texts, (row.cells[k] for row in table.rows))
    ]
    if kind.unit in ("threads", "cores", "processes") and any(cell and cell.value == 1 for cell in out):
        out = [None if cell and cell.value == 0 and i == 0 else cell for i, cell in enumerate(out)]  # 0 threads: serial
    if sum(cell is not None and cell.value == 0 for cell in out) > 1:  # runs on the CPU
        out = [None if cell and cell.value == 0 else cell for cell in out]
    numbers = [cell.value for cell in out if cell]
    if not numbers or max(numbers) > _MOST:
        return []
    if columns.plain(table.base[k]) in _LETTERS and (min(numbers) > 64 or max(numbers) > 65536):
        return []  # "n" is a size of the problem
    return out


def _cell(text: str, inner: bool) -> Cell | None:
    beside = _BOTH.fullmatch(text) if inner else None
    if beside:
        return Cell(float(beside[1]), 0, text)
    plain = text.replace(".", "") if re.fullmatch(r"\d{1,3}(?:\.\d{3})+", text) else text
    number = counts.in_cell(plain) if text else None
    return Cell(float(number), 0, text) if number is not None else None


def _is_index(header: str, cells: Sequence[Cell | None]) -> bool:
    """Whether a "GPU" column numbers the devices from 0 instead of counting them."""
    values = [cell.value for cell in cells if cell]
    return not re.search(r"s\b|number|count|num", columns.plain(header)) and values == list(range(len(values)))


def _product(a: Sequence[Cell | None], b: Sequence[Cell | None]) -> list[Cell | None]:
    return [
        Cell(one.value * other.value, 0, f"{one.text} x {other.text}") if one and other else None
        for one, other in zip(a, b)
    ]


def _consistent(totals: Sequence[Cell | None], each: Sequence[Cell | None]) -> bool:
    """Whether no total is less than what one of its parts has, and one is more: it does count all."""
    pairs = [(total.value, part.value) for total, part in zip(totals, each) if total and part]
    return all(total >= part for total, part in pairs) and any(total > part for total, part in pairs)


def _of_several(table: Grid, kinds: Sequence[Column], counted: dict[int, list[Cell | None]]) -> Devices:
    """Several counts: the one that is the product of the others, else the finest that varies; none where two may be.

    Of nodes and GPUs the numbers beside them say whether the GPUs are those of each node.
    """
    every = tuple(counted)
    distinct = {k: {cell.value for cell in values if cell} for k, values in counted.items()}
    total = [k for k in every if re.search(r"\btotal\b|\ball\b|world ?size", columns.plain(table.base[k]))]
    if len(total) == 1:
        return Devices(counted[total[0]], total[0], every)
    for k in every:
        others = [i for i in every if i != k]
        if len(others) == 2 and _same(counted[k], _product(counted[others[0]], counted[others[1]])):
            return Devices(counted[k], k, every)
    rank = list(words.NOUNS).index
    finest = min(every, key=lambda k: (rank(kinds[k].unit) if kinds[k].unit in words.NOUNS else 0, k))
    varying = [k for k in every if len(distinct[k]) > 1]
    coarse = [k for k in varying if kinds[k].unit == "nodes"]
    if coarse and kinds[finest].unit != "nodes" and len(every) == 2:
        nodes, parts = counted[coarse[0]], counted[finest]
        whole = _product(nodes, parts)
        as_whole, as_parts = _rows_that_bear_out(table, kinds, whole), _rows_that_bear_out(table, kinds, parts)
        if as_parts > as_whole and 2 * as_parts > len(table.rows):
            return Devices(parts, finest, every)
        fewer = any(node and part and part.value < node.value for node, part in zip(nodes, parts))
        if len(distinct[finest]) == 1 or fewer or (as_whole > as_parts and 2 * as_whole > len(table.rows)):
            return Devices(whole, coarse[0], every)  # 8 GPUs in every row, or fewer than nodes: those of each node
    if kinds[finest].unit == "gpus" or not varying:
        return Devices(counted[finest], finest, every)
    rest = [k for k in varying if kinds[k].unit != "nodes"] or varying
    if len(rest) == 1:
        return Devices(counted[rest[0]], rest[0], every)
    names = " and ".join(repr(table.columns[k]) for k in rest)
    return Devices(None, -1, every, notes=(f"columns {names} both count; which are the devices is not said",))


def _rows_that_bear_out(table: Grid, kinds: Sequence[Column], numbers: Sequence[Cell | None]) -> int:
    """In how many rows speedup / efficiency, or a rate / that of one device, is one factor times these numbers."""
    where = {
        role: [k for k, kind in enumerate(kinds) if kind.role == role and kind.each != "nodes"]
        for role in ("speedup", "efficiency", "rate", "rate_each")
    }
    most = 0
    for of_all, of_one in (("speedup", "efficiency"), ("rate", "rate_each")):
        for a, b in itertools.product(where[of_all], where[of_one]):
            known = [
                (one, each, n)
                for row, n in zip(table.rows, numbers)
                if (one := row.cells[a]) and (each := row.cells[b]) and n and min(one.value, each.value, n.value) > 0
            ]
            factors = [rounding.of(one) / rounding.of(each) / n.value for one, each, n in known]
            most = max(most, len(rounding.consensus(factors)[1]) if factors else 0)
    return most


def _under_sections(table: Grid, k: int, counted: list[Count | None]) -> list[Count | None]:
    """A line that only says "On 16 GPUs" is of the lines below it that say nothing else."""
    out, section = list(counted), None
    for i, (count, row) in enumerate(zip(counted, table.rows)):
        if count and not any(cell for j, cell in enumerate(row.cells) if j != k):
            section = count
        elif count is None and section is not None:
            out[i] = dataclasses.replace(section, rest=row.texts[k])
    return out


def _same(a: Sequence[Cell | None], b: Sequence[Cell | None]) -> bool:
    pairs = [(one.value, other.value) for one, other in zip(a, b) if one and other]
    return len(pairs) > 1 and all(one == other for one, other in pairs)


def _in_labels(table: Grid, kinds: Sequence[Column]) -> Devices:
    """A column of labels that name a number of devices: "4 GPUs", "8x V100", "Horovod, 2 nodes x 4 GPUs"."""
    for k, kind in enumerate(kinds):
        if kind.role or (kind.other and kind.other != "count") or table.quantity:
            continue
        texts = [row.texts[k] for row in table.rows]
        named = [counts.find(text) if text else None for text in texts[:20]]
        if not any(named):
            continue
        named = _under_sections(table, k, [counts.find(text) if text else None for text in texts])
        known = [count for count in named if count]
        same_noun = len({count.noun for count in known}) == 1
        if 3 * len(known) < 2 * sum(map(bool, texts)) or len({count.number for count in known}) < 2 or not same_noun:
            continue
        values = [Cell(float(c.number), 0, text) if c else None for c, text in zip(named, texts)]
        rests = tuple(c.rest if c else text for c, text in zip(named, texts))
        return Devices(values, k, (k,), labels=((k, rests),))
    return Devices()
