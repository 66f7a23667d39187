"""A log that is read by a pattern: each match is a step, a stretch of steps, or all.

Groups: rate (items/s); items and seconds of a stretch; or seconds, or ms, of one step
whose items the user names; step (the number of the last step of a stretch), total (of
the steps), loss. Without rate, seconds and ms the arrival of the lines times the steps.
"""

import contextlib
import dataclasses
import math
import os
import re
import signal
import statistics
import threading
from collections.abc import Iterable, Iterator, Sequence

from rnn_scaling.records.decoding import LARGEST, SMALLEST
from rnn_scaling.records.importers import (
    cost_series,
    printed_numbers,
    printed_units,
    rank_tags,
    rates,
)
from rnn_scaling.records.importers.printed_units import Kind, PrintedUnit
from rnn_scaling.records.importers.rates import RankRate
from rnn_scaling.records.importers.reading import (
    REGEX,
    ImportedRun,
    LineError,
    LogLine,
    Measurement,
    NoMatch,
    Problems,
    Reading,
    Terms,
    log_lines,
    make_reading,
    run_record,
)
from rnn_scaling.records.parts import LogFindingKind, PrintedOutput
from rnn_scaling.records.printed_number import Printed

GROUPS = ("rate", "items", "seconds", "ms", "step", "total", "loss")
_SPEEDS = frozenset(("rate", "seconds", "ms"))  # one is needed unless we time the lines
_BESIDE = frozenset(("step", "total", "loss"))
_ALLOWED = ({"rate"}, {"items", "seconds"}, {"seconds"}, {"items", "ms"}, {"ms"})
MOST_MATCHES = 100_000
SHOWN = 400  # characters of a line in which another rate is looked for
MOST_UNUSABLE = 50  # matches at the start that --log_warmup may be advised for
LIMIT_S = 60.0  # for all searches of a pattern: some take years for one line
MOST_COMPARED = 500  # lines, evenly chosen, in which other rates are looked for

_EVALUATION = re.compile(
    r"(?<![A-Za-z])(?i:valid(?:ation|ating|ate)?|val|eval(?:uation|uating|uate)?|"
    r"test(?:ing)?|inference)(?![A-Za-z_.])"
)
# "val loss 2.1" or "test 0.91": the latest result of an evaluation in another line.
_RESULT = re.compile(
    r"\W{0,3}(?:(?i:loss|acc|ppl|perplexity|bleu|err|f1|score)|\d*\.\d)"
)
_TRAINING = re.compile(r"(?<![A-Za-z])(?i:train(?:ing)?)(?![A-Za-z_.])")
_NUMBER = re.compile(
    r"(?<![\w.])\d[\d,]{0,15}(?:\.\d{1,15})?(?:[eE][-+]?\d\d?)?(?![\d.])"
)
# Without a decimal point it may be a number of devices.
_AVERAGE_BEHIND = re.compile(
    r"\s?(?:[\w/]{1,20}\s?)?\(\s*(\d{1,15}\.\d{1,15})\s?(?:\w{0,20}/s(?:ec)?)?\s*\)"
)
# A standard deviation may be in parentheses as well, but is seldom that large.
_LEAST_OF_AVERAGE = 0.1
_ITEM_LETTERS = 3  # letters that distinguish "tokens" and "tok" from "words"
_WORDS_OF_RATES = {
    "wps": "wor", "tps": "tok", "fps": "fra", "ips": "img", "sps": "sam", "ups": "upd",
    "qps": "que",
}  # fmt: skip
# Words that a line uses for one quantity only, unlike "rate".
_RATES_BY_NAME = ("throughput", "bandwidth", "busbw", "algbw", "speed")


def checked(pattern: str) -> str:
    """Return the pattern; raises ValueError, saying what it must be, for a wrong one."""
    try:
        groups = printed_numbers.compiled(pattern).groupindex.keys()
    except re.error as e:
        raise ValueError(
            f"a regular expression behind {REGEX}, and it is not: {e}"
        ) from None
    if unknown := groups - set(GROUPS):
        raise ValueError(
            f"of the groups {', '.join(GROUPS)}, and has {', '.join(sorted(unknown))}"
        )
    if "items" in groups and not groups & {"seconds", "ms"}:
        raise ValueError(
            "a pattern with (?P<seconds>...) or (?P<ms>...) next to (?P<items>...)"
        )
    return pattern


