"""Read a log with a pattern: each match is a step, a stretch of steps, or a run.

The pattern may have these groups:
- rate: items/s of all devices.
- device_rate: items/s per device.
- items and seconds: the items and the duration of a stretch of steps.
- seconds or ms without items: the duration of one step, whose items the user names.
- step: the number of the last step of a stretch.
- total: the number of all steps.
- loss: the training loss.

Without rate, seconds and ms, the steps are timed by the arrival of the lines.

`importing` calls `read` for --log_format=regex:...; users write the names of the
groups, so never rename one.
"""

import contextlib
import dataclasses
import math
import re
import signal
import statistics
import threading
from collections.abc import Iterable, Iterator, Sequence

from rnn_scaling.records.cell_numbers import PrintedNumber
from rnn_scaling.records.decoding import MAX_NUMBER, MIN_NUMBER
from rnn_scaling.records.importers import (
    cost_series,
    log_numbers,
    printed_units,
    rank_tags,
    rates,
)
from rnn_scaling.records.importers.rank_tags import Ranks
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
    make_reading,
    read_log_lines,
    run_record,
)
from rnn_scaling.records.parts import LogFindingKind, PrintedOutput

_GROUPS = ("rate", "device_rate", "items", "seconds", "ms", "step", "total", "loss")
_SPEEDS = frozenset(("rate", "seconds", "ms"))  # groups that time a step
_OPTIONAL = frozenset(("step", "total", "loss"))
# Groups that one match must have, except _OPTIONAL; ms is stored as seconds.
_COMBINATIONS = {
    frozenset(names.split()) for names in ("rate", "items seconds", "seconds")
}
MAX_MATCHES = 100_000  # matches that are read per device
_MAX_UNUSABLE = 50  # largest --log_warmup that a message suggests
# The time limit for all searches of a pattern; some patterns take years for one line.
MAX_SEARCH_S = 60.0
# Other rates are looked for in at most this many evenly chosen lines, and only among
# the first characters of each line.
_MAX_COMPARED_LINES = 500
_MAX_SEARCHED_CHARACTERS = 400

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


def check_pattern(pattern: str) -> str:
    """Return the pattern.

    Raises:
      ValueError: If the pattern cannot be used; the text completes "must be".
    """
    try:
        groups = _group_names(pattern)
    except re.error as e:
        raise ValueError(f"a valid regular expression after {REGEX} ({e})") from None
    if unknown := groups - set(_GROUPS):
        names = ", ".join(sorted(unknown))
        raise ValueError(
            f"a pattern whose groups are among {', '.join(_GROUPS)}, but it has {names}"
        )
    if "items" in groups and not groups & {"seconds", "ms"}:
        raise ValueError(
            "a pattern with (?P<seconds>...) or (?P<ms>...) next to (?P<items>...)"
        )
    return pattern


def lacks_items(pattern: str) -> bool:
    """Return whether a pattern reads only steps or seconds."""
    return not _group_names(pattern) & {"rate", "items"}


def _group_names(pattern: str) -> set[str]:
    return set(log_numbers.compile_pattern(pattern).groupindex)


def read(lines: Iterable[str], pattern: str, terms: Terms) -> Reading:
    """Read one run from the lines that a pattern matches, except evaluations.

    Launchers put tags such as "200:" before a line. They are removed, unless the
    pattern reads them: in "200: loss 2" the number may be a step.

    Raises:
      NoMatch: If nothing matches.
      ValueError: If the matches are not numbers of a run.
    """
    with limit_time(MAX_SEARCH_S):
        matches = _find_matches(lines, pattern, terms)
    if not matches:
        raise NoMatch(
            "its output has no line that the pattern of --log_format matches; write "
            "\\( for a literal parenthesis and \\s+ for blanks"
        )

    evaluations = _find_evaluations([match.text_before for match in matches])
    training = [match for k, match in enumerate(matches) if k not in evaluations]
    ranks = _group_by_rank(training, terms.num_devices or 1)
    if _group_names(pattern) & _SPEEDS:
        usable, rank_rate = _measure_speeds(ranks, terms)
    else:
        usable = _number_steps(ranks[0])
        rank_rate = rates.measure_arrivals(usable, terms)
        rank_rate = rates.combine_ranks(
            [rank_rate] * len(ranks), terms, counts_items=False
        )

    rank_rate, unit = _find_unit(rank_rate, pattern, training, len(ranks), terms)
    findings = list(rank_rate.findings)
    if evaluations:
        finding = rates.make_finding(
            LogFindingKind.EVALUATION,
            len(evaluations),
            len(matches),
            rank_rate.rate,
        )
        findings.insert(0, finding)
    record = run_record(
        REGEX + pattern,
        {},
        unit,
        rank_rate.rate,
        batches=rank_rate.batches,
        rounding=rank_rate.rounding,
        clock=rank_rate.clock,
        findings=findings,
        output=_describe_output(usable, rank_rate, terms),
    )
    run = ImportedRun(usable[0].line.number, record)
    return make_reading(
        REGEX + pattern, Problems(), "", runs=[run], notes=rank_rate.notes
    )


