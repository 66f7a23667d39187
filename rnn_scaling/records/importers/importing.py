"""Files -> readings. `import_log` and a sweep of somebody's program read a log here."""

import contextlib
import dataclasses
import re
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from rnn_scaling.records.decoding import LARGEST
from rnn_scaling.records.importers import mlperf_systems, printed_numbers, regex_log
from rnn_scaling.records.importers.bars import Bar
from rnn_scaling.records.importers.formats import FORMATS
from rnn_scaling.records.importers.hints import better_pattern
from rnn_scaling.records.importers.reading import (
    AUTO,
    LONGEST,
    PIECE,
    REGEX,
    WALL,
    ImportedRun,
    LineError,
    LogError,
    NoMatch,
    Reading,
    RunProgress,
    Terms,
    log_lines,
    run_record,
)
from rnn_scaling.records.importers.regex_log import limited
from rnn_scaling.system.files import input_files

PROCESS = "process"  # the clock that timed a whole program
WINDOW = 256 << 10  # characters that are searched together for a known format
MOST_ROUNDING = 0.5  # of a rate with a single digit, 1
LOWEST = 1e-6  # rate that is shown while a run goes on
HINT_S = 5.0  # that a better pattern may be looked for
LOOK_S = 0.2  # that a pattern may be looked for in one line while a run goes on
END_S = 0.05  # after which the end of a process is seen
_SIGNS = {
    b"\xff\xfe": "UTF-16 text; convert it first: iconv -f UTF-16 -t UTF-8",
    b"\xfe\xff": "UTF-16 text; convert it first: iconv -f UTF-16 -t UTF-8",
    b"\x1f\x8b": "a compressed file; unpack it first",
    b"PK\x03\x04": "a compressed file; unpack it first",
    b"\x28\xb5\x2f\xfd": "a compressed file; unpack it first",
}


def names() -> list[str]:
    """Return the formats of logs that have the rate of a training run."""
    return [name for name, format in FORMATS.items() if format.has_rates]


def check_rate_formats(text: str) -> str:
    """Return the value of --log_format with whole names of formats.

    Raises:
      ValueError: Saying what the text must be.
    """
    whole = _whole(text, [AUTO, *names(), WALL])
    if WALL in whole and len(whole) > 1:
        raise ValueError(f"{WALL} alone: it reads no output")
    return ",".join(whole)


def check_formats(text: str) -> str:
    """Return the value of --format with whole names of formats; raises ValueError."""
    return ",".join(_whole(text, [AUTO, *FORMATS]))


def _whole(text: str, known: Sequence[str]) -> list[str]:
    formats, pattern = split(text)
    whole = []
    for name in formats:
        meant = [choice for choice in known if choice.startswith(name)]
        if name not in known and len(meant) != 1:
            raise ValueError(
                f"of {', '.join(known)} or {REGEX}PATTERN, the pattern being the last"
            )
        whole.append(name if name in known else meant[0])
    if pattern:
        whole.append(REGEX + regex_log.checked(pattern))
    return whole


def split(text: str) -> tuple[list[str], str]:
    """Return the formats and the pattern, which is the last, since it may hold commas."""
    before, sign, pattern = text.partition(REGEX)
    formats = [name for name in before.split(",") if name]
    return formats, pattern if sign else ""


def lacks_items(text: str) -> bool:
    """Return whether a --log_format reads only steps or seconds."""
    formats, pattern = split(text)
    has_bar = any(name in FORMATS and FORMATS[name].counts_steps for name in formats)
    return has_bar or (bool(pattern) and regex_log.lacks_items(pattern))


def read_files(paths: Sequence[Path], terms: Terms) -> tuple[list[Reading], list[str]]:
    """Read files in the formats of the terms, or in every one that they seem to hold.

    Returns:
      The readings, and a sentence for each file that could not be read.
    """
    readings: list[Reading] = []
    errors: list[str] = []
    for path in paths:
        try:
            formats, pattern = split(terms.formats)
            if AUTO in formats:
                formats = _of_file(path, list(FORMATS))
                if not formats and not pattern:
                    known = ", ".join(FORMATS)
                    reason = (
                        f"no line of a known format ({known}); for tables use the audit"
                    )
                    raise LogError(str(path), 1, reason)
            for name in formats:
                _collect(readings, errors, path, name, terms)
            if pattern:
                _collect(readings, errors, path, REGEX + pattern, terms)
        except LogError as e:
            errors.append(str(e))
        except OSError as e:
            errors.append(f"{path}: {e.strerror or e}")
    return mlperf_systems.add_devices(readings), errors


