"""Descriptions of MLPerf systems, and the logs that need their number of devices.

systems/NAME.json of a submission contains the number of accelerators with which the
logs in results/NAME/ were made.
"""

import dataclasses
from collections.abc import Iterable, Sequence
from pathlib import Path

from rnn_scaling.records.importers import mlperf
from rnn_scaling.records.importers.mlperf import Mlperf
from rnn_scaling.records.importers.reading import (
    ImportedRun,
    LineError,
    LogFormat,
    Problems,
    Reading,
    Terms,
    make_reading,
)
from rnn_scaling.records.options import Options
from rnn_scaling.system.files import input_files
from rnn_scaling.system.files.markdown import Table, Value

COLUMNS = {
    "System": "system_name", "Submitter": "submitter", "Nodes": "number_of_nodes",
    "Accelerators a node": "accelerators_per_node", "Accelerators": "",
    "Accelerator": "accelerator_model_name", "Framework": "framework",
}  # fmt: skip
_KEYS = ('"system_name"', '"number_of_nodes"', '"accelerators_per_node"')


class MlperfSystem(LogFormat):
    """The description of a system."""

    name = "mlperf_system"

    def detect(self, text: str) -> bool:
        """Return whether a text has the keys of a description."""
        return all(key in text for key in _KEYS)

    def read(self, lines: Iterable[str], terms: Terms) -> Reading:
        """Return the one description of a file."""
        try:
            system = input_files.parse_json("".join(lines))
        except input_files.JsonError:
            raise LineError(1, "no whole JSON of a system's description") from None
        devices = (
            mlperf.count_accelerators(system) if isinstance(system, dict) else None
        )
        if devices is None:
            reason = (
                "expected numbers above 0 as number_of_nodes and accelerators_per_node"
            )
            raise LineError(1, reason)
        row: list[Value] = []
        for title, key in COLUMNS.items():
            is_product = title == "Accelerators"
            row.append(devices if is_product else mlperf.short_text(system.get(key)))
        table = Table("MLPerf system", tuple(COLUMNS), (tuple(row),))
        note = "Accelerators = number_of_nodes x accelerators_per_node."
        return make_reading(self.name, Problems(), "", tables=[table], notes=[note])


def add_devices(readings: Sequence[Reading]) -> list[Reading]:
    """Return the readings, with the number of devices of each MLPerf log's system.

    The description of a log is the file at its place in the submission, or else a given
    file with that name. If only one description is given, it is also used for logs
    whose path names no system.
    """
    systems = [reading for reading in readings if reading.format == MlperfSystem.name]
    incomplete = [reading for reading in readings if _lacks_devices(reading)]
    # A description that belongs to one log does not describe the others.
    is_named = any(_find_named(Path(each.source), systems) for each in incomplete)
    only = systems[0] if len(systems) == 1 and not is_named else None
    completed = []
    for reading in readings:
        if _lacks_devices(reading):
            reading = _complete(reading, systems, only)
        completed.append(reading)
    return completed


def _lacks_devices(reading: Reading) -> bool:
    if reading.format != Mlperf.name:
        return False
    return None in reading.tables[0].column("Accelerators")


def _complete(
    reading: Reading, systems: Sequence[Reading], only: Reading | None
) -> Reading:
    """Return a log with the devices of its system, or with a note why not."""
    path = Path(reading.source)
    place = _description_path(path)
    system = _read_description(place) or _find_named(path, systems)
    if system is None and place is None:
        system = only
    if system is not None:
        return _with_system(reading, system)
    if not systems:
        return reading
    text = (
        "its path names none of the given descriptions; one is found by the name of a "
        "folder of the log's"
    )
    if place is not None:
        text = (
            f"no given description describes system {place.stem}, which its folder "
            f"names; {place.name} would be used"
        )
    return dataclasses.replace(reading, notes=(*reading.notes, f"{path}: {text}."))


def _with_system(reading: Reading, system: Reading) -> Reading:
    """Return the runs with the number of devices and the platform of a system."""
    devices = _cell(system, "Accelerators")
    assert isinstance(devices, int)
    table = reading.tables[0]
    platform = None
    if not any(table.column("Platform")):
        platform = mlperf.short_text(_cell(system, "System"))

    missing = {"Accelerators": devices, "Platform": platform}
    rows = []
    for row in table.rows:
        cells = []
        for column, cell in zip(table.columns, row):
            cells.append(missing.get(column) if cell is None else cell)
        rows.append(tuple(cells))
    runs = [_with_options(run, devices, platform) for run in reading.runs]
    notes = [note for note in reading.notes if note != mlperf.NO_DEVICES]
    notes.append(f"{reading.source}: {devices} accelerators, as {system.source} says.")
    return dataclasses.replace(
        reading,
        runs=tuple(runs),
        tables=(dataclasses.replace(table, rows=tuple(rows)),),
        notes=tuple(notes),
    )


def _with_options(run: ImportedRun, devices: int, platform: str | None) -> ImportedRun:
    options = dict(run.options)
    if "num_devices" not in options:
        options |= mlperf.device_options(options, devices)
    if platform:
        options["machine"] = platform
    known = {name: value for name, value in options.items() if value is not None}
    record = dataclasses.replace(run.record, options=Options(known))
    return dataclasses.replace(run, record=record)


def _find_named(path: Path, systems: Sequence[Reading]) -> Reading | None:
    """Return the given description that the path of a log names, or None.

    The name is that of the folder below results/, or of the innermost folder.
    """
    place = _description_path(path)
    folders = [place.stem] if place else [parent.name for parent in path.parents]
    for folder in filter(None, folders):
        for system in systems:
            if folder in (Path(system.source).stem, _cell(system, "System")):
                return system
    return None


def _cell(system: Reading, name: str) -> Value:
    return system.tables[0].column(name)[0]


def _description_path(path: Path) -> Path | None:
    """Return systems/NAME.json for a log in results/NAME/; None for other logs."""
    for log_path in (path, path.absolute()):
        for folder in log_path.parents:
            if folder.parent.name == "results":
                return folder.parent.parent / "systems" / f"{folder.name}.json"
    return None


def _read_description(place: Path | None) -> Reading | None:
    """Return the description at its place, or None if it cannot be read."""
    if place is None or not place.is_file():
        return None
    try:
        text = input_files.read_bytes(place).decode("utf-8-sig")
        reading = MlperfSystem().read([text], Terms())
    except (OSError, ValueError):
        return None
    return dataclasses.replace(reading, source=str(place))
