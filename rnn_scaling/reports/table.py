"""The seed's table: devices, batch size, seconds, words/s, speedup; as Markdown that also reads well as it is."""

from __future__ import annotations

from collections.abc import Sequence

from rnn_scaling.record import RunRecord
from rnn_scaling.reports.folder import SCHEMA
from rnn_scaling.reports.summary import Summary
from rnn_scaling.rows import Row, measured_batches, with_baselines
from rnn_scaling.statistics import Interval

MARK = f"\n<!-- {SCHEMA} -->\n"


def render(summary: Summary) -> bytes:
    """Markdown with a last line that says whose file it is."""
    return f"{text(summary)}{MARK}".encode()


def text(summary: Summary) -> str:
    """One table for each series; what stands after ± is said below it."""
    series = summary.series
    return "\n".join(f"### {each.title}\n\n{table([row.row for row in each.rows])}" for each in series)


def render_runs(records: Sequence[RunRecord]) -> str:
    """The table alone, for the terminal."""
    return table(with_baselines(records))


def table(rows: Sequence[Row]) -> str:
    """One table, and a line for each kind of ± that occurs in it."""
    return markdown_table(*grid(rows)) + "".join(f"\n± words/s: {kind}.\n" for kind in kinds(rows))


def kinds(rows: Sequence[Row]) -> list[str]:
    """What stands after the ± of words/s in a table, each kind once."""
    return list(dict.fromkeys(row.rate.kind for row in rows if len(rows) > 1 and row.rate and row.rate.half_width))


def grid(rows: Sequence[Row]) -> tuple[list[str], list[list[str]]]:
    """(header, a line of cells for each row) in the form of the seed's tables."""
    counts = {len(measured_batches(r)[0]) for row in rows for r in row.good} or {
        row.config["num_batches"] for row in rows
    }
    batches = "/".join(str(n) for n in sorted(counts)) if len(counts) < 4 else f"{min(counts)} to {max(counts)}"
    repeated = any(len(row.records) > 1 for row in rows)
    head = [
        f"{'GPU' if all(row.config['device'] == 'gpu' for row in rows) else 'Device'} number",
        "Batch size",
        f"Total time to process {batches} batches (s)",
        "Processing speed (words/s)",
        "Speedup ratio",
    ]
    if len(rows) > 1:
        head.append("Efficiency (%)")
    if repeated:
        head.insert(2, "Runs")
    return head, [_cells(row, alone=len(rows) == 1, repeated=repeated) for row in rows]


def _cells(row: Row, alone: bool, repeated: bool) -> list[str]:
    config = row.config
    size = f"{config['global_batch_size']} in all" if config["global_batch_size"] else str(config["batch_size"])
    cells = [str(row.num_devices), size]
    if repeated:
        failed = len(row.records) - len(row.good)
        cells.append(f"{len(row.good)}" + (f", {failed} failed" if failed else ""))
    if row.rate is None:
        return [*cells, row.records[-1].status, "n/a", "n/a", *([] if alone else ["n/a"])]
    seconds = sum(record.throughput["seconds"] for record in row.good) / len(row.good)
    if alone:  # a single run has nothing to be compared with
        return [*cells, f"{seconds:.3f}", f"{row.rate.value:.3f}", "n/a"]
    speedup, efficiency = row.metric("speedup"), row.metric("efficiency")
    return [
        *cells,
        f"{seconds:.3f}",
        plus_minus(row.rate, 3),
        plus_minus(speedup, 2),
        plus_minus(efficiency.scaled(100) if efficiency else None, 1),
    ]


def plus_minus(interval: Interval | None, digits: int) -> str:
    """The number with the half-width of its 95 % interval where it has one; "n/a" for None."""
    if interval is None:
        return "n/a"
    value = f"{interval.value:.{digits}f}"
    return f"{value} ± {interval.half_width:.{digits}f}" if interval.half_width else value


def markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table whose columns line up in plain text; numbers to the right."""
    widths = [max(len(line[i]) for line in (head, *rows)) for i in range(len(head))]
    lines = ["| " + " | ".join(h.ljust(w) for h, w in zip(head, widths)) + " |"]
    lines.append("|" + "|".join("-" * (w + 1) + ":" for w in widths) + "|")
    lines += ["| " + " | ".join(c.rjust(w) for c, w in zip(row, widths)) + " |" for row in rows]
    return "\n".join(lines) + "\n"
