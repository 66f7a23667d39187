"""Faults that people put into tables, one function a kind.

Each takes a random generator and a table, spoils the cells, and says in which rows it did ("all" for a whole column),
or returns None where the table has nothing of that kind. What a fault does is beyond rounding: 4 % and more.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from benchmarks.audit.made import Made

Rows = list[int] | None
Fault = Callable[[random.Random, Made], Rows]
KINDS: dict[str, Fault] = {}
DERIVED = ("speedup", "efficiency")


def kind(function: Fault) -> Fault:
    """Adds a fault to KINDS under its name in words."""
    KINDS[function.__name__.strip("_").replace("_", " ")] = function
    return function


def _some(rng: random.Random, made: Made, first: int = 1) -> int:
    """A row behind the baselines, in a table of two series of the second half too."""
    half = len(made.cells) // 2 if made.family == "series" else len(made.cells)
    return rng.choice([row for row in range(len(made.cells)) if row % half >= first])


def _scaled(made: Made, rng: random.Random, kind: str, factor: float, bound: tuple[str, ...] = DERIVED) -> Rows:
    column = made.of(kind)
    if column is None or not any(made.of(other) is not None for other in bound if other != kind):
        return None
    row = _some(rng, made)
    made.put(row, column, made.true(row, column) * factor)
    return [row]


def _mistyped(rng: random.Random, made: Made, kind: str, swap: bool) -> Rows:
    column = made.of(kind)
    if column is None or (kind in ("rate", "seconds") and not any(made.of(other) for other in DERIVED)):
        return None
    for _ in range(60):
        row = _some(rng, made)
        text = made.cells[row][column]
        places = [k for k, c in enumerate(text) if c.isdigit()]
        at = rng.choice(places[:-1] if swap and len(places) > 1 else places)
        if swap:
            if at + 1 >= len(text) or not text[at + 1].isdigit():
                continue
            spoiled = text[:at] + text[at + 1] + text[at] + text[at + 2 :]
        else:
            spoiled = text[:at] + rng.choice("0123456789") + text[at + 1 :]
        if differs(text, spoiled):
            made.cells[row][column] = spoiled
            return [row]
    return None


def differs(text: str, spoiled: str) -> bool:
    """Whether a number was changed by more than 4 %, and is one still."""
    one, other = _plain(text), _plain(spoiled)
    return other > 0 and not 0.96 < other / one < 1.04


def _plain(text: str) -> float:
    return float(text.strip("*x×% ").replace(",", ""))


for _kind in ("speedup", "efficiency", "rate", "seconds"):
    for _swap in (False, True):
        _name = f"{'two digits exchanged' if _swap else 'a digit mistyped'} in {_kind}"
        KINDS[_name] = lambda rng, made, kind=_kind, swap=_swap: _mistyped(rng, made, kind, swap)


def _exchanged(rng: random.Random, made: Made, kind: str) -> Rows:
    column = made.of(kind)
    if column is None or (kind in ("rate", "seconds") and not any(made.of(other) for other in DERIVED)):
        return None
    row = _some(rng, made)
    other = row - 1 if row > 1 else row + 1
    if other >= len(made.cells) or not differs(made.cells[row][column], made.cells[other][column]):
        return None
    cells = made.cells
    cells[row][column], cells[other][column] = cells[other][column], cells[row][column]
    return [row, other]


for _kind in ("speedup", "efficiency", "rate", "seconds"):
    KINDS[f"{_kind} of two rows exchanged"] = lambda rng, made, kind=_kind: _exchanged(rng, made, kind)


@kind
def two_cells_of_a_row_exchanged(rng: random.Random, made: Made) -> Rows:
    a, b = made.of("speedup"), made.of("efficiency")
    if a is None or b is None:
        return None
    row = _some(rng, made)
    made.cells[row][a], made.cells[row][b] = made.cells[row][b], made.cells[row][a]
    return [row]


def _one(rng: random.Random, made: Made, kind: str, change: Callable[[float], float]) -> Rows:
    column = made.of(kind)
    if column is None:
        return None
    row = _some(rng, made)
    made.put(row, column, change(made.true(row, column)))
    return [row]


@kind
def point_slipped_in_rate(rng: random.Random, made: Made) -> Rows:
    factor = rng.choice([10, 0.1])
    return _one(rng, made, "rate", lambda value: factor * value)


@kind
def one_rate_of_one_worker(rng: random.Random, made: Made) -> Rows:
    column, n = made.of("rate"), made.of("n")
    if column is None or n is None or made.family == "late":
        return None
    row = _some(rng, made)
    made.put(row, column, made.true(row, column) / made.true(row, n))
    return [row]


@kind
def words_of_one_batch_more(rng: random.Random, made: Made) -> Rows:
    column = made.of("rate")
    if made.family != "weak" or column is None:
        return None
    row = _some(rng, made)
    made.put(row, column, made.true(row, column) * 21 / 20)
    return [row]


@kind
def batch_of_all_in_one_row(rng: random.Random, made: Made) -> Rows:
    column, n = made.of("batch"), made.of("n") or 0
    if column is None:
        return None
    row = _some(rng, made)
    made.put(row, column, made.true(row, column) * made.true(row, n))
    return [row]


@kind
def efficiency_above_possible(rng: random.Random, made: Made) -> Rows:
    return _one(rng, made, "efficiency", lambda value: value + rng.uniform(0.5, 0.9))


@kind
def rate_collapses(rng: random.Random, made: Made) -> Rows:
    if made.family not in ("rate", "models"):
        return None
    column = rng.choice([k for k, c in enumerate(made.columns) if c.kind == "rate"])
    row = len(made.cells) - 1
    made.put(row, column, made.true(row - 1, column) * rng.uniform(0.2, 0.4))
    return [row]


@kind
def rate_leaps_above_both_neighbours(rng: random.Random, made: Made) -> Rows:
    if made.family not in ("rate", "models"):
        return None
    column = rng.choice([k for k, c in enumerate(made.columns) if c.kind == "rate"])
    row = rng.randint(1, len(made.cells) - 2)
    made.put(row, column, made.true(row, column) * rng.uniform(1.7, 2.5))
    return [row]


@kind
def a_row_copied_from_the_one_above(rng: random.Random, made: Made) -> Rows:
    if made.family not in ("weak", "strong", "rates", "each"):
        return None
    row = _some(rng, made, first=2)
    made.cells[row][1:] = made.cells[row - 1][1:]
    return [row, row - 1]


@kind
def one_speedup_copied_from_above(rng: random.Random, made: Made) -> Rows:
    column = made.of("speedup")
    if column is None:
        return None
    row = _some(rng, made, first=2)
    made.cells[row][column] = made.cells[row - 1][column]
    return [row]


@kind
def per_cent_and_fraction_mixed(rng: random.Random, made: Made) -> Rows:
    column = made.of("efficiency")
    if column is None:
        return None
    row, value = _some(rng, made), 0.0
    value = made.true(row, column)
    fraction = "%" not in made.cells[row][column] and _plain(made.cells[row][column]) < 2
    made.cells[row][column] = f"{value:.1%}".replace("%", "") if fraction else f"{value:.3f}%"
    return [row]


@kind
def negative_number(rng: random.Random, made: Made) -> Rows:
    return _one(rng, made, rng.choice([c.kind for c in made.columns[1:] if c.kind != "batch"]), lambda value: -value)


@kind
def not_a_number(rng: random.Random, made: Made) -> Rows:
    column = made.of(rng.choice(DERIVED))
    if column is None:
        return None
    row = _some(rng, made)
    made.cells[row][column] = rng.choice(["NaN", "inf", "nan", "-inf"])
    return [row]


@kind
def half_a_device(rng: random.Random, made: Made) -> Rows:
    row = _some(rng, made)
    made.cells[row][made.of("n") or 0] += ".5"
    return [row]


@kind
def count_of_devices_mistyped(rng: random.Random, made: Made) -> Rows:
    if not any(made.of(other) is not None for other in ("efficiency", "each", "work_s")):
        return None
    row = _some(rng, made)
    column = made.of("n") or 0
    made.put(row, column, made.true(row, column) * rng.choice([2, 3]) + rng.choice([0, 1]))
    return [row]


@kind
def one_total_not_the_sum(rng: random.Random, made: Made) -> Rows:
    column = made.of("train")
    if column is None:
        return None
    row = _some(rng, made, first=0)
    made.put(row, column, made.true(row, column) * rng.choice([0.8, 1.3]))
    return [row]


@kind
def a_digit_lost_in_rate(rng: random.Random, made: Made) -> Rows:
    column = made.of("rate")
    if column is None or made.family == "models":
        return None
    row = _some(rng, made)
    digits = f"{made.true(row, column):.0f}"
    made.cells[row][column] = digits[:-1]
    return [row]


@kind
def a_digit_doubled_in_speedup(rng: random.Random, made: Made) -> Rows:
    column = made.of("speedup")
    if column is None:
        return None
    row = _some(rng, made)
    text = made.cells[row][column]
    at = next(k for k, c in enumerate(text) if c.isdigit())
    made.cells[row][column] = text[:at] + text[at] + text[at:]
    return [row]


@kind
def work_of_one_row_off(rng: random.Random, made: Made) -> Rows:
    """Seconds and rate of one row do not belong together, and nothing else is printed."""
    column = made.of("rate")
    if made.family != "weak" or column is None:
        return None
    row = _some(rng, made)
    made.put(row, column, made.true(row, column) * 1.07)
    for other in ("speedup", "efficiency"):
        k = made.of(other)
        if k is not None:
            made.put(row, k, made.true(row, k) * 1.07)
    return [row]


_OFF: tuple[tuple[str, str, Callable[[random.Random], float], tuple[str, ...]], ...] = (
    ("speedup too high", "speedup", lambda rng: rng.uniform(1.06, 1.5), ("rate", "seconds", "efficiency")),
    ("speedup too low", "speedup", lambda rng: rng.uniform(0.6, 0.94), ("rate", "seconds", "efficiency")),
    ("efficiency too high", "efficiency", lambda rng: rng.uniform(1.05, 1.3), ("rate", "seconds", "speedup")),
    ("efficiency too low", "efficiency", lambda rng: rng.uniform(0.6, 0.95), ("rate", "seconds", "speedup")),
    ("rate too high", "rate", lambda rng: rng.uniform(1.1, 1.6), DERIVED),
    ("rate too low", "rate", lambda rng: rng.uniform(0.6, 0.9), DERIVED),
    ("seconds too high", "seconds", lambda rng: rng.uniform(1.1, 1.6), DERIVED),
    ("seconds too low", "seconds", lambda rng: rng.uniform(0.6, 0.9), DERIVED),
    ("time of the rate wrong", "work_s", lambda rng: rng.choice([0.8, 1.25]), ("rate",)),
    ("rate of each not the total over n", "each", lambda rng: rng.choice([0.8, 1.2, 1.3]), ("rate",)),
    ("one ratio of two columns wrong", "ratio", lambda rng: rng.choice([0.8, 1.15, 1.3]), ("rate",)),
)  # name, column, factor, and the columns of which one must be there to contradict it
for _name, _kind, _draw, _beside in _OFF:
    KINDS[_name] = lambda rng, made, kind=_kind, draw=_draw, beside=_beside: _scaled(made, rng, kind, draw(rng), beside)

_WRITTEN: tuple[tuple[str, str, Callable[[float], float]], ...] = (
    ("one speedup inverted", "speedup", lambda value: 1 / value),
    ("point slipped in speedup", "speedup", lambda value: 10 * value),
    ("point slipped in efficiency", "efficiency", lambda value: value / 10),
    ("one rate in thousands", "rate", lambda value: value / 1000),
    ("one time in milliseconds", "seconds", lambda value: value * 1000),
    ("one time in minutes", "seconds", lambda value: value / 60),
)  # name, column, and what is written for a number
for _name, _kind, _change in _WRITTEN:
    KINDS[_name] = lambda rng, made, kind=_kind, change=_change: _one(rng, made, kind, change)
