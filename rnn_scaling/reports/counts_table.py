"""Counts as tables: the seed's two (operators in the graph that runs, kernels a step), and what explains them. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rnn_scaling.analysis.metrics import common_unit, one_of
from rnn_scaling.analysis.steps import encoder_difference, growth
from rnn_scaling.analysis.steps.counts import Counts, Group, Inspection
from rnn_scaling.files import input_files
from rnn_scaling.files.markdown import markdown_table
from rnn_scaling.records.step_names import PHASES

SCHEMA = "rnn_scaling.inspect/1"
TOP_TYPES = 15
NOT_RUN = "n/a"


def markdown(inspection: Inspection) -> str:
    """Everything that is known of the counts, group by group."""
    parts = ["# Operators and kernels of a step\n"]
    for group in inspection.groups:
        parts += [f"## {group.title}\n", *_sections(group)]
    parts += _growth(inspection.groups)
    parts.append(f"## Do the runs agree?\n\n{agreement(inspection)}")
    return "\n".join(parts)


def summary(inspection: Inspection) -> str:
    """The seed's two tables of each group and why they differ: what the terminal shows."""
    parts = []
    for group in inspection.groups:
        parts += [f"### {group.title}\n", *_seed_tables(group), *_why(group)]
    parts += [*_growth(inspection.groups), agreement(inspection)]
    return "\n".join(parts)


def agreement(inspection: Inspection) -> str:
    """Whether runs of one configuration have the same counts, as they must."""
    if inspection.differences:
        lines = "".join(f"- {line}\n" for line in inspection.differences)
        return f"Counts that are not the same where they must be:\n\n{lines}"
    if inspection.varying:
        lines = "; ".join(inspection.varying)
        return (
            f"Batches of text differ in length, and counts with them; the tables have the last counted step. {lines}.\n"
        )
    counts = [each for group in inspection.groups for each in group.counts]
    repeated = [each for each in counts if each.runs > 1]
    number = sum(each.runs for each in counts)
    where = "the run" if number == 1 else f"each of the {number} runs"
    text = f"Both counted steps of {where} are the same."
    if repeated:
        text += " Each configuration that ran more than once has the same counts in each run, by type."
    return f"{text}{_onednn(counts)}\n"


def _onednn(counts: Sequence[Counts]) -> str:
    """On another processor the same step can have other counts."""
    states = {each.onednn for each in counts}
    if len(states) > 1 or None in states:
        return ""
    if states == {True}:
        return " oneDNN was on and fused products with what follows them; where it is off, counts differ."
    return " oneDNN was off; where it is on, as by default on processors with AVX512-VNNI, counts differ."


def to_json(inspection: Inspection) -> str:
    """The same as JSON."""
    return input_files.json_text(content(inspection))


def content(inspection: Inspection) -> dict[str, Any]:
    """The same as data."""
    groups = [
        {"title": group.title, "counts": [_as_dict(each) for each in group.counts], "why": reasons(group)}
        for group in inspection.groups
    ]
    lines = [dataclasses.asdict(line) for line in growth.lines(inspection.groups)]
    others = {part: list(getattr(inspection, part)) for part in ("differences", "varying", "left_out")}
    return {"schema": SCHEMA, "groups": groups, "growth": lines, **others}


def _as_dict(counts: Counts) -> dict[str, Any]:
    fields = {counts.unit if name == "items" else name: value for name, value in dataclasses.asdict(counts).items()}
    del fields["unit"]
    return {**fields, "kernels": counts.kernels}


def _sections(group: Group) -> Iterator[str]:
    yield from _seed_tables(group)
    yield from _why(group)
    yield from _graphs(group)
    yield from _phases(group)
    yield from _types(group)


def _seed_tables(group: Group) -> Iterator[str]:
    for caption, head, rows in seed_grids(group):
        yield f"{caption}:\n"
        yield markdown_table(head, rows)


def seed_grids(group: Group) -> list[tuple[str, list[str], list[list[str]]]]:
    """(caption, header, lines) of the seed's two tables."""
    return [
        ("Number of operators in the graph that runs", *_compared(group, lambda c: c.operators, _operators)),
        ("Number of kernels invoked a step, total [CPU / GPU]", *_compared(group, lambda c: c.kernels, _kernels)),
    ]


def _operators(counts: Counts) -> str:
    return f"{counts.operators:,}"


def _kernels(counts: Counts) -> str:
    return f"{counts.kernels:,} [{counts.host:,} / {counts.device:,}]"


def _compared(group: Group, value: Any, shown: Any) -> tuple[list[str], list[list[str]]]:
    """A row for each number of devices, a column for each encoder, and the ratio of the last to the first."""
    encoders = group.encoders
    head = ["Device number", *encoders]
    if len(encoders) > 1:
        head.append(f"ratio {encoders[-1]} / {encoders[0]}")
    rows = []
    for number in group.device_counts:
        cells = [group.find(encoder, number) for encoder in encoders]
        row = [str(number), *(shown(each) if each else NOT_RUN for each in cells)]
        if len(encoders) > 1:
            few, many = cells[0], cells[-1]
            row.append(encoder_difference.times(value(many), value(few)) if few and many else NOT_RUN)
        rows.append(row)
    return head, rows


def _why(group: Group) -> list[str]:
    lines = reasons(group)
    return ["Why they differ:\n", "".join(f"- {line}\n" for line in lines)] if lines else []


