"""Read the logs of `import_log` and of sweeps: detect their formats and read them.

`import_log` and sweeps call these functions and do not depend on a format. Formats are
rows of `formats`.
"""

import contextlib
import dataclasses
import re
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from rnn_scaling.records.decoding import MAX_NUMBER
from rnn_scaling.records.importers import (
    log_numbers,
    mlperf_systems,
    regex_log,
    stated_sizes,
)
from rnn_scaling.records.importers.bars import Bar
from rnn_scaling.records.importers.formats import FORMATS
from rnn_scaling.records.importers.reading import (
    AUTO,
    MAX_LINE_CHARACTERS,
    PIECE,
    REGEX,
    WALL,
    ImportedRun,
    LineError,
    Reading,
    RunProgress,
    Terms,
    read_log_lines,
    run_record,
)
from rnn_scaling.records.importers.regex_log import limit_time
from rnn_scaling.system.files import input_files

_PROCESS = "process"  # name of the clock that timed a whole program
WINDOW = 256 << 10  # characters that are searched together for a known format
_MAX_ROUNDING = 0.5  # largest relative error of the wall time
_LOWEST = 1e-6  # lowest rate that is shown while a run continues
_LINE_S = 0.2  # longest search for a pattern in one line of a running program
END_S = 0.05  # delay until the end of a process is noticed
_UTF_16 = "the file is UTF-16 text; convert it first: iconv -f UTF-16 -t UTF-8"
_COMPRESSED = "the file is compressed; unpack it first"
_SIGNATURES = {
    b"\xff\xfe": _UTF_16,
    b"\xfe\xff": _UTF_16,
    b"\x1f\x8b": _COMPRESSED,
    b"PK\x03\x04": _COMPRESSED,
    b"\x28\xb5\x2f\xfd": _COMPRESSED,
}
_UTF_8_MARK = b"\xef\xbb\xbf"


def list_rate_formats() -> list[str]:
    """Return the formats of logs that have the rate of a training run."""
    return [name for name, format in FORMATS.items() if format.has_rates]


def check_rate_formats(text: str) -> str:
    """Return the value of --log_format with the full names of formats.

    Raises:
      ValueError: If the value is wrong; the text completes "must be".
    """
    formats = _complete_names(text, [AUTO, *list_rate_formats(), WALL])
    if WALL in formats and len(formats) > 1:
        raise ValueError(f"{WALL} by itself, because {WALL} reads no output")
    return ",".join(formats)


def check_formats(text: str) -> str:
    """Return the value of --format with the full names of formats.

    Raises:
      ValueError: If the value is wrong; the text completes "must be".
    """
    return ",".join(_complete_names(text, [AUTO, *FORMATS]))


def _complete_names(text: str, all_names: Sequence[str]) -> list[str]:
    formats, pattern = _split_formats(text)
    complete = []
    for name in formats:
        choices = [choice for choice in all_names if choice.startswith(name)]
        if name in all_names:
            choices = [name]
        if len(choices) != 1:
            raise ValueError(
                f"one of {', '.join(all_names)} or {REGEX}PATTERN (which must come "
                "last)"
            )
        complete += choices
    if pattern:
        complete.append(REGEX + regex_log.check_pattern(pattern))
    return complete


def _split_formats(text: str) -> tuple[list[str], str]:
    """Return the formats and the pattern, which is the last because of its commas."""
    names, _, pattern = text.partition(REGEX)
    return [name for name in names.split(",") if name], pattern


def lacks_items(text: str) -> bool:
    """Return whether a --log_format reads only steps or seconds."""
    formats, pattern = _split_formats(text)
    has_bar = any(name in FORMATS and FORMATS[name].counts_steps for name in formats)
    return has_bar or (bool(pattern) and regex_log.lacks_items(pattern))


def read_files(paths: Sequence[Path], terms: Terms) -> tuple[list[Reading], list[str]]:
    """Read files in the formats of the terms, or in every format that they contain.

    Returns:
      The readings, and a sentence for each file that could not be read.
    """
    readings: list[Reading] = []
    errors: list[str] = []
    for path in paths:
        names: list[str] = []
        try:
            names = _choose_formats(path, terms)
        except (OSError, ValueError) as e:
            errors.append(_explain(path, e))
        for name in names:
            try:
                readings.append(_read(path, name, terms))
            except (OSError, ValueError) as e:
                errors.append(_explain(path, e))
    described_readings = mlperf_systems.add_devices(readings)
    return [
        stated_sizes.add_sizes(reading, terms) for reading in described_readings
    ], errors