def _find_unit(
    rank_rate: RankRate,
    pattern: str,
    measurements: Sequence[Measurement],
    num_ranks: int,
    terms: Terms,
) -> tuple[RankRate, str]:
    """Return a rate and its unit; a rate per device becomes the rate of all devices.

    Args:
      rank_rate: The rate that the lines print.
      pattern: The pattern of the lines.
      measurements: The lines of training.
      num_ranks: The number of ranks that print lines.
      terms: The user's options.
    """
    unit = (
        terms.unit
        or _find_common_prefix(measurements)
        or _find_counted_items(measurements)
    )
    if terms.num_devices != 1 and any(map(_is_node_rate, measurements)):
        return rank_rate, _name_node_unit(unit, terms.num_devices)
    if _reads_device_rates(pattern, measurements):
        return _scale_to_all_devices(rank_rate, unit, num_ranks, terms)
    return rank_rate, unit


def _scale_to_all_devices(
    device_rate: RankRate, unit: str, num_ranks: int, terms: Terms
) -> tuple[RankRate, str]:
    """Return the rate of all devices and its unit from rates that were per device.

    If the number of devices is unknown, the rate is unchanged, and the unit says so.

    Raises:
      ValueError: If the ranks were summed, but not every device is a rank.
    """
    if terms.ranks == Ranks.SUM and num_ranks > 1:
        _check_rank_count(num_ranks, terms.num_devices)
        return device_rate, unit
    if terms.num_devices is None:
        return device_rate, f"{unit or 'items'} per device"
    return rates.find_rate_of_all_devices(device_rate, terms.num_devices), unit


def _measure_speeds(
    ranks: Sequence[Sequence[Measurement]], terms: Terms
) -> tuple[list[Measurement], RankRate]:
    """Return the usable measurements of the first rank, and one rate of all ranks."""
    usable = []
    num_unusable = []
    for measurements in ranks:
        count = _count_unusable(measurements, terms.warmup)
        num_unusable.append(count)
        for measurement in measurements[count:]:
            _check(measurement, measurement.numbers)
        usable.append(_count_steps(measurements[count:]))
    counts_items = not {"rate", "items"}.isdisjoint(usable[0][0].numbers)
    if not counts_items and terms.items_per_step is None:
        raise ValueError(
            "the pattern reads only seconds; add the group items, or "
            "--items_per_step=PRODUCT"
        )
    rank_rates = []
    for measurements, count in zip(usable, num_unusable):
        rank_rates.append(rates.measure_rank(measurements, terms, count))
    return usable[0], rates.combine_ranks(rank_rates, terms, counts_items=counts_items)


def _find_matches(
    lines: Iterable[str], pattern: str, terms: Terms
) -> list[Measurement]:
    regex = log_numbers.compile_pattern(pattern)
    has_groups = bool(regex.groupindex)
    matches: list[Measurement] = []
    for line in read_log_lines(lines, terms.arrivals):
        match = regex.search(line.text)
        if match is None and line.rank is not None:
            # The pattern may read the number that looks like a tag.
            line = dataclasses.replace(line, rank=None, text=line.tagged)
            match = regex.search(line.text)
        if match is None:
            continue
        measurement = _read_match(line, match, terms)
        if has_groups and not measurement.numbers:
            continue  # An alternative of the pattern without groups matched.
        matches.append(measurement)
        if len(matches) == MAX_MATCHES * (terms.num_devices or 1):
            break
    return matches


