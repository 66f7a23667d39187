"""Which columns of a table make one point, and what the points that are compared share."""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Mapping, Sequence

from rnn_scaling.audit import rounding
from rnn_scaling.audit.scaling_table import ASIDE
from rnn_scaling.audit.tables import asides, columns, counts, unnamed
from rnn_scaling.audit.tables.columns import COMPARED, Column
from rnn_scaling.audit.tables.devices import Devices
from rnn_scaling.audit.tables.grid import Grid
from rnn_scaling.audit.tables.unnamed import Curve

# Fields that a wide table repeats for each thing that it compares ("images/sec | speedup | images/sec | speedup").
REPEATED = (*columns.RATES, "speedup", "efficiency")
_IDEAL = re.compile(r"\b(?:ideal|linear|perfect|theoretical|target|expected|predicted|projected)\b")
# Of a time or a rate that stands alone; a "linear layer" and a "target model" are measured.
_SURELY_IDEAL = re.compile(r"\b(?:ideal|theoretical|perfect)\b|^linear (?:scaling )?(?:time|throughput)\b|\(linear\)")
_NO_FIELD = ("", ASIDE, COMPARED, "devices", "ids", "per_part")


@dataclasses.dataclass(frozen=True)
class Group:
    """One point a row: its name, field -> column, and the devices where the headers say them."""

    name: str
    places: Mapping[str, int]
    devices: int | None = None


@dataclasses.dataclass(frozen=True)
class Layout:
    """labels: columns of words; shared: field -> column of all groups; kinds: what each column says.

    unread: columns that are understood, and of which a note says why they are no part of a point.
    """

    labels: tuple[int, ...]
    shared: Mapping[str, int]
    groups: tuple[Group, ...]
    kinds: tuple[Column, ...]
    notes: tuple[str, ...] = ()
    unread: tuple[int, ...] = ()


def of(table: Grid, kinds: Sequence[Column], devices: Devices, said: Sequence[str]) -> Layout:
    """The layout of a grid.

    Args:
      table: the grid.
      kinds: what each of its columns says by its header.
      devices: where its devices stand.
      said: the texts above it that may name its quantity, the nearest first.
    """
    if table.quantity:
        members = [k for k in range(1, len(kinds)) if kinds[k].role]
        groups = tuple(Group(f"{table.base[k]} {table.sub[k]}".strip(), {kinds[k].role: k}) for k in members)
        return Layout((), {}, groups, tuple(kinds))
    counted = dict(devices.labels)
    wordy = ("", "devices", "ids", "per_part")
    labels = tuple(
        k for k, kind in enumerate(kinds)
        if k in counted or (k not in devices.columns and kind.role in wordy and _is_label(table, k))
    )  # fmt: skip
    if devices.values is None and not devices.columns:
        across = _across(table, kinds, labels, said)
        if across:
            return across
    named = _named_after_things(table, kinds, labels, devices, said)
    if named:
        return named
    return _by_fields(table, kinds, labels)


def _across(table: Grid, kinds: Sequence[Column], labels: tuple[int, ...], said: Sequence[str]) -> Layout | None:
    """Devices along the columns: "Model | 1 GPU | 2 GPUs | 4 GPUs"."""
    corner = columns.recognise(table.base[0])
    over = re.search(r"[\\/|,]|\bby\b", table.base[0]) and any(
        columns.recognise(part.strip()).role == "devices" for part in re.split(r"[\\/|,]| by ", table.base[0])
    )
    bare = corner.role == "devices" or bool(over)
    across: dict[int, tuple[int, str]] = {}
    for k in range(len(kinds)):
        if k in labels or kinds[k].role == ASIDE or not any(row.cells[k] for row in table.rows):
            continue
        count = counts.in_header(table.columns[k])
        if count:
            across[k] = count.number, count.rest
        elif bare and k > 0 and re.fullmatch(r"[1-9]\d{0,6}", table.base[k]):
            across[k] = int(table.base[k]), ""
        elif kinds[k].role == "devices" and (below := re.search(r"\((\d+)\)$", table.columns[k])):
            across[k] = int(below[1]), ""
    if len({number for number, _ in across.values()}) < 2:
        return None
    out = list(kinds)
    names: dict[int, str] = {}
    unknown: dict[str, list[int]] = {}
    for k, (_, rest) in across.items():
        out[k] = columns.recognise(re.sub(r"\b(?:on|with|for|using|at)\b\s*$|^(?:on|with|for|at)\b", "", rest).strip())
        names[k] = ""
        if out[k].role not in columns.MEASURED:
            unknown.setdefault(rest if rest not in ("t", "s", "e") else "", []).append(k)
    for rest, where in unknown.items():
        curves: list[Curve] = [[(across[k][0], cell) for k in where if (cell := row.cells[k])] for row in table.rows]
        texts = [] if corner.role in _NO_FIELD else [table.base[0]]
        kind = unnamed.quantity([*texts, *said], curves, growth_tells=True)
        for k in where:
            out[k], names[k] = kind, rest
    groups: dict[tuple[int, str], dict[str, int]] = {}
    for k, (number, rest) in across.items():
        if out[k].role:
            same = groups.setdefault((number, names[k]), {})
            if out[k].role in same:
                groups.setdefault((number, rest), {})[out[k].role] = k
            else:
                same[out[k].role] = k
    if len({number for number, _ in groups}) < 2:
        return None
    _give_to_most(groups, out, [k for k in range(len(kinds)) if k not in across and k not in labels])
    shared = {
        kind.role: k for k, kind in enumerate(kinds)
        if k not in across and kind.role in ("batch_size", "global_batch_size", "batches", "accumulation")
    }  # fmt: skip
    taken = {k for places in groups.values() for k in places.values()} | set(shared.values())
    final = tuple(
        kind if k in taken or kind.role in (ASIDE, COMPARED) else Column(other=kind.other) for k, kind in enumerate(out)
    )
    made = tuple(Group(name, places, number) for (number, name), places in groups.items())
    return Layout(tuple(k for k in labels if k not in across), shared, made, final)