def lacks_items(pattern: str) -> bool:
    """Return whether a pattern reads only steps or seconds."""
    groups = printed_numbers.compiled(pattern).groupindex.keys()
    return not groups & {"rate", "items"}


def read(lines: Iterable[str], pattern: str, terms: Terms) -> Reading:
    """Return the rate that the matches of a pattern give.

    Lines that evaluate are left out, and launchers' tags of ranks are taken off. What
    looks like a tag may also be the number of a step, as in "200: loss 2".

    Raises:
      NoMatch: If nothing matches.
      ValueError: If the matches are not numbers of a run.
    """
    with limited(LIMIT_S):
        matches = _matches(lines, pattern, terms)
    if not matches:
        raise NoMatch("its output has no line that the pattern of --log_format matches")
    evaluating = set(_evaluations([each.text_before for each in matches]))
    training = [each for k, each in enumerate(matches) if k not in evaluating]
    others = [each for k, each in enumerate(matches) if k in evaluating]
    ranks = _by_rank(training, terms.num_devices)
    groups = printed_numbers.compiled(pattern).groupindex.keys()
    if groups & _SPEEDS:
        usable, reading = _of_speeds(ranks, terms)
        other_rate = _rate_of_evaluation(others, terms)
    else:
        usable = [_with_steps(each) for each in ranks]
        reading = rates.measure_arrivals(usable[0], terms)
        reading = rates.combine_ranks([reading] * len(ranks), terms, counts_items=False)
        other_rate = None
    output = _output(usable[0], terms)
    if groups & _SPEEDS:
        # Of all steps that the lines stand for, as in the batches of the record.
        printed_s = math.fsum(reading.batches.seconds) or None
        output = dataclasses.replace(output, printed_s=printed_s)
    findings = list(reading.findings)
    if others:
        count = len(matches)
        found = LogFindingKind.EVALUATION
        findings.insert(
            0, rates.make_finding(found, len(others), count, reading.rate, other_rate)
        )
    record = run_record(
        REGEX + pattern,
        {},
        terms.unit or _unit(training),
        reading.rate,
        batches=reading.batches,
        rounding=reading.rounding,
        clock=reading.clock,
        findings=findings,
        output=output,
    )
    run = ImportedRun(usable[0][0].line.number, record)
    return make_reading(
        REGEX + pattern, Problems(), "", runs=[run], notes=reading.notes
    )


def _of_speeds(
    ranks: Sequence[Sequence[Measurement]], terms: Terms
) -> tuple[list[list[Measurement]], RankRate]:
    """Return the usable lines of each rank, and one rate of all."""
    left_out = [_unusable_at_start(lines, terms.warmup) for lines in ranks]
    usable = [
        _with_stretches([_checked(each) for each in lines[count:]])
        for lines, count in zip(ranks, left_out)
    ]
    counts_items = bool({"rate", "items"} & usable[0][0].numbers.keys())
    if not counts_items and terms.items_per_step is None:
        raise ValueError(
            "the pattern reads only seconds; add the group items, or "
            "--items_per_step=PRODUCT"
        )
    readings = [
        rates.measure_rank(lines, terms, count)
        for lines, count in zip(usable, left_out)
    ]
    return usable, rates.combine_ranks(readings, terms, counts_items=counts_items)


