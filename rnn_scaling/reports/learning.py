"""What runs learned, for people: does it take less time on several devices until a target is reached?"""

from __future__ import annotations

from typing import Any

from rnn_scaling.analysis.confidence import Interval
from rnn_scaling.analysis.learning import ACCURACY, WINDOW_BATCHES, Learned, Learning, Target
from rnn_scaling.analysis.metrics import ITEMS, common_unit
from rnn_scaling.analysis.rows import Row
from rnn_scaling.files.markdown import markdown_table
from rnn_scaling.reports.numbers import plain, plus_minus

UNREACHED = "not reached"


def in_words(target: Target) -> str:
    """ "90 % accuracy", "a loss of 2.5"."""
    return f"{100 * target.value:g} % accuracy" if target.kind == ACCURACY else f"a loss of {target.value:g}"


def sentences(learning: Learning, titles: dict[int, str]) -> list[str]:
    """Of each configuration on several devices whether it reaches the target sooner than one; of the others nothing."""
    several = [each for each in learning.learned if each.row.num_devices > 1]
    lines = [f"{titles[id(each.row)]}: {_sentence(learning, each)}" for each in several]
    if lines:
        return lines
    return [f"{titles[id(each.row)]}: {_alone(learning.target, each)}" for each in learning.learned]


def _sentence(learning: Learning, learned: Learned) -> str:
    target, row = learning.target, learned.row
    one, sooner = learning.baseline(learned), learning.sooner(learned)
    devices = row.devices
    if learned.seconds is None:
        return f"n/a: {_missed(target, learned, f'on {devices}')}"
    if one is None:
        return f"{_alone(target, learned)} n/a against one device, on which it was not trained."
    if one.seconds is None or sooner is None:
        return f"n/a: {_missed(target, one, 'on one device')} On {devices} it is reached in {_s(learned)}."
    more = learned.items.value / one.items.value if learned.items and one.items else 1.0
    work = f"{_times(row, more)}; {_s(learned)} against {_s(one)}{_by_one_run(sooner, one, learned)}"
    if sooner.ends and sooner.ends[0] <= 1 <= sooner.ends[1]:
        untold = f"cannot be told ({_x(sooner)} times as soon)"
        return f"Whether {devices} reach {in_words(target)} sooner or later than one {untold}, with {work}."
    if sooner.value >= 1:
        return f"{devices} reach {in_words(target)} {_x(sooner)} times as soon as one, with {work}."
    return f"{devices} reach {in_words(target)} later than one, {_x(sooner)} times as soon, with {work}."


def _by_one_run(sooner: Interval, *both: Learned) -> str:
    """That nobody knows how sure a ratio is, for a side of it is a single run; empty where it has an interval."""
    if sooner.ends:
        return ""
    single = [each.row.devices for each in both if len(each.needed) == 1]
    return f", going by one run {'each' if len(single) == len(both) else f'on {single[0]}'}" if single else ""


def _times(row: Row, more: float) -> str:
    return f"as many {row.unit}" if f"{more:.2f}" == "1.00" else f"{more:.2f} times the {row.unit}"


def _alone(target: Target, learned: Learned) -> str:
    if learned.seconds is None:
        return f"n/a: {_missed(target, learned, f'on {learned.row.devices}')}"
    items = plus_minus(learned.items, 0)
    return f"{in_words(target)} is reached on {learned.row.devices} in {_s(learned)}, after {items} {learned.row.unit}."


def _missed(target: Target, learned: Learned, where: str) -> str:
    """That not all runs of a configuration reached the target, and how near they came."""
    missed = sum(items is None for items in learned.needed)
    runs = "the run" if len(learned.needed) == 1 else f"{missed} of {len(learned.needed)} runs"
    if learned.best is None:
        return f"{runs} {where} did not record {target.kind}, or ran less than {WINDOW_BATCHES} batches."
    best = f"{100 * learned.best:.1f} %" if target.kind == ACCURACY else f"{learned.best:.4g}"
    return f"{runs} {where} did not reach {in_words(target)} and stay there; the best was {best}."


