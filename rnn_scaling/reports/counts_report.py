"""StepCounts of operators and kernels as sections and data; `report` prints and writes them."""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rnn_scaling.analysis.keys import build_key
from rnn_scaling.analysis.metrics import common_unit, with_article
from rnn_scaling.analysis.statements import Statement
from rnn_scaling.analysis.steps import counts, growth
from rnn_scaling.analysis.steps.counts import CountGroup, Inspection, StepCounts
from rnn_scaling.records.record import RunRecord
from rnn_scaling.records.step_parts import PHASES
from rnn_scaling.reports import placement_table, report_files
from rnn_scaling.reports.sections import Columns, Grid, Section, make_grid, markdown
from rnn_scaling.reports.summary import Summary
from rnn_scaling.system import entry
from rnn_scaling.system.files import input_files
from rnn_scaling.system.files.terminal import tell

SCHEMA = "rnn_scaling.inspect/1"
TOP_TYPES = 15
NOT_RUN = "n/a"


def report(out: Path, records: Mapping[str, RunRecord]) -> bool:
    """Prints what the records show and writes it to `out`; returns whether all counts agree."""
    inspection = counts.inspect(records)
    entry.warn(*(f"{line}; left out" for line in inspection.left_out))
    if not inspection.groups:
        entry.fail("no run was counted")
        return False
    placed: dict[tuple, tuple[str, RunRecord]] = {}
    for label, run in records.items():
        if run.graph:
            placed.setdefault(build_key(run.options), (label, run))
    widest = max(
        placed.values(), key=lambda labelled: labelled[1].options["num_devices"]
    )
    tell(
        markdown(
            [*sections(inspection), placement_table.section(*widest, variables=False)],
            level=3,
        )
    )
    placements = [placement_table.section(*labelled) for labelled in placed.values()]
    details = [*sections(inspection, is_full=True), *placements]
    files = {
        "inspect.md": f"# Operators and kernels of a step\n\n{markdown(details)}".encode,
        "inspect.json": input_files.json_text(content(inspection)).encode,
    }
    report_files.write_files(files, out, force=True, flag="--out")
    entry.note(f"wrote {out / 'inspect.md'} and inspect.json")
    return not inspection.differences


def inspect_summary(summary: Summary) -> Inspection | None:
    """The counts of a report's runs; None without traces."""
    rows = [row for member in summary.measured for row in member.rows if row.step_parts]
    runs = {
        name: run
        for row in rows
        for name, run in zip(row.files, row.row.records)
        if run.trace and run.graph
    }
    return counts.inspect(runs) if runs else None


def content(inspection: Inspection) -> dict[str, Any]:
    groups = []
    for group in inspection.groups:
        why = [statement.data() for statement in reasons(group)]
        groups.append(
            {
                "title": group.title,
                "counts": [*map(_counts_data, group.counts)],
                "why": why,
            }
        )
    lines = [dataclasses.asdict(line) for line in growth.lines(inspection.groups)]
    others = {
        part: list(getattr(inspection, part))
        for part in ("differences", "varying", "left_out")
    }
    return {"schema": SCHEMA, "groups": groups, "growth": lines, **others}


def _counts_data(configuration: StepCounts) -> dict[str, Any]:
    fields = dataclasses.asdict(configuration)
    return {
        fields.pop("unit"): fields.pop("items"),
        **fields,
        "kernels": configuration.kernels,
    }


def sections(inspection: Inspection, is_full: bool = False) -> list[Section]:
    """The seed's two tables of each group, why encoders differ, growth, and whether runs agree; if full, all tables."""
    made = []
    split = "{0.kernels:,} [{0.host:,} / {0.device:,}]".format
    for group in inspection.groups:
        grids = [
            _compared(
                "Operators in the graph that runs",
                group,
                lambda c: c.operators,
                lambda c: f"{c.operators:,}",
            ),
            _compared(
                "Kernels per step: total [CPU / GPU]", group, lambda c: c.kernels, split
            ),
            *(_detailed_grids(group) if is_full else ()),
        ]
        made.append(Section(group.title, tuple(grids), tuple(reasons(group))))
    made += _growth(inspection.groups)
    return [
        *made,
        Section("Do the runs agree?", notes=tuple(counts.agreement(inspection))),
    ]


def _detailed_grids(group: CountGroup) -> Iterator[Grid]:
    yield graphs_grid(group)
    columns = _ordered(group)
    phases = [
        phase
        for phase in PHASES
        if any(column.kernels_by_phase.get(phase) for column in columns)
    ]
    yield Grid(
        "Kernels per step by phase, over all towers (encoder, devices)",
        ["Phase", *(f"{column.encoder}, {column.num_devices}" for column in columns)],
        [
            [
                phase,
                *(f"{column.kernels_by_phase.get(phase, 0):,}" for column in columns),
            ]
            for phase in phases
        ],
    )
    fewest = group.device_counts[0]
    yield types_grid([column for column in columns if column.num_devices == fewest])


