"""Verdicts by arithmetic of their own: what the headers of the corpus claim, recomputed from the printed digits.

    python -m benchmarks.audit.claims          writes tests/golden/audit/verdicts.json

Nothing of rnn_scaling is used. `0: c4 = c3/c3@0` says of table 0 that column 4 (from 0) is column 3 over column 3 of
row 0; `c3@g1` is that of the first row with the same text in column 1, `m3` of the table before. The formula is
computed at every corner of what the printed numbers may have been before they were rounded; a printed number outside
what comes out is due as a finding. A row in which a number is missing or marked as rough ("~", "about") is left out.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator

from benchmarks.audit.corpus import VERDICTS, Document, Place, Verdict, documents

_RULE = re.compile(r"[\s|:+=\-─━┌┐└┘├┤┬┴┼│╔╗╚╝═╪╞╡&\\]*(\\(hline|toprule|midrule|bottomrule).*)?")
_NUMBER = re.compile(r"-?\d[\d,]*\.?\d*|-?\.\d+")
_NAME = re.compile(r"([cm])(\d+)(?:@(g?)(\d+))?")
_COUNT = re.compile(
    r"(?i)^(?!.*(/|\bper\b|per-|time|\(m?s\)|tps))(\W*(p|n|k)\W*$|.*(thread|core|gpu|node|worker|process|rank|machine|card|tokens))"
)
_ROUGH = re.compile(r"[~≈<>]|about|approx")

Table = list[tuple[int, list[str]]]  # (line from 1, cells) of the header and of each row


def tables(text: str) -> list[Table]:
    """Every run of lines with the same separator, from its header on; rules are left out."""
    out: list[Table] = []
    before, outer = "", True
    for number, line in enumerate(text.splitlines(), 1):
        if _RULE.fullmatch(line) and line.strip():
            continue
        if not before:
            outer = line.lstrip(" />#*").startswith(("|", "│"))
        mark, cells = _cells(line, outer)
        if len(cells) < 2:
            before = ""
        elif mark == before:
            out[-1].append((number, cells))
        else:
            out.append([(number, cells)])
            before = mark
    return [table for table in out if len(table) > 1]


def _cells(line: str, outer: bool) -> tuple[str, list[str]]:
    line = re.sub(r"^\s*(?://|#|\*|>)\s+(?=\|)", "", line)
    if "|" in line or "│" in line:
        inner = re.sub(r"^\s*[|│]|[|│]\s*$", "", line) if outer else line
        return "|", [cell.strip() for cell in re.split(r"[|│]", inner)]
    if "&" in line and "\\\\" in line:
        return "&", [cell.strip() for cell in line.partition("\\\\")[0].split("&")]
    if "\t" in line.strip():
        return "\t", [cell.strip() for cell in line.strip().split("\t")]
    if re.search(r"\S {2,}\S", line):
        return "  ", re.split(r" {2,}", line.strip())
    if line.count(",") >= 2 and not re.search(r"[a-z], [a-z]", line):
        return ",", [cell.strip() for cell in line.split(",")]
    return "", []


def put(line: str, cells: list[str], column: int, factor: float) -> str:
    """A line of a table with one number spoiled, in the form that it has.

    Args:
      line: as it stands in the text.
      cells: its cells, from the left.
      column: the cell, from 0, whose first number is spoiled.
      factor: what that number is multiplied by.

    Returns:
      The line; the same one where the cell holds no number.
    """
    at = 0
    for k, cell in enumerate(cells):
        at = line.index(cell, at)
        match = _NUMBER.search(cell) if k == column else None
        if match:
            digits = len(match[0].partition(".")[2])
            value = float(match[0].replace(",", "")) * factor
            shown = f"{value:{',' if ',' in match[0] else ''}.{digits}f}"
            return line[:at] + cell[: match.start()] + shown + cell[match.end() :] + line[at + len(cell) :]
        at += len(cell)
    return line


def number(text: str) -> tuple[float, float] | None:
    """(low, high) of what prints as the first number of a cell; per cent is a fraction."""
    match = _NUMBER.search(text.replace("**", "").replace("\u202f", "").replace("−", "-").replace("’", ""))
    if not match or _ROUGH.search(text):
        return None
    digits = match[0].replace(",", "").rstrip(".")
    try:
        value = float(digits)
    except ValueError:
        return None
    after = text.replace("**", "")[match.end() :].strip()
    scale = {"%": 0.01, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9}.get(re.match(r"(%|[kKMG](?![a-zA-Z]))?", after)[0], 1.0)
    half = 0.5 * 10.0 ** -len(digits.partition(".")[2])
    slack = abs(value) * 1e-9
    return (value - half - slack) * scale, (value + half + slack) * scale


def _value(table: Table, row: int, match: re.Match[str]) -> tuple[float, float] | None:
    column, group, at = int(match[2]), match[3], match[4]
    if at is not None:
        row = _first(table, row, int(at)) if group else int(at) + 1
    cells = table[row][1] if row < len(table) else []
    found = number(cells[column]) if column < len(cells) else None
    if found and _COUNT.match(table[0][1][column]):  # of these there is no half
        middle = (found[0] + found[1]) / 2
        return middle, middle
    return found


def _first(table: Table, row: int, column: int) -> int:
    key = table[row][1][column]
    return next(k for k in range(1, len(table)) if table[k][1][column] == key)


def span(formula: str, values: dict[str, tuple[float, float]]) -> tuple[float, float]:
    """The smallest and the largest result over all corners of the values."""
    names = list(values)
    code = compile(_NAME.sub(lambda m: f"v[{names.index(m[0])}]", formula), formula, "eval")
    results = [eval(code, {"v": corner}) for corner in itertools.product(*values.values())]
    return min(results), max(results)


def check(claim: str, all_tables: list[Table]) -> Iterator[Place]:
    """Yields the places of one claim that its formula does not bear out."""
    where, _, equation = claim.partition(":")
    index = int(where)
    table = all_tables[index]
    target, _, formula = (part.strip() for part in equation.partition("="))
    column = int(target[1:])
    for row in range(1, len(table)):
        line, cells = table[row]
        printed = number(cells[column]) if column < len(cells) else None
        found = {
            match[0]: _value(all_tables[index - 1] if match[1] == "m" else table, row, match)
            for match in _NAME.finditer(formula)
        }
        values = {name: value for name, value in found.items() if value}
        if printed is None or len(values) < len(found):
            continue
        low, high = span(formula, values)
        if printed[0] > high or printed[1] < low:
            why = f"{cells[column]} stands, {formula} is {low:.5g} to {high:.5g}"
            yield Place((line,), table[0][1][column], why)


def by_hand(entry: str, all_tables: list[Table]) -> Place:
    """A place as `finds` and `odd` name it."""
    where, _, rest = entry.partition(" ")
    column, _, why = rest.partition(": ")
    index, _, row = where.partition(".")
    rows = all_tables[int(index)][1:]
    lines = [line for line, _ in rows] if row == "*" else [rows[int(row)][0]]
    return Place(tuple(lines), column, why)


def judge(document: Document) -> Verdict:
    """What the claims and the hand say of one document."""
    found = tables(document.text)
    parts = {key: [part for part in value.split(" ; ") if part] for key, value in document.keys.items()}
    due = [place for claim in parts.get("claims", []) for place in check(claim, found)]
    due += [by_hand(entry, found) for entry in parts.get("finds", [])]
    return Verdict(tuple(due), tuple(by_hand(entry, found) for entry in parts.get("odd", [])))


def main() -> None:
    out = {}
    for document in documents():
        try:
            verdict = judge(document)
        except Exception as e:
            raise SystemExit(f"error: {document.name}: {type(e).__name__}: {e}") from e
        out[document.name] = {
            kind: [{"lines": list(p.lines), "column": p.column, "why": p.why} for p in getattr(verdict, kind)]
            for kind in ("due", "odd")
        }
    VERDICTS.write_text(json.dumps(out, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    due = sum(len(entry["due"]) for entry in out.values())
    print(f"{len(out)} documents, {due} findings due, {sum(len(e['odd']) for e in out.values())} odd")


if __name__ == "__main__":
    main()