def _give_to_most(groups: dict[tuple[int, str], dict[str, int]], kinds: list[Column], rest: Sequence[int]) -> None:
    """A speedup or an efficiency that names no devices is that of the most devices, if there is one such column."""
    most = max(number for number, _ in groups)
    for role in ("speedup", "efficiency"):
        where = [k for k in rest if kinds[k].role == role]
        at_most = [key for key in groups if key[0] == most]
        if len(where) == len(at_most) == 1:
            groups[at_most[0]].setdefault(role, where[0])
            if len({number for number, _ in groups}) > 2:  # of which of them is not said
                kinds[where[0]] = dataclasses.replace(kinds[where[0]], sure=False)


def _named_after_things(
    table: Grid, kinds: Sequence[Column], labels: tuple[int, ...], devices: Devices, said: Sequence[str]
) -> Layout | None:
    """Model names over columns of rates: every column is a series of its own."""
    if devices.values is None or any(kind.role in columns.MEASURED and kind.sure for kind in kinds):
        return None
    things = [
        k for k, kind in enumerate(kinds)
        if not kind.role and not kind.other and k not in labels and k not in devices.columns and table.base[k]
        and any(row.cells[k] for row in table.rows)
    ]  # fmt: skip
    if not things:
        return None
    curves: list[Curve] = [
        [(int(n.value), cell) for row, n in zip(table.rows, devices.values) if n and (cell := row.cells[k])]
        for k in things
    ]
    models = sum(bool(re.search(columns.words.MODELS, table.base[k].lower())) for k in things)
    kind = unnamed.quantity(said, curves, growth_tells=2 * models >= len(things))
    if not kind.role or (len(things) == 1 and not models) or table.parts:
        return None
    own = {k: {kind.role: k} for k in things}
    for k, one in enumerate(kinds):  # "1,446.3 (12.1x)": the number in brackets is of the thing before it
        thing = next(
            (i for i in things if table.base[k].startswith(f"{table.base[i]}, ") and table.sub[k] == table.sub[i]), None
        )
        if thing is not None and not one.sure and one.role:
            own[thing].setdefault(one.role, k)
    groups = tuple(Group(table.columns[k], places) for k, places in own.items())
    rest = _by_fields(table, kinds, labels)
    taken = {k for places in own.values() for k in places.values()}
    out = tuple(kind if k in things else one if one.sure or k in taken else Column() for k, one in enumerate(kinds))
    return Layout(labels, {f: k for f, k in rest.shared.items() if f not in columns.MEASURED}, groups, out)


def _by_fields(table: Grid, kinds: Sequence[Column], labels: tuple[int, ...]) -> Layout:
    """A quantity a column; those that are repeated are of several compared things."""
    places: dict[str, list[int]] = {}
    sure = Counter(kind.role for kind in kinds if kind.sure)
    kept = tuple(kind if kind.sure or not sure[kind.role] else Column(other=kind.other) for kind in kinds)
    for k, kind in enumerate(kept):
        if kind.role not in _NO_FIELD:
            places.setdefault(kind.role, []).append(k)
    kept = _without_others(table, kept, places)
    notes: list[str] = []
    unread: list[int] = []
    size = max((len(places[field]) for field in REPEATED if field in places), default=1)
    shared: dict[str, int] = {}
    grouped: list[dict[str, int]] = [{} for _ in range(size)]
    for field, where in places.items():
        if size > 1 and len(where) == size:
            for group, k in zip(grouped, _aligned(table, where, places)):
                group[field] = k
        elif len(where) == 1 and (size == 1 or field not in REPEATED):
            shared[field] = where[0]
        elif field == "seconds":
            main = _main_time(table, kept, where, places.get("speedup", []))
            shared.update({field: main} if main is not None else {})
        elif size > 1 and field in REPEATED:
            notes.append(f"column {table.columns[where[0]]!r}: one for {size} compared things; not read as a scaling")
            unread += where
        else:
            shared[field] = where[0]
    if "seconds" in shared and kept[shared["seconds"]].part and "speedup" in places:
        del shared["seconds"]
    if size == 1:
        return Layout(labels, shared, (Group("", {}),), kept, tuple(notes))
    names = _names(table, grouped)
    return Layout(labels, shared, tuple(map(Group, names, grouped)), kept, tuple(notes), tuple(unread))


