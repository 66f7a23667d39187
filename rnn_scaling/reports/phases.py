"""Traced runs -> where each tower's step goes, and every run's seconds by phase and rank: tables, JSON, a picture."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from rnn_scaling.analysis.comparison import differences
from rnn_scaling.analysis.machines import group_by_machine
from rnn_scaling.analysis.rows import Row, build_rows
from rnn_scaling.analysis.series_titles import group_by_series, titles
from rnn_scaling.analysis.statements import Statement
from rnn_scaling.analysis.steps import parts as step_parts
from rnn_scaling.analysis.steps.parts import StepParts
from rnn_scaling.config import scale
from rnn_scaling.config.naming import network
from rnn_scaling.records import folder
from rnn_scaling.records.record import RunRecord
from rnn_scaling.reports import cluster, environment, start_up, steps
from rnn_scaling.reports.differences import describe, value_text
from rnn_scaling.reports.sections import Section, markdown
from rnn_scaling.reports.wording import join_names
from rnn_scaling.system import entry
from rnn_scaling.system.files import input_files
from rnn_scaling.system.files.output_files import RECORD_IN_LOG_DIR

SCHEMA = "rnn_scaling.phases/1"


@dataclasses.dataclass(frozen=True, eq=False)
class TracedRun:
    """One run; `parts`: None of a run of several processes that was not traced."""

    path: Path
    record: RunRecord
    parts: StepParts | None

    @property
    def title(self) -> str:
        config = self.record.options
        places = scale.in_words(scale.num_workers(config), config["num_devices"])
        words = (
            network(config),
            config["variable_update"],
            places,
        )  # the mode of another trainer is not known
        return f"{', '.join(word for word in words if word)} ({self.path})"


def read(paths: Sequence[Path]) -> tuple[list[TracedRun], list[str]]:
    """The traced runs at these paths and those with ranks, and a line for everything that could not be used."""
    runs: list[TracedRun] = []
    problems: list[str] = []
    for path in paths:
        in_log_dir = path / RECORD_IN_LOG_DIR
        file = in_log_dir if in_log_dir.is_file() else path
        place, is_folder = (file, True) if file.is_dir() else (file.parent, False)
        try:
            files = (
                folder.read(place)
                if is_folder
                else folder.read_files({file.name: file})
            )
            elsewhere = folder.elsewhere(place) if is_folder and not files.runs else ""
        except OSError as e:
            problems.append(f"{path}: {e.strerror or e}")
            continue
        shown = [
            run
            for found in files.runs
            if (run := _run(place / found.name, found.record))
        ]
        runs += shown
        problems += files.not_used
        if files.runs and not shown:
            statuses = join_names(sorted({found.record.status for found in files.runs}))
            remedy = f"make one with {entry.program()} train --trace_batches=5 --result_file=FILE"
            problems.append(f"{file}: no traced run (status {statuses}); {remedy}")
        elif not files.runs and not files.not_used:
            problems.append(
                f"{file}: {files.nothing if is_folder else 'no run record'}{elsewhere}"
            )
    return runs, problems


def _run(path: Path, found: RunRecord) -> TracedRun | None:
    """The run, if it was traced or has ranks to show."""
    parts = step_parts.split_steps([found])
    has_ranks = found.workers is not None and bool(found.workers.ranks)
    return TracedRun(path, found, parts) if parts is not None or has_ranks else None


def text(runs: Sequence[TracedRun]) -> str:
    """The tables of the runs, and of the start-up of each series."""
    sections = [section for run in runs for section in _run_sections(run)]
    series = _series(runs)
    started = [
        start_up.section(rows, f"{title}: start-up")
        for title, rows in zip(titles(series), series)
    ]
    return markdown([*sections, *filter(None, started)], level=3)


def _series(runs: Sequence[TracedRun]) -> list[list[Row]]:
    machines = group_by_machine([run.record for run in runs])
    return [
        series
        for records in machines.values()
        for series in group_by_series(build_rows(records))
    ]


def _run_sections(run: TracedRun) -> list[Section]:
    sections = []
    if run.parts:
        tables = steps.section(run.parts, run.title)
        kernels = steps.kernels_grid(run.parts.runs[0], run.parts.num_towers)
        notes = (*tables.notes, *_cautions(run.record))
        sections.append(
            dataclasses.replace(tables, grids=(*tables.grids, kernels), notes=notes)
        )
    ranks = cluster.ranks_section(run.record, "" if sections else run.title)
    return [*sections, ranks, Section("", (cluster.phases_grid(run.record),))]


def _cautions(run: RunRecord) -> list[Statement | str]:
    """What a reader must know of the machine: devices that are no real ones, load, clocks."""
    loaded = [
        d for d in differences.within([run]) if d.what in differences.SHARES.values()
    ]
    sentences = []
    for difference in loaded:
        load = value_text(difference.a[0].values["load"])
        effect = describe(difference).effect
        what = difference.what[:1].upper() + difference.what[1:]
        sentences.append(f"{what} ({load}): {effect}.")
    return [*environment.statements([run]), *sentences]


def as_json(runs: Sequence[TracedRun]) -> str:
    documents = []
    for run in runs:
        traced = steps.as_json(run.parts) if run.parts else {}
        documents.append(
            {
                "file": str(run.path),
                "title": run.title,
                **traced,
                **cluster.run_data(run.record),
            }
        )
    series = _series(runs)
    numbers = [
        (title, start_up.as_json(rows)) for title, rows in zip(titles(series), series)
    ]
    started = [{"title": title, **fields} for title, fields in numbers if fields]
    whole = {
        "schema": SCHEMA,
        "runs": documents,
        **({"series": started} if started else {}),
    }
    return input_files.json_text(whole)


def picture(runs: Sequence[TracedRun], step: int | None, format: str) -> bytes:
    """One step of each traced run as "png" or "svg": number `step`, or the one of middle length."""
    from rnn_scaling.reports.pictures import step_figures  # loads matplotlib, late

    drawn = []
    for run in runs:
        if parts := run.parts:
            number = parts.typical if step is None else step
            title = (
                f"{run.title}, step {number}{step_figures.left_out(parts.num_towers)}"
            )
            drawn.append((title, parts.steps[number]))
    return step_figures.picture(drawn, format)
