"""Cells that print several numbers: "12 [5 / 7]" is a sum and its parts, "1,446.3 (12.1x)" a rate and its speedup."""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Sequence

from rnn_scaling.audit.scaling_table import parse_cell
from rnn_scaling.audit.tables import columns
from rnn_scaling.audit.tables import vocabulary as words
from rnn_scaling.audit.tables.columns import Column

_PARTS = re.compile(r"(?P<whole>[^\[\]()]*?)\s*[\[(]\s*(?P<parts>[^\[\]()]+?(?:\s*/\s*[^\[\]()/]+?)+)\s*[\])]\s*")
_ASIDES = re.compile(r"(?P<whole>[^\[\](){};]+?)\s*[\[({]\s*(?P<asides>[^\[\](){}]+?)\s*[\])}]")
_BESIDE = re.compile(r"\s+/\s+|\s*;\s*|,\s+|\s+\|\s+")
_MAY_HOLD_TWO = re.compile(r"[(\[{;/|]|,\s")


@dataclasses.dataclass(frozen=True)
class Piece:
    """One of the columns that a column is taken apart into.

    label: what its header adds to that of the whole, "" for the whole itself.
    given: what it says, where the cells tell; is_part: whether it is a part of a sum.
    """

    label: str
    texts: Sequence[str]
    given: Column | None = None
    is_part: bool = False


def take_apart(header: str, texts: Sequence[str]) -> tuple[str, list[Piece]] | None:
    """The header of the first piece, and the pieces, where most cells of a column hold as many numbers; else None."""
    if not any(_MAY_HOLD_TWO.search(text) for text in texts):
        return None
    filled = sum(bool(text) for text in texts)
    return _sum_and_parts(header, texts, filled) or _number_and_asides(header, texts, filled)


def _sum_and_parts(header: str, texts: Sequence[str], filled: int) -> tuple[str, list[Piece]] | None:
    matches = [_PARTS.fullmatch(text) for text in texts]
    counts = {len(m["parts"].split("/")) for m in matches if m and not re.search(r"[x×%]", m["parts"])}
    if len(counts) != 1 or 2 * sum(map(bool, matches)) <= filled:
        return None
    size = counts.pop()
    named = _PARTS.fullmatch(header)
    labels = [part.strip() for part in named["parts"].split("/")] if named else []
    labels = labels if len(labels) == size else [f"part {i + 1}" for i in range(size)]
    split = [[part.strip() for part in match["parts"].split("/")] if match else [""] * size for match in matches]
    wholes = [match["whole"] if match else text for match, text in zip(matches, texts)]
    pieces = [Piece(label, [parts[i] for parts in split], is_part=True) for i, label in enumerate(labels)]
    return (named["whole"] if named else header), [Piece("", wholes), *pieces]


def _number_and_asides(header: str, texts: Sequence[str], filled: int) -> tuple[str, list[Piece]] | None:
    split = [_numbers(text) for text in texts]
    forms = Counter(tuple(map(_class, parts)) for parts in split if len(parts) > 1)
    if not forms:
        return None
    form, count = forms.most_common(1)[0]
    tells = any(kind and kind != form[0] for kind in form[1:])
    if not tells or count < 2 or 2 * count <= filled:
        return None
    fits = [len(parts) == len(form) and tuple(map(_class, parts)) == form for parts in split]
    base, labels = _labels(header, len(form) - 1)
    pieces = [Piece("", [parts[0] if good else text for parts, good, text in zip(split, fits, texts)])]
    for place in range(1, len(form)):
        cells = [parts[place] if good else "" for parts, good in zip(split, fits)]
        said = columns.recognise(labels[place - 1]) if labels else Column()
        given = said if said.role else _by_class(form[place], cells)
        pieces.append(Piece(labels[place - 1] if labels else given.role or form[place], cells, given))
    return base, pieces


def _numbers(text: str) -> list[str]:
    """The numbers of a cell, each as printed; [] where a part of it is none."""
    match = _ASIDES.fullmatch(text)
    parts = [match["whole"], *_BESIDE.split(match["asides"])] if match else _BESIDE.split(text)
    return parts if 1 < len(parts) < 5 and all(parse_cell(part) for part in parts) else []


def _class(text: str) -> str:
    """What the unit of a number says: "speedup", "%", "seconds", "rate", "devices", or "" for a bare number."""
    cell = parse_cell(text)
    unit = cell.unit.lower() if cell else ""
    if unit in ("x", "×", "times"):
        return "speedup"
    if role := columns.of_unit(unit).role:
        return "rate" if role in columns.RATES else role
    return "devices" if re.fullmatch(words.COUNTED, unit) else "%" if unit == "%" else ""


def _by_class(kind: str, cells: Sequence[str]) -> Column:
    """What a number in brackets is by its unit; only the values can bear it out."""
    if kind == "rate":
        unit = next(cell.unit for text in cells if (cell := parse_cell(text)))
        return dataclasses.replace(columns.recognise(unit.lower()), sure=False)
    role = {"speedup": "speedup", "%": "efficiency", "seconds": "seconds"}.get(kind, "")
    return Column(role, sure=False) if role else Column(other="count")


def _labels(header: str, size: int) -> tuple[str, list[str]]:
    """ "img/s (speedup)" is "img/s" and ["speedup"]; a header that names no other quantity keeps its text, and []."""
    match = re.fullmatch(r"(?P<base>.*?)\s*[\[({]\s*(?P<labels>.*?)\s*[\])}]", header)
    parts = (
        [match["base"], *re.split(r"\s*[,;/|]\s*", match["labels"])]
        if match
        else re.split(r"\s+[/|]\s+|\s*[,;]\s+", header)
    )
    roles = [columns.recognise(part).role for part in parts]
    if len(parts) != size + 1 or not all(roles[1:]) or roles[0] in roles[1:]:
        return header, []
    return parts[0], parts[1:]