def reasons(group: Group) -> list[str]:
    """Why the encoders differ, on the smallest number of devices that both ran on."""
    encoders = group.encoders
    for number in group.device_counts:
        cells = [group.find(encoder, number) for encoder in encoders]
        if len(encoders) > 1 and cells[0] and cells[-1]:
            few, many = sorted((cells[0], cells[-1]), key=lambda each: each.kernels)
            return encoder_difference.sentences(few, many)
    return []


def _graphs(group: Group) -> Iterator[str]:
    yield "From Python to kernels:\n"
    yield markdown_table(*graphs_grid(group))


def graphs_grid(group: Group) -> tuple[list[str], list[list[str]]]:
    """(header, a line for each encoder and number of devices): operators of every graph, kernels a step and an item."""
    head = ["Encoder", "Devices", "Python operators", "optimized", "in the partitions that run"]
    unit = common_unit(each.unit for each in group.counts)
    head += ["kernels a step", f"{unit} a step", f"kernels {one_of(unit)}"]
    extra = {
        "copies": any(each.copies for each in group.counts),
        "dispatched": any(each.dispatched for each in group.counts),
        "input_pipeline": any(each.input_pipeline for each in group.counts),
    }
    names = {"copies": "copies on GPUs", "dispatched": "operators launched on GPUs", "input_pipeline": "of tf.data"}
    head += [names[part] for part, is_there in extra.items() if is_there]
    rows = []
    for each in _ordered(group):
        row = [each.encoder, str(each.num_devices), f"{each.python:,}", f"{each.optimized:,}", f"{each.operators:,}"]
        row += [f"{each.kernels:,}", f"{each.items:,}", f"{each.kernels / each.items:.3f}" if each.items else NOT_RUN]
        row += [f"{getattr(each, part):,g}" for part, is_there in extra.items() if is_there]
        rows.append(row)
    return head, rows


def _phases(group: Group) -> Iterator[str]:
    columns = _ordered(group)
    head = ["Phase", *(f"{each.encoder}, {each.num_devices}" for each in columns)]
    phases = [phase for phase in PHASES if any(each.kernels_by_phase.get(phase) for each in columns)]
    rows = [[phase, *(f"{each.kernels_by_phase.get(phase, 0):,}" for each in columns)] for phase in phases]
    yield "Kernels a step by phase, all towers together (encoder, number of devices):\n"
    yield markdown_table(head, rows)


def _types(group: Group) -> Iterator[str]:
    """The largest types side by side on the smallest number of devices."""
    number = group.device_counts[0]
    columns = [each for each in _ordered(group) if each.num_devices == number]
    yield f"Operators and kernels a step by type on {number} device{'' if number == 1 else 's'}, the largest first:\n"
    yield markdown_table(*types_grid(columns))


def types_grid(columns: Sequence[Counts], top: int = TOP_TYPES) -> tuple[list[str], list[list[str]]]:
    """(header, a line for each of the `top` types of any column, and one for the rest)."""
    both = len(columns) > 1
    head = ["Type"]
    for each in columns:
        head += [f"{each.encoder}: operators", "kernels"]
    head += ["difference of kernels"] if both else []
    largest: dict[str, int] = {}
    for each in columns:
        for kind in {**each.kernels_by_type, **each.operators_by_type}:
            largest[kind] = max(largest.get(kind, 0), each.kernels_by_type.get(kind, 0))
    order = sorted(largest, key=lambda kind: (-largest[kind], kind))
    rows = [[kind, *_type_cells(columns, [kind])] for kind in order[:top]]
    if order[top:]:
        rows.append([f"{len(order) - top} other types", *_type_cells(columns, order[top:])])
    rows.append(["all", *_type_cells(columns, order)])
    return head, rows


def _type_cells(columns: Sequence[Counts], kinds: Sequence[str]) -> list[str]:
    kernels = [_sum(each.kernels_by_type, kinds) for each in columns]
    cells = []
    for each, number in zip(columns, kernels):
        cells += [f"{_sum(each.operators_by_type, kinds):,}", f"{number:,}"]
    return [*cells, f"{kernels[-1] - kernels[0]:+,}"] if len(columns) > 1 else cells


def _sum(by_type: Mapping[str, int], kinds: Sequence[str]) -> int:
    return sum(by_type.get(kind, 0) for kind in kinds)


def _growth(groups: Sequence[Group]) -> list[str]:
    grown = growth.lines(groups)
    if not grown:
        return []
    several = len({line.title for line in grown}) > 1
    head = [*(["Runs"] if several else []), "Encoder", "Devices", "Phase", "kernels a step", "a + b x T", "holds for T"]
    rows = [
        [
            *([line.title] if several else []),
            line.encoder,
            str(line.num_devices),
            line.phase,
            " ".join(f"{value:,}" for value in line.values),
            _formula(line),
            f"{line.option} {', '.join(map(str, line.lengths))}",
        ]
        for line in grown
    ]
    return ["## Growth with the sequences' length T\n", markdown_table(head, rows)]


def _formula(line: growth.Line) -> str:
    if len(line.lengths) < growth.FEWEST_TO_CHECK:
        return f"{line.formula} (two lengths: any counts lie on a line)"
    return line.formula if line.exact else "on no line"


def _ordered(group: Group) -> list[Counts]:
    return sorted(group.counts, key=lambda each: (each.encoder, each.num_devices))
