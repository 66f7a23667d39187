"""Report the parts of each tower's steps, and seconds by phase and rank.

Parts of steps need a trace. Runs with several ranks are shown even without one.

Programs of users read the JSON, schema "rnn_scaling.phases/1": keys may be added, but
never rename one or change its meaning.
"""

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path

from rnn_scaling.analysis.comparison import differences
from rnn_scaling.analysis.machines import group_by_machine
from rnn_scaling.analysis.rows import Row, build_rows
from rnn_scaling.analysis.series_titles import group_by_series, make_titles
from rnn_scaling.analysis.statements import Statement
from rnn_scaling.analysis.steps import parts as step_parts
from rnn_scaling.analysis.steps.parts import StepParts
from rnn_scaling.config import scale
from rnn_scaling.config.naming import name_network
from rnn_scaling.records import folder
from rnn_scaling.records.record import RunRecord
from rnn_scaling.reports import cluster, environment, start_up, steps
from rnn_scaling.reports.differences import describe, format_value
from rnn_scaling.reports.json_data import format_plain_json
from rnn_scaling.reports.sections import Section, format_markdown
from rnn_scaling.reports.wording import join_names, start_with_capital
from rnn_scaling.system import entry
from rnn_scaling.system.files.output_files import RECORD_IN_LOG_DIR

SCHEMA = "rnn_scaling.phases/1"


@dataclasses.dataclass(frozen=True, eq=False)
class TracedRun:
    """A run that was traced, or that has several ranks."""

    path: Path
    record: RunRecord
    parts: StepParts | None  # None without a trace

    @property
    def title(self) -> str:
        options = self.record.options
        devices = scale.describe(scale.count_workers(options), options["num_devices"])
        # The mode of another trainer is unknown.
        words = filter(
            None, (name_network(options), options["variable_update"], devices)
        )
        return f"{', '.join(words)} ({self.path})"


def read(paths: Sequence[Path]) -> tuple[list[TracedRun], list[str]]:
    """Return the traced runs at paths, the runs with ranks, and one line per problem.

    Args:
      paths: Folders of records, records, or folders with a record of a training.
    """
    runs: list[TracedRun] = []
    problems: list[str] = []
    for path in paths:
        in_log_dir = path / RECORD_IN_LOG_DIR
        file = in_log_dir if in_log_dir.is_file() else path
        try:
            path_runs, path_problems = _read_path(file)
        except OSError as e:
            problems.append(f"{path}: {e.strerror or e}")
            continue
        runs += path_runs
        problems += path_problems
    return runs, problems


def _read_path(file: Path) -> tuple[list[TracedRun], list[str]]:
    """Return the runs of a folder or of a record, and a line per problem.

    Raises:
      OSError: If the folder cannot be read.
    """
    is_folder = file.is_dir()
    place = file if is_folder else file.parent
    files = folder.read(file) if is_folder else folder.read_files({file.name: file})

    runs = [
        run
        for run_file in files.runs
        if (run := _make_traced_run(place / run_file.name, run_file.record))
    ]
    problems = list(files.not_used)
    if files.runs and not runs:
        statuses = join_names(sorted({traced.record.status for traced in files.runs}))
        train = f"{entry.get_program_name()} train --trace_batches=5 --result_file=FILE"
        remedy = f"make one with {train}"
        problems.append(f"{file}: no traced run (status {statuses}); {remedy}")
    elif not files.runs and not problems:
        reason = "no run record"
        if is_folder:
            reason = f"{files.empty_reason}{folder.suggest_subfolders(file)}"
        problems.append(f"{file}: {reason}")
    return runs, problems


def _make_traced_run(path: Path, record: RunRecord) -> TracedRun | None:
    """Return the run if it was traced or has ranks to show."""
    parts = step_parts.split_steps([record])
    has_ranks = record.workers is not None and bool(record.workers.ranks)
    return TracedRun(path, record, parts) if parts is not None or has_ranks else None


def format_text(runs: Sequence[TracedRun]) -> str:
    """Return the tables of the runs and the start-up of each series."""
    sections: list[Section] = []
    for run in runs:
        sections += _run_sections(run)
    series = _group_series(runs)
    for title, rows in zip(make_titles(series), series):
        if section := start_up.make_section(rows, f"{title}: start-up"):
            sections.append(section)
    return format_markdown(sections, level=3)


def _group_series(runs: Sequence[TracedRun]) -> list[list[Row]]:
    series: list[list[Row]] = []
    for records in group_by_machine([run.record for run in runs]).values():
        series += group_by_series(build_rows(records))
    return series


def _run_sections(run: TracedRun) -> list[Section]:
    """Return the sections of one traced run."""
    sections = []
    if run.parts:
        tables = steps.make_section(run.parts, run.title)
        kernels = steps.make_kernels_grid(run.parts.runs[0], run.parts.num_towers)
        notes = (*tables.notes, *_list_machine_cautions(run.record))
        grids = (*tables.grids, kernels)
        sections.append(dataclasses.replace(tables, grids=grids, notes=notes))
    # Only the first section has the run's title.
    title = "" if sections else run.title
    sections.append(cluster.make_ranks_section(run.record, title))
    return [*sections, Section("", (cluster.make_phases_grid(run.record),))]


def _list_machine_cautions(run: RunRecord) -> Iterator[Statement | str]:
    """Yield cautions about the machine: shared devices, load and clocks."""
    yield from environment.make_statements([run])
    for difference in differences.find_differences_inside([run]):
        if difference.name in differences.LOAD_NAMES.values():
            load = format_value(difference.first[0].values["load"])
            effect = describe(difference).effect
            name = start_with_capital(difference.name)
            yield f"{name} ({load}): {effect}."


def format_json(runs: Sequence[TracedRun]) -> str:
    """Return the runs and the start-up of each series as JSON."""
    run_data = []
    for run in runs:
        traced = steps.make_data(run.parts) if run.parts else {}
        fields = {
            "file": str(run.path),
            "title": run.title,
            **traced,
            **cluster.run_data(run.record),
        }
        run_data.append(fields)
    series = _group_series(runs)
    series_data = [
        {"title": title, **seconds}
        for title, rows in zip(make_titles(series), series)
        if (seconds := start_up.make_data(rows))
    ]
    content = {"schema": SCHEMA, "runs": run_data}
    if series_data:
        content["series"] = series_data
    return format_plain_json(content)


def draw_picture(runs: Sequence[TracedRun], step: int | None, format: str) -> bytes:
    """Return a picture of one step of each traced run.

    Args:
      runs: The runs.
      step: The index of the step, or None for the step of median length.
      format: "png" or "svg".
    """
    from rnn_scaling.reports.pictures import step_figures  # loads matplotlib

    steps_with_titles = []
    for run in runs:
        if run.parts:
            number = run.parts.typical if step is None else step
            omitted = step_figures.format_omitted_towers(run.parts.num_towers)
            title = f"{run.title}, step {number}{omitted}"
            steps_with_titles.append((title, run.parts.steps[number]))
    return step_figures.draw_picture(steps_with_titles, format)