def _s(learned: Learned) -> str:
    return f"{plus_minus(learned.seconds, 1)} s"


def _x(value: Interval) -> str:
    return plus_minus(value, 2)


def grid(learning: Learning, titles: dict[int, str]) -> tuple[list[str], list[list[str]]]:
    """(header, a line of cells for each row); arguments as of `sentences`."""
    unit = common_unit(each.row.unit for each in learning.learned)
    what = in_words(learning.target)
    head = ["Series", "Devices", "Global batch", f"{unit.capitalize()} to {what}", f"{unit.capitalize()}/s", "Seconds"]
    head += ["Times as soon as one device"]
    return head, [_line(learning, each, titles) for each in learning.learned]


def _line(learning: Learning, learned: Learned, titles: dict[int, str]) -> list[str]:
    row = learned.row
    numbers = [plus_minus(learned.items, 0), plus_minus(row.rate, 1), plus_minus(learned.seconds, 1)]
    if learned.seconds is None:
        numbers[0], numbers[2] = UNREACHED, "n/a"
    sooner = "" if row.num_devices == 1 else plus_minus(learning.sooner(learned), 2)
    return [titles[id(row)], str(row.num_devices), str(row.global_batch_size or "n/a"), *numbers, sooner]


def notes(learning: Learning) -> list[str]:
    """What the numbers are."""
    windows = " and ".join(f"{plain(window, 0)}" for window in sorted(learning.windows.values()))
    several = common_unit(learning.windows)
    per = "predictions" if several == ITEMS or learning.target.kind == ACCURACY else "predicted items"
    is_reached = all(items is not None for each in learning.learned for items in each.needed)
    which = "the highest of a few levels that all runs reach" if is_reached else "the lowest level that is tried"
    chosen = f"{in_words(learning.target)} is {which}."
    return [
        *([] if learning.target.is_given else [chosen]),
        f"Reached: the mean over the last {windows} {per} is there and stays there until the end of the run.",
        f"Seconds are {several} to there / {several}/s of the measured batches: start and compilation are left out.",
    ]


def markdown(learning: Learning, titles: dict[int, str]) -> str:
    """The section of the tables."""
    said = "".join(f"{line}\n\n" for line in sentences(learning, titles))
    below = "".join(f"\n{line}\n" for line in notes(learning))
    return f"### Learning\n\n{said}{markdown_table(*grid(learning, titles))}{below}"


def as_json(learning: Learning, titles: dict[int, str], interval: Any) -> dict[str, Any]:
    """The section of report.json."""
    target = learning.target
    return {
        "target": {"kind": target.kind, "value": target.value, "given": target.is_given},
        "windows": dict(learning.windows),
        "sentences": sentences(learning, titles),
        "rows": [
            {
                "series": titles[id(each.row)],
                "num_devices": each.row.num_devices,
                "global_batch": each.row.global_batch_size,
                "needed": list(each.needed),
                "items": interval(each.items),
                "seconds": interval(each.seconds),
                "best": each.best,
                "times_as_soon": interval(learning.sooner(each)),
            }
            for each in learning.learned
        ],
    }


def by_row(learning: Learning | None, row: Row) -> tuple[Interval | None, Interval | None, Interval | None]:
    """(items to the target, seconds, times as soon as one device) of a row; None each where not known."""
    for each in learning.learned if learning else ():
        if each.row is row:
            return each.items, each.seconds, learning.sooner(each) if learning and row.num_devices > 1 else None
    return None, None, None


def line_names(learning: Learning, titles: dict[int, str]) -> dict[int, str]:
    """What the lines of pictures are called, by the identities of their rows; arguments as of `sentences`."""
    return {id(each.row): f"{titles[id(each.row)]}, {each.row.devices}" for each in learning.learned}