def _compared(
    caption: str,
    group: CountGroup,
    value: Callable[[StepCounts], int],
    shown: Callable[[StepCounts], str],
) -> Grid:
    """A row for each number of devices, a column for each encoder, and the ratio of the last to the first."""
    encoders = group.encoders
    ratio_head = [f"{encoders[-1]} / {encoders[0]}"] if len(encoders) > 1 else []
    rows = []
    for number in group.device_counts:
        cells = [group.find(encoder, number) for encoder in encoders]
        row = [str(number), *(shown(cell) if cell else NOT_RUN for cell in cells)]
        few, many = cells[0], cells[-1]
        if ratio_head:
            row.append(
                f"{value(many) / value(few):.2f}"
                if few and many and value(few)
                else NOT_RUN
            )
        rows.append(row)
    return Grid(caption, ["Devices", *encoders, *ratio_head], rows)


def reasons(group: CountGroup) -> list[Statement]:
    """Why the encoders differ, on the smallest number of devices that both ran on."""
    encoders = group.encoders
    for number in group.device_counts if len(encoders) > 1 else ():
        first, last = group.find(encoders[0], number), group.find(encoders[-1], number)
        if first and last and first.kernels and last.kernels:
            return counts.encoder_difference(
                *sorted((first, last), key=lambda counted: counted.kernels)
            )
    return []


def graphs_grid(group: CountGroup) -> Grid:
    """A line for each encoder and number of devices: operators of every graph, kernels per step and per item."""
    unit = common_unit(counted.unit for counted in group.counts)
    head = [
        "Encoder",
        "Devices",
        "Python operators",
        "optimized",
        "in the partitions that run",
    ]
    head += ["kernels per step", f"{unit} per step", f"kernels {with_article(unit)}"]
    optional = {"copies": "copies on GPUs", "dispatched": "operators launched on GPUs"}
    optional |= {"input_pipeline": "kernels of tf.data"}
    optional = {
        part: name
        for part, name in optional.items()
        if any(getattr(c, part) for c in group.counts)
    }
    rows = []
    for counted in _ordered(group):
        numbers = (
            counted.python,
            counted.optimized,
            counted.operators,
            counted.kernels,
            counted.items,
        )
        row = [
            counted.encoder,
            str(counted.num_devices),
            *(f"{number:,}" for number in numbers),
        ]
        row.append(
            f"{counted.kernels / counted.items:.3f}" if counted.items else NOT_RUN
        )
        rows.append([*row, *(f"{getattr(counted, part):,g}" for part in optional)])
    return Grid("From Python to kernels", [*head, *optional.values()], rows)


def types_grid(columns: Sequence[StepCounts], top: int = TOP_TYPES) -> Grid:
    """A line for each of the `top` types of any column, and a line for all others."""
    head = ["Type"]
    largest: dict[str, int] = {}
    for column in columns:
        head += [f"{column.encoder}: operators", "kernels"]
        for kind in {**column.kernels_by_type, **column.operators_by_type}:
            largest[kind] = max(
                largest.get(kind, 0), column.kernels_by_type.get(kind, 0)
            )
    head += ["difference of kernels"] if len(columns) > 1 else []
    order = sorted(largest, key=lambda kind: (-largest[kind], kind))
    rows = [[kind, *_type_cells(columns, [kind])] for kind in order[:top]]
    if order[top:]:
        rows.append(
            [f"{len(order) - top} other types", *_type_cells(columns, order[top:])]
        )
    caption = f"Largest types, operators and kernels per step (devices: {columns[0].num_devices})"
    return Grid(caption, head, [*rows, ["all", *_type_cells(columns, order)]])


def _type_cells(columns: Sequence[StepCounts], kinds: Sequence[str]) -> list[str]:
    kernels = [
        sum(column.kernels_by_type.get(kind, 0) for kind in kinds) for column in columns
    ]
    cells = []
    for column, number in zip(columns, kernels):
        cells += [
            f"{sum(column.operators_by_type.get(kind, 0) for kind in kinds):,}",
            f"{number:,}",
        ]
    return [*cells, f"{kernels[-1] - kernels[0]:+,}"] if len(columns) > 1 else cells


def _growth(groups: Sequence[CountGroup]) -> list[Section]:
    grown = growth.lines(groups)
    if not grown:
        return []
    columns: Columns = {
        "Encoder": lambda line: line.encoder,
        "Devices": lambda line: str(line.num_devices),
        "Phase": lambda line: line.phase,
        "Kernels per step": lambda line: " ".join(
            f"{value:,}" for value in line.values
        ),
        "a + b x T": lambda line: line.verdict,
        "Lengths T": lambda line: f"{line.option} {', '.join(map(str, line.lengths))}",
    }
    if len({line.title for line in grown}) > 1:
        columns = {"Runs": lambda line: line.title, **columns}
    return [
        Section("Growth with the sequence length T", (make_grid("", columns, grown),))
    ]


def _ordered(group: CountGroup) -> list[StepCounts]:
    return sorted(
        group.counts, key=lambda counted: (counted.encoder, counted.num_devices)
    )
