"""Rows as a text file for Prometheus's node exporter (textfile collector).

Each metric is a gauge with the labels of its row; `_low` and `_high` are the ends of
the 95 % interval. Source: Prometheus, "Exposition formats", text format 0.0.4.

`registry.EXPORTS` names this module; `exported` describes its interface.
"""

from pathlib import Path
from typing import Any

from rnn_scaling.analysis.confidence import Interval
from rnn_scaling.analysis.metrics import METRICS
from rnn_scaling.reports.exports.exported import Exported, ExportedRow
from rnn_scaling.system.files.output_files import write_text
from rnn_scaling.system.files.terminal import format_count

_PREFIX = "rnn_scaling"
# Suffix of a gauge -> what its HELP line adds to the title of the metric.
_MEANINGS = {"": "", "_low": ", lower end", "_high": ", upper end"}
# Prometheus names have base units in full words: end of a name -> (its end, factor).
_BASE_UNITS = {
    "_s": ("_seconds", 1.0),
    "_j": ("_joules", 1.0),
    "_gib": ("_bytes", float(2**30)),
}


def write(exported: Exported, destination: str) -> str:
    """Write a file; return a line about it."""
    path = Path(destination)
    write_text(format_metrics(exported), path)
    return f"{path}: {format_count(len(exported.rows), 'row')}"


def format_metrics(exported: Exported) -> str:
    """Return the content of the file, with all lines of one gauge together."""
    lines = []
    for name, metric in METRICS.items():
        base_name, factor = _convert_to_base_unit(name)
        for suffix, samples in _list_samples(exported, name, factor).items():
            if samples:
                gauge = f"{_PREFIX}_{base_name}{suffix}"
                lines.append(f"# HELP {gauge} {metric.title}{_MEANINGS[suffix]}")
                lines.append(f"# TYPE {gauge} gauge")
                lines += [gauge + sample for sample in samples]
    return "".join(f"{line}\n" for line in lines)


def _list_samples(exported: Exported, name: str, factor: float) -> dict[str, list[str]]:
    """Return labels and value of each row, by the suffix of the gauge."""
    samples: dict[str, list[str]] = {suffix: [] for suffix in _MEANINGS}
    for row in exported.rows:
        number = row.metrics.get(name)
        if number is None:
            continue
        labels = _format_labels(row, number)
        for suffix, value in zip(_MEANINGS, (number.value, number.low, number.high)):
            if value is not None:
                samples[suffix].append(f"{{{labels}}} {factor * value!r}")
    return samples


def _convert_to_base_unit(name: str) -> tuple[str, float]:
    """Return the name of a metric in its base unit, and the factor of its values."""
    for end, (base_end, factor) in _BASE_UNITS.items():
        if name.endswith(end):
            return name.removesuffix(end) + base_end, factor
    return name, 1.0


def _format_labels(row: ExportedRow, number: Interval) -> str:
    """Return the labels of a number; one corrected for load has a further label."""
    labels = row.labels
    if number.is_corrected:
        labels["corrected"] = "true"
    return ",".join(
        f'{name}="{_escape_label(value)}"' for name, value in labels.items()
    )


def _escape_label(value: Any) -> str:
    return str(value).replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
