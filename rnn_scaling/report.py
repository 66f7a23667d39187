"""python -m rnn_scaling.report DIR: the records of a folder -> table on stdout, table.md, speedup.png."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from rnn_scaling import record, registry
from rnn_scaling.rows import Row, with_baselines

USAGE = """\
python -m rnn_scaling.report DIR    (or ./run.sh report DIR)

Reads the run records (*.json) of a folder, prints the tables and writes DIR/table.md and DIR/speedup.png.

Exit status: 0 done, 1 nothing to report or nothing could be written, 2 wrong use."""


def main(argv: Sequence[str] | None = None) -> int:
    """Renders one folder; returns the exit status."""
    words = list(sys.argv[1:] if argv is None else argv)
    if any(word in ("--help", "-h") for word in words):
        print(USAGE)
        return 0
    if len(words) != 1 or words[0].startswith("-"):
        print("error: expected one folder of run records; --help explains", file=sys.stderr)
        return 2
    folder = Path(words[0])
    if not folder.is_dir():
        print(f"error: {folder}: no such folder", file=sys.stderr)
        return 2
    rows = read_rows(folder)
    if not rows:
        print(f"error: {folder}: no run records (*.json) in this folder", file=sys.stderr)
        return 1
    try:
        written = write(rows, folder)
    except OSError as e:
        print(f"error: {folder}: {e.strerror or e}", file=sys.stderr)
        return 1
    print(f"\n{', '.join(str(path) for path in written)} written")
    return 0


def read_rows(folder: Path) -> list[Row]:
    """Every readable record of the folder with its baseline, in the order of the tables; says what was not readable."""
    records = []
    for path in sorted(folder.glob("*.json")):
        try:
            records.append(record.read(path))
        except (OSError, record.RecordError) as e:
            print(f"warning: {e}; left out", file=sys.stderr)
    records.sort(key=lambda r: (r.config["encoder_type"], r.config["variable_update"], r.config["num_devices"]))
    return with_baselines(records)


def write(rows: Sequence[Row], folder: Path) -> list[Path]:
    """Prints the tables and writes them and the plot; returns the files."""
    table = registry.load(registry.REPORTS, "table").render(rows)
    print(table.decode(), end="")
    files = {folder / "table.md": table}
    if any(row.metric("words_per_second") for row in rows):
        files[folder / "speedup.png"] = registry.load(registry.REPORTS, "plot").render(rows)
    for path, content in files.items():
        record.write_bytes(content, path)
    return list(files)


if __name__ == "__main__":
    sys.exit(main())
