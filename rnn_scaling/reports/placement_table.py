"""The placement of a run's variables, gradients and operators, and sent tensors.

The tables sum up what `log_device_placement` prints for each operator.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from rnn_scaling.analysis.grouping import group_by
from rnn_scaling.analysis.statements import Statement, state
from rnn_scaling.records.record import RunRecord
from rnn_scaling.records.step_parts import (
    COLLECTIVES,
    Gradient,
    Graph,
    PlacedVariable,
    Slicing,
    Slot,
)
from rnn_scaling.reports.sections import Columns, Grid, Section, make_grid
from rnn_scaling.system.files.terminal import format_bytes

_MAX_NAMED_TENSORS = 3  # tensors of each direction that are named
# Kinds of bytes on a device, in the order of the table.
_KINDS = ("variables", "slots", "dense", "rows")


def make_section(label: str, run: RunRecord, variables: bool = True) -> Section:
    """Return the placement of a traced run.

    Args:
      label: The name of the run.
      run: The run; without a graph, the section is empty.
      variables: Whether every variable has a line.
    """
    title = f"Placement of {label}"
    graph = run.graph
    if graph is None:
        return Section(title)
    grids = [make_devices_grid(graph)]
    notes = []
    collectives = [
        f"{count} {kind}"
        for kind, count in sorted(graph.partitions.by_type.items())
        if kind.lstrip("_").startswith(COLLECTIVES)
    ]
    copies = make_copies_grid(graph)
    if copies.lines:
        grids.append(copies)
        if run.resolved.device_type == "CPU":
            notes.append(state("shared-memory"))
    elif not collectives:
        notes.append(state("nothing-sent"))
    if graph.slicing:
        notes.append(_state_slicing(graph.slicing))
        grids.append(_make_slicing_grid(graph.slicing))
    if collectives:
        notes.append(state("collectives-not-counted", operators=collectives))
    if variables:
        grids.append(_make_variables_grid(graph))
    return Section(title, grids, notes)


def _state_slicing(slicing: Slicing) -> Statement:
    parts = [
        f"{part.name} {_format_exact_size(part.bytes)} ({part.read})"
        for part in slicing.parts
    ]
    return state("slicing", on=slicing.on, parts=parts)


def _make_slicing_grid(slicing: Slicing) -> Grid:
    lines = []
    for move in slicing.moves:
        line = [
            _shorten_device(move.source),
            _shorten_device(move.target),
            _format_exact_size(move.predicted),
            _format_exact_size(move.counted),
        ]
        lines.append(line)
    head = ["From", "to", "predicted", "in the graph"]
    return Grid("Bytes of the batch sent in a step", head, lines)


def make_devices_grid(graph: Graph) -> Grid:
    """Return the bytes, updates and operators on each device."""
    variables = _list_placed_variables(graph)
    sizes, unknown_counts = _group_sizes_by_device(variables)
    updates = _group_updates_by_device(variables)
    operators = graph.partitions.by_device or {}
    lines = []
    for device in sorted({*sizes, *updates, *operators}):
        line = [_shorten_device(device)]
        line += [
            _format_size(sizes[device][k], unknown_counts[device][k]) for k in _KINDS
        ]
        kinds = sorted(updates[device].items())
        line.append(", ".join(f"{count} {kind}" for kind, count in kinds) or "0")
        line.append(f"{operators.get(device, 0):,}")
        lines.append(line)
    head = [
        "Device",
        "variables",
        "slots",
        "dense gradients",
        "gradients as rows",
        "updates",
        "operators",
    ]
    return Grid("On each device", head, lines)


Counts = defaultdict[str, Counter[str]]  # device -> kind -> number


def _group_sizes_by_device(
    variables: Sequence[PlacedVariable],
) -> tuple[Counts, Counts]:
    """Return bytes by device and kind, and numbers of tensors of unknown size."""
    sizes: Counts = defaultdict(Counter)
    unknown_counts: Counts = defaultdict(Counter)
    for variable in variables:
        sizes[variable.device]["variables"] += variable.bytes
        for slot in variable.slots:
            sizes[slot.device]["slots"] += slot.bytes
    for gradient in _list_unique_gradients(variables):
        sizes[gradient.device][gradient.kind] += gradient.bytes or 0
        unknown_counts[gradient.device][gradient.kind] += gradient.bytes is None
    return sizes, unknown_counts


def _group_updates_by_device(variables: Sequence[PlacedVariable]) -> Counts:
    """Return the numbers of update operators by device and type; empty in inference."""
    updates: Counts = defaultdict(Counter)
    if any(variable.update.types for variable in variables):
        for variable in variables:
            types = variable.update.types or ["of unknown type"]
            updates[variable.update.device].update(types)
    return updates


def make_copies_grid(graph: Graph) -> Grid:
    """Return the tensors that each device sends to another in a step."""
    head = ["From", "to", "tensors per step", "bytes", "largest"]
    lines = []
    for copy in graph.copies or ():
        largest = [
            f"{tensor.name} {format_bytes(tensor.bytes)}"
            for tensor in copy.largest[:_MAX_NAMED_TENSORS]
        ]
        line = [
            _shorten_device(copy.source),
            _shorten_device(copy.target),
            f"{copy.pairs:,}",
            _format_size(copy.bytes, copy.of_unknown_size),
            ", ".join(largest),
        ]
        lines.append(line)
    return Grid("Sent from device to device in a step", head, lines)


def _format_exact_size(num_bytes: int | None) -> str:
    return "of varying size" if num_bytes is None else f"{num_bytes:,} B"


def _make_variables_grid(graph: Graph) -> Grid:
    """Return the copies or parts of each variable, with slots, gradients and updates."""
    variables = _list_placed_variables(graph)
    by_name = group_by(variables, [variable.name for variable in variables])
    columns: Columns = {
        "Variable": lambda copies: copies[0].name,
        "held on": lambda copies: _format_devices(
            variable.device for variable in copies
        ),
        "bytes": lambda copies: format_bytes(
            sum(variable.bytes for variable in copies)
        ),
        "slots": _make_slots_cell,
        "gradients": lambda copies: _make_gradients_cell(
            _list_unique_gradients(copies)
        ),
        "updated on": lambda copies: _format_devices(
            variable.update.device for variable in copies
        ),
    }
    caption = "Each variable, with all its copies or parts"
    return make_grid(caption, columns, by_name.values())


def _make_slots_cell(copies: Sequence[PlacedVariable]) -> str:
    slots: list[Slot] = []
    for variable in copies:
        slots += variable.slots
    if not slots:
        return "none"
    num_bytes = sum(slot.bytes for slot in slots)
    return (
        f"{format_bytes(num_bytes)} on {_format_devices(slot.device for slot in slots)}"
    )


def _make_gradients_cell(gradients: Sequence[Gradient]) -> str:
    if not gradients:
        return "none"
    known_sizes = [
        gradient.bytes for gradient in gradients if gradient.bytes is not None
    ]
    kinds = "/".join(sorted({gradient.kind for gradient in gradients}))
    places = _format_devices(gradient.device for gradient in gradients)
    num_unknown = len(gradients) - len(known_sizes)
    return f"{kinds}, {_format_size(sum(known_sizes), num_unknown)} on {places}"


def _shorten_device(device: str) -> str:
    """Return "CPU:0" of /job:localhost/replica:0/task:0/device:CPU:0."""
    return device.rpartition("device:")[2] or "no device"


def _format_size(num_bytes: int, num_unknown: int) -> str:
    """Return bytes as text, and the number of tensors that they do not include.

    Rows of a batch without a fixed length have no size.
    """
    if not num_unknown:
        return format_bytes(num_bytes)
    unknown_text = f"{num_unknown} of unknown size"
    return f"{format_bytes(num_bytes)} + {unknown_text}" if num_bytes else unknown_text


def _list_placed_variables(graph: Graph) -> tuple[PlacedVariable, ...]:
    return graph.placement.variables if graph.placement else ()


def _list_unique_gradients(variables: Sequence[PlacedVariable]) -> list[Gradient]:
    """Return each tower's gradient of each variable once.

    Every part of a variable in parts contains the same gradients.
    """
    gradients = {}
    for variable in variables:
        for gradient in variable.gradients:
            gradients[variable.name, gradient.tower] = gradient
    return list(gradients.values())


def _format_devices(devices: Iterable[str]) -> str:
    """Return the devices, each once, in order of appearance."""
    return " ".join(dict.fromkeys(map(_shorten_device, devices)))