def _explain(path: Path, error: OSError | ValueError) -> str:
    """Return "FILE:LINE: reason" or "FILE: reason"."""
    if isinstance(error, LineError):
        return f"{path}:{error.line}: {error.reason}"
    reason = error.strerror if isinstance(error, OSError) else None
    return f"{path}: {reason or error}"


def _choose_formats(path: Path, terms: Terms) -> list[str]:
    """Return the formats in which a file is read, the pattern last.

    Raises:
      LineError: If the file is in no known format, or not a text.
      OSError: If it cannot be read.
    """
    names, pattern = _split_formats(terms.formats)
    if AUTO in names:
        names = _detect_formats(path, list(FORMATS))
    if pattern:
        names.append(REGEX + pattern)
    if not names:
        known_formats = ", ".join(FORMATS)
        raise LineError(
            1,
            f"found no line of a known format ({known_formats}); use "
            f"--format={REGEX}PATTERN for the log of another program, or audit for "
            "tables",
        )
    return names


def _read(path: Path, name: str, terms: Terms) -> Reading:
    """Read a file in one format, or by a pattern.

    Raises:
      LineError: If a line makes it unusable.
      ValueError: If it has no content.
      OSError: If it cannot be read.
    """
    if not name.startswith(REGEX):
        reading = FORMATS[name].read(_read_lines(path), terms)
        return dataclasses.replace(reading, source=str(path))
    pattern = name.removeprefix(REGEX)
    reading = regex_log.read(_read_lines(path), pattern, terms)
    return dataclasses.replace(reading, source=str(path))


def read_run(path: Path, terms: Terms) -> tuple[ImportedRun, Reading]:
    """Return the one run of a log.

    Raises:
      ValueError: If the log has no rate, or several; with the reason.
      OSError: If it cannot be read.
    """
    if terms.formats == WALL:
        return _measure_process(terms)
    if not path.stat().st_size:
        raise ValueError("the program printed nothing")
    candidates, pattern = _list_rate_formats(terms)
    failures = []
    try:
        detected = _detect_formats(path, candidates)
    except LineError as e:
        raise ValueError(f"its output cannot be read: {e.reason}") from None
    for name in detected:
        try:
            if FORMATS[name].counts_steps and terms.items_per_step is None:
                raise ValueError(
                    "a progress bar counts only steps; add "
                    "--items_per_step=PRODUCT (1 to measure steps)"
                )
            return _require_one_run(_read(path, name, terms))
        except ValueError as e:
            reason = e.reason if isinstance(e, LineError) else e
            failures.append(f"as {name}: {reason}")
    if pattern:
        return _require_one_run(_read(path, REGEX + pattern, terms))
    if failures:
        raise ValueError(f"its output contains no rate ({'; '.join(failures)})")
    raise ValueError(
        f"its output has no known format ({', '.join(candidates)}); "
        f"use --log_format={REGEX}PATTERN for another format"
    )


def _list_rate_formats(terms: Terms) -> tuple[list[str], str]:
    """Return the formats that the one run of a log may have, and the pattern."""
    names, pattern = _split_formats(terms.formats)
    return list_rate_formats() if AUTO in names else names, pattern


def _require_one_run(reading: Reading) -> tuple[ImportedRun, Reading]:
    runs = [run for run in reading.runs if run.record.throughput]
    if len(runs) == 1:
        return runs[0], reading
    first = f"; {reading.problems[0].reason}" if reading.problems else ""
    raise ValueError(f"expected one rate of one run, got {len(runs) or 'none'}{first}")


def list_notes(reading: Reading) -> list[str]:
    """Return sentences with the meaning of the numbers and with the problems."""
    name = reading.format.partition(":")[0]
    notes = [f"{name}: {note}" for note in reading.notes]
    return [*notes, *(problem.text(reading.source) for problem in reading.problems)]


