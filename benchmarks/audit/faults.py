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


@kind
def speedup_too_high(rng: random.Random, made: Made) -> Rows:
    return _scaled(made, rng, "speedup", rng.uniform(1.06, 1.5), ("rate", "seconds", "efficiency"))


@kind
def speedup_too_low(rng: random.Random, made: Made) -> Rows:
    return _scaled(made, rng, "speedup", rng.uniform(0.6, 0.94), ("rate", "seconds", "efficiency"))


@kind
def efficiency_too_high(rng: random.Random, made: Made) -> Rows:
    return _scaled(made, rng, "efficiency", rng.uniform(1.05, 1.3), ("rate", "seconds", "speedup"))


@kind
def efficiency_too_low(rng: random.Random, made: Made) -> Rows:
    return _scaled(made, rng, "efficiency", rng.uniform(0.6, 0.95), ("rate", "seconds", "speedup"))


@kind
def rate_too_high(rng: random.Random, made: Made) -> Rows:
    return _scaled(made, rng, "rate", rng.uniform(1.1, 1.6))


@kind
def rate_too_low(rng: random.Random, made: Made) -> Rows:
    return _scaled(made, rng, "rate", rng.uniform(0.6, 0.9))


@kind
def seconds_too_high(rng: random.Random, made: Made) -> Rows:
    return _scaled(made, rng, "seconds", rng.uniform(1.1, 1.6))


@kind
def seconds_too_low(rng: random.Random, made: Made) -> Rows:
    return _scaled(made, rng, "seconds", rng.uniform(0.6, 0.9))


@kind
def time_of_the_rate_wrong(rng: random.Random, made: Made) -> Rows:
    return _scaled(made, rng, "work_s", rng.choice([0.8, 1.25]), ("rate",))


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
        if _differs(text, spoiled):
            made.cells[row][column] = spoiled
            return [row]
    return None


def _differs(text: str, spoiled: str) -> bool:
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
    if other >= len(made.cells) or not _differs(made.cells[row][column], made.cells[other][column]):
        return None
    cells = made.cells
    cells[row][column], cells[other][column] = cells[other][column], cells[row][column]
    return [row, other]


for _kind in ("speedup", "efficiency", "rate", "seconds"):
    KINDS[f"{_kind} of two rows exchanged"] = lambda rng, made, kind=_kind: _exchanged(rng, made, kind)


@kind
def speedup_and_efficiency_columns_exchanged(rng: random.Random, made: Made) -> Rows:
    return _swap_columns(made, "speedup", "efficiency")


@kind
def columns_of_rate_and_seconds_exchanged(rng: random.Random, made: Made) -> Rows:
    return _swap_columns(made, "work_s", "rate")


@kind
def both_rates_exchanged(rng: random.Random, made: Made) -> Rows:
    return _swap_columns(made, "rate", "rate", 1)


def _swap_columns(made: Made, one: str, other: str, skip: int = 0) -> Rows:
    found = [k for k, column in enumerate(made.columns) if column.kind in (one, other)]
    if len(found) < 2 or made.family == "models":
        return None
    a, b = found[:2]
    for row in made.cells:
        row[a], row[b] = row[b], row[a]
    return list(range(len(made.cells)))


@kind
def two_cells_of_a_row_exchanged(rng: random.Random, made: Made) -> Rows:
    a, b = made.of("speedup"), made.of("efficiency")
    if a is None or b is None:
        return None
    row = _some(rng, made)
    made.cells[row][a], made.cells[row][b] = made.cells[row][b], made.cells[row][a]
    return [row]


def _whole(made: Made, kind: str, change: Callable[[float, int], float], first: int = 1) -> Rows:
    column = made.of(kind)
    if column is None or (kind == "rate" and not any(made.of(other) is not None for other in DERIVED)):
        return None
    for row in range(first, len(made.cells)):
        made.put(row, column, change(made.true(row, column), row))
    return list(range(len(made.cells)))


@kind
def all_speedups_against_another_baseline(rng: random.Random, made: Made) -> Rows:
    if made.of("rate") is None and made.of("seconds") is None and made.of("efficiency") is None:
        return None
    factor = rng.uniform(0.7, 1.35)
    return _whole(made, "speedup", lambda value, row: value * (factor if not 0.93 < factor < 1.07 else 1.2))


@kind
def all_speedups_against_the_second_row(rng: random.Random, made: Made) -> Rows:
    column = made.of("speedup")
    if column is None or made.family in ("late", "series"):
        return None
    second = made.true(1, column)
    return _whole(made, "speedup", lambda value, row: value / second, first=0)


@kind
def all_efficiencies_of_another_count(rng: random.Random, made: Made) -> Rows:
    n = made.of("n") or 0
    return _whole(made, "efficiency", lambda value, row: value * made.true(row, n) / (made.true(row, n) + 1))


@kind
def all_efficiencies_of_half_the_count(rng: random.Random, made: Made) -> Rows:
    return _whole(made, "efficiency", lambda value, row: 2 * value)


@kind
def all_efficiencies_random(rng: random.Random, made: Made) -> Rows:
    return _whole(made, "efficiency", lambda value, row: value * rng.uniform(0.5, 0.9))


@kind
def all_speedups_random(rng: random.Random, made: Made) -> Rows:
    if made.of("rate") is None and made.of("seconds") is None:
        return None
    return _whole(made, "speedup", lambda value, row: value * rng.uniform(0.4, 0.9))


@kind
def all_speedups_inverted(rng: random.Random, made: Made) -> Rows:
    return _whole(made, "speedup", lambda value, row: 1 / value)