def _matches(lines: Iterable[str], pattern: str, terms: Terms) -> list[Measurement]:
    regex = printed_numbers.compiled(pattern)
    groups = regex.groupindex.keys()
    is_timed = bool(_SPEEDS & groups) or "step" not in groups
    matches: list[Measurement] = []
    for line in log_lines(lines, terms.arrivals):
        match = regex.search(line.text)
        if match is None and line.rank is not None:
            # The pattern may read what looks like a tag.
            line = dataclasses.replace(line, rank=None, text=line.tagged)
            match = regex.search(line.text)
        if match is None:
            continue
        measurement = _measurement(line, match, pattern, terms)
        if groups and not measurement.numbers:
            continue  # an alternative without any group, as in "| loss {number}"
        matches.append(measurement)
        if len(matches) > MOST_MATCHES * terms.num_devices:
            if is_timed:
                raise ValueError(
                    f"its output matches the pattern more than {MOST_MATCHES:,} times; "
                    "print fewer lines"
                )
            del matches[1::2]  # the arrival of every other step is enough
    return matches


def _measurement(
    line: LogLine, match: re.Match[str], pattern: str, terms: Terms
) -> Measurement:
    """Return what a match prints; numbers that cannot be are judged later."""
    numbers = {}
    starts = []
    span = (0, 0)
    unit = ""
    for name in match.re.groupindex:
        if match[name] is None:
            continue
        if fault := printed_numbers.cut(match, name, pattern, terms.unit):
            raise LineError(line.number, fault)
        numbers[name] = _read(printed_numbers.whole_text(match, name))
        if name not in _BESIDE:
            starts.append(match.start(name))
        if name in _SPEEDS:
            span = match.span(name)
        if name == "rate":
            unit = printed_numbers.unit_of_rate(match)
    before = match.string[: min(starts, default=match.start())]
    return Measurement(line, numbers, span, before, unit)


def _read(text: str) -> Printed:
    """Return a printed number; NaN if it is not one, infinite if it is too large."""
    try:
        return printed_numbers.read(text)
    except printed_numbers.TooLarge:
        return Printed(math.inf, 0.0, text)
    except ValueError:
        return Printed(math.nan, 0.0, text)


def _checked(measurement: Measurement) -> Measurement:
    """Return a measurement of which each number can be.

    Raises:
      LineError: If one is not a number that a record can hold. A loss may be NaN.
    """
    for name, cell in measurement.numbers.items():
        _check(name, cell, measurement.line.number)
    exact_number = {
        name: dataclasses.replace(cell, step=0.0)
        for name, cell in measurement.numbers.items()
        if name in ("items", "step") and cell.text.isdigit()  # a count is exact
    }
    return dataclasses.replace(
        measurement, numbers={**measurement.numbers, **exact_number}
    )


def _check(name: str, cell: Printed, line: int) -> None:
    if name == "loss" or SMALLEST <= cell.value <= LARGEST:
        return
    if name in _BESIDE and cell.value == 0:
        return
    shown = cell.text[:40]
    is_named = cell.text.strip("+-").lower() in ("nan", "inf", "infinity")
    if math.isnan(cell.value) and not is_named:
        raise LineError(line, f"{name} is {shown!r}, no number")
    rule = f"up to {LARGEST:g}" if cell.value > LARGEST else "above 0"
    raise LineError(line, f"{name} is {shown}; expected a number {rule}")


