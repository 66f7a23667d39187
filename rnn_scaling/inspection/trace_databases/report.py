"""A summary of a trace database as Markdown tables."""

from collections import Counter
from collections.abc import Mapping, Sequence

from rnn_scaling.inspection.trace_databases.layouts import KERNEL
from rnn_scaling.inspection.trace_databases.summary import Row
from rnn_scaling.system.files.markdown import Value, markdown_table, shown

LONGEST_NAME = 100  # of a name in Markdown; templates have thousands of characters
LEGEND = """\
Busy is the time in which at least one is running; sums count each by itself, so concurrent ones count twice.
Overlap: a copy and a kernel run at once. Exposed copy: a copy runs and no kernel does. Idle: nothing runs.
Communication is overlapped while a kernel of the same device computes, and exposed while none does.
docs/trace-db.md has more.
"""
# The columns of each table, and the keys of their values in its rows; in ns for "(ms" and "(us".
_DEVICES = {
    "Device": "device", "Model": "model", "Kernels": "kernels", "Kernels/s": "kernels_per_s",
    "Kernel sum (ms)": "kernel_sum_ns", "Kernel busy (ms)": "kernel_busy_ns", "Copy busy (ms)": "copy_busy_ns",
    "Overlap (ms)": "overlap_ns", "Exposed copy (ms)": "exposed_copy_ns", "Busy (ms)": "busy_ns",
    "Busy (%)": "busy_percent", "Idle (ms)": "idle_ns", "Gaps": "gaps", "In gaps (ms)": "gap_ns",
}  # fmt: skip
_COMMUNICATION = {
    "Device": "device", "Kernels": "kernels", "Copies between devices": "copies", "Sum (ms)": "sum_ns",
    "Busy (ms)": "busy_ns", "Overlapped (ms)": "overlapped_ns", "Exposed (ms)": "exposed_ns",
    "Exposed (% of the time)": "exposed_percent", "Computing kernels busy (ms)": "compute_busy_ns",
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


def markdown(found: Row, top: int) -> str:
    """The summary as tables; `top` limits the rows of those that list names or gaps."""
    (first_ns, last_ns), (start_ns, end_ns) = found["span_ns"], found["window_ns"]
    window_ns = end_ns - start_ns
    versions = "".join(
        f"; {shown(_cut(name))} {shown(_cut(value))}"
        for name, value in found["versions"].items()
    )
    idle = not any(device["count"] for device in found["devices"])
    lines = [
        f"# {shown(found['source'])}\n",
        f"- Written by: {found['tool']}{versions}",
        f"- Trace: {(last_ns - first_ns) / 1e9:.6f} s, {first_ns} ns to {last_ns} ns",
        f"- Looked at: {(start_ns - first_ns) / 1e9:.6f} s to {(end_ns - first_ns) / 1e9:.6f} s"
        f" after the trace's first event ({window_ns / 1e9:.6f} s)",
        *(["- Note: no kernel, copy or memset in this time"] if idle else []),
        *(f"- Note: {note}" for note in found["notes"]),
        *(
            f"- Could not be used: {shown(_cut(problem))}"
            for problem in found["problems"]
        ),
    ]
    devices = [_rates(device, window_ns) for device in found["devices"]]
    communicating = [
        device | device["communication"]
        for device in devices
        if device["communication"]["kernels"] + device["communication"]["copies"]
    ]
    gaps = [
        {"device": device["device"], "after_ns": gap["start_ns"] - first_ns, **gap}
        for device in devices
        for gap in device["largest_gaps"]
    ]
    tables = [{"table": table, "rows": rows} for table, rows in found["tables"].items()]
    sections = [
        _section("Devices", _DEVICES, devices),
        _section(
            "Communication (nccl* and its like, copies between devices)",
            _COMMUNICATION,
            communicating,
        ),
        _section(
            "Kernels by time",
            {"Device": "device", **_NAMES, "Kernel": "name"},
            _shares(found["kernels"]),
            top,
        ),
        _section("Copies by time", _COPIES, found["copies"], top),
        _section("Largest gaps", _GAPS, sorted(gaps, key=lambda gap: -gap["ns"]), top),
        _section("Tables", {"Table": "table", "Rows": "rows"}, tables),
    ]
    return "\n".join(["\n".join(lines) + "\n", *filter(None, sections), LEGEND])


def _rates(device: Row, window_ns: int) -> Row:
    """A device with its rates and shares of the time that was looked at."""
    kernels = device["count"][KERNEL]
    return device | {
        "kernels": kernels,
        "kernels_per_s": _ratio(kernels * 1e9, window_ns),
        "kernel_sum_ns": device["sum_ns"][KERNEL],
        "busy_percent": _ratio(device["busy_ns"] * 100, window_ns),
        "exposed_percent": _ratio(
            device["communication"]["exposed_ns"] * 100, window_ns
        ),
    }


def _shares(rows: Sequence[Row]) -> list[Row]:
    """Totals by name with their share of the sum of their device."""
    sums: Counter[object] = Counter()
    for row in rows:
        sums[row["device"]] += row["ns"]
    return [
        row
        | {
            "mean_ns": row["ns"] / row["calls"],
            "share": _ratio(row["ns"] * 100, sums[row["device"]]),
        }
        for row in rows
    ]


def _section(
    title: str,
    columns: Mapping[str, str],
    rows: Sequence[Row],
    limit: int | None = None,
) -> str:
    """A table under its title; nothing without rows."""
    if not rows:
        return ""
    cells = [
        [_cell(header, row[key]) for header, key in columns.items()]
        for row in rows[:limit]
    ]
    left = len(rows) - len(cells)
    more = f"\n{left} more; --top={len(rows)} shows them\n" if left else ""
    return f"## {title}\n\n{markdown_table([*columns], cells)}{more}"


def _cell(header: str, value: object) -> Value:
    if value is None or isinstance(value, int | float):
        factor = 1e6 if "(ms" in header else 1e3 if "(us" in header else 0
        return value / factor if factor and value is not None else value
    return _cut(str(value)) or None


def _ratio(part: float, total: float) -> float | None:
    return part / total if total else None


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST_NAME else text[: LONGEST_NAME - 1] + "…"