@kind
def one_speedup_inverted(rng: random.Random, made: Made) -> Rows:
    return _one(rng, made, "speedup", lambda value: 1 / value)


def _shifted(made: Made, kind: str) -> Rows:
    column = made.of(kind)
    if column is None or made.family == "series":
        return None
    if kind in ("rate", "seconds") and not any(made.of(other) is not None for other in DERIVED):
        return None
    texts = [row[column] for row in made.cells]
    for row in range(1, len(texts)):
        made.cells[row][column] = texts[row - 1]
    return list(range(len(texts)))


for _kind in ("speedup", "efficiency", "rate", "seconds"):
    KINDS[f"{_kind} a row too low"] = lambda rng, made, kind=_kind: _shifted(made, kind)


def _one(rng: random.Random, made: Made, kind: str, change: Callable[[float], float]) -> Rows:
    column = made.of(kind)
    if column is None:
        return None
    row = _some(rng, made)
    made.put(row, column, change(made.true(row, column)))
    return [row]


@kind
def point_slipped_in_speedup(rng: random.Random, made: Made) -> Rows:
    return _one(rng, made, "speedup", lambda value: 10 * value)


@kind
def point_slipped_in_rate(rng: random.Random, made: Made) -> Rows:
    factor = rng.choice([10, 0.1])
    return _one(rng, made, "rate", lambda value: factor * value)


@kind
def point_slipped_in_efficiency(rng: random.Random, made: Made) -> Rows:
    return _one(rng, made, "efficiency", lambda value: value / 10)


@kind
def one_rate_in_thousands(rng: random.Random, made: Made) -> Rows:
    return _one(rng, made, "rate", lambda value: value / 1000)


@kind
def one_time_in_milliseconds(rng: random.Random, made: Made) -> Rows:
    return _one(rng, made, "seconds", lambda value: value * 1000)


@kind
def one_time_in_minutes(rng: random.Random, made: Made) -> Rows:
    return _one(rng, made, "seconds", lambda value: value / 60)


@kind
def all_times_in_milliseconds(rng: random.Random, made: Made) -> Rows:
    rate = made.of("rate")
    if rate is None or not any(word in made.columns[rate].header for word in ("image", "img", "samples", "sequences")):
        return None
    return _whole(made, "work_s", lambda value, row: value * 1000, first=0)


@kind
def rates_of_one_worker_as_total(rng: random.Random, made: Made) -> Rows:
    n = made.of("n") or 0
    return _whole(made, "rate", lambda value, row: value / made.true(row, n))


@kind
def one_rate_of_one_worker(rng: random.Random, made: Made) -> Rows:
    column, n = made.of("rate"), made.of("n")
    if column is None or n is None or made.family == "late":
        return None
    row = _some(rng, made)
    made.put(row, column, made.true(row, column) / made.true(row, n))
    return [row]


@kind
def rate_of_each_not_the_total_over_n(rng: random.Random, made: Made) -> Rows:
    return _scaled(made, rng, "each", rng.choice([0.8, 1.2, 1.3]), ("rate",))


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
def speedups_of_the_other_series(rng: random.Random, made: Made) -> Rows:
    column = made.of("speedup")
    half = len(made.cells) // 2
    if made.family != "series" or column is None:
        return None
    texts = [row[column] for row in made.cells[:half]]
    if not any(_differs(text, made.cells[half + k][column]) for k, text in enumerate(texts)):
        return None
    for k, text in enumerate(texts):
        made.cells[half + k][column] = text
    return list(range(half, len(made.cells)))


@kind
def all_speedups_against_the_other_series(rng: random.Random, made: Made) -> Rows:
    column, rate = made.of("speedup"), made.of("rate")
    half = len(made.cells) // 2
    if made.family != "series" or column is None or rate is None:
        return None
    factor = made.true(half, rate) / made.true(0, rate)
    if 0.95 < factor < 1.05:
        return None
    for row in range(half, len(made.cells)):
        made.put(row, column, made.true(row, column) * factor)
    return list(range(half, len(made.cells)))


@kind
def one_ratio_of_two_columns_wrong(rng: random.Random, made: Made) -> Rows:
    return _scaled(made, rng, "ratio", rng.choice([0.8, 1.15, 1.3]), ("rate",))


@kind
def all_ratios_of_two_columns_inverted(rng: random.Random, made: Made) -> Rows:
    return _whole(made, "ratio", lambda value, row: 1 / value, first=0)


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
def baseline_rate_of_another_run(rng: random.Random, made: Made) -> Rows:
    column = made.of("rate")
    if column is None or made.of("speedup") is None or made.family == "series":
        return None
    made.put(0, column, made.true(0, column) * rng.choice([0.8, 1.2]))
    return list(range(len(made.cells)))


@kind
def baseline_time_of_another_run(rng: random.Random, made: Made) -> Rows:
    column = made.of("seconds")
    if column is None or made.of("speedup") is None:
        return None
    made.put(0, column, made.true(0, column) * rng.choice([0.8, 1.2]))
    return list(range(len(made.cells)))


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


@kind
def whole_table_a_work_off_from_the_others(rng: random.Random, made: Made) -> Rows:
    """Three tables of one file; the items a sample of one differ."""
    if made.family != "weak" or made.form not in ("md", "bare"):
        return None
    text, _ = made.text()
    rate = made.of("rate")
    assert rate is not None
    made.before = text + "\n## Second\n\n" + text + "\n## Third\n\n"
    for row in range(len(made.cells)):
        made.put(row, rate, made.true(row, rate) * 1.05)
    return list(range(len(made.cells)))
