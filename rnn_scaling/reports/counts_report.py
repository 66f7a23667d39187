"""Operators and kernels of a step as tables, statements and data.

Programs of users read inspect.json, schema "rnn_scaling.inspect/1". Some of its keys
are the field names of `StepCounts` and of the lines of `growth.fit_lines`: never rename
one.
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

from rnn_scaling.analysis.keys import build_key
from rnn_scaling.analysis.metrics import add_article, find_common_unit
from rnn_scaling.analysis.statements import Statement, state
from rnn_scaling.analysis.steps import counts, growth
from rnn_scaling.analysis.steps.counts import CountGroup, Inspection, StepCounts
from rnn_scaling.records.record import RunRecord
from rnn_scaling.records.step_parts import PHASES
from rnn_scaling.reports import missing_results, placement_table, report_files
from rnn_scaling.reports.json_data import format_plain_json
from rnn_scaling.reports.sections import (
    Columns,
    Grid,
    Section,
    format_markdown,
    make_grid,
)
from rnn_scaling.reports.summary import Summary
from rnn_scaling.reports.wording import write_sentence
from rnn_scaling.system import entry
from rnn_scaling.system.files.terminal import print_fitted

_SCHEMA = "rnn_scaling.inspect/1"
_TOP_TYPES = 15
_NOT_RUN = "n/a"
# Counts that a table shows if any configuration has them, with their headings.
_OPTIONAL_COUNTS = {
    "copies": "copies on GPUs",
    "dispatched": "operators launched on GPUs",
    "input_pipeline": "kernels of tf.data",
}


def report(out: Path, records: Mapping[str, RunRecord]) -> bool:
    """Print the counts of records, and write them to a folder.

    Args:
      out: The folder.
      records: Label -> record.

    Returns:
      Whether all counts agree.
    """
    inspection = counts.inspect(records)
    entry.warn(
        *(f"{write_sentence(reason)}; left out" for reason in inspection.left_out)
    )
    if not inspection.groups:
        remedy = "repeat them with --trace_batches=1 in another --out"
        entry.fail(
            missing_results.format_message(
                "no run was counted", records.values(), remedy
            )
        )
        return False

    placed: dict[tuple, tuple[str, RunRecord]] = {}
    for label, run in records.items():
        if run.graph:
            placed.setdefault(build_key(run.options), (label, run))
    label, widest = max(
        placed.values(), key=lambda labelled: labelled[1].options["num_devices"]
    )
    placement = placement_table.make_section(label, widest, variables=False)
    print_fitted(format_markdown([*make_sections(inspection), placement], level=3))

    details = make_sections(inspection, is_full=True)
    details += [placement_table.make_section(*labelled) for labelled in placed.values()]
    page = f"# Operators and kernels of a step\n\n{format_markdown(details)}"
    data = format_plain_json(make_data(inspection))
    report_files.write_results(out, "inspect", page, data)
    return not inspection.differences


def inspect_summary(summary: Summary) -> Inspection | None:
    """Return the counts of a report's runs; None without traces."""
    runs = {name: run for name, run in summary.named_runs if run.trace and run.graph}
    return counts.inspect(runs) if runs else None


def make_data(inspection: Inspection) -> dict[str, Any]:
    """Return the counts for JSON."""
    groups = []
    for group in inspection.groups:
        fields = {
            "title": group.title,
            "counts": list(map(_make_counts_data, group.counts)),
            "why": _state_reasons(group),
        }
        groups.append(fields)
    lines = growth.fit_lines(inspection.groups)
    return {
        "schema": _SCHEMA,
        "groups": groups,
        "growth": list(map(dataclasses.asdict, lines)),
        "differences": list(map(write_sentence, inspection.differences)),
        "varying": list(map(write_sentence, inspection.varying)),
        "left_out": list(map(write_sentence, inspection.left_out)),
    }


def _make_counts_data(configuration: StepCounts) -> dict[str, Any]:
    fields = dataclasses.asdict(configuration)
    unit = fields.pop("unit")
    items = fields.pop("items")
    return {unit: items, **fields, "kernels": configuration.kernels}


