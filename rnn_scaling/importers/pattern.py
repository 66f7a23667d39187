"""A log of no known format, read by a regular expression of the user: each match is a step, a stretch of steps, or all.

Groups: rate (items/s); items and seconds of a stretch; or seconds, or ms, of one step whose items the user tells; step
(the number of the last step of a stretch), total (of the steps), loss. Without rate, seconds and ms the lines' arrival
tells the seconds.
"""

import collections
import contextlib
import dataclasses
import math
import signal
import threading
from collections.abc import Iterable, Iterator, Sequence

from rnn_scaling.importers import line_clock, printed_numbers
from rnn_scaling.importers.common import numbered, untag
from rnn_scaling.importers.line_clock import Event
from rnn_scaling.importers.log_formats import REGEX, LogReading, Terms

SMALLEST, LARGEST = 1e-12, 1e18  # of numbers that a record can hold
MOST_MATCHES = 100_000
LONGEST = 4000  # characters of a line that are read
LIMIT_S = 60.0  # that a pattern may be looked for: some take years for one line
_SECONDS = {
    "rate",
    "seconds",
    "ms",
}  # one of these groups is needed unless we measure the time
_BESIDE = {"step", "total", "loss"}


@dataclasses.dataclass(frozen=True)
class _Line:
    """A line that matches: the texts by group, and the rank whose tag it has, or a number before it that may be one."""

    line: int
    texts: dict[str, str]
    rank: int | None
    is_certain: bool


@dataclasses.dataclass(frozen=True)
class _Match:
    """One match: its numbers by group, half a unit of the last digit of each, and how many steps it stands for."""

    numbers: dict[str, float]
    halves: dict[str, float]
    steps: float


def read(lines: Iterable[str], regex: str, terms: Terms) -> LogReading:
    """What the matches tell. Raises ValueError if nothing matches, or no number can be one.

    A launcher's tags of ranks are taken off, and of several ranks the first that matches counts: the others print the
    same steps; but what stands there may be the number of a step, "200: loss 2". With `rate` alone the rate of the run
    is the harmonic mean of the matches after the warm-up, which counts each as long as it has items: as many in all,
    or as many as steps where there is the group `step`.
    """
    with limited(LIMIT_S):
        matching = _of_one_rank(
            _matching(lines, regex, terms.num_devices), terms.num_devices
        )
    if not matching:
        raise ValueError(
            "its output has no line that the pattern of --log_format matches"
        )
    if not _SECONDS & printed_numbers.compiled(regex).groupindex.keys():
        return line_clock.read(_events(matching, terms), REGEX + regex, terms)
    matches = _matches(matching)
    first = min(terms.warmup, len(matches) - 1)
    loss = tuple(_finite(match.numbers.get("loss")) for match in matches)
    if "rate" in matches[0].numbers:
        counted = matches[first:]
        steps = math.fsum(match.steps for match in counted)
        rate = steps / math.fsum(
            match.steps / match.numbers["rate"] for match in counted
        )
        lowest = steps / math.fsum(
            match.steps / (match.numbers["rate"] - match.halves["rate"])
            for match in counted
        )
        mean = (
            f"the mean of {len(counted)} printed rates"
            if len(counted) > 1
            else "the last printed rate"
        )
        how = "" if len(matches) == 1 else f"{REGEX} {mean}, {first} left out"
        return LogReading(
            format=REGEX + regex,
            rate=rate,
            rounding=1 - lowest / rate,
            notes=(how,) if how else (),
        )
    if "items" not in matches[0].numbers and terms.items_per_step is None:
        raise ValueError(
            "the pattern's matches tell seconds alone; items have to match, too, or --items_per_step"
        )
    seconds = tuple(_seconds(match, terms.items_per_step) for match in matches)
    items = tuple(
        match.numbers.get("items") or match.steps * (terms.items_per_step or math.nan)
        for match in matches
    )
    rate = math.fsum(items[first:]) / math.fsum(seconds[first:])
    has_loss = any(value is not None for value in loss)
    note = f"{REGEX} a match of the pattern counts as a batch; its seconds are as exact as they were printed"
    return LogReading(
        REGEX + regex,
        rate,
        seconds=seconds,
        items=items,
        loss=loss if has_loss else (),
        warmup=first,
        rounding=_rounding(matches[first:], terms.items_per_step),
        notes=(note,),
    )


def _seconds(
    match: _Match, items_per_step: float | None, of_halves: bool = False
) -> float:
    """Of the stretch that a match stands for, or half a unit of the last digit of these."""
    numbers = match.halves if of_halves else match.numbers
    seconds = numbers["seconds"] if "seconds" in numbers else numbers["ms"] / 1000
    return seconds if items_per_step is None else seconds * match.steps


def _rounding(matches: Sequence[_Match], items_per_step: float | None) -> float:
    """By what share of itself the rate of these may be off: all may have been rounded the same way."""
    seconds, off = (
        math.fsum(_seconds(match, items_per_step, halves) for match in matches)
        for halves in (False, True)
    )
    items, more = (
        math.fsum(numbers.get("items", 0.0) for numbers in per_match)
        for per_match in (
            [match.numbers for match in matches],
            [match.halves for match in matches],
        )
    )
    return 1 - (1 - off / seconds) * (items / (items + more) if items else 1.0)


