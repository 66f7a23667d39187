"""Write the summary of a trace database as Markdown tables.

`inspect` prints the result of `format_markdown`. The column titles are words; the keys
are those of `summary`.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

from rnn_scaling.inspection.trace_databases.layouts import KERNEL
from rnn_scaling.inspection.trace_databases.summary import Row
from rnn_scaling.system.files.markdown import Value, format_cell, format_table

_MAX_NAME_LENGTH = 100  # characters in Markdown; C++ templates may have thousands
_LEGEND = """\
Busy is the time in which at least one is running; sums count each by itself, so concurrent ones count twice.
Overlap: a copy and a kernel run at once. Exposed copy: a copy runs and no kernel does. Idle: nothing runs.
Communication is overlapped while a kernel of the same device computes, and exposed while none does.
docs/inspect.md has more.
"""
# Each table maps columns to keys of its rows. Values are in ns for "(ms" and "(us".
_DEVICES = {
    "Device": "device", "Model": "model", "Kernels": "kernels", "Kernels/s": "kernels_per_s",
    "Kernel sum "
    "(ms)": "kernel_sum_ns", "Kernel busy (ms)": "kernel_busy_ns", "Copy busy (ms)": "copy_busy_ns",
    "Overlap "
    "(ms)": "overlap_ns", "Exposed copy (ms)": "exposed_copy_ns", "Busy (ms)": "busy_ns",
    "Busy "
    "(%)": "busy_percent", "Idle (ms)": "idle_ns", "Gaps": "gaps", "In gaps (ms)": "gap_ns",
}  # fmt: skip
_COMMUNICATION = {
    "Device": "device", "Kernels": "kernels", "Copies between devices": "copies", "Sum (ms)": "sum_ns",
    "Busy "
    "(ms)": "busy_ns", "Overlapped (ms)": "overlapped_ns", "Exposed (ms)": "exposed_ns",
    "Exposed (% of the "
    "time)": "exposed_percent", "Computing kernels busy (ms)": "compute_busy_ns",
}  # fmt: skip
_NAMES = {
    "Calls": "calls", "Total (ms)": "ns", "Mean (us)": "mean_ns", "Longest (us)": "longest_ns", "Share (%)": "share",
}  # fmt: skip
_COPIES = {
    "Device": "device", "Kind": "kind", "From": "source", "To": "target", "Calls": "calls", "Bytes": "bytes",
    "Time (ms)": "ns", "GB/s": "gb_per_s",
}  # fmt: skip
_GAPS = {
    "Device": "device", "Idle (ms)": "ns", "At (ms after the first event)": "after_ns", "Before": "before",
    "After": "after",
}  # fmt: skip


def format_markdown(summary: Row, top: int) -> str:
    """Return the summary as tables.

    Args:
      summary: The result of `summarize`.
      top: Maximum number of rows of tables that list names or gaps.
    """
    first_ns, _ = summary["span_ns"]
    start_ns, end_ns = summary["window_ns"]
    window_ns = end_ns - start_ns
    devices = [_add_rates(device, window_ns) for device in summary["devices"]]
    communicating = []
    gaps = []
    for device in devices:
        communication = device["communication"]
        if communication["kernels"] + communication["copies"]:
            communicating.append(device | communication)
        for gap in device["largest_gaps"]:
            after_ns = gap["start_ns"] - first_ns
            gaps.append({"device": device["device"], "after_ns": after_ns, **gap})
    tables = [
        {"table": table, "rows": rows} for table, rows in summary["tables"].items()
    ]
    sections = [
        _format_section("Devices", _DEVICES, devices),
        _format_section(
            "Communication (nccl* and its like, copies between devices)",
            _COMMUNICATION,
            communicating,
        ),
        _format_section(
            "Kernels by time",
            {"Device": "device", **_NAMES, "Kernel": "name"},
            _add_shares(summary["kernels"]),
            top,
        ),
        _format_section("Copies by time", _COPIES, summary["copies"], top),
        _format_section(
            "Largest gaps", _GAPS, sorted(gaps, key=lambda gap: -gap["ns"]), top
        ),
        _format_section("Tables", {"Table": "table", "Rows": "rows"}, tables),
    ]
    header = "\n".join(_format_header(summary)) + "\n"
    return "\n".join([header, *filter(None, sections), _LEGEND])


def _format_header(summary: Row) -> list[str]:
    """Return the title, the examined time, notes and problems."""
    first_ns, last_ns = summary["span_ns"]
    start_ns, end_ns = summary["window_ns"]
    window_ns = end_ns - start_ns
    writer = summary["tool"]
    for name, version in summary["versions"].items():
        writer += f"; {format_cell(_cut(name))} {format_cell(_cut(version))}"
    lines = [
        f"# {format_cell(summary['source'])}\n",
        f"- Written by: {writer}",
        f"- Trace: {(last_ns - first_ns) / 1e9:.6f} s, {first_ns} ns to {last_ns} ns",
        f"- Looked at: {(start_ns - first_ns) / 1e9:.6f} s to "
        f"{(end_ns - first_ns) / 1e9:.6f} s after the trace's first event "
        f"({window_ns / 1e9:.6f} s)",
    ]
    if not any(device["count"] for device in summary["devices"]):
        lines.append("- Note: no kernel, copy or memset in this time")
    lines += [f"- Note: {note}" for note in summary["notes"]]
    for problem in summary["problems"]:
        lines.append(f"- Could not be used: {format_cell(_cut(problem))}")
    return lines


def _add_rates(device: Row, window_ns: int) -> Row:
    """Return a device with its rates and shares of the examined time."""
    kernels = device["count"][KERNEL]
    return device | {
        "kernels": kernels,
        "kernels_per_s": _divide_or_none(kernels * 1e9, window_ns),
        "kernel_sum_ns": device["sum_ns"][KERNEL],
        "busy_percent": _divide_or_none(device["busy_ns"] * 100, window_ns),
        "exposed_percent": _divide_or_none(
            device["communication"]["exposed_ns"] * 100, window_ns
        ),
    }


def _add_shares(rows: Sequence[Row]) -> list[Row]:
    """Return totals by name with their mean and their share of the device's sum."""
    sums: Counter[object] = Counter()
    for row in rows:
        sums[row["device"]] += row["ns"]
    with_shares = []
    for row in rows:
        share = _divide_or_none(row["ns"] * 100, sums[row["device"]])
        mean_ns = row["ns"] / row["calls"]
        with_shares.append(row | {"mean_ns": mean_ns, "share": share})
    return with_shares


def _format_section(
    title: str,
    columns: Mapping[str, str],
    rows: Sequence[Row],
    limit: int | None = None,
) -> str:
    """Return a table under its title, or "" without rows."""
    if not rows:
        return ""
    cells = []
    for row in rows[:limit]:
        cells.append(
            [_convert_cell(header, row[key]) for header, key in columns.items()]
        )
    text = f"## {title}\n\n{format_table([*columns], cells)}"
    num_hidden = len(rows) - len(cells)
    if num_hidden:
        text += f"\n{num_hidden} more; --top={len(rows)} shows them\n"
    return text


def _convert_cell(header: str, value: object) -> Value:
    if value is None:
        return None
    if not isinstance(value, int | float):
        return _cut(str(value)) or None
    if "(ms" in header:
        return value / 1e6
    if "(us" in header:
        return value / 1e3
    return value


def _divide_or_none(numerator: float, denominator: float) -> float | None:
    return numerator / denominator if denominator else None


def _cut(text: str) -> str:
    return text if len(text) <= _MAX_NAME_LENGTH else text[: _MAX_NAME_LENGTH - 1] + "…"