def make_sections(inspection: Inspection, is_full: bool = False) -> list[Section]:
    """Return operators and kernels of each group, and why encoders differ.

    Growth with the sequence length and the agreement of the runs follow.

    Args:
      inspection: The counts.
      is_full: Whether all tables of a group are wanted.
    """
    group_sections = []
    for group in inspection.groups:
        grids = [
            _make_comparison_grid(
                "Operators in the graph that runs",
                group,
                lambda column: column.operators,
                lambda column: f"{column.operators:,}",
            ),
            _make_comparison_grid(
                "Kernels per step: total [CPU / GPU]",
                group,
                lambda column: column.kernels,
                lambda column: (
                    f"{column.kernels:,} [{column.host:,} / {column.device:,}]"
                ),
            ),
        ]
        if is_full:
            grids += _make_detailed_grids(group)
        group_sections.append(Section(group.title, grids, tuple(_state_reasons(group))))
    return [
        *group_sections,
        *_make_growth_sections(inspection.groups),
        Section("Do the runs agree?", notes=tuple(state_agreement(inspection))),
    ]


def state_agreement(inspection: Inspection) -> list[Statement]:
    """State whether runs of one configuration have the same counts, as they must."""
    if inspection.differences:
        texts = map(write_sentence, inspection.differences)
        return [state("counts-differ", text) for text in texts]
    if inspection.varying:
        texts = map(write_sentence, inspection.varying)
        statements = [state("counts-vary", text) for text in texts]
        return [*statements, state("counts-of-last-step")]
    return counts.state_agreement(inspection)


def _make_detailed_grids(group: CountGroup) -> list[Grid]:
    columns = _sort_counts(group)
    fewest = group.device_counts[0]
    on_fewest = [column for column in columns if column.num_devices == fewest]
    return [
        _make_graphs_grid(group),
        _make_phases_grid(columns),
        _make_types_grid(on_fewest),
    ]


def _make_phases_grid(columns: Sequence[StepCounts]) -> Grid:
    """Return a line for each phase with kernels."""
    lines = []
    for phase in PHASES:
        kernels = [column.kernels_by_phase.get(phase, 0) for column in columns]
        if any(kernels):
            lines.append([phase, *(f"{count:,}" for count in kernels)])
    names = [f"{column.encoder}, {column.num_devices}" for column in columns]
    caption = "Kernels per step by phase, over all towers (encoder, devices)"
    return Grid(caption, ["Phase", *names], lines)


def _make_comparison_grid(
    caption: str,
    group: CountGroup,
    value: Callable[[StepCounts], int],
    text: Callable[[StepCounts], str],
) -> Grid:
    """Return a table of encoders by number of devices, and the last / the first one.

    Args:
      caption: The caption.
      group: The configurations.
      value: Function that returns the compared number.
      text: Function that returns the cell.
    """
    encoders = group.encoders
    head = ["Devices", *encoders]
    if len(encoders) > 1:
        head.append(f"{encoders[-1]} / {encoders[0]}")
    lines = []
    for num_devices in group.device_counts:
        counts_by_encoder = [group.find(encoder, num_devices) for encoder in encoders]
        line = [str(num_devices)]
        line += [text(column) if column else _NOT_RUN for column in counts_by_encoder]
        if len(encoders) > 1:
            first = counts_by_encoder[0]
            last = counts_by_encoder[-1]
            ratio = _NOT_RUN
            if first and last and value(first):
                ratio = f"{value(last) / value(first):.2f}"
            line.append(ratio)
        lines.append(line)
    return Grid(caption, head, lines)


def _state_reasons(group: CountGroup) -> list[Statement]:
    """State why encoders differ, on the fewest devices that both ran on."""
    encoders = group.encoders
    if len(encoders) < 2:
        return []
    for num_devices in group.device_counts:
        first = group.find(encoders[0], num_devices)
        last = group.find(encoders[-1], num_devices)
        if first and last and first.kernels and last.kernels:
            low, high = sorted((first, last), key=lambda column: column.kernels)
            return counts.compare_encoders(low, high)
    return []