@contextlib.contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Ends a search that takes longer, which Python's regular expressions look for a signal in; in the main thread."""

    def end(number: int, frame: object) -> None:
        raise ValueError(
            f"the pattern is looked for in its output for more than {seconds:g} s; write fewer .* and +"
        )

    if (
        not hasattr(signal, "setitimer")
        or threading.current_thread() is not threading.main_thread()
    ):
        yield
        return
    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _matching(lines: Iterable[str], pattern: str, num_devices: int) -> list[_Line]:
    regex, matching = printed_numbers.compiled(pattern), list[_Line]()
    is_timed = (
        bool(_SECONDS & regex.groupindex.keys()) or "step" not in regex.groupindex
    )
    for number, line in numbered(lines):
        text = line[:LONGEST]
        rank, untagged = untag(text)
        match = regex.search(untagged)
        if (
            match is None and rank is not None
        ):  # the pattern may read what looks like a tag
            rank, match = None, regex.search(text)
        if match is None:
            continue
        texts = {
            name: value
            for name, value in match.groupdict().items()
            if value is not None
        }
        if fault := next(
            filter(None, (printed_numbers.cut(match, name, pattern) for name in texts)),
            "",
        ):
            raise ValueError(f"line {number} of its output: {fault}")
        matching.append(
            _Line(number, texts, rank, "<std" in text[: len(text) - len(untagged)])
        )
        if len(matching) > MOST_MATCHES * num_devices:
            if is_timed:
                raise ValueError(
                    f"its output matches the pattern more than {MOST_MATCHES:,} times; print fewer lines"
                )
            del matching[1::2]  # the arrival of every other step is enough
    return matching


def _events(matching: Sequence[_Line], terms: Terms) -> Iterator[Event]:
    """The steps and when their lines arrived; without the group step each match is one."""
    if not terms.timing.arrivals:
        raise ValueError(
            "the pattern has no group rate, seconds or ms, and the arrival times of the lines are unknown"
        )
    for count, line in enumerate(matching, 1):
        loss = (
            _finite(_number("loss", line.texts["loss"], line.line))
            if "loss" in line.texts
            else None
        )
        text = line.texts.get("step", "") or str(count)
        half = 0.0 if text.isdigit() else printed_numbers.read(text)[1]
        yield Event(
            terms.timing.arrivals[line.line - 1],
            _number("step", text, line.line),
            half,
            loss,
        )


def _of_one_rank(matching: Sequence[_Line], num_devices: int) -> Sequence[_Line]:
    """What the first rank that matches says; all where the numbers before the lines are none of ranks."""
    lines_of = collections.Counter(line.rank for line in matching)
    if not any(line.is_certain for line in matching) and (
        any(rank is None or rank >= num_devices for rank in lines_of)
        or max(lines_of.values(), default=0) == 1
    ):
        return matching
    return [line for line in matching if line.rank == matching[0].rank]


def _matches(matching: Sequence[_Line]) -> list[_Match]:
    matches: list[_Match] = []
    before = 0.0
    for line in matching:
        numbers = {
            name: _number(name, text, line.line) for name, text in line.texts.items()
        }
        step = numbers.get("step", before + 1)
        halves = {
            name: printed_numbers.read(text)[1]
            for name, text in line.texts.items()
            if name not in _BESIDE
        }
        if line.texts.get("items", "").isdigit():  # a count is exact
            halves["items"] = 0.0
        # Steps count from 0 again in a new epoch.
        matches.append(
            _Match(numbers, halves, step - before if step > before else max(step, 1.0))
        )
        before = step
    if len(matches) > 1:  # the steps of a run that was resumed do not count from 0
        matches[0] = dataclasses.replace(
            matches[0], steps=min(matches[0].steps, matches[1].steps)
        )
    _check_alike(matches)
    return matches


def _check_alike(matches: Sequence[_Match]) -> None:
    needed = [{"rate"}, {"items", "seconds"}, {"seconds"}, {"items", "ms"}, {"ms"}]
    named = [frozenset(match.numbers) - _BESIDE for match in matches]
    if named and (len(set(named)) > 1 or set(named[0]) not in needed):
        kinds = " and ".join(
            sorted({"+".join(sorted(groups)) or "nothing" for groups in named})
        )
        raise ValueError(
            f"the pattern's matches tell {kinds}; expected rate, or seconds (ms) and items, in each"
        )


def _number(name: str, text: str, line: int) -> float:
    try:
        value = printed_numbers.read(text)[0]
    except ValueError:
        value = math.nan
        if name != "loss" and text.strip("+-").lower() not in (
            "nan",
            "inf",
            "infinity",
        ):
            raise ValueError(
                f"line {line} of its output: {name} is {text[:40]!r}, no number"
            ) from None
    if name != "loss" and not (
        SMALLEST <= value <= LARGEST or (name in _BESIDE and value == 0)
    ):
        rule = f"up to {LARGEST:g}" if value > LARGEST else "above 0"
        raise ValueError(
            f"line {line} of its output: {name} is {text[:40]}; expected a number {rule}"
        )
    return value


def _finite(value: float | None) -> float | None:
    return value if value is not None and abs(value) <= 3e38 else None
