"""What each column of a grid says: by its header, its cells, and the columns beside it."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence

from rnn_scaling.audit import baselines
from rnn_scaling.audit.scaling_table import ASIDE
from rnn_scaling.audit.tables import columns
from rnn_scaling.audit.tables import vocabulary as words
from rnn_scaling.audit.tables.columns import COMPARED, Column
from rnn_scaling.audit.tables.grid import Grid

# "p | Tp | Sp | Ep" of textbooks: letters mean these only beside a column of devices.
_LETTERS = (
    (re.compile(r"[Tt]_?\(?[pPnN]?\)?(?<!TP)(?<!TN)(?: ?[(\[]\w+[)\]])?"), "seconds"),
    (re.compile(r"S_?\(?[pPnN]?\)?|s_?\(?[pn]\)?|SU"), "speedup"),
    (re.compile(r"[E]_?\(?[pPnN]?\)?(?<!EP)|e_?\(?[pn]\)?|η"), "efficiency"),
    (re.compile(r"[Tt]_?\(?(?:1|s|S|seq|serial)\)?(?<!TS)(?: ?[(\[]\w+[)\]])?"), "alone"),
)
_FOLLOWS_DEVICES = re.compile(r"accumul|global batch|total batch")
_ALONE = re.compile(rf"(?:{baselines.SERIAL})(?: (?:run ?)?times?)?(?: ?[(\[]\w+[)\]])?")
_TOGETHER = re.compile(rf"(?:{words.PARALLEL})(?: (?:run ?)?times?)?(?: ?[(\[]\w+[)\]])?")


@dataclasses.dataclass(frozen=True)
class Pair:
    """Two columns of one quantity, on one device and on several: "Sequential | Parallel"."""

    alone: int
    together: int


def of(table: Grid) -> tuple[list[Column], Pair | None]:
    """What each column says, and the pair of "Sequential | Parallel" where there is one."""
    kinds = [_kind(table, k) for k in range(len(table.columns))]
    if table.quantity:
        return kinds, None
    counted = any(kind.role in ("devices", "ids", "per_part") for kind in kinds)
    kinds, pair = _letters(table, kinds) if counted else (kinds, None)
    pair = pair or _pair(table, kinds)
    if pair:
        kinds[pair.alone], kinds[pair.together] = Column(COMPARED), Column(COMPARED)
    return _of_one_scaling(_gains(table, _precisions(table, kinds))), pair


def _of_one_scaling(kinds: list[Column]) -> list[Column]:
    """Without the efficiencies of weak scaling beside speedups of strong: they are of other runs."""
    of = {role: {kind.scaling for kind in kinds if kind.role == role} for role in ("speedup", "efficiency")}
    if of["speedup"] != {"strong"} or of["efficiency"] != {"weak"}:
        return kinds
    return [Column(other="weak efficiency") if kind.role == "efficiency" else kind for kind in kinds]


def _kind(table: Grid, k: int) -> Column:
    if table.quantity and k > 0:
        return columns.recognise(table.quantity)
    given = table.given[k] if table.given else None
    kind = given or columns.recognise(table.base[k])
    if not kind.role and table.sub[k]:
        whole = columns.recognise(table.columns[k])
        kind = whole if whole.role != "devices" else kind
        kind = kind if kind.role else columns.recognise(table.sub[k])
    if not kind.quantity and not given:
        kind = _by_unit(table, k)
    if kind.role in ("devices", "ids", "per_part"):
        return kind if any(row.texts[k] for row in table.rows) else Column()
    if kind.role and not any(row.cells[k] for row in table.rows):
        if _FOLLOWS_DEVICES.search(columns.plain(table.base[k])):
            return Column(ASIDE)  # "512 and 256" steps: other ones a number of devices, and still one series
        return Column()  # a label with a familiar name: "Batch: large"
    return kind


def _by_unit(table: Grid, k: int) -> Column:
    """What the cells' own unit tells: "384 img/s" under "FP32"."""
    units = {cell.unit for row in table.rows if (cell := row.cells[k])}
    if len(units) != 1:
        return Column()
    kind = columns.of_unit(units.pop())
    return Column(other="time") if kind.role == "seconds" else kind


def _letters(table: Grid, kinds: list[Column]) -> tuple[list[Column], Pair | None]:
    """Columns that are named by a letter, where at least two of time, speedup and efficiency are."""
    by_letter = {
        k: role
        for k, name in enumerate(table.base)
        for pattern, role in _LETTERS
        if pattern.fullmatch(name.strip(" $")) and any(row.cells[k] for row in table.rows)
    }
    known = {kind.role for kind in kinds} & {"seconds", "speedup", "efficiency"}
    if len(set(by_letter.values()) | known) < 2:
        return kinds, None
    alone = [k for k, role in by_letter.items() if role == "alone"]
    times = [k for k, role in by_letter.items() if role == "seconds"]
    out = list(kinds)
    for k, role in by_letter.items():
        if role != "alone" and (not kinds[k].role or kinds[k].role == role):
            out[k] = dataclasses.replace(kinds[k], role=role, other="")
    return out, Pair(alone[0], times[0]) if len(alone) == len(times) == 1 else None


def _pair(table: Grid, kinds: Sequence[Column]) -> Pair | None:
    """ "Sequential | Parallel" beside one speedup; of several each looks for its own two columns."""
    if sum(kind.role == "speedup" for kind in kinds) > 1:
        return None
    free = [
        k for k, kind in enumerate(kinds) if kind.role in ("", "seconds") and any(row.cells[k] for row in table.rows)
    ]
    alone = [k for k in free if _ALONE.fullmatch(columns.plain(table.base[k]))]
    together = [k for k in free if _TOGETHER.fullmatch(columns.plain(table.base[k]))]
    return Pair(alone[0], together[0]) if len(alone) == len(together) == 1 else None


def _gains(table: Grid, kinds: list[Column]) -> list[Column]:
    """ "-20.5 %" under "speedup" is a gain, not a ratio; a ratio is not below zero."""
    out = list(kinds)
    for k, kind in enumerate(kinds):
        cells = [cell for row in table.rows if (cell := row.cells[k])] if kind.role == "speedup" else []
        signed = any(cell.text[:1] == "+" or cell.value < 0 for cell in cells)
        if signed and all(cell.unit == "%" or kind.scale == 0.01 for cell in cells):
            out[k] = Column(COMPARED)
    return out


def _precisions(table: Grid, kinds: list[Column]) -> list[Column]:
    """ "Speedup AMP" is one of devices where "Speedup FP32" stands beside it."""
    full = any(
        kind.role == "speedup" and re.search(words.FULL_PRECISION, columns.plain(table.columns[k]))
        for k, kind in enumerate(kinds)
    )
    if not full:
        return kinds
    return [
        columns.recognise("speedup") if kind.role == COMPARED and kind.unit == "precision" else kind for kind in kinds
    ]
