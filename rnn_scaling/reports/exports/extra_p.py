"""Seconds per step over devices in Extra-P's text format, which models their growth.

A file has the series that were measured on the same numbers of devices, because
Extra-P expects a value at each point. Source: Extra-P 4.2, "File formats".

`registry.EXPORTS` names this module; `exported` describes its interface.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean

from rnn_scaling.analysis.grouping import group_by
from rnn_scaling.analysis.metrics import list_step_times
from rnn_scaling.reports.exports.exported import Exported, ExportedRun
from rnn_scaling.system.files.output_files import write_text
from rnn_scaling.system.files.terminal import format_count

_METRIC = "seconds_per_step"

# Number of devices -> seconds per step of each run.
Times = Mapping[int, Sequence[float]]


def write(exported: Exported, destination: str) -> str:
    """Write one file per set of device counts to a folder; return a line about them.

    Disturbed runs and batches that do not count are left out, and so are logs, whose
    lines may cover several steps.
    """
    folder = Path(destination)
    all_times = _list_times_of_series(exported.runs)
    devices = [tuple(sorted(times)) for times in all_times.values()]
    files = group_by(all_times.items(), devices)
    for points, series in files.items():
        name = "devices-" + "-".join(map(str, points))
        write_text(_format_file(points, dict(series)), folder / f"{name}.txt")
    return f"{folder}: {format_count(len(files), 'file')} with {len(all_times)} series"


def _list_times_of_series(runs: Sequence[ExportedRun]) -> dict[str, Times]:
    all_times: dict[str, dict[int, list[float]]] = {}
    for run in runs:
        step_s = list_step_times(run.record, run.all_batches)
        if not run.counts or not step_s:
            continue
        times = all_times.setdefault(f"{run.row.machine}: {run.row.series}", {})
        times.setdefault(run.row.row.num_devices, []).append(fmean(step_s))
    return dict(all_times)


def _format_file(points: Sequence[int], series: Mapping[str, Times]) -> str:
    lines = ["PARAMETER devices", f"POINTS {' '.join(map(str, points))}", ""]
    for name, times in series.items():
        # Extra-P splits the names of regions at "->".
        lines.append(f"REGION {name}".replace("->", "to"))
        lines.append(f"METRIC {_METRIC}")
        for num_devices in points:
            lines.append(f"DATA {' '.join(map(repr, times[num_devices]))}")
        lines.append("")
    return "\n".join(lines)