def _measure_process(terms: Terms) -> tuple[ImportedRun, Reading]:
    """Return a run with the rate of the whole process, from its start to its end."""
    seconds = max(terms.seconds - terms.launch_s, terms.seconds / 2)
    record = run_record(
        WALL,
        {},
        "",
        (terms.items or 1.0) / seconds,
        rounding=min((terms.launch_s + END_S) / terms.seconds, _MAX_ROUNDING),
        clock=_PROCESS,
    )
    note = "the seconds are the time of the whole process, including its start"
    run = ImportedRun(0, record)
    return run, Reading(WALL, (run,), notes=(note,))


def _detect_formats(path: Path, candidates: Sequence[str]) -> list[str]:
    """Return the formats that a file seems to contain."""
    detected: set[str] = set()
    for window in read_windows(path):
        detected |= {name for name in candidates if FORMATS[name].detect(window)}
        if detected and candidates == list(FORMATS):
            break
    return [name for name in candidates if name in detected]


def read_windows(path: Path) -> Iterator[str]:
    """Yield the text of a file, whole lines, at least WINDOW characters at a time."""
    lines: list[str] = []
    size = 0
    for line in _read_lines(path):
        lines.append(line)
        size += len(line)
        if size >= WINDOW:
            yield "".join(lines)
            lines = []
            size = 0
    if lines:
        yield "".join(lines)


def _read_lines(path: Path) -> Iterator[str]:
    """Yield the lines of a file with their ends, in pieces of at most `PIECE` bytes.

    Bytes that are not UTF-8 become U+FFFD.

    Raises:
      LineError: If the file is not a text.
      OSError: If it cannot be read.
    """
    with input_files.open_regular(path) as file:
        head = file.read(4096)
        fault = _find_signature(head)
        if fault:
            raise LineError(1, fault)
        file.seek(len(_UTF_8_MARK) if head.startswith(_UTF_8_MARK) else 0)
        while piece := file.readline(PIECE):
            yield piece.decode("utf-8", errors="replace")


def _find_signature(head: bytes) -> str:
    """Return why the first bytes of a file are not those of a text, or ""."""
    if not head:
        return "the file is empty"
    for signature, fault in _SIGNATURES.items():
        if head.startswith(signature):
            return fault
    return "the file is binary; expected a log or JSON" if b"\0" in head else ""


def watch(terms: Terms) -> Callable[[str], RunProgress | None]:
    """Return a function that finds the progress of a run in each line that it prints.

    Returns:
      A function of one line. It returns None if the line shows no progress, and raises
      nothing, whatever the line contains.
    """
    names, pattern = _list_rate_formats(terms)
    bars = [FORMATS[name] for name in names if name in FORMATS]
    searches: list[Callable[[str], re.Match[str] | None]] = []
    searches += [bar.regex.match for bar in bars if isinstance(bar, Bar)]
    if pattern:
        searches.append(log_numbers.compile_pattern(pattern).search)
    first: tuple[float, float] | None = None
    count = 0

    def find_progress(line: str) -> RunProgress | None:
        nonlocal first, count
        text = next(read_log_lines([line[:MAX_LINE_CHARACTERS]])).tagged
        try:
            with limit_time(_LINE_S):
                match = next(filter(None, (search(text) for search in searches)), None)
        except ValueError:
            # A pattern that takes too long is only searched for at the end of the run.
            searches.clear()
            return None
        if match is None:
            return None
        count += 1
        numbers = _parse_groups(match)
        step = numbers.get("step", count)
        now = time.monotonic()
        if first is None or step < first[1]:
            first = now, step
        start, start_step = first
        rate = numbers.get("rate")
        if rate is None or "unit" in match.groupdict():
            per_step = terms.items_per_step or 1.0
            rate = (step - start_step) * per_step / max(now - start, 1e-9)
        if not _LOWEST < rate <= MAX_NUMBER:
            rate = None
        total = numbers.get("total")
        return RunProgress(int(step), None if total is None else int(total), rate)

    return find_progress


def _parse_groups(match: re.Match[str]) -> dict[str, float]:
    """Return the numbers of the groups of a match, without impossible ones."""
    numbers = {}
    for name, text in match.groupdict("").items():
        with contextlib.suppress(ValueError):
            value = log_numbers.parse_number(text).value
            if 0 <= value <= MAX_NUMBER:
                numbers[name] = value
    return numbers
