"""Descriptions of MLPerf systems, and the logs that need their number of devices.

systems/NAME.json of a submission contains the number of accelerators with which the
logs in results/NAME/ were made.

`importing` adds the numbers of devices after all files are read.
"""

import contextlib
import dataclasses
from collections.abc import Iterable, Sequence
from pathlib import Path

from rnn_scaling.records.importers import mlperf
from rnn_scaling.records.importers.mlperf import MlperfReading
from rnn_scaling.records.importers.reading import (
    LineError,
    LogFormat,
    Problems,
    Reading,
    Terms,
    make_reading,
)
from rnn_scaling.system.files import input_files
from rnn_scaling.system.files.markdown import Table, Value

_COLUMNS = {
    "System": "system_name", "Submitter": "submitter", "Nodes": "number_of_nodes",
    "Accelerators per node": "accelerators_per_node", "Accelerators": "",
    "Accelerator": "accelerator_model_name", "Framework": "framework",
}  # fmt: skip


class MlperfSystem(LogFormat):
    """The description of a system."""

    name = "mlperf_system"

    needles = ('"system_name"',)
    has_rates = False
    detected = (
        r'(?s)\A(?=.*"system_name")(?=.*"number_of_nodes").*"accelerators_per_node"'
    )

    def read(self, lines: Iterable[str], terms: Terms) -> Reading:
        """Return the one description of a file."""
        try:
            system = input_files.parse_json("".join(lines))
        except input_files.JsonError:
            raise LineError(1, "not a complete JSON description of a system") from None
        devices = (
            mlperf.count_accelerators(system) if isinstance(system, dict) else None
        )
        if devices is None:
            reason = (
                "number_of_nodes and accelerators_per_node must be present and above 0"
            )
            raise LineError(1, reason)
        row: list[Value] = []
        for title, key in _COLUMNS.items():
            is_product = title == "Accelerators"
            row.append(devices if is_product else mlperf.format_cell(system.get(key)))
        table = Table("MLPerf system", tuple(_COLUMNS), (tuple(row),))
        note = "Accelerators = number_of_nodes x accelerators_per_node."
        return make_reading(self.name, Problems(), "", tables=[table], notes=[note])


def add_devices(readings: Sequence[Reading]) -> list[Reading]:
    """Return the readings, with the number of devices of each MLPerf log's system."""
    systems = [reading for reading in readings if reading.format == MlperfSystem.name]
    completed_readings = []
    for reading in readings:
        if isinstance(reading, MlperfReading) and reading.lacks_devices:
            system = _find_system(Path(reading.source), systems)
            if system is not None:
                reading = _add_system(reading, system)
        completed_readings.append(reading)
    return completed_readings


def _find_system(path: Path, systems: Sequence[Reading]) -> Reading | None:
    """Return the description of the system of a log, or None.

    The first of these that exists:

    1. systems/NAME.json of the submission, for a log in results/NAME/.
    2. A given file that has the name of a folder of the log.
    3. The only given file, for a log outside of a submission.
    """
    given = {Path(system.source).stem: system for system in systems}
    folders = path.absolute().parents
    for folder in folders:
        file = folder.parent.parent / "systems" / f"{folder.name}.json"
        if folder.parent.name == "results" and file.is_file():
            with contextlib.suppress(OSError, ValueError):
                text = input_files.read_bytes(file).decode("utf-8-sig")
                reading = MlperfSystem().read([text], Terms())
                return dataclasses.replace(reading, source=str(file))
    for folder in folders:
        if folder.name in given:
            return given[folder.name]
    is_submission = any(folder.name == "results" for folder in folders)
    return systems[0] if len(systems) == 1 and not is_submission else None


def _add_system(reading: MlperfReading, system: Reading) -> MlperfReading:
    """Return the runs with the number of devices and the platform of a system."""
    table = system.tables[0]
    devices = table.list_column("Accelerators")[0]
    runs = []
    for run in reading.logged:
        settings = {
            "submission_platform": table.list_column("System")[0],
            **run.settings,
        }
        if run.devices is None:
            settings |= {"number_of_nodes": 1, "accelerators_per_node": devices}
        runs.append(dataclasses.replace(run, settings=settings))
    described_reading = reading.with_runs(runs)
    note = f"{reading.source}: {devices} accelerators, as {system.source} says."
    return dataclasses.replace(
        described_reading, notes=(*described_reading.notes, note)
    )
