"""The seed's table: devices, batch size, seconds, words/s, speedup; as Markdown that also reads well as it is."""

from __future__ import annotations

from collections.abc import Sequence

from rnn_scaling.record import RunRecord
from rnn_scaling.rows import Row, with_baselines


def render(rows: Sequence[Row]) -> bytes:
    """Markdown: one table for each encoder and update mode."""
    parts, series = [], {}
    for row in rows:
        series.setdefault(_title(row.record), []).append(row)
    for title, members in series.items():
        parts.append(f"### {title}\n\n{_table(members)}")
    return "\n".join(parts).encode()


def render_runs(records: Sequence[RunRecord]) -> str:
    """The table alone, for the terminal."""
    return _table(with_baselines(records))


def _title(record: RunRecord) -> str:
    return f"{record.config['encoder_type']}, {record.config['variable_update']}"


def _table(rows: Sequence[Row]) -> str:
    batches = sorted({row.record.config["num_batches"] for row in rows})
    number = "/".join(str(n) for n in batches)
    device = "GPU" if all(row.record.config["device"] == "gpu" for row in rows) else "Device"
    head = [
        f"{device} number",
        "Batch size",
        f"Total time to process {number} batches (s)",
        "Processing speed (words/s)",
        "Speedup ratio",
    ]
    return markdown_table(head, [_cells(row, alone=len(rows) == 1) for row in rows])


def _cells(row: Row, alone: bool) -> list[str]:
    config, throughput = row.record.config, row.record.throughput
    cells = [str(config["num_devices"]), str(config["batch_size"])]
    if row.record.status != "ok":
        return [*cells, row.record.status, "n/a", "n/a"]
    speedup = None if alone else row.metric("speedup")  # a single run has nothing to be compared with
    ratio = "n/a" if speedup is None else f"{speedup:.2f}"
    return [*cells, f"{throughput['seconds']:.3f}", f"{throughput['words_per_second']:.3f}", ratio]


def markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table whose columns line up in plain text; numbers to the right."""
    widths = [max(len(line[i]) for line in (head, *rows)) for i in range(len(head))]
    lines = ["| " + " | ".join(h.ljust(w) for h, w in zip(head, widths)) + " |"]
    lines.append("|" + "|".join("-" * (w + 1) + ":" for w in widths) + "|")
    lines += ["| " + " | ".join(c.rjust(w) for c, w in zip(row, widths)) + " |" for row in rows]
    return "\n".join(lines) + "\n"
