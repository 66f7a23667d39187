"""A summary of a trace database as tables: Markdown to read, JSON with every number in ns and bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rnn_scaling.files import input_files
from rnn_scaling.files.markdown import Table, Value, markdown_table, shown
from rnn_scaling.inspection.trace_databases.layout import COPY, KERNEL, MEMSET
from rnn_scaling.inspection.trace_databases.summary import CopyTotal, NameTotal, TraceSummary
from rnn_scaling.inspection.trace_databases.sweep import DeviceSweep, Gap

SCHEMA = "rnn_scaling.trace_db/2"
LONGEST_NAME = 100  # of a name in Markdown; templates run to thousands of characters
LEGEND = """\
Busy is the time in which at least one is running; sums count each by itself, so concurrent ones count twice.
Overlap: a copy and a kernel run at once. Exposed copy: a copy runs and no kernel does. Idle: nothing runs.
Communication is overlapped while a kernel of the same device computes, and exposed while none does.
docs/trace-db.md has more.
"""


def markdown(summary: TraceSummary, source: str, problems: Sequence[str], top: int) -> str:
    """All tables."""
    layout, window_ns = summary.layout, summary.window[1] - summary.window[0]
    versions = "".join(f"; {name} {value}" for name, value in layout.versions.items())
    ran = any(sweep.count for sweep in summary.sweeps.values())
    first, last = ((t - summary.span[0]) / 1e9 for t in summary.window)
    lines = [
        f"# {source}\n",
        f"- Written by: {layout.tool}{versions}",
        f"- Trace: {(summary.span[1] - summary.span[0]) / 1e9:.6f} s, {summary.span[0]} ns to {summary.span[1]} ns",
        f"- Looked at: {first:.6f} s to {last:.6f} s after the trace's first event ({window_ns / 1e9:.6f} s)",
        f"- Kernel launches by the host: {summary.launches}{_a_second(summary.launches, window_ns)}",
        *([] if ran else ["- Note: no kernel, copy or memset in this time"]),
        *(f"- Note: {note}" for note in layout.notes),
        *(f"- Could not be used: {shown(_cut(problem))}" for problem in problems),
    ]
    parts = ["\n".join(lines) + "\n"]
    for table, limit in tables(summary, top):
        rows = [[_cut(value) for value in row] for row in table.rows[:limit]]
        left = len(table.rows) - len(rows)
        more = f"\n{left} more; --top={len(table.rows)} shows them\n" if left else ""
        parts.append(f"## {table.title}\n\n{markdown_table(table.columns, rows)}{more}")
    return "\n".join([*parts, LEGEND])


def tables(summary: TraceSummary, top: int) -> list[tuple[Table, int | None]]:
    """The tables that have rows, and to how many rows each is cut."""
    window_ns = summary.window[1] - summary.window[0]
    made = [
        (devices(summary), None),
        (communication(summary), None),
        (_names("Kernels by time", "Kernel", summary.kernels), top),
        (_copies("Copies by time", summary.copies), top),
        (gaps(summary), top),
        (_names("CUDA API calls by time", "Function", summary.api, window_ns), top),
        (_names("NVTX ranges by time", "Range", summary.ranges), top),
        (Table("Tables", ("Table", "Rows"), tuple(summary.tables.items())), None),
    ]
    return [(table, limit) for table, limit in made if table.rows]


def devices(summary: TraceSummary) -> Table:
    """One row a device: what of the window it was busy with."""
    window = summary.window[1] - summary.window[0]
    columns = (
        "Device", "Model", "Kernels", "Kernels/s", "Kernel sum (ms)", "Kernel busy (ms)", "Copy busy (ms)",
        "Overlap (ms)", "Exposed copy (ms)", "Busy (ms)", "Busy (%)", "Idle (ms)", "Gaps", "In gaps (ms)",
    )  # fmt: skip
    rows = []
    for device, sweep in summary.sweeps.items():
        kernels = sweep.count.get(KERNEL, 0)
        rows.append((
            _device(device), summary.layout.devices.get(device) or None, kernels, _ratio(kernels * 1e9, window),
            _ms(sweep.summed_ns.get(KERNEL, 0)), _ms(sweep.kernels.length), _ms(sweep.copies.length),
            _ms(sweep.overlap_ns), _ms(sweep.exposed_copy_ns), _ms(sweep.any.length),
            _ratio(sweep.any.length * 100, window), _ms(window - sweep.any.length), sweep.gaps, _ms(sweep.gap_ns),
        ))  # fmt: skip
    return Table("Devices", columns, tuple(rows))


def communication(summary: TraceSummary) -> Table:
    """One row a device that communicates: how much of that its own computing hides."""
    window = summary.window[1] - summary.window[0]
    columns = (
        "Device", "Kernels", "Copies between devices", "Sum (ms)", "Busy (ms)", "Overlapped (ms)", "Exposed (ms)",
        "Exposed (% of the time)", "Computing kernels busy (ms)",
    )  # fmt: skip
    rows = [
        (_device(device), sweep.communication_count.get(KERNEL, 0), sweep.communication_count.get(COPY, 0),
         _ms(sweep.communication_sum_ns), _ms(sweep.communication.length), _ms(sweep.overlapped_communication_ns),
         _ms(sweep.exposed_communication_ns), _ratio(sweep.exposed_communication_ns * 100, window),
         _ms(sweep.compute.length))
        for device, sweep in summary.sweeps.items()
        if sweep.communication_count
    ]  # fmt: skip
    return Table("Communication (nccl* and its like, copies between devices)", columns, tuple(rows))


def gaps(summary: TraceSummary) -> Table:
    """The longest times in which a device did nothing, with what ended before and what started after."""
    longest = [(device, gap) for device, sweep in summary.sweeps.items() for gap in sweep.largest_gaps]
    rows = [
        (_device(device), _ms(gap.ns), (gap.start - summary.span[0]) / 1e6, *_neighbours(summary, gap))
        for device, gap in sorted(longest, key=lambda pair: -pair[1].ns)
    ]
    columns = ("Device", "Idle (ms)", "At (ms after the first event)", "Before", "After")
    return Table("Largest gaps", columns, tuple(rows))


def _neighbours(summary: TraceSummary, gap: Gap) -> tuple[str, str]:
    return _label(summary, *gap.before), _label(summary, *gap.after)


def _label(summary: TraceSummary, table: str, value: Any) -> str:
    layout = summary.layout
    what = next((events.what for events in layout.device_events if events.table == table), KERNEL)
    if what == COPY:
        return f"copy {layout.copy_kinds.get(value, value)}"
    return "memset" if what == MEMSET else layout.name_of(table, value)


def _names(title: str, what: str, totals: Sequence[NameTotal], window_ns: int = 0) -> Table:
    """Totals by name; share is of the sum of their device (or of all, for the host)."""
    sums: dict[object, int] = {}
    for one in totals:
        sums[one.device] = sums.get(one.device, 0) + one.ns
    on_device = any(one.device is not None for one in totals)
    columns: tuple[str, ...] = ("Calls", "NameTotal (ms)", "Mean (us)", "Longest (us)", "Share (%)", what)
    rows: list[tuple[Value, ...]] = [
        (one.calls, _ms(one.ns), one.ns / one.calls / 1e3, one.longest_ns / 1e3, _ratio(one.ns * 100, sums[one.device]),
         one.name)
        for one in totals
    ]  # fmt: skip
    if on_device:
        columns, rows = ("Device", *columns), [(_device(one.device), *row) for one, row in zip(totals, rows)]
    if window_ns:
        columns, rows = (
            (*columns, "Calls/s"),
            [(*r, _ratio(one.calls * 1e9, window_ns)) for one, r in zip(totals, rows)],
        )
    return Table(title, columns, tuple(rows))


def _copies(title: str, totals: Sequence[CopyTotal]) -> Table:
    columns = ("Device", "Kind", "From", "To", "Calls", "Bytes", "Time (ms)", "GB/s")
    rows = [
        (_device(one.device), one.kind, one.source or None, one.target or None, one.calls, one.bytes, _ms(one.ns),
         one.gb_per_s)
        for one in sorted(totals, key=lambda one: -one.ns)
    ]  # fmt: skip
    return Table(title, columns, tuple(rows))


def as_json(summary: TraceSummary, source: str, problems: Sequence[str]) -> str:
    """Every number: times in ns, sizes in bytes; names in full, but gaps only the longest."""
    layout = summary.layout
    document = {
        "schema": SCHEMA, "source": source, "format": layout.schema, "tool": layout.tool,
        "versions": dict(layout.versions), "span_ns": list(summary.span), "window_ns": list(summary.window),
        "launches": summary.launches,
        "devices": [_device_json(summary, device, sweep) for device, sweep in summary.sweeps.items()],
        "kernels": [vars(one) for one in summary.kernels],
        "copies": [vars(one) | {"gb_per_s": one.gb_per_s} for one in summary.copies],
        **{name: [_without_device(one) for one in getattr(summary, name)] for name in ("api", "ranges")},
        "tables": dict(summary.tables), "notes": list(layout.notes), "problems": list(problems),
    }  # fmt: skip
    return input_files.json_text(document, default=str)


def _without_device(one: NameTotal) -> dict[str, Any]:
    return {name: value for name, value in vars(one).items() if name != "device"}


def _device_json(summary: TraceSummary, device: object, sweep: DeviceSweep) -> dict[str, Any]:
    window = summary.window[1] - summary.window[0]
    return {
        "device": device, "model": summary.layout.devices.get(device), "count": sweep.count, "sum_ns": sweep.summed_ns,
        "kernel_busy_ns": sweep.kernels.length, "copy_busy_ns": sweep.copies.length, "overlap_ns": sweep.overlap_ns,
        "exposed_copy_ns": sweep.exposed_copy_ns, "compute_busy_ns": sweep.compute.length,
        "communication": {
            "kernels": sweep.communication_count.get(KERNEL, 0), "copies": sweep.communication_count.get(COPY, 0),
            "sum_ns": sweep.communication_sum_ns, "busy_ns": sweep.communication.length,
            "overlapped_ns": sweep.overlapped_communication_ns, "exposed_ns": sweep.exposed_communication_ns,
        },
        "busy_ns": sweep.any.length, "idle_ns": window - sweep.any.length,
        "gaps": sweep.gaps, "gap_ns": sweep.gap_ns,
        "largest_gaps": [
            {"ns": gap.ns, "start_ns": gap.start, "before": before, "after": after}
            for gap in sweep.largest_gaps
            for before, after in [_neighbours(summary, gap)]
        ],
    }  # fmt: skip


def _device(device: object) -> Value:
    return device if isinstance(device, int) else None if device is None else str(device)


def _ms(ns: int) -> float:
    return ns / 1e6


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole else None


def _a_second(count: int, window_ns: int) -> str:
    return f" ({count * 1e9 / window_ns:.6g} a second)" if window_ns else ""


def _cut(value: Value) -> Value:
    if isinstance(value, str) and len(value) > LONGEST_NAME:
        return value[: LONGEST_NAME - 1] + "…"
    return value
