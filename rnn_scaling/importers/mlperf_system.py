"""MLPerf's description of a system (systems/NAME.json of a submission): how many accelerators its logs were made on."""

import dataclasses
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from rnn_scaling.importers import mlperf
from rnn_scaling.importers.common import (
    ImportedLog,
    LogError,
    Problems,
    finish,
    read_lines,
)
from rnn_scaling.system.files import input_files
from rnn_scaling.system.files.markdown import Table, Value

FORMAT = "mlperf_system"
COLUMNS = (
    "System",
    "Submitter",
    "Nodes",
    "Accelerators a node",
    "Accelerators",
    "Accelerator",
    "Framework",
)
_KEYS = (
    "system_name", "submitter", "number_of_nodes", "accelerators_per_node", "", "accelerator_model_name", "framework",
)  # fmt: skip
_DETECT = re.compile(r'"accelerators_per_node"\s*:')
NOTES = ("Accelerators = number_of_nodes x accelerators_per_node.",)


def detect(head: str) -> bool:
    return (
        '"system_name"' in head
        and '"number_of_nodes"' in head
        and bool(_DETECT.search(head))
    )


def parse(lines: Iterable[str], source: str) -> ImportedLog:
    """Reads the one description of a file. Raises LogError if it is none, or says nothing of accelerators."""
    try:
        system = input_files.parse_json("".join(lines))
    except input_files.JsonError:
        raise LogError(source, 1, "no whole JSON of a system's description") from None
    if not isinstance(system, dict) or mlperf.accelerators(system) is None:
        raise LogError(
            source,
            1,
            "number_of_nodes and accelerators_per_node are not both there, or no numbers above 0",
        )
    cells: list[Value] = [
        str(system[key])[:80] if system.get(key) not in (None, "") else None
        for key in _KEYS
    ]
    cells[COLUMNS.index("Accelerators")] = mlperf.accelerators(system)
    table = Table("MLPerf system", COLUMNS, (tuple(cells),))
    return finish(
        FORMAT, source, (), [table], NOTES, Problems(), "no description of a system"
    )


def join(logs: Sequence[ImportedLog]) -> list[ImportedLog]:
    """The logs, those of MLPerf runs that say no number of devices with that of their system.

    A submission has results/SYSTEM/BENCHMARK/result_0.txt and systems/SYSTEM.json. A log's description is the file at
    that place, else a given one of that name; an only given one of another name serves logs whose path names no system.
    """
    systems = [log for log in logs if log.format == FORMAT]
    runs = [
        log
        for log in logs
        if log.format == mlperf.FORMAT and _lacks(log, "Accelerators", any)
    ]
    # What one log's path names is that log's system, and no other's.
    only = (
        systems
        if len(systems) == 1
        and not any(_named(Path(log.source), systems) for log in runs)
        else []
    )
    lacking = {id(log) for log in runs}
    return [
        _with_system(log, systems, only) if id(log) in lacking else log for log in logs
    ]


def _lacks(
    log: ImportedLog, column: str, which: Callable[[Iterable[bool]], bool]
) -> bool:
    """Whether any, or all, of a log's runs say nothing in a column."""
    return which(cell is None for cell in log.tables[0].column(column))


def _with_system(
    log: ImportedLog, systems: Sequence[ImportedLog], only: Sequence[ImportedLog]
) -> ImportedLog:
    path = Path(log.source)
    place = _place(path)
    fitting = _beside(place) or _named(path, systems) or ([] if place else list(only))
    devices = _cell(fitting[0], "Accelerators") if fitting else None
    if isinstance(devices, int):
        system = (
            str(_cell(fitting[0], "System") or "")
            if _lacks(log, "Platform", all)
            else ""
        )
        named = [
            (row, ", ".join(filter(None, (row.series, system)))) for row in log.rows
        ]
        rows = [
            dataclasses.replace(row, devices=row.devices or devices, series=series)
            for row, series in named
        ]
        notes = [note for note in log.notes if note != mlperf.NO_DEVICES]
        notes.append(
            f"{log.source}: {devices} accelerators, as {fitting[0].source} says."
        )
        tables = tuple(_filled(table, devices, system) for table in log.tables)
        return dataclasses.replace(
            log, rows=tuple(rows), tables=tables, notes=tuple(notes)
        )
    if not systems:
        return log
    if place:
        text = f"no given description describes system {place.stem}, which its folder names; {place.name} would be used"
    else:
        text = "its path names none of the given descriptions; one is found by the name of a folder of the log's"
    return dataclasses.replace(log, notes=(*log.notes, f"{log.source}: {text}."))


def _named(path: Path, systems: Sequence[ImportedLog]) -> list[ImportedLog]:
    """The given description that a log's path names: by its folder below results/, else by the innermost folder."""
    place = _place(path)
    for folder in [place.stem] if place else [above.name for above in path.parents]:
        for system in systems:
            if folder and folder in (Path(system.source).stem, _cell(system, "System")):
                return [system]
    return []


def _filled(table: Table, devices: int, system: str) -> Table:
    """A table of runs with their number of devices, and the system's name where it is given for want of a platform."""
    values = {
        table.columns.index("Accelerators"): devices,
        table.columns.index("Platform"): system or None,
    }
    filled = tuple(
        tuple(values.get(i) if cell is None else cell for i, cell in enumerate(row))
        for row in table.rows
    )
    return Table(table.title, table.columns, filled)


def _cell(log: ImportedLog, name: str) -> Value:
    return log.tables[0].column(name)[0]


def _place(path: Path) -> Path | None:
    """Where the description of a log in results/SYSTEM/... has its place in a submission; None for other paths."""
    for log_path in (path, path.absolute()):
        for folder in log_path.parents:
            if folder.parent.name == "results":
                return folder.parent.parent / "systems" / f"{folder.name}.json"
    return None


def _beside(place: Path | None) -> list[ImportedLog]:
    """The description at its place, if there is one that can be read."""
    if place is None or not place.is_file():
        return []
    try:
        return [parse(read_lines(place), str(place))]
    except (OSError, LogError):
        return []