def _collect(
    readings: list[Reading], errors: list[str], path: Path, name: str, terms: Terms
) -> None:
    """Add the reading of a file in one format, or why it has none."""
    try:
        readings.append(_read(path, name, terms))
    except LogError as e:
        errors.append(str(e))
    except ValueError as e:
        errors.append(f"{path}: {e}")


def _read(path: Path, name: str, terms: Terms) -> Reading:
    """Read a file as one format, or by a pattern.

    Raises:
      LogError: If a line makes it unusable.
      ValueError: If it says nothing.
      OSError: If it cannot be read.
    """
    try:
        if name.startswith(REGEX):
            pattern = name.removeprefix(REGEX)
            reading = regex_log.read(read_lines(path), pattern, terms)
        else:
            reading = FORMATS[name].read(read_lines(path), terms)
    except NoMatch as e:
        better = ""
        with contextlib.suppress(ValueError), limited(HINT_S):
            better = better_pattern(read_lines(path), pattern)
        if not better:
            raise
        raise ValueError(f"{e}; --log_format='{REGEX}{better}' matches") from None
    except LineError as e:
        raise LogError(str(path), e.line, e.reason) from None
    return dataclasses.replace(reading, source=str(path))


def read_run(path: Path, terms: Terms) -> tuple[ImportedRun, Reading]:
    """Return the one run of a log.

    Raises:
      ValueError: If the log has no rate, or several; with the reason.
      OSError: If it cannot be read.
    """
    if terms.formats == WALL:
        return _wall(terms)
    if not path.stat().st_size:
        raise ValueError("it printed nothing")
    formats, pattern = split(terms.formats)
    failures = []
    try:
        wanted = names() if AUTO in formats else formats
        for name in _of_file(path, wanted):
            try:
                if FORMATS[name].counts_steps and terms.items_per_step is None:
                    raise ValueError(
                        "a progress bar counts only steps; add --items_per_step=PRODUCT "
                        "(1 to measure steps)"
                    )
                return _one(_read(path, name, terms))
            except LogError as e:
                failures.append(f"as {name}: {e.reason}")
            except ValueError as e:
                failures.append(f"as {name}: {e}")
        if pattern:
            try:
                return _one(_read(path, REGEX + pattern, terms))
            except LogError as e:
                raise LineError(e.line, e.reason) from None
    except LogError as e:  # no text, or none at all
        raise ValueError(f"its output cannot be read: {e.reason}") from None
    if failures:
        raise ValueError(f"its output contains no rate ({'; '.join(failures)})")
    raise ValueError(
        f"its output has no known format ({', '.join(wanted)}); "
        f"--log_format={REGEX}PATTERN reads others"
    )


def _one(reading: Reading) -> tuple[ImportedRun, Reading]:
    runs = [run for run in reading.runs if run.record.throughput]
    if len(runs) != 1:
        first = f"; {reading.problems[0].reason}" if reading.problems else ""
        raise ValueError(f"{len(runs) or 'no'} rates, and one run has one{first}")
    return runs[0], reading


def list_notes(reading: Reading) -> list[str]:
    """Return what the numbers mean and what is wrong, one sentence each."""
    name = reading.format.partition(":")[0]
    notes = [f"{name}: {note}" for note in reading.notes]
    return [*notes, *(problem.text(reading.source) for problem in reading.problems)]


