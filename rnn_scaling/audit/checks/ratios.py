"""Columns that compare other columns: "ratio A / B", "A vs. B", "% of A", a bare "%"."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Sequence

from rnn_scaling.audit import rounding
from rnn_scaling.audit.checks.context import Context, is_summary, near
from rnn_scaling.audit.finding import Finding, of_cell
from rnn_scaling.audit.rounding import Bounds
from rnn_scaling.audit.scaling_table import ASIDE, Cell, GridRow, ScalingTable
from rnn_scaling.audit.tables.columns import FROM_TO, plain, recognise, words_of

NAME = "ratios"
_OVER = re.compile(r"\s*(?:ratio)?[\s(\[:]*(?P<top>[^()\[\]/]+?)\s*/\s*(?P<bottom>[^()\[\]/]+?)[\s)\]]*(?:ratio)?\s*")
_VERSUS = re.compile(r"(?:speed-?up|ratio|gain)?\s*(?:of)?\s*(?P<top>.+?)\s+(?:vs\.?|over)\s+(?P<bottom>.+)")
_PERCENT_OF = re.compile(r"%\s*of\s+(?P<bottom>.+?)(?:\s*#\d+)?")
_SAYS_RATIO = frozenset({"speedup", "speed", "up", "ratio", "gain", "of", "to", "vs", "over", "x", "factor"})
_DERIVED = re.compile(r"speed-? ?up|scaling|efficien|ratio|gain")
_NOT_COMPARED = ("speedup", "efficiency", "batch_size", "global_batch_size", "devices")
_NO_SPEED = ("accuracy", "loss", "memory", "power", "epochs", "size", "price", "utilisation")
_MANY = 3  # rows of one factor
_ALIKE = 1 / 3  # share of words that a name in a header must have in common with the column that it means
_Ratio = tuple[list[int], list[int]]  # columns whose mean is above and below the line


def check(table: ScalingTable, context: Context) -> Iterator[Finding | None]:
    """Yields a finding for each comparison that does not fit the columns it names; None for each that does."""
    of_devices = _is_of_devices(context, table)
    for k, name in enumerate(table.columns):
        header = plain(name)
        if not any(line.cells[k] for line in table.grid):
            continue
        if name in table.roles:
            if not of_devices and (ratio := _read(table, name)):
                yield from _column(table, k, *ratio)
            continue
        if re.fullmatch(r"(?:%|relative|rel\.?)(?: #\d+)?", header):
            yield from _relative(table, k)
            continue
        ratio = (
            _read(table, name) or _over(table, k, header) or _versus(table, k, header) or _percent_of(table, k, header)
        )
        if ratio:
            yield from _column(table, k, *ratio, turns=not _goes_one_way(table, header, ratio))


def _goes_one_way(table: ScalingTable, header: str, ratio: _Ratio) -> bool:
    """Whether a header says what is over what: "speedup (A to B)" of rates is B / A."""
    of_rates = all(table.roles.get(table.columns[i]) == "rate" for side in ratio for i in side)
    return of_rates and "speed" in header and FROM_TO.fullmatch(header) is not None


def _is_of_devices(context: Context, table: ScalingTable) -> bool:
    """Whether the speedups were compared with what the rows measured."""
    return any(judged.verdict.by_speedup and judged.verdict.by_speedup.fit.hits for judged in context.judged(table))


def _read(table: ScalingTable, name: str) -> _Ratio | None:
    """The two columns that the header names, where it was read so."""
    named = table.ratios.get(name)
    return ([table.columns.index(named[0])], [table.columns.index(named[1])]) if named else None


def _over(table: ScalingTable, k: int, header: str) -> _Ratio | None:
    match = _OVER.fullmatch(header)
    if not match:
        return None
    top, bottom = _alike(table, [k], match["top"]), _alike(table, [k], match["bottom"])
    if bottom and (top is None or bottom[1] > top[1]):  # the surer name first: the other is not that column
        top = _alike(table, [k, bottom[0]], match["top"])
    elif top:
        bottom = _alike(table, [k, top[0]], match["bottom"])
    if top is None or bottom is None or top[0] == bottom[0]:
        return None
    if "ratio" not in header and min(top[1], bottom[1]) < 1.0:
        return None
    return [top[0]], [bottom[0]]


def _alike(table: ScalingTable, but: Sequence[int], name: str) -> tuple[int, float] | None:
    """The column, none of `but`, whose words are most like a name, and how much; None when none or two are."""
    wanted = words_of(name)
    named = [(i, table.columns[i]) for i in near(table, but[0])]
    scores = sorted(
        ((len(wanted & words_of(other)) / max(len(wanted | words_of(other)), 1), i) for i, other in named
         if i not in but and ": " not in other),
        reverse=True,
    )  # fmt: skip
    if not scores or scores[0][0] < _ALIKE or (len(scores) > 1 and scores[1][0] == scores[0][0]):
        return None
    return scores[0][1], scores[0][0]


def _versus(table: ScalingTable, k: int, header: str) -> _Ratio | None:
    """The columns of one quantity and one unit that differ in the two names of the header alone."""
    if match := _VERSUS.fullmatch(header):
        top, bottom = words_of(match["top"]), words_of(match["bottom"])
    elif "speed" in header and (match := FROM_TO.fullmatch(header)):
        top, bottom = words_of(match["second"]), words_of(match["first"])
    else:
        return None
    about = words_of(header) - top - bottom - _SAYS_RATIO
    sides: dict[tuple[object, ...], _Ratio] = {}
    named_by_both: list[tuple[tuple[frozenset[str], str, frozenset[str]], int]] = []
    for i, name in ((i, table.columns[i]) for i in near(table, k)):
        words = words_of(re.sub(r" #\d+$", "", name))
        of_top, of_bottom = top <= words, bottom <= words
        compared = _is_value(table, i) and not _DERIVED.search(name.lower()) and _may_be_faster(name, header)
        if i == k or not (of_top or of_bottom) or not compared or table.roles.get(name) in _NOT_COMPARED:
            continue
        rest = words - (top if of_top else frozenset()) - (bottom if of_bottom else frozenset())
        quantity = (rest, table.roles.get(name, ""), _units(table, i))
        if of_top and of_bottom:  # "mixed + XLA" beside "mixed" is the side that has no column yet
            named_by_both.append((quantity, i))
        else:
            sides.setdefault(quantity, ([], []))[0 if of_top else 1].append(i)
    for quantity, i in named_by_both:
        for side, other in (sides.get(quantity, ([], [])), sides.get(quantity, ([], []))[::-1]):
            if other and not side:
                side.append(i)
                break
    whole = {quantity: ratio for quantity, ratio in sides.items() if all(ratio)}
    named = [ratio for (rest, *_), ratio in whole.items() if about and about <= rest]  # type: ignore[operator]
    rates = [ratio for (_, role, _), ratio in whole.items() if role == "rate"]
    of_a_unit: dict[object, _Ratio] = {}
    for (_, _, unit), ratio in sides.items():
        for side, columns_of_side in zip(of_a_unit.setdefault(unit, ([], [])), ratio):
            side += columns_of_side
    alike = [ratio for ratio in of_a_unit.values() if all(len(side) == 1 for side in ratio)]
    for candidates in (named, rates, list(whole.values()), alike):
        if len(candidates) == 1:
            return candidates[0]
    return None


def _may_be_faster(name: str, header: str) -> bool:
    """Whether a column measures what the header compares: a speedup is of no accuracy and no memory."""
    return "speed" not in header or recognise(name).other not in _NO_SPEED


def _units(table: ScalingTable, i: int) -> frozenset[str]:
    return frozenset(cell.unit for line in table.grid for cell in line.numbers([i]))


def _percent_of(table: ScalingTable, k: int, header: str) -> _Ratio | None:
    """ "% of X": the value column nearest on the left, over the first column that says X."""
    match = _PERCENT_OF.fullmatch(header)
    values = [i for i in near(table, k) if i != k and _is_value(table, i)] if match else []
    left = [i for i in values if i < k]
    wanted = words_of(match["bottom"]) if match else frozenset()
    said = [i for i in values if wanted <= words_of(table.columns[i])]
    bottom = next((i for i in said if table.roles.get(table.columns[i]) not in _NOT_COMPARED), None)
    return ([left[-1]], [bottom]) if left and bottom is not None and left[-1] != bottom else None


def _is_value(table: ScalingTable, i: int) -> bool:
    name = table.columns[i]
    return "%" not in name and table.roles.get(name) != ASIDE and any(line.cells[i] for line in table.grid)


def _mean(line: GridRow, where: Sequence[int]) -> Bounds | None:
    values = [rounding.of(cell) for cell in line.numbers(where) if cell.value > 0]
    if not values:
        return None
    return Bounds(sum(v.low for v in values) / len(values), sum(v.high for v in values) / len(values))


def _column(
    table: ScalingTable, k: int, top: list[int], bottom: list[int], turns: bool = True
) -> Iterator[Finding | None]:
    """Checks a ratio of two means.

    Args:
      table: that the column stands in.
      k: the column.
      top, bottom: the columns that it is the ratio of.
      turns: whether it may be bottom / top where that fits more lines, as "A vs. B" of times.
    """
    lines = [
        (line, cell, above, below) for line in table.grid
        if (cell := line.cells[k]) and (above := _mean(line, top)) and (below := _mean(line, bottom))
    ]  # fmt: skip
    values = [above / below for _, _, above, below in lines]
    inverse = [below / above for _, _, above, below in lines]
    holds = [rounding.of(cell).meets(value) for (_, cell, _, _), value in zip(lines, values)]
    turned = [rounding.of(cell).meets(value) for (_, cell, _, _), value in zip(lines, inverse)]
    slower = 2 * sum(cell.value < 1 for _, cell, _, _ in lines) > len(
        lines
    )  # a speedup above 1 is named in either order
    if sum(turned) > sum(holds) and not turns and slower and len(lines) > 1 and all(turned):
        line = lines[0][0]
        cause = (
            f"all {len(lines)} are the other way round: {_spell(line, bottom, top)} and not {_spell(line, top, bottom)}"
        )
        yield dataclasses.replace(of_cell(NAME, table, line, k, values[0], ""), cause=cause)
        return
    if sum(turned) > sum(holds):
        values, holds, top, bottom = inverse, turned, bottom, top
    whole = _off_as_such(table, k, lines, values, holds, _spell(lines[0][0], top, bottom) if lines else "")
    if whole:
        yield whole
        return
    if len(lines) > 2 and not any(holds):
        return  # the header means something else
    for (line, *_), value, good in zip(lines, values, holds):
        fits = good or is_summary(line)
        yield None if fits else of_cell(NAME, table, line, k, value, f"not {_spell(line, top, bottom)}")


def _off_as_such(
    table: ScalingTable, k: int, lines: Sequence[tuple[GridRow, Cell, Bounds, Bounds]], values: Sequence[Bounds],
    holds: Sequence[bool], made_of: str,
) -> Finding | None:  # fmt: skip
    """One finding where most rows are the same number of times what they should be."""
    bad = [i for i, good in enumerate(holds) if not good and not is_summary(lines[i][0])]
    if len(bad) < _MANY or 2 * len(bad) <= len(lines) or any(lines[i][1].value <= 0 for i in bad):
        return None
    factor = rounding.one_factor([rounding.twice(rounding.of(lines[i][1])) / values[i] for i in bad])
    if factor is None:
        return None
    cause = (
        f"{len(bad)} of {len(lines)} rows are {factor.middle:.4g} times the ratio of the two columns (first: {made_of})"
    )
    others = tuple(lines[i][0].line for i in bad[1:])
    first = of_cell(NAME, table, lines[bad[0]][0], k, values[bad[0]], "")
    return dataclasses.replace(first, cause=cause, others=others)


def _spell(line: GridRow, top: Sequence[int], bottom: Sequence[int]) -> str:
    sides = [[cell.text for cell in line.numbers(where)] for where in (top, bottom)]
    return " / ".join(side[0] if len(side) == 1 else f"mean({', '.join(side)})" for side in sides)


def _relative(table: ScalingTable, k: int) -> Iterator[Finding | None]:
    """A bare "%": the column on the left against its line of 100 %, or against its sum."""
    left = max((i for i in near(table, k) if i < k and _is_value(table, i)), default=k)
    lines = [(line, cell, part) for line in table.grid if (cell := line.cells[k]) and (part := line.cells[left])]
    whole = next((part for _, cell, part in lines if cell.value == 1.0), None)
    if len(lines) < 3 or left == k:
        return
    values = [rounding.of(part) for _, _, part in lines]
    total = Bounds(sum(v.low for v in values), sum(v.high for v in values))
    candidates = [[v / total for v in values]]
    if whole is not None:
        base = rounding.of(whole)
        of_whole = [rounding.point(1.0) if part is whole else v / base for (_, _, part), v in zip(lines, values)]
        candidates.insert(0, of_whole)
    holds = [[rounding.of(cell).meets(v) for (_, cell, _), v in zip(lines, made)] for made in candidates]
    best = max(range(len(candidates)), key=lambda i: sum(holds[i]))
    if 2 * sum(holds[best]) < len(lines):
        return
    for (line, _, part), value, good in zip(lines, candidates[best], holds[best]):
        cause = f"not {part.text} / {whole.text if whole else 'sum'}"
        yield None if good else of_cell(NAME, table, line, k, value, cause)