def _read_match(line: LogLine, match: re.Match[str], terms: Terms) -> Measurement:
    """Return the numbers of a match; the caller refuses impossible ones later."""
    numbers = {}
    starts = []
    span = (0, 0)
    unit = ""
    for name in match.re.groupindex:
        if match[name] is None:
            continue
        fault = log_numbers.find_fault(match, name, terms.unit)
        if fault:
            raise LineError(line.number, fault)
        number = _parse(log_numbers.find_number_text(match, name))
        if name in ("items", "step") and number.text.isdigit():
            number = dataclasses.replace(number, resolution=0.0)  # a count is exact
        if name == "ms":
            number = dataclasses.replace(
                number, value=number.value / 1000, resolution=number.resolution / 1000
            )
        numbers["seconds" if name == "ms" else name] = number
        if name not in _OPTIONAL:
            starts.append(match.start(name))
        if name in _SPEEDS:
            span = match.span(name)
        if name == "rate":
            unit = log_numbers.find_rate_unit(match)
    text_before = match.string[: min(starts, default=match.start())]
    return Measurement(line, numbers, span, text_before, unit)


def _parse(text: str) -> PrintedNumber:
    """Return a printed number; NaN if it is not one, infinite if it is too large."""
    try:
        return log_numbers.parse_number(text)
    except log_numbers.TooLarge:
        return PrintedNumber(math.inf, 0.0, text)
    except ValueError:
        return PrintedNumber(math.nan, 0.0, text)


def _check(measurement: Measurement, names: Iterable[str]) -> None:
    """Raise LineError if one of the numbers is impossible; a loss may be NaN."""
    for name in measurement.numbers.keys() & names:
        number = measurement.numbers[name]
        is_zero = name in _OPTIONAL and number.value == 0
        if is_zero or name == "loss" or MIN_NUMBER <= number.value <= MAX_NUMBER:
            continue
        text = number.text[:40]
        is_named = number.text.strip("+-").lower() in ("nan", "inf", "infinity")
        rule = f"expected a number up to {MAX_NUMBER:g}"
        if math.isnan(number.value) and not is_named:
            rule = "which is not a number"
        elif not number.value > MAX_NUMBER:
            rule = "expected a number above 0"
        raise LineError(measurement.line.number, f"{name} is {text!r}, {rule}")