def _wall(terms: Terms) -> tuple[ImportedRun, Reading]:
    """Return a run that is timed from outside, from the start of its program to its end."""
    seconds = max(terms.seconds - terms.launch_s, terms.seconds / 2)
    record = run_record(
        WALL,
        {},
        "",
        (terms.items or 1.0) / seconds,
        rounding=min((terms.launch_s + END_S) / terms.seconds, MOST_ROUNDING),
        clock=PROCESS,
    )
    note = "the seconds are those of the whole process, with its start"
    run = ImportedRun(0, record)
    return run, Reading(WALL, (run,), notes=(note,))


def _of_file(path: Path, wanted: Sequence[str]) -> list[str]:
    """Return which of some formats a file seems to hold."""
    found: set[str] = set()
    for window in windows(path):
        found |= {name for name in wanted if FORMATS[name].detect(window)}
        if found and wanted == list(FORMATS):
            break
    return [name for name in wanted if name in found]


def windows(path: Path) -> Iterator[str]:
    """Yield the text of a file, whole lines, at least WINDOW characters at a time."""
    lines: list[str] = []
    size = 0
    for line in read_lines(path):
        lines.append(line)
        size += len(line)
        if size >= WINDOW:
            yield "".join(lines)
            lines = []
            size = 0
    if lines:
        yield "".join(lines)


def read_lines(path: Path) -> Iterator[str]:
    """Yield the lines of a file with their ends, in pieces of at most `PIECE` bytes.

    Bytes that are not UTF-8 become U+FFFD.

    Raises:
      LogError: If the file is not a text.
      OSError: If it cannot be read.
    """
    with input_files.open_regular(path) as file:
        head = file.read(4096)
        reason = "" if head else "the file is empty"
        for sign, meaning in _SIGNS.items():
            if head.startswith(sign):
                reason = meaning
        if not reason and b"\0" in head:
            reason = "a binary file; expected a log or JSON"
        if reason:
            raise LogError(str(path), 1, reason)
        file.seek(3 if head.startswith(b"\xef\xbb\xbf") else 0)
        while piece := file.readline(PIECE):
            yield piece.decode("utf-8", errors="replace")


def watch(terms: Terms) -> Callable[[str], RunProgress | None]:
    """Return a function that finds a run's progress in each line that it prints.

    Returns:
      A function of one line. It returns None if the line shows no progress, and
      raises nothing, whatever the line holds.
    """
    searches = _searches(terms)
    first: tuple[float, float] | None = None
    count = 0

    def look(line: str) -> RunProgress | None:
        nonlocal first, count
        text = next(log_lines([line[:LONGEST]])).tagged
        try:
            with limited(LOOK_S):
                match = next(filter(None, (search(text) for search in searches)), None)
        except ValueError:
            # A pattern that takes too long is only searched for at the end of the run.
            searches.clear()
            return None
        if match is None:
            return None
        count += 1
        numbers = _numbers_of(match)
        step = numbers.get("step", count)
        now = time.monotonic()
        if first is None or step < first[1]:
            first = now, step
        steps = step - first[1]
        passed_s = now - first[0]
        rate = None
        if "rate" in numbers and "unit" not in match.groupdict():
            rate = numbers["rate"]
        elif steps and passed_s:
            rate = steps * (terms.items_per_step or 1.0) / passed_s
        if rate is not None and not LOWEST < rate <= LARGEST:
            rate = None
        total = numbers.get("total")
        return RunProgress(int(step), None if total is None else int(total), rate)

    return look


def _numbers_of(match: re.Match[str]) -> dict[str, float]:
    """Return the numbers of the groups of a match, without impossible ones."""
    numbers = {}
    for name, text in match.groupdict("").items():
        with contextlib.suppress(ValueError):
            value = printed_numbers.read(text).value
            if 0 <= value <= LARGEST:
                numbers[name] = value
    return numbers


def _searches(terms: Terms) -> list[Callable[[str], re.Match[str] | None]]:
    """Return what looks for a step in a line: the bars, and the user's own pattern."""
    formats, pattern = split(terms.formats)
    wanted = names() if AUTO in formats else formats
    searches: list[Callable[[str], re.Match[str] | None]] = []
    for name in wanted:
        format = FORMATS.get(name)
        if isinstance(format, Bar):
            searches.append(format.regex.match)
    if pattern:
        searches.append(printed_numbers.compiled(pattern).search)
    return searches
