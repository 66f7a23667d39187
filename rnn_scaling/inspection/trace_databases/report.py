"""A summary of a trace database: JSON with times in ns and sizes in bytes, and Markdown tables of the same numbers."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from rnn_scaling.files.markdown import Value, markdown_table, shown
from rnn_scaling.inspection.trace_databases.layouts import COPY, KERNEL
from rnn_scaling.inspection.trace_databases.summary import TraceSummary
from rnn_scaling.inspection.trace_databases.sweep import DeviceSweep

SCHEMA = "rnn_scaling.trace_db/2"
LONGEST_NAME = 100  # of a name in Markdown; templates have thousands of characters
LEGEND = """\
Busy is the time in which at least one is running; sums count each by itself, so concurrent ones count twice.
Overlap: a copy and a kernel run at once. Exposed copy: a copy runs and no kernel does. Idle: nothing runs.
Communication is overlapped while a kernel of the same device computes, and exposed while none does.
docs/trace-db.md has more.
"""
Row = dict[str, Any]
Columns = Sequence[tuple[str, str | Callable[[Row], Value]]]  # header, and key of the row (ns for "(ms)") or a function


def document(summary: TraceSummary, source: str, problems: Sequence[str]) -> Row:
    """Every number, as JSON; of the gaps only the longest."""
    layout = summary.layout
    return {
        "schema": SCHEMA, "source": source, "format": layout.schema, "tool": layout.tool,
        "versions": dict(layout.versions), "span_ns": list(summary.span), "window_ns": list(summary.window),
        "launches": summary.launches,
        "devices": [
            {"device": device, "model": layout.models.get(device)} | _device_numbers(sweep, summary.window)
            for device, sweep in summary.sweeps.items()
        ],
        "kernels": [vars(total) for total in summary.kernels],
        "copies": [vars(total) | {"gb_per_s": total.gb_per_s} for total in summary.copies],
        "api": [_without_device(vars(total)) for total in summary.api],
        "ranges": [_without_device(vars(total)) for total in summary.ranges],
        "tables": dict(summary.tables), "notes": layout.notes, "problems": list(problems),
    }  # fmt: skip


def _without_device(row: Row) -> Row:
    return {name: value for name, value in row.items() if name != "device"}


def _device_numbers(sweep: DeviceSweep, window: tuple[int, int]) -> Row:
    return {
        "count": sweep.count, "sum_ns": sweep.summed_ns,
        "kernel_busy_ns": sweep.kernels.length, "copy_busy_ns": sweep.copies.length, "overlap_ns": sweep.overlap_ns,
        "exposed_copy_ns": sweep.exposed_copy_ns, "compute_busy_ns": sweep.compute.length,
        "communication": {
            "kernels": sweep.communication_count[KERNEL], "copies": sweep.communication_count[COPY],
            "sum_ns": sweep.communication_sum_ns, "busy_ns": sweep.communication.length,
            "overlapped_ns": sweep.overlapped_communication_ns, "exposed_ns": sweep.exposed_communication_ns,
        },
        "busy_ns": sweep.any.length, "idle_ns": window[1] - window[0] - sweep.any.length,
        "gaps": sweep.gaps, "gap_ns": sweep.gap_ns, "largest_gaps": [vars(gap) for gap in sweep.largest_gaps],
    }  # fmt: skip


def markdown(found: Row, top: int) -> str:
    """The document as tables; `top` limits the rows of those that list names or gaps."""
    (first_ns, last_ns), (start_ns, end_ns) = found["span_ns"], found["window_ns"]
    window_ns, launches = end_ns - start_ns, found["launches"]
    versions = "".join(f"; {name} {value}" for name, value in found["versions"].items())
    idle = not any(device["count"] for device in found["devices"])
    lines = [
        f"# {found['source']}\n",
        f"- Written by: {found['tool']}{versions}",
        f"- Trace: {(last_ns - first_ns) / 1e9:.6f} s, {first_ns} ns to {last_ns} ns",
        f"- Looked at: {(start_ns - first_ns) / 1e9:.6f} s to {(end_ns - first_ns) / 1e9:.6f} s"
        f" after the trace's first event ({window_ns / 1e9:.6f} s)",
        f"- Kernel launches by the host: {launches}"
        + (f" ({launches * 1e9 / window_ns:.6g} a second)" if window_ns else ""),
        *(["- Note: no kernel, copy or memset in this time"] if idle else []),
        *(f"- Note: {note}" for note in found["notes"]),
        *(f"- Could not be used: {shown(_cut(problem))}" for problem in found["problems"]),
    ]
    gaps = [{"device": d["device"], **gap} for d in found["devices"] for gap in d["largest_gaps"]]
    communicating = [
        d | d["communication"] for d in found["devices"] if d["communication"]["kernels"] + d["communication"]["copies"]
    ]
    tables: list[tuple[str, Columns, Sequence[Row], int | None]] = [
        ("Devices", _device_columns(window_ns), found["devices"], None),
        ("Communication (nccl* and its like, copies between devices)", _communication_columns(window_ns),
         communicating, None),
        ("Kernels by time", (("Device", "device"), *_name_columns("Kernel", found["kernels"])), found["kernels"], top),
        ("Copies by time", _COPY_COLUMNS, found["copies"], top),
        ("Largest gaps", _gap_columns(first_ns), sorted(gaps, key=lambda gap: -gap["ns"]), top),
        ("CUDA API calls by time",
         (*_name_columns("Function", found["api"]), ("Calls/s", lambda row: _ratio(row["calls"] * 1e9, window_ns))),
         found["api"], top),
        ("NVTX ranges by time", _name_columns("Range", found["ranges"]), found["ranges"], top),
        ("Tables", (("Table", "table"), ("Rows", "rows")),
         [{"table": table, "rows": rows} for table, rows in found["tables"].items()], None),
    ]  # fmt: skip
    sections = [_section(*table) for table in tables if table[2]]
    return "\n".join(["\n".join(lines) + "\n", *sections, LEGEND])


def _section(title: str, columns: Columns, rows: Sequence[Row], limit: int | None) -> str:
    cells = [[_cut(_cell(header, source, row)) for header, source in columns] for row in rows[:limit]]
    left = len(rows) - len(cells)
    more = f"\n{left} more; --top={len(rows)} shows them\n" if left else ""
    return f"## {title}\n\n{markdown_table([header for header, _ in columns], cells)}{more}"


def _cell(header: str, source: str | Callable[[Row], Value], row: Row) -> Value:
    if not isinstance(source, str):
        return source(row)
    value = row[source]
    if header.endswith("(ms)"):
        return value / 1e6
    return value if value is None or isinstance(value, int | float) else str(value) or None


def _device_columns(window_ns: int) -> Columns:
    return (
        ("Device", "device"),
        ("Model", "model"),
        ("Kernels", lambda row: row["count"][KERNEL]),
        ("Kernels/s", lambda row: _ratio(row["count"][KERNEL] * 1e9, window_ns)),
        ("Kernel sum (ms)", lambda row: row["sum_ns"][KERNEL] / 1e6),
        ("Kernel busy (ms)", "kernel_busy_ns"),
        ("Copy busy (ms)", "copy_busy_ns"),
        ("Overlap (ms)", "overlap_ns"),
        ("Exposed copy (ms)", "exposed_copy_ns"),
        ("Busy (ms)", "busy_ns"),
        ("Busy (%)", lambda row: _ratio(row["busy_ns"] * 100, window_ns)),
        ("Idle (ms)", "idle_ns"),
        ("Gaps", "gaps"),
        ("In gaps (ms)", "gap_ns"),
    )


def _communication_columns(window_ns: int) -> Columns:
    return (
        ("Device", "device"),
        ("Kernels", "kernels"),
        ("Copies between devices", "copies"),
        ("Sum (ms)", "sum_ns"),
        ("Busy (ms)", "busy_ns"),
        ("Overlapped (ms)", "overlapped_ns"),
        ("Exposed (ms)", "exposed_ns"),
        ("Exposed (% of the time)", lambda row: _ratio(row["exposed_ns"] * 100, window_ns)),
        ("Computing kernels busy (ms)", "compute_busy_ns"),
    )


def _name_columns(title: str, rows: Sequence[Row]) -> Columns:
    """Columns of totals by name; the share is of the sum of their device, or of all for the host."""
    sums: Counter[object] = Counter()
    for row in rows:
        sums[row.get("device")] += row["ns"]
    return (
        ("Calls", "calls"),
        ("Total (ms)", "ns"),
        ("Mean (us)", lambda row: row["ns"] / row["calls"] / 1e3),
        ("Longest (us)", lambda row: row["longest_ns"] / 1e3),
        ("Share (%)", lambda row: _ratio(row["ns"] * 100, sums[row.get("device")])),
        (title, "name"),
    )


_COPY_COLUMNS: Columns = (
    ("Device", "device"),
    ("Kind", "kind"),
    ("From", "source"),
    ("To", "target"),
    ("Calls", "calls"),
    ("Bytes", "bytes"),
    ("Time (ms)", "ns"),
    ("GB/s", "gb_per_s"),
)


def _gap_columns(first_ns: int) -> Columns:
    return (
        ("Device", "device"),
        ("Idle (ms)", "ns"),
        ("At (ms after the first event)", lambda row: (row["start_ns"] - first_ns) / 1e6),
        ("Before", "before"),
        ("After", "after"),
    )


def _ratio(part: float, total: float) -> float | None:
    return part / total if total else None


def _cut(value: Value) -> Value:
    if isinstance(value, str) and len(value) > LONGEST_NAME:
        return value[: LONGEST_NAME - 1] + "…"
    return value
