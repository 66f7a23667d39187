"""A log of no known format, read by a regular expression of the user: each match is a step, a stretch of steps, or all.

Groups: rate (items/s); items and seconds of a stretch; or seconds, or ms, of one step whose items the user tells; step
(the number of the last step of a stretch), total (of the steps), loss. Without rate, seconds and ms the lines' arrival
tells the seconds.
"""

import contextlib
import dataclasses
import math
import signal
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence

from rnn_scaling.importers import (
    line_clock,
    line_kinds,
    pattern_rates,
    printed_numbers,
    rank_tags,
    seen_lines,
    start_up,
)
from rnn_scaling.importers.common import numbered
from rnn_scaling.importers.line_clock import Event
from rnn_scaling.importers.log_formats import REGEX, LogReading, NoMatch, Terms
from rnn_scaling.importers.pattern_rates import Match
from rnn_scaling.importers.rank_tags import Ranks
from rnn_scaling.records.parts import LogFinding, LogFindingKind, PrintedOutput

SMALLEST, LARGEST = 1e-12, 1e18  # of numbers that a record can hold
MOST_MATCHES = 100_000
KEPT = 400  # characters of a line in which another rate is looked for
MOST_UNUSABLE = 50  # matches at the start that --log_warmup may be advised for
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
    """A line that matches."""

    line: int  # its number in the log
    texts: dict[str, str]  # by group
    rank: int | None  # the rank whose tag it has, or a number that may be one
    is_certain: bool  # whether the tag can only be a rank's
    before: str  # the line up to the number that is read, without the tag
    text: str = ""  # the first KEPT characters of the line, without the tag
    # In `text`: of the group rate, seconds or ms, if there is one.
    span: tuple[int, int] | None = None
    unit: str = ""  # what the rate counts if that has a prefix, as "MB"


def read(lines: Iterable[str], regex: str, terms: Terms) -> LogReading:
    """Return what the matches of a pattern say about the rate of a run.

    Lines that evaluate are left out, and launchers' tags of ranks are taken off. What
    looks like a tag may also be the number of a step, as in "200: loss 2".

    With the group `rate` alone, the rate of a run is the harmonic mean of the matches
    after the start-up, each of which counts as many items: in all, or per step if the
    pattern has the group `step`.

    Raises:
      NoMatch: If nothing matches.
      ValueError: If the matches are not numbers of a run.
    """
    with limited(LIMIT_S):
        matching = _matching(lines, regex, terms)
    if not matching:
        raise NoMatch("its output has no line that the pattern of --log_format matches")
    evaluating = set(line_kinds.evaluations([line.before for line in matching]))
    training = [line for index, line in enumerate(matching) if index not in evaluating]
    ranks = _by_rank(training, terms.num_devices)
    if not _SECONDS & printed_numbers.compiled(regex).groupindex.keys():
        timed = line_clock.read(_events(ranks[0], terms), REGEX + regex, terms)
        timed = dataclasses.replace(timed, output=_output(ranks[0], terms))
        reading = pattern_rates.of_one_rank(timed, len(ranks))
        return _with_evaluation(reading, len(evaluating), len(matching), None)
    left_out = [_unusable_at_start(lines, terms.warmup) for lines in ranks]
    usable = [lines[count:] for lines, count in zip(ranks, left_out)]
    all_matches = [_matches(lines) for lines in usable]
    numbers = all_matches[0][0].numbers
    if not {"rate", "items"} & numbers.keys() and terms.items_per_step is None:
        raise ValueError(
            "the pattern reads only seconds; add the group items, or "
            "--items_per_step=PRODUCT"
        )
    readings = [
        pattern_rates.read(matches, terms, count)
        for matches, count in zip(all_matches, left_out)
    ]
    reading = dataclasses.replace(
        _of_ranks(readings, numbers, terms),
        format=REGEX + regex,
        unit=_unit(training),
        output=dataclasses.replace(
            _output(usable[0], terms),
            # Of all steps that the lines stand for, as in the record's batches.
            printed_s=math.fsum(readings[0].seconds) or None,
        ),
    )
    others = [line for index, line in enumerate(matching) if index in evaluating]
    rate = _rate_of_evaluation(others, terms)
    return _with_evaluation(reading, len(others), len(matching), rate)


