"""The log of one training run, as a sweep of somebody's own trainer reads it: one rate, and what else it tells."""

import contextlib
import dataclasses
import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from rnn_scaling.config import registry
from rnn_scaling.importers import (
    any_format,
    line_clock,
    log_formats,
    pattern,
    pattern_hints,
    pattern_rates,
    printed_numbers,
)
from rnn_scaling.importers.common import (
    ImportedLog,
    LogError,
    ScalingRow,
    numbered,
    read_lines,
)
from rnn_scaling.importers.log_formats import LogReading, Seen, Terms
from rnn_scaling.importers.rank_tags import Ranks
from rnn_scaling.records import printed_number
from rnn_scaling.records.parts import LogFindingKind

MOST_ROUNDING = 0.5  # of a number with a single digit, 1
LOWEST = 1e-6  # rate that is shown while the run goes on
HINT_S = 5.0  # that a better pattern may be looked for
LOOK_S = 0.2  # that a pattern may be looked for in one line while the run goes on
END_S = 0.05  # after which the end of a process is seen


def read(path: Path, terms: Terms) -> LogReading:
    """What the log of a run tells. Raises ValueError saying why it tells nothing, and OSError if it cannot be read."""
    if terms.formats == log_formats.WALL:
        return _wall(terms)
    if not path.stat().st_size:
        raise ValueError("it printed nothing")
    failures = []
    names, regex = log_formats.split(terms.formats)
    try:
        for name in _tried(path, names):
            try:
                if registry.IMPORTERS[name].counts_steps:
                    return _of_bar(path, name, terms)
                return _reading(any_format.parse(name, path, terms.ranks))
            except ValueError as e:
                failures.append(
                    f"as {name}: {e.reason if isinstance(e, LogError) else e}"
                )
        if regex:
            return _by_pattern(path, regex, terms)
    except LogError as e:  # no text, or none at all
        raise ValueError(f"its output cannot be read: {e.reason}") from None
    if failures:
        raise ValueError(f"its output contains no rate ({'; '.join(failures)})")
    known = ", ".join(name for name in names if name != log_formats.AUTO) or ", ".join(
        log_formats.names()
    )
    raise ValueError(
        f"its output has no known format ({known}); --log_format=regex:PATTERN reads others"
    )


def _by_pattern(path: Path, regex: str, terms: Terms) -> LogReading:
    """Return the reading of a user's pattern; suggest another one if nothing matches."""
    try:
        return pattern.read(read_lines(path), regex, terms)
    except log_formats.NoMatch as e:
        better = ""
        with contextlib.suppress(ValueError), pattern.limited(HINT_S):
            better = pattern_hints.better_pattern(read_lines(path), regex)
        if not better:
            raise
        raise ValueError(f"{e}; --log_format='regex:{better}' matches") from None


def _wall(terms: Terms) -> LogReading:
    """The rate of a run that is timed from outside, from the start of its program to its end."""
    _, whole_s, launch_s = terms.timing
    seconds = max(whole_s - launch_s, whole_s / 2)
    error = min((launch_s + END_S) / whole_s, MOST_ROUNDING)
    note = f"{log_formats.WALL}: the seconds are those of the whole process, with its start"
    rate = (terms.items or 1.0) / seconds
    return LogReading(
        log_formats.WALL, rate, rounding=error, clock=log_formats.PROCESS, notes=(note,)
    )


def _of_bar(path: Path, name: str, terms: Terms) -> LogReading:
    """Return the rate of a progress bar.

    Its steps are timed by the arrival of its lines. The rates that it shows count if
    that is too coarse.
    """
    if terms.items_per_step is None:
        raise ValueError(
            "a progress bar counts only steps; add --items_per_step=PRODUCT (1 to measure steps)"
        )
    module = registry.load(registry.IMPORTERS, name)
    try:
        if not terms.timing.arrivals:
            raise ValueError("the arrival times of its lines are unknown")
        reading = line_clock.read(
            module.BAR.events(read_lines(path), terms.timing.arrivals), name, terms
        )
    except ValueError:
        reading = _shown_by_bar(path, name, terms.items_per_step)
    return pattern_rates.of_one_rank(reading, module.BAR.count_ranks(read_lines(path)))


def _shown_by_bar(path: Path, name: str, items_per_step: float) -> LogReading:
    """Return the rate that a bar of the lowest rank shows."""
    shown = _reading(any_format.parse(name, path, Ranks.FIRST))
    note = f"{name}: rates are read from the bar, since its lines arrived in too few bursts to time"
    findings = []
    for finding in shown.findings:
        # The items of a step are those of all ranks, so their sum has no meaning.
        if finding.kind == LogFindingKind.FIRST_RANK:
            continue
        other = None if finding.other is None else finding.other * items_per_step
        taken = finding.taken * items_per_step
        findings.append(dataclasses.replace(finding, taken=taken, other=other))
    return dataclasses.replace(
        shown,
        rate=shown.rate * items_per_step,
        unit="",
        notes=(*shown.notes, note),
        findings=tuple(findings),
    )


