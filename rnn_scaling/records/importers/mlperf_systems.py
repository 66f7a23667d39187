"""Descriptions of MLPerf systems, and the logs that need their number of devices.

systems/NAME.json of a submission contains the number of accelerators with which the
logs in results/NAME/ were made.
"""

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
    "Accelerators a node": "accelerators_per_node", "Accelerators": "",
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
            row.append(devices if is_product else mlperf.short_text(system.get(key)))
        table = Table("MLPerf system", tuple(_COLUMNS), (tuple(row),))
        note = "Accelerators = number_of_nodes x accelerators_per_node."
        return make_reading(self.name, Problems(), "", tables=[table], notes=[note])


def add_devices(readings: Sequence[Reading]) -> list[Reading]:
    """Return the readings, with the number of devices of each MLPerf log's system.

    The description of a log is the file at its path in the submission, or else a given
    file with that name. If only one description is given, it is also used for logs whose
    path does not name a system.
    """
    systems = [reading for reading in readings if reading.format == MlperfSystem.name]
    systems_by_source = {}
    for reading in readings:
        if isinstance(reading, MlperfReading) and reading.lacks_devices:
            systems_by_source[reading.source] = _find_by_name(
                Path(reading.source), systems
            )
    # A description that belongs to one log does not describe the others.
    only_system = (
        systems[0]
        if len(systems) == 1 and not any(systems_by_source.values())
        else None
    )
    completed_readings = []
    for reading in readings:
        if isinstance(reading, MlperfReading) and reading.source in systems_by_source:
            path = Path(reading.source)
            expected = _find_description(path)
            system = _read_description(expected) or systems_by_source[reading.source]
            if system is None and expected is None:
                system = only_system
            if system is not None:
                reading = _add_system(reading, system)
            elif systems:
                note = f"{path}: {_explain_missing(expected)}."
                reading = dataclasses.replace(reading, notes=(*reading.notes, note))
        completed_readings.append(reading)
    return completed_readings


def _explain_missing(expected: Path | None) -> str:
    """Return why none of the given descriptions is used."""
    if expected is None:
        return (
            "its path names none of the given descriptions; expected a folder in the "
            "path that is named like one"
        )
    return (
        f"no given description describes system {expected.stem}, which its folder "
        f"names; {expected.name} would be used"
    )


def _add_system(reading: MlperfReading, system: Reading) -> MlperfReading:
    """Return the runs with the number of devices and the platform of a system."""
    devices = _system_value(system, "Accelerators")
    has_platform = any(reading.tables[0].column("Platform"))
    runs = []
    for run in reading.logged:
        settings = dict(run.settings)
        if run.devices is None:
            settings |= {"number_of_nodes": 1, "accelerators_per_node": devices}
        if not has_platform:
            settings["submission_platform"] = _system_value(system, "System")
        runs.append(dataclasses.replace(run, settings=settings))
    described_reading = reading.with_runs(runs)
    note = f"{reading.source}: {devices} accelerators, as {system.source} says."
    return dataclasses.replace(
        described_reading, notes=(*described_reading.notes, note)
    )


def _find_by_name(path: Path, systems: Sequence[Reading]) -> Reading | None:
    """Return the given description that the path of a log names, or None.

    A description is found by the folder below results/, or by the innermost folder.
    """
    expected = _find_description(path)
    folders = [expected.stem] if expected else [parent.name for parent in path.parents]
    for folder in filter(None, folders):
        for system in systems:
            if folder in (Path(system.source).stem, _system_value(system, "System")):
                return system
    return None


def _system_value(system: Reading, name: str) -> Value:
    return system.tables[0].column(name)[0]


def _find_description(path: Path) -> Path | None:
    """Return systems/NAME.json for a log in results/NAME/; None for other logs."""
    for log_path in (path, path.absolute()):
        for folder in log_path.parents:
            if folder.parent.name == "results":
                return folder.parent.parent / "systems" / f"{folder.name}.json"
    return None


def _read_description(expected: Path | None) -> Reading | None:
    """Return the description at the expected path, or None if it cannot be read."""
    if expected is None or not expected.is_file():
        return None
    try:
        text = input_files.read_bytes(expected).decode("utf-8-sig")
        reading = MlperfSystem().read([text], Terms())
    except (OSError, ValueError):
        return None
    return dataclasses.replace(reading, source=str(expected))
