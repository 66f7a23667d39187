"""Collect what every export writes: the good runs of a folder, and their rows.

An export is a module of this package and a row of `registry.EXPORTS`. It has
`write(exported, destination)`, which returns one line about what it wrote.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rnn_scaling.analysis.confidence import Interval
from rnn_scaling.analysis.disturbance import has_disturbed_run
from rnn_scaling.analysis.folder_rows import Rows, find_identifying_options
from rnn_scaling.analysis.metrics import METRICS
from rnn_scaling.analysis.rows import Row
from rnn_scaling.records.folder import Folder
from rnn_scaling.records.record import RunRecord
from rnn_scaling.system.files.terminal import format_count


@dataclasses.dataclass(frozen=True, eq=False)
class ExportedRow:
    """One configuration on one machine.

    Attributes:
      metrics: Name -> number with its interval, in the units of `analysis.metrics`;
        unknown metrics are left out.
    """

    series: str
    machine: str
    row: Row
    metrics: Mapping[str, Interval]

    @property
    def labels(self) -> dict[str, Any]:
        """The machine, the series, the number of devices and the unit."""
        return {
            "machine": self.machine,
            "series": self.series,
            "num_devices": self.row.num_devices,
            "unit": self.row.unit,
        }

    @property
    def title(self) -> str:
        """The series and its number of devices; unique on one machine."""
        return f"{self.series}, {format_count(self.row.num_devices, 'device')}"


@dataclasses.dataclass(frozen=True)
class ExportedRun:
    """One good run.

    Attributes:
      name: The file of the run without ".json".
      counts: Whether it is a part of the row's numbers; False if it was disturbed.
      all_batches: Whether its disturbed batches count, as in the row's numbers.
      options: The options that identify its configuration.
      metrics: Name -> value of this run; unknown metrics are left out.
    """

    name: str
    row: ExportedRow
    record: RunRecord
    counts: bool
    all_batches: bool
    options: Mapping[str, Any]
    metrics: Mapping[str, float]

    @property
    def labels(self) -> dict[str, Any]:
        """The labels of its row, its commit, and whether it counts."""
        return {**self.row.labels, "commit": self.commit, "counts": self.counts}

    @property
    def commit(self) -> str:
        """The hash of the measured commit; "" if it is unknown."""
        environment = self.record.environment
        commit = environment.program_commit or environment.commit
        return commit.hash if commit else ""


@dataclasses.dataclass(frozen=True)
class Exported:
    """The rows of a folder, and their runs in the order of their start."""

    folder: Path
    rows: tuple[ExportedRow, ...]
    runs: tuple[ExportedRun, ...]


def collect(folder: Path, files: Folder, rows: Rows) -> Exported:
    """Return what exports write.

    Args:
      folder: The folder of run records.
      files: The records of the folder with their names.
      rows: The same records as rows. Failed runs are left out, and so are rows without
        a good run.
    """
    names = {id(file.record): Path(file.name).stem for file in files.runs}
    option_names = find_identifying_options(rows.rows)
    exported_rows = []
    runs = []
    for machine, title, row in zip(rows.machines, rows.titles(), rows.rows):
        if not row.good_runs:
            continue
        exported_row = ExportedRow(title, machine, row, _list_measured_metrics(row))
        exported_rows.append(exported_row)
        # The rates of the runs are measured, so they have the row's measured rate as
        # their mean.
        all_batches = row.counts_all_batches or has_disturbed_run(row.counted_runs)
        disturbed_ids = {id(run) for run in row.disturbed_runs}
        for record in row.good_runs:
            single_run_row = dataclasses.replace(
                row, records=(record,), counts_all_batches=all_batches
            )
            values = _list_measured_metrics(single_run_row)
            runs.append(
                ExportedRun(
                    name=names[id(record)],
                    row=exported_row,
                    record=record,
                    counts=id(record) not in disturbed_ids,
                    all_batches=all_batches,
                    options={name: row.reported(name) for name in option_names},
                    metrics={name: number.value for name, number in values.items()},
                )
            )
    runs.sort(key=lambda run: (run.record.environment.started or "", run.name))
    return Exported(folder, tuple(exported_rows), tuple(runs))


def _list_measured_metrics(row: Row) -> dict[str, Interval]:
    metrics = {}
    for metric in METRICS.values():
        number = row.shown_metric(metric)
        if number is not None:
            metrics[metric.name] = number
    return metrics


def list_batch_values(run: ExportedRun) -> Sequence[Mapping[str, float]]:
    """Return the numbers of each batch: seconds, items and, if it is finite, the loss.

    The lines of a log may cover several batches, so their numbers have other names.
    """
    batches = run.record.batches
    noun = "line" if run.record.log_format else "batch"
    values = []
    for index, (seconds, items) in enumerate(zip(batches.seconds, batches.items)):
        batch = {f"{noun}_seconds": seconds, f"{noun}_items": float(items)}
        loss = batches.loss[index] if index < len(batches.loss) else None
        if loss is not None:
            batch[f"{noun}_loss"] = loss
        values.append(batch)
    return values