def _count_unusable(measurements: Sequence[Measurement], warmup: int | None) -> int:
    """Return how many matches at the start have no number that gives a rate.

    A program often prints a rate of 0 or NaN before its first step has ended.

    Args:
      measurements: The measurements of one rank.
      warmup: The number of matches that the user leaves out; None to detect the
        start-up.

    Raises:
      ValueError: If more matches at the start are unusable than are left out.
    """
    max_unusable = warmup
    if max_unusable is None:
        max_unusable = max(cost_series.USUAL_START, len(measurements) // 2)
    last_fault = ""
    for count, measurement in enumerate(measurements[:_MAX_UNUSABLE]):
        try:
            _check(measurement, _SPEEDS)
        except LineError as e:
            last_fault = f"{e}; --log_warmup={count + 1} leaves it out"
            continue
        if count > max_unusable:
            raise ValueError(last_fault)
        return count
    # No usable match follows soon: keep all, so that the caller refuses the first one.
    return 0


def _number_steps(measurements: Sequence[Measurement]) -> list[Measurement]:
    """Return measurements with a step; without the group, each counts as one."""
    with_steps = []
    for count, measurement in enumerate(measurements, 1):
        step = PrintedNumber(float(count), 0.0, str(count))
        numbers = {"step": step, **measurement.numbers}
        _check(measurement, numbers)
        with_steps.append(dataclasses.replace(measurement, numbers=numbers))
    return with_steps


def _count_steps(measurements: Sequence[Measurement]) -> list[Measurement]:
    """Return the measurements with the number of steps that each covers.

    Raises:
      ValueError: If the measurements do not all have the same groups.
    """
    stretches: list[Measurement] = []
    last_step = 0.0
    for measurement in measurements:
        step = measurement.value("step")
        if step is None:
            step = last_step + 1
        if step > last_step:
            steps = step - last_step
        elif stretches and step == last_step:  # another line of the same step
            steps = stretches[-1].steps
        else:  # a new epoch, whose steps count from 0 again
            steps = max(step, 1.0)
        stretches.append(dataclasses.replace(measurement, steps=steps))
        last_step = step
    if len(stretches) > 1:  # The steps of a resumed run do not count from 0.
        steps = min(stretches[0].steps, stretches[1].steps)
        stretches[0] = dataclasses.replace(stretches[0], steps=steps)

    combinations = {
        frozenset(stretch.numbers.keys() - _OPTIONAL) for stretch in stretches
    }
    if len(combinations) == 1 and combinations <= _COMBINATIONS:
        return stretches
    texts = {"+".join(sorted(names)) or "nothing" for names in combinations}
    raise ValueError(
        f"the pattern's matches contain {' and '.join(sorted(texts))}; each match must "
        "contain the same groups: rate, or items with seconds or ms"
    )


def _group_by_rank(
    measurements: Sequence[Measurement], num_devices: int
) -> list[list[Measurement]]:
    """Return the measurements of each rank, the lowest first.

    Lines without tags are one rank.
    """
    tags = [measurement.line.rank for measurement in measurements]
    is_certain = any(
        measurement.line.rank is not None
        and rank_tags.is_certain(measurement.line.tagged)
        for measurement in measurements
    )
    if not is_certain and not rank_tags.are_ranks(tags, num_devices):
        return [list(measurements)]
    by_rank: dict[int, list[Measurement]] = {}
    for measurement, tag in zip(measurements, tags):
        by_rank.setdefault(-1 if tag is None else tag, []).append(measurement)
    return [by_rank[rank] for rank in sorted(by_rank)]


def _find_common_prefix(measurements: Sequence[Measurement]) -> str:
    """Return the unit of all rates if it has a prefix, such as "MB"; else "".

    Raises:
      ValueError: If the units of the rates differ.
    """
    first_lines: dict[str, int] = {}
    for measurement in measurements:
        first_lines.setdefault(measurement.unit, measurement.line.number)
    if len(first_lines) == 1:
        return measurements[0].unit
    texts = []
    for unit, line in first_lines.items():
        texts.append(f"line {line} has {unit or 'no prefix'}")
    raise ValueError(
        f"the units of the rates differ: {' and '.join(texts)}; the pattern must match "
        "only one of them"
    )


def _reads_device_rates(pattern: str, measurements: Sequence[Measurement]) -> bool:
    """Return whether rates are per device, by the group's name or the lines' text."""
    if log_numbers.DEVICE_RATE in pattern:
        return True
    return "rate" in _group_names(pattern) and all(map(_is_device_rate, measurements))


def _check_rank_count(num_ranks: int, num_devices: int | None) -> None:
    """Raise ValueError if a sum of ranks is not the rate of all devices."""
    if num_devices not in (None, num_ranks):
        raise ValueError(
            f"{num_ranks} ranks print the rate of one device, but the run has "
            f"{num_devices} devices; use --ranks=first"
        )


def _name_node_unit(unit: str, num_devices: int | None) -> str:
    """Return the unit of rates of one node.

    Raises:
      ValueError: If the rate of all devices is needed; the number of nodes is unknown.
    """
    if num_devices is None:
        return f"{unit or 'items'} per node"
    raise ValueError(
        "its rates are per node, and the number of nodes is unknown; let the program "
        "print the rate of all devices, or of one device"
    )


def _is_node_rate(measurement: Measurement) -> bool:
    if "rate" not in measurement.numbers:
        return False
    return printed_units.is_per_node(measurement.line.text, *measurement.span)


def _is_device_rate(measurement: Measurement) -> bool:
    return printed_units.is_per_device(measurement.line.text, *measurement.span)


def _find_counted_items(measurements: Sequence[Measurement]) -> str:
    """Return the items that all rates count, by the text next to them; "" if unknown."""
    plurals = set()
    for measurement in measurements:
        unit = printed_units.find_unit(measurement.line.text, *measurement.span)
        plurals.add(unit.counted if unit else "")
    return plurals.pop() if len(plurals) == 1 else ""


def _find_evaluations(texts: Sequence[str]) -> set[int]:
    """Return the indices of the lines whose words are about an evaluation.

    Args:
      texts: Each line up to the number that is read.

    Returns:
      An empty set if all lines are about evaluations, because the user may want their
        rate.
    """
    evaluations = {index for index, text in enumerate(texts) if _is_evaluation(text)}
    return evaluations if len(evaluations) < len(texts) else set()


def _is_evaluation(text: str) -> bool:
    if _TRAINING.search(text):
        return False
    head = re.match(r"\D*", text)
    if head is not None and _EVALUATION.search(head[0]):
        return True
    return any(
        not _RESULT.match(text, match.end()) for match in _EVALUATION.finditer(text)
    )


@contextlib.contextmanager
def limit_time(seconds: float) -> Iterator[None]:
    """Raise ValueError if the body takes longer than a number of seconds.

    Signals work only in the main thread; in another one there is no limit.
    """

    def stop(number: int, frame: object) -> None:
        raise ValueError(
            f"matching the pattern takes more than {seconds:g} s; use fewer .* and +"
        )

    is_main = threading.current_thread() is threading.main_thread()
    if not hasattr(signal, "setitimer") or not is_main:
        yield
        return
    previous = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)