def _without_others(table: Grid, kinds: tuple[Column, ...], places: dict[str, list[int]]) -> tuple[Column, ...]:
    """Leaves out what is ideal and not measured, and the rate of a node where that of a GPU is told too."""
    gone: set[int] = set()
    for field in [field for field in columns.TIMED if field in places]:
        ideal = {k for k in places[field] if _is_ideal(table, k)}
        places[field] = [k for k in places[field] if k not in ideal]
        gone |= ideal
        if not places[field]:
            del places[field]
    for field in REPEATED:
        where = places.get(field, [])
        real = [k for k in where if not _IDEAL.search(columns.plain(table.base[k]))]
        nouns = {kinds[k].each for k in real} if field == "rate_each" else set()
        finest = next((noun for noun in columns.words.NOUNS if noun in nouns), "")
        left = [k for k in real if not finest or kinds[k].each == finest]
        left = _of_one_item(table, kinds, left, places) if field == "rate" else left
        if left and len(left) < len(where):
            gone |= set(where) - set(left)
            places[field] = left
    return tuple(Column(other="ideal") if k in gone else kind for k, kind in enumerate(kinds))


def _is_ideal(table: Grid, k: int) -> bool:
    """Whether a header says that its numbers are ideal, and not those in brackets of "120.2 (116.7)"."""
    header = columns.plain(table.base[k])
    return bool(_SURELY_IDEAL.search(header)) and not ("(" in header and any("(" in row.texts[k] for row in table.rows))


def _of_one_item(
    table: Grid, kinds: Sequence[Column], where: list[int], places: Mapping[str, Sequence[int]]
) -> list[int]:
    """Of tokens a second and requests a second, where a speedup may be of either, the one that it fits in most rows; of
    those that it fits as often the one nearest before it."""
    units = {kinds[k].unit for k in where}
    derived = [k for role in ("speedup", "efficiency") for k in places.get(role, ())]
    if len(where) < 2 or len(units) < len(where) or "" in units or not derived:
        return where
    nearest = max((k for k in where if k < derived[0]), default=where[0])
    fits = {k: sum(_grown_as(table, k, gain) for gain in places.get("speedup", ())) for k in where}
    return [max(where, key=lambda k: (fits[k], k == nearest))]


def _grown_as(table: Grid, rate: int, gain: int) -> int:
    """In how many rows a rate is as many times that of the first row as a speedup says."""
    rows = [(a, b) for row in table.rows if (a := row.cells[rate]) and (b := row.cells[gain])]
    first = rounding.of(rows[0][0]) if rows else rounding.point(1.0)
    return sum((rounding.of(a) / first).meets(rounding.of(b)) for a, b in rows[1:])


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
    words_among = 2 * sum(cell is None for _, cell in texts) > len(texts)
    return bool(texts) and words_among and not all(asides.is_missing(text) for text, _ in texts)


def _main_time(table: Grid, kinds: Sequence[Column], where: Sequence[int], speedups: Sequence[int]) -> int | None:
    """The time that the speedup is of: named by its header, else the one of a number of batches, else the total."""
    words = set(re.findall(r"[a-z]+", " ".join(columns.plain(table.base[k]) for k in speedups)))
    words -= {"speedup", "speed", "up", "time", "strong", "weak", "scaling", "s", "x", "of", "in"}
    named = [k for k in where if words & set(re.findall(r"[a-z]+", columns.plain(table.base[k])))]
    batches = [k for k in where if kinds[k].batches]
    total = [k for k in where if "total" in columns.plain(table.base[k])]
    whole = [k for k in where if not kinds[k].part]
    return next(iter(named or batches or total or whole), None)


def _names(table: Grid, grouped: Sequence[Mapping[str, int]]) -> list[str]:
    """Of each group what its headers say; else the words that the other groups' lack ("FP32" of "FP32 img/s")."""
    names = [_group_name(table, group) for group in grouped]
    firsts = [re.findall(r"[\w-]+", table.base[min(group.values())]) for group in grouped]
    common = set.intersection(*map(set, firsts))
    own = [" ".join(word for word in words if word not in common and word != "-") for words in firsts]
    apart = all(own) and len(set(own)) == len(own)
    return [name or (own[k] if apart else f"group {k + 1}") for k, name in enumerate(names)]


def _group_name(table: Grid, group: Mapping[str, int]) -> str:
    k = min(group.values())
    if table.sub[k]:  # what the two header lines name: a thing and a quantity
        above = columns.recognise(table.base[k])
        return table.base[k] if not above.role and columns.recognise(table.sub[k]).role else table.sub[k]
    if len(group) == 1 and not columns.recognise(table.base[k]).role:
        return table.base[k]  # its cells told the quantity
    words = [set(re.findall(r"[\w-]+", table.base[column])) for column in group.values()]
    common = set.intersection(*words) if len(words) > 1 else set()
    return " ".join(word for word in re.findall(r"[\w-]+", table.base[k]) if word in common and word != "-")