def _unusable_at_start(lines: Sequence[Measurement], warmup: int | None) -> int:
    """Return how many matches at the start have no number that gives a rate.

    A program often prints a rate of 0 or NaN before its first step has ended.

    Args:
      lines: The matches of one rank.
      warmup: Matches that the user leaves out; None for those of the start-up.

    Raises:
      ValueError: If more matches at the start are like that than are left out.
    """
    fault = ""
    count = 0
    for each in lines[: max(MOST_UNUSABLE, warmup or 0)]:
        try:
            for name in _SPEEDS & each.numbers.keys():
                _check(name, each.numbers[name], each.line.number)
        except LineError as e:
            fault = str(e)
            count += 1
        else:
            break
    if count == len(lines) or not fault:
        return 0
    most = warmup
    if most is None:
        most = max(cost_series.USUAL_START, len(lines) // 2)
    if count > most:
        raise ValueError(f"{fault}; --log_warmup={count} leaves it out")
    return count


def _with_steps(lines: Sequence[Measurement]) -> list[Measurement]:
    """Return matches that the arrival times; without `step`, each match is one."""
    numbered = []
    for count, each in enumerate(lines, 1):
        step = Printed(float(count), 0.0, str(count))
        numbers = {"step": step, **each.numbers}
        numbered.append(_checked(dataclasses.replace(each, numbers=numbers)))
    return numbered


def _with_stretches(lines: Sequence[Measurement]) -> list[Measurement]:
    """Return the matches with the number of steps that each covers.

    Raises:
      ValueError: If the matches do not all have the same groups.
    """
    stretches: list[Measurement] = []
    before = 0.0
    for each in lines:
        step = each.value("step")
        if step is None:
            step = before + 1
        if step > before:
            steps = step - before
        elif stretches and step == before:  # a further line of the same step
            steps = stretches[-1].steps
        else:  # steps count from 0 again in a new epoch
            steps = max(step, 1.0)
        stretches.append(dataclasses.replace(each, steps=steps))
        before = step
    if len(stretches) > 1:  # the steps of a run that was resumed do not count from 0
        steps = min(stretches[0].steps, stretches[1].steps)
        stretches[0] = dataclasses.replace(stretches[0], steps=steps)
    named = {frozenset(each.numbers.keys() - _BESIDE) for each in stretches}
    if len(named) > 1 or not all(names in _ALLOWED for names in named):
        kinds = sorted({"+".join(sorted(names)) or "nothing" for names in named})
        raise ValueError(
            f"the pattern's matches tell {' and '.join(kinds)}; expected rate, or "
            "seconds (ms) and items, in each"
        )
    return stretches


def _by_rank(lines: Sequence[Measurement], num_devices: int) -> list[list[Measurement]]:
    """Return the lines of each rank, lowest first; untagged lines are one rank."""
    is_certain = any(
        each.line.rank is not None and rank_tags.is_certain(each.line.tagged)
        for each in lines
    )
    tags = [each.line.rank for each in lines]
    if not is_certain and not rank_tags.are_ranks(tags, num_devices):
        return [list(lines)]
    by_rank: dict[int, list[Measurement]] = {}
    for each in lines:
        rank = -1 if each.line.rank is None else each.line.rank
        by_rank.setdefault(rank, []).append(each)
    return [by_rank[rank] for rank in sorted(by_rank)]


def _unit(lines: Sequence[Measurement]) -> str:
    """Return the unit of all rates if it has a prefix, as "MB"; else ""."""
    first_lines: dict[str, int] = {}
    for each in lines:
        first_lines.setdefault(each.unit, each.line.number)
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


def _evaluations(texts: Sequence[str]) -> list[int]:
    """Return the indices of the lines whose words say that they evaluate.

    Args:
      texts: Each line up to the number that is read.

    Returns:
      Nothing if all lines say so, since the rate of an evaluation may be wanted.
    """
    found = [index for index, text in enumerate(texts) if _evaluates(text)]
    if len(found) == len(texts):  # the name of the run may say so, as "[test-run]"
        same = len(os.path.commonprefix(list(texts)))
        found = [index for index, text in enumerate(texts) if _evaluates(text[same:])]
    return found if len(found) < len(texts) else []


def _evaluates(text: str) -> bool:
    if _TRAINING.search(text):
        return False
    head = re.match(r"\D*", text)
    if head is not None and _EVALUATION.search(head[0]):
        return True
    return any(
        not _RESULT.match(text, match.end()) for match in _EVALUATION.finditer(text)
    )


def _rate_of_evaluation(lines: Sequence[Measurement], terms: Terms) -> float | None:
    """Return the rate of evaluations; None without any, or if a number is wrong."""
    if not lines:
        return None
    try:
        usable = [_checked(each) for each in lines]
        return rates.mean_rate(
            rates.printed_stretch(each, terms) for each in _with_stretches(usable)
        )
    except ValueError:
        return None


@contextlib.contextmanager
def limited(seconds: float) -> Iterator[None]:
    """End a search that takes longer; only the main thread can be interrupted."""

    def end(number: int, frame: object) -> None:
        raise ValueError(
            f"matching the pattern takes more than {seconds:g} s; use fewer .* and +"
        )

    is_main = threading.current_thread() is threading.main_thread()
    if not hasattr(signal, "setitimer") or not is_main:
        yield
        return
    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _output(lines: Sequence[Measurement], terms: Terms) -> PrintedOutput:
    """Return other facts of the lines of one rank; `analysis.plausibility` judges them."""
    speeds = [rate for rate in map(_printed_rate, lines) if rate is not None]
    first = 0
    if speeds:
        first = cost_series.find_start([1 / rate for rate in speeds], terms).lines
    arrivals = [
        each.line.arrived_s for each in lines if each.line.arrived_s is not None
    ]
    return PrintedOutput(
        lines=len(lines),
        span_s=arrivals[-1] - arrivals[0] if arrivals else None,
        process_s=terms.seconds or None,
        lowest_rate=min(speeds[first:], default=None),
        highest_rate=max(speeds[first:], default=None),
        other_rate_ratio=_other_rate_ratio(lines[first:]),
    )


def _printed_rate(measurement: Measurement) -> float | None:
    """Return the rate of one match, in items/s, or in steps/s without its items."""
    rate = measurement.value("rate")
    if rate is None:
        ms = measurement.value("ms")
        seconds = measurement.value("seconds") if ms is None else ms / 1000
        if not seconds:
            return None
        rate = (measurement.value("items") or 1.0) / seconds
    return rate if SMALLEST <= rate <= LARGEST else None


def _other_rate_ratio(lines: Sequence[Measurement]) -> float | None:
    """Return the median of another rate of a line divided by the rate that was read.

    If a line has several other rates, the one that differs most counts.
    """
    ratios = []
    for each in lines[:: max(1, len(lines) // MOST_COMPARED)]:
        found = [*_ratio_of_average(each), *_ratios_of_same_unit(each)]
        if found:
            ratios.append(max(found, key=lambda ratio: abs(math.log(ratio))))
    return statistics.median(ratios) if ratios else None


def _ratio_of_average(measurement: Measurement) -> Iterator[float]:
    """Yield the average behind a number, as in "speed 512.3 (89.1)", by that number.

    For times it is the other way round: the ratio is always one of rates.
    """
    start, end = measurement.span
    text = measurement.line.text[:SHOWN]
    match = _AVERAGE_BEHIND.match(text, end)
    if end == 0 or match is None:
        return
    value = _read(text[start:end]).value
    average = _read(match[1]).value
    if not (value > 0 and average > 0):
        return
    ratio = average / value if "rate" in measurement.numbers else value / average
    if _LEAST_OF_AVERAGE < ratio < 1 / _LEAST_OF_AVERAGE:
        yield ratio


def _ratios_of_same_unit(measurement: Measurement) -> Iterator[float]:
    """Yield the other rates of a line that count the same things, by the read one."""
    rate = measurement.value("rate")
    start, end = measurement.span
    text = measurement.line.text[:SHOWN]
    if end == 0 or rate is None:
        return
    unit = printed_units.unit_of(text, start, end)
    if unit is None or not _items(unit):
        return
    for match in _NUMBER.finditer(text):
        if start < match.end() and match.start() < end:
            continue
        other = printed_units.unit_of(text, *match.span())
        if other and other.kind is Kind.RATE and _items(other) == _items(unit):
            value = _read(match[0]).value
            if SMALLEST <= value <= LARGEST:
                yield value / rate


def _items(unit: PrintedUnit) -> str:
    """Return a name for the items of a rate; "" if it cannot be compared."""
    if unit.items:
        name = unit.items.split()[-1].rpartition("_")[2].lower()
        return name.replace("image", "img")[:_ITEM_LETTERS]
    if unit.text in ("/s", "/sec"):
        return "/s"
    if unit.text in _WORDS_OF_RATES:
        return _WORDS_OF_RATES[unit.text]
    return unit.text if unit.text in _RATES_BY_NAME else ""
