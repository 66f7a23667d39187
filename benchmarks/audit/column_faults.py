"""Faults of whole columns and of baselines; as in faults.py, each says which rows it spoiled."""

from __future__ import annotations

import random
from collections.abc import Callable

from benchmarks.audit.faults import DERIVED, KINDS, Rows, differs, kind
from benchmarks.audit.made import Made


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
    second = made.true(1, column)  # the first row still says 1: without that the second is an honest baseline
    return _whole(made, "speedup", lambda value, row: value / second)


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
def speedups_of_the_other_series(rng: random.Random, made: Made) -> Rows:
    column = made.of("speedup")
    half = len(made.cells) // 2
    if made.family != "series" or column is None:
        return None
    texts = [row[column] for row in made.cells[:half]]
    if not any(differs(text, made.cells[half + k][column]) for k, text in enumerate(texts)):
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
    for row in range(
        half + 1, len(made.cells)
    ):  # the first says 1: else it is the honest speedup over the first series
        made.put(row, column, made.true(row, column) * factor)
    return list(range(half, len(made.cells)))


@kind
def all_ratios_of_two_columns_inverted(rng: random.Random, made: Made) -> Rows:
    return _whole(made, "ratio", lambda value, row: 1 / value, first=0)


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