def _make_graphs_grid(group: CountGroup) -> Grid:
    """Return operators of every graph and kernels per step and per item.

    There is a line for each encoder and number of devices.
    """
    unit = find_common_unit(column.unit for column in group.counts)
    optional = []
    for name in _OPTIONAL_COUNTS:
        if any(getattr(column, name) for column in group.counts):
            optional.append(name)
    head = [
        "Encoder",
        "Devices",
        "Python operators",
        "optimized",
        "in the partitions that run",
        "kernels per step",
        f"{unit} per step",
        f"kernels {add_article(unit)}",
        *(_OPTIONAL_COUNTS[name] for name in optional),
    ]
    lines = []
    for column in _sort_counts(group):
        kernels_per_item = _NOT_RUN
        if column.items:
            kernels_per_item = f"{column.kernels / column.items:.3f}"
        line = [
            column.encoder,
            str(column.num_devices),
            f"{column.python:,}",
            f"{column.optimized:,}",
            f"{column.operators:,}",
            f"{column.kernels:,}",
            f"{column.items:,}",
            kernels_per_item,
            *(f"{getattr(column, name):,g}" for name in optional),
        ]
        lines.append(line)
    return Grid("From Python to kernels", head, lines)


def _make_types_grid(columns: Sequence[StepCounts], top: int = _TOP_TYPES) -> Grid:
    """Return operators and kernels by type.

    Args:
      columns: The configurations.
      top: The number of types with a line; all other types have one line together.
    """
    head = ["Type"]
    most_kernels: dict[str, int] = {}
    for column in columns:
        head += [f"{column.encoder}: operators", "kernels"]
        for kind in {**column.kernels_by_type, **column.operators_by_type}:
            kernels = column.kernels_by_type.get(kind, 0)
            most_kernels[kind] = max(most_kernels.get(kind, 0), kernels)
    if len(columns) > 1:
        head.append("difference of kernels")

    kinds = sorted(most_kernels, key=lambda kind: (-most_kernels[kind], kind))
    lines = [[kind, *_make_type_cells(columns, [kind])] for kind in kinds[:top]]
    if kinds[top:]:
        name = f"{len(kinds) - top} other types"
        lines.append([name, *_make_type_cells(columns, kinds[top:])])
    lines.append(["all", *_make_type_cells(columns, kinds)])
    caption = (
        "Largest types, operators and kernels per step "
        f"(devices: {columns[0].num_devices})"
    )
    return Grid(caption, head, lines)


def _make_type_cells(
    columns: Sequence[StepCounts], kinds: Sequence[str]
) -> Iterator[str]:
    kernels_of_columns = []
    for column in columns:
        operators = sum(column.operators_by_type.get(kind, 0) for kind in kinds)
        kernels = sum(column.kernels_by_type.get(kind, 0) for kind in kinds)
        kernels_of_columns.append(kernels)
        yield f"{operators:,}"
        yield f"{kernels:,}"
    if len(columns) > 1:
        yield f"{kernels_of_columns[-1] - kernels_of_columns[0]:+,}"


def _make_growth_sections(groups: Sequence[CountGroup]) -> list[Section]:
    """Return how kernels grow with the sequence length; [] for a single length."""
    lines = growth.fit_lines(groups)
    if not lines:
        return []
    columns: Columns = {
        "Encoder": lambda line: line.encoder,
        "Devices": lambda line: str(line.num_devices),
        "Phase": lambda line: line.phase,
        "Kernels per step": lambda line: " ".join(
            f"{value:,}" for value in line.values
        ),
        "a + b x T": _format_line,
        "Lengths T": lambda line: f"{line.option} {', '.join(map(str, line.lengths))}",
    }
    if len({line.title for line in lines}) > 1:
        columns = {"Runs": lambda line: line.title, **columns}
    grid = make_grid("", columns, lines)
    return [Section("Growth with the sequence length T", (grid,))]


def format_formula(line: growth.Line) -> str:
    """Return a line such as "1,234 + 56 T"."""
    sign = "-" if line.slope < 0 else "+"
    return (
        f"{_format_fraction(line.start)} {sign} {_format_fraction(abs(line.slope))} T"
    )


def _format_line(line: growth.Line) -> str:
    if len(line.lengths) == 2:  # any line fits two lengths
        return f"{format_formula(line)} (only two lengths)"
    return format_formula(line) if line.is_exact else "not linear"


def _format_fraction(value: Fraction) -> str:
    return f"{value.numerator:,}" if value.denominator == 1 else f"{float(value):,.3f}"


def _sort_counts(group: CountGroup) -> list[StepCounts]:
    return sorted(group.counts, key=lambda column: (column.encoder, column.num_devices))