def _unit(lines: Sequence[_Line]) -> str:
    """Return the unit of all rates if it has a prefix, as "MB"; else "".

    Raises:
      ValueError: If some rates are in MB/s and others in KB/s.
    """
    first_lines: dict[str, int] = {}
    for line in lines:
        first_lines.setdefault(line.unit, line.line)
    if len(first_lines) > 1:
        shown = [
            f"line {line} has {unit or 'no prefix'}"
            for unit, line in first_lines.items()
        ]
        raise ValueError(
            f"the units of the rates differ: {' and '.join(shown)}; the pattern must "
            "match only one of them"
        )
    return lines[0].unit


def _output(matching: Sequence[_Line], terms: Terms) -> PrintedOutput:
    """Return what was seen of the lines that match, from line to line."""
    arrivals = terms.timing.arrivals
    return seen_lines.output(
        [
            seen_lines.SeenLine(
                arrived_s=arrivals[line.line - 1] if arrivals else None,
                texts=line.texts,
                text=line.text,
                span=line.span,
            )
            for line in matching
        ],
        terms,
    )


def _unusable_at_start(matching: Sequence[_Line], warmup: int | None) -> int:
    """Return how many matches at the start have no number that gives a rate.

    A program often prints a rate of 0 or NaN before its first step has ended.

    Args:
      matching: The matches of one rank.
      warmup: Matches that the user leaves out; None for those of the start-up.

    Raises:
      ValueError: If more matches at the start are like that than are left out.
    """
    fault = ""
    count = 0
    for line in matching[: max(MOST_UNUSABLE, warmup or 0)]:
        try:
            for name in _SECONDS & line.texts.keys():
                _number(name, line.texts[name], line.line)
        except ValueError as e:
            fault = str(e)
            count += 1
        else:
            break
    if count == len(matching) or not fault:
        return 0
    most = max(start_up.USUAL, len(matching) // 2) if warmup is None else warmup
    if count > most:
        raise ValueError(f"{fault}; --log_warmup={count} leaves it out")
    return count


def _of_ranks(
    readings: Sequence[LogReading], numbers: Mapping[str, float], terms: Terms
) -> LogReading:
    """Return one reading of the ranks that printed, the lowest rank first."""
    first = readings[0]
    if len(readings) == 1:
        return first
    if not {"rate", "items"} & numbers.keys():
        return pattern_rates.of_one_rank(first, len(readings))
    total = math.fsum(reading.rate for reading in readings)
    is_sum = terms.ranks == Ranks.SUM
    kind = LogFindingKind.SUM_OF_RANKS if is_sum else LogFindingKind.FIRST_RANK
    finding = LogFinding(
        kind=kind.value,
        count=len(readings),
        total=len(readings),
        taken=total if is_sum else first.rate,
        other=first.rate if is_sum else total,
    )
    findings = (finding, *first.findings)
    if not is_sum:
        return dataclasses.replace(first, findings=findings)
    off = math.fsum(reading.rate * reading.rounding for reading in readings)
    # The batches of the first rank, with the items of all.
    items = tuple(count * total / first.rate for count in first.items)
    return dataclasses.replace(
        first, rate=total, rounding=off / total, items=items, findings=findings
    )


def _rate_of_evaluation(lines: Sequence[_Line], terms: Terms) -> float | None:
    """Return the rate of evaluations; None without any, or if a number is wrong."""
    if not lines:
        return None
    try:
        return pattern_rates.mean_rate(_matches(lines), terms.items_per_step)
    except ValueError:
        return None


def _with_evaluation(
    reading: LogReading, count: int, total: int, rate: float | None
) -> LogReading:
    """Add that lines of evaluations were left out, if there are any, and their rate."""
    if not count:
        return reading
    finding = LogFinding(
        kind=LogFindingKind.EVALUATION.value,
        count=count,
        total=total,
        taken=reading.rate,
        other=rate,
    )
    return dataclasses.replace(reading, findings=(finding, *reading.findings))


@contextlib.contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Ends a search that takes longer, which Python's regular expressions look for a signal in; in the main thread."""

    def end(number: int, frame: object) -> None:
        raise ValueError(
            f"matching the pattern takes more than {seconds:g} s; use fewer .* and +"
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


def _matching(lines: Iterable[str], pattern: str, terms: Terms) -> list[_Line]:
    regex, matching = printed_numbers.compiled(pattern), list[_Line]()
    is_timed = (
        bool(_SECONDS & regex.groupindex.keys()) or "step" not in regex.groupindex
    )
    for number, line in numbered(lines):
        text = line[:LONGEST]
        rank, untagged = rank_tags.untag(text)
        match = regex.search(untagged)
        if (
            match is None and rank is not None
        ):  # the pattern may read what looks like a tag
            rank, match = None, regex.search(text)
        if match is None:
            continue
        texts = {}
        for name in regex.groupindex:
            if match[name] is None:
                continue
            if fault := printed_numbers.cut(match, name, pattern, terms.unit):
                raise ValueError(f"line {number} of its output: {fault}")
            texts[name] = printed_numbers.whole_text(match, name)
        if regex.groupindex and not texts:
            continue  # an alternative without any group, as in "| loss {number}"
        is_certain = rank is not None and rank_tags.is_certain(text)
        starts = [match.start(name) for name in texts if name not in _BESIDE]
        before = match.string[: min(starts, default=match.start())]
        value_group = next(iter(_SECONDS & texts.keys()), "")
        matching.append(
            _Line(
                number,
                texts,
                rank,
                is_certain,
                before,
                match.string[:KEPT],
                match.span(value_group) if value_group else None,
                printed_numbers.unit_of_rate(match) if value_group == "rate" else "",
            )
        )
        if len(matching) > MOST_MATCHES * terms.num_devices:
            if is_timed:
                raise ValueError(
                    f"its output matches the pattern more than {MOST_MATCHES:,} times; print fewer lines"
                )
            del matching[1::2]  # the arrival of every other step is enough
    return matching


def _events(matching: Sequence[_Line], terms: Terms) -> Iterator[Event]:
    """Yield the steps and when their lines arrived.

    Without the group `step` each match is one step.
    """
    if not terms.timing.arrivals:
        raise ValueError(
            "the pattern has no group rate, seconds or ms, and the arrival times of "
            "the lines are unknown"
        )
    for count, line in enumerate(matching, 1):
        loss = None
        if "loss" in line.texts:
            number = _number("loss", line.texts["loss"], line.line)
            loss = pattern_rates.finite_loss(number)
        text = line.texts.get("step", "") or str(count)
        step = _number("step", text, line.line)
        half = 0.0 if text.isdecimal() else printed_numbers.read(text)[1]
        yield Event(terms.timing.arrivals[line.line - 1], step, half, loss)


def _by_rank(lines: Sequence[_Line], num_devices: int) -> list[list[_Line]]:
    """Return the lines of each rank, lowest first; untagged lines are one rank."""
    has_ranks = any(line.is_certain for line in lines) or rank_tags.are_ranks(
        [line.rank for line in lines], num_devices
    )
    if not has_ranks:
        return [list(lines)]
    by_rank: dict[int, list[_Line]] = {}
    for line in lines:
        by_rank.setdefault(-1 if line.rank is None else line.rank, []).append(line)
    return [by_rank[rank] for rank in sorted(by_rank)]


def _matches(matching: Sequence[_Line]) -> list[Match]:
    matches: list[Match] = []
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
        if step > before:
            steps = step - before
        elif matches and step == before:  # a further line of the same step
            steps = matches[-1].steps
        else:  # steps count from 0 again in a new epoch
            steps = max(step, 1.0)
        matches.append(Match(numbers, halves, steps))
        before = step
    if len(matches) > 1:  # the steps of a run that was resumed do not count from 0
        matches[0] = dataclasses.replace(
            matches[0], steps=min(matches[0].steps, matches[1].steps)
        )
    _check_alike(matches)
    return matches


def _check_alike(matches: Sequence[Match]) -> None:
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
    """Return the number of a group.

    Raises:
      ValueError: If it is not a number that a record can hold. A loss may be NaN.
    """
    try:
        value = printed_numbers.read(text)[0]
    except printed_numbers.TooLarge:
        value = math.inf
    except ValueError:
        value = math.nan
        is_nan = text.strip("+-").lower() in ("nan", "inf", "infinity")
        if name != "loss" and not is_nan:
            raise ValueError(
                f"line {line} of its output: {name} is {text[:40]!r}, no number"
            ) from None
    if name == "loss" or SMALLEST <= value <= LARGEST:
        return value
    if name in _BESIDE and value == 0:
        return value
    rule = f"up to {LARGEST:g}" if value > LARGEST else "above 0"
    raise ValueError(
        f"line {line} of its output: {name} is {text[:40]}; expected a number {rule}"
    )