def _describe_output(
    measurements: Sequence[Measurement], rate: RankRate, terms: Terms
) -> PrintedOutput:
    """Return facts about the lines of one rank, for `analysis.plausibility`."""
    speeds = [
        speed for speed in map(_find_printed_rate, measurements) if speed is not None
    ]
    start = 0
    if speeds:
        start = cost_series.find_start([1 / speed for speed in speeds], terms).lines
    times = [measurement.line.arrived_s for measurement in measurements]
    arrivals = [time for time in times if time is not None]
    # The seconds of all steps that the lines cover, as in the batches.
    printed_s = math.fsum(rate.batches.seconds) if not rate.clock else 0.0
    return PrintedOutput(
        lines=len(measurements),
        span_s=arrivals[-1] - arrivals[0] if arrivals else None,
        process_s=terms.seconds or None,
        printed_s=printed_s or None,
        lowest_rate=min(speeds[start:], default=None),
        highest_rate=max(speeds[start:], default=None),
        other_rate_ratio=_compute_median_other_rate_ratio(measurements[start:]),
    )


def _find_printed_rate(measurement: Measurement) -> float | None:
    """Return the rate of one line, in items/s, or in steps/s without its items."""
    if _SPEEDS.isdisjoint(measurement.numbers):
        return None
    one_step = dataclasses.replace(measurement, steps=1.0)
    rate = 1 / rates.find_printed_stretch(one_step, Terms(items_per_step=1.0)).cost
    return rate if MIN_NUMBER <= rate <= MAX_NUMBER else None


def _compute_median_other_rate_ratio(
    measurements: Sequence[Measurement],
) -> float | None:
    """Return the median of another rate of a line divided by the rate that was read.

    If a line has several other rates, the one that differs most counts.
    """
    ratios = []
    stride = max(1, len(measurements) // _MAX_COMPARED_LINES)
    for measurement in measurements[::stride]:
        other_ratios = list(_find_other_rate_ratios(measurement))
        if other_ratios:
            ratios.append(max(other_ratios, key=lambda ratio: abs(math.log(ratio))))
    return statistics.median(ratios) if ratios else None


def _find_other_rate_ratios(measurement: Measurement) -> Iterator[float]:
    """Yield the ratio of each other rate with the same unit to the rate that was read."""
    rate = measurement.value("rate")
    start, end = measurement.span
    text = measurement.line.text[:_MAX_SEARCHED_CHARACTERS]
    unit = printed_units.find_unit(text, start, end)
    if not rate or unit is None or not unit.name:
        return
    is_device_rate = printed_units.is_per_device(text, start, end)
    for match in _NUMBER.finditer(text):
        other_unit = printed_units.find_unit(text, *match.span())
        is_outside = match.end() <= start or end <= match.start()
        if not is_outside or other_unit is None or other_unit.name != unit.name:
            continue
        # "512 tokens/s, 256 tokens/s/GPU" are two rates of the same step.
        if printed_units.is_per_device(text, *match.span()) is is_device_rate:
            value = _parse(match[0]).value
            if MIN_NUMBER <= value <= MAX_NUMBER:
                yield value / rate