def watch(terms: Terms) -> Callable[[str], Seen | None]:
    """Return a function that finds a run's progress in each line that it prints.

    Returns:
      A function of one line. It returns None if the line shows no progress, and
      raises nothing, whatever the line holds.
    """
    searches = _searches(terms)
    first: tuple[float, float] | None = None
    count = 0

    def look(line: str) -> Seen | None:
        nonlocal first, count
        text = next(numbered([line[: pattern.LONGEST]]))[1]
        try:
            with pattern.limited(LOOK_S):
                match = next(filter(None, (search(text) for search in searches)), None)
        except ValueError:
            # A pattern that takes too long is only searched for at the end of the run.
            searches.clear()
            return None
        if match is None:
            return None
        count += 1
        numbers_by_group = _numbers_by_group(match)
        step = numbers_by_group.get("step", count)
        now = time.monotonic()
        if first is None or step < first[1]:
            first = now, step
        steps = step - first[1]
        passed_s = now - first[0]
        rate = None
        if "rate" in numbers_by_group and "unit" not in match.groupdict():
            rate = numbers_by_group["rate"]
        elif steps and passed_s:
            rate = steps * (terms.items_per_step or 1.0) / passed_s
        if rate is not None and not LOWEST < rate <= pattern.LARGEST:
            rate = None
        total = numbers_by_group.get("total")
        return Seen(int(step), None if total is None else int(total), rate)

    return look


def _numbers_by_group(match: re.Match[str]) -> dict[str, float]:
    """Return the numbers that the groups of a match hold, without impossible ones."""
    numbers_by_group = {}
    for name, text in match.groupdict("").items():
        try:
            value = printed_numbers.read(text)[0]
        except ValueError:
            continue
        if 0 <= value <= pattern.LARGEST:
            numbers_by_group[name] = value
    return numbers_by_group


def _searches(terms: Terms) -> list[Callable[[str], re.Match[str] | None]]:
    """What looks for a step in a line: the progress bars of the wanted formats, and the user's own pattern."""
    names, user_pattern = log_formats.split(terms.formats)
    wanted = log_formats.names() if log_formats.AUTO in names else names
    bars = [
        name
        for name in wanted
        if name in registry.IMPORTERS and registry.IMPORTERS[name].counts_steps
    ]
    searches = [
        registry.load(registry.IMPORTERS, name).BAR.regex.match for name in bars
    ]
    return [
        *searches,
        *([printed_numbers.compiled(user_pattern).search] if user_pattern else []),
    ]


def _tried(path: Path, names: Sequence[str]) -> list[str]:
    """The formats of `names` that the log seems to hold, "auto" being all that tell rates."""
    wanted = dict.fromkeys(
        name
        for choice in names
        for name in (log_formats.names() if choice == log_formats.AUTO else [choice])
    )
    detected = set[str]()
    for window in any_format.windows(path) if wanted else ():
        detected |= {
            name
            for name in wanted
            if registry.load(registry.IMPORTERS, name).detect(window)
        }
    return [name for name in wanted if name in detected]


def _reading(log: ImportedLog) -> LogReading:
    """What a log of a known format tells of its one run. Raises ValueError if it tells no rate, or several."""
    rows = [row for row in log.rows if row.rate]
    if len(rows) != 1:
        first = f"; {log.problems[0].reason}" if log.problems else ""
        raise ValueError(f"{len(rows) or 'no'} rates, and one run has one{first}")
    row = rows[0]
    assert row.rate is not None
    notes = [problem.text(log.source) for problem in log.problems]
    return LogReading(
        format=log.format,
        rate=row.rate.value,
        unit=row.rate_unit.removesuffix("/s"),
        devices=row.devices,
        batch_size=_batch_size(row),
        rounding=min(
            0.5 * row.rate.step / row.rate.value + printed_number.SLACK, MOST_ROUNDING
        ),
        notes=(*(f"{log.format}: {note}" for note in log.notes), *notes),
        findings=log.findings,
    )


def _batch_size(row: ScalingRow) -> int | None:
    """Samples of a device a step."""
    per_device, of_all = _whole(row.batch_size), _whole(row.global_batch_size)
    if per_device is None and of_all and row.devices and of_all % row.devices == 0:
        return of_all // row.devices
    return per_device


def _whole(cell: printed_number.Printed | None) -> int | None:
    return (
        int(cell.value)
        if cell and cell.value.is_integer() and cell.value >= 1
        else None
    )
