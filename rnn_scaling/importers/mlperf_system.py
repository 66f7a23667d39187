"""MLPerf's description of a system (systems/NAME.json of a submission): how many accelerators its logs were made on."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from rnn_scaling.audit.scaling_table import ScalingTable
from rnn_scaling.importers import mlperf
from rnn_scaling.importers.common import ImportedLog, LogError, Problems, finish, read_lines
from rnn_scaling.machine import doorway
from rnn_scaling.reports.markdown import Table, Value

FORMAT = "mlperf_system"
MOST_CHARACTERS = 1 << 20  # a description has some 40 lines
COLUMNS = ("System", "Submitter", "Nodes", "Accelerators a node", "Accelerators", "Accelerator", "Framework")
_KEYS = (
    "system_name",
    "submitter",
    "number_of_nodes",
    "accelerators_per_node",
    "",
    "accelerator_model_name",
    "framework",
)
_DETECT = re.compile(r'"accelerators_per_node"\s*:')
NOTES = ("Accelerators = number_of_nodes x accelerators_per_node.",)


def detect(head: str) -> bool:
    """A description's keys."""
    return '"system_name"' in head and '"number_of_nodes"' in head and bool(_DETECT.search(head))


def parse(lines: Iterable[str], source: str) -> ImportedLog:
    """Reads the one description of a file.

    Raises:
      LogError: if it is none, or says nothing of accelerators.
    """
    text, size = [], 0
    for piece in lines:
        size += len(piece)
        if size > MOST_CHARACTERS:
            raise LogError(source, 1, f"expected a system's description of at most {MOST_CHARACTERS} characters")
        text.append(piece)
    try:
        system = doorway.parse_json("".join(text))
    except doorway.JsonError:
        raise LogError(source, 1, "no whole JSON of a system's description") from None
    if not isinstance(system, dict) or mlperf.accelerators(system) is None:
        raise LogError(source, 1, "number_of_nodes and accelerators_per_node are not both there, or no numbers above 0")
    table = Table("MLPerf system", COLUMNS, (_row(system),))
    return finish(FORMAT, source, [table], NOTES, Problems(), "no description of a system")


def _row(system: dict[str, Any]) -> tuple[Value, ...]:
    texts: list[Value] = [str(system[key])[:80] if system.get(key) not in (None, "") else None for key in _KEYS]
    texts[COLUMNS.index("Accelerators")] = mlperf.accelerators(system)
    return tuple(texts)


def join(logs: Sequence[ImportedLog]) -> list[ImportedLog]:
    """The logs, those of MLPerf runs that say no number of devices with that of their system.

    A submission has results/SYSTEM/BENCHMARK/result_0.txt and systems/SYSTEM.json: the description is one of the given
    files, by name or because it is the only one, or the file at that place.
    """
    systems = [log for log in logs if log.format == FORMAT]
    return [_with_system(log, systems) if log.format == mlperf.FORMAT else log for log in logs]


def _with_system(log: ImportedLog, systems: Sequence[ImportedLog]) -> ImportedLog:
    runs = [table for table in log.tables if isinstance(table, Table) and table.title == mlperf.TITLE]
    if not runs or all(number is not None for number in runs[0].column("Accelerators")):
        return log
    places = Path(log.source).parts
    named = [one for one in systems if Path(one.source).stem in places or _cell(one, "System") in places]
    fitting = named or (list(systems) if len(systems) == 1 else _beside(Path(log.source)))
    if not fitting:
        return log
    devices = _cell(fitting[0], "Accelerators")
    if not isinstance(devices, int):
        return log
    return dataclasses.replace(
        log,
        tables=tuple(_filled(table, devices) for table in log.tables),
        notes=(
            *(note for note in log.notes if note != mlperf.NO_DEVICES),
            f"{log.source}: {devices} accelerators, as {fitting[0].source} says.",
        ),
    )


def _filled(table: ScalingTable | Table, devices: int) -> ScalingTable | Table:
    if isinstance(table, ScalingTable):
        rows = tuple(dataclasses.replace(row, devices=row.devices or devices) for row in table.rows)
        return dataclasses.replace(table, rows=rows)
    if table.title != mlperf.TITLE:
        return table
    at = table.columns.index("Accelerators")
    filled = tuple((*row[:at], devices if row[at] is None else row[at], *row[at + 1 :]) for row in table.rows)
    return Table(table.title, table.columns, filled)


def _cell(log: ImportedLog, name: str) -> Value:
    table = log.tables[0]
    return table.column(name)[0] if isinstance(table, Table) else None


def _beside(path: Path) -> list[ImportedLog]:
    """The description at its place in a submission, if it can be read."""
    parents = list(path.parents)
    for system, above in zip(parents, parents[2:]):
        file = above / "systems" / f"{system.name}.json"
        if system.parent.name == "results" and file.is_file():
            try:
                return [parse(read_lines(file), str(file))]
            except (OSError, LogError):
                return []
    return []
