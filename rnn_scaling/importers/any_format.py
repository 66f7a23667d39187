"""Any log: finds its format and reads it, also where one file holds several."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from rnn_scaling.config import registry
from rnn_scaling.importers import mlperf_system
from rnn_scaling.importers.common import ImportedLog, LogError, read_lines
from rnn_scaling.importers.rank_tags import Ranks

WINDOW = 256 << 10  # characters that are searched together for a known format


def formats_of(path: Path) -> list[str]:
    """The formats of the first window of a file in which any is found, as names of registry.IMPORTERS.

    Raises OSError if the file cannot be read, and LogError if it is no text, or of no known format.
    """
    for window in windows(path):
        names = [
            name
            for name in registry.IMPORTERS
            if registry.load(registry.IMPORTERS, name).detect(window)
        ]
        if names:
            return names
    known = ", ".join(registry.IMPORTERS)
    raise LogError(
        str(path), 1, f"no line of a known format ({known}); for tables use the audit"
    )


def read_all(
    paths: Sequence[Path], format: str = "auto", ranks: Ranks | None = None
) -> tuple[list[ImportedLog], list[str]]:
    """Read files in the given format, or in every one that they seem to hold.

    Returns:
      The logs, and a sentence for each file that could not be read.
    """
    logs: list[ImportedLog] = []
    errors: list[str] = []
    for path in paths:
        try:
            for name in formats_of(path) if format == "auto" else [format]:
                try:
                    logs.append(parse(name, path, ranks))
                except LogError as e:
                    errors.append(str(e))
        except LogError as e:  # of no known format
            errors.append(str(e))
        except OSError as e:
            errors.append(f"{path}: {e.strerror or e}")
    return mlperf_system.join(logs), errors


def parse(name: str, path: Path, ranks: Ranks | None) -> ImportedLog:
    """Read a file as one format. Raises LogError and OSError like its importer."""
    parse_lines = registry.load(registry.IMPORTERS, name).parse
    if registry.IMPORTERS[name].adds_ranks:
        log: ImportedLog = parse_lines(read_lines(path), str(path), ranks)
    else:
        log = parse_lines(read_lines(path), str(path))
    return log


def windows(path: Path) -> Iterator[str]:
    """The text of a file, whole lines, at least WINDOW characters at a time; errors as in `formats_of`."""
    lines, size = [], 0
    for line in read_lines(path):
        lines.append(line)
        size += len(line)
        if size >= WINDOW:
            yield "".join(lines)
            lines, size = [], 0
    if lines:
        yield "".join(lines)
