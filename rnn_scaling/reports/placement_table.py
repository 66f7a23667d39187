"""Where a run's variables, slots, gradients, updates and operators are, and what travels, as tables. Pure.

What `log_device_placement` would print for each operator, added up.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

from rnn_scaling.analysis.statements import Statement
from rnn_scaling.records.record import RunRecord
from rnn_scaling.records.step_parts import (
    COLLECTIVES,
    Gradient,
    Graph,
    PlacedVariable,
    Slot,
)
from rnn_scaling.reports.sections import Columns, Grid, Section, make_grid

LARGEST = 3  # tensors of each direction that are named


def section(label: str, run: RunRecord, variables: bool = True) -> Section:
    """The placement of a traced run: its devices, what they send each other and, if wanted, every variable."""
    title, graph = f"Placement of {label}", run.graph
    if graph is None:
        return Section(title)
    grids, notes = [devices_grid(graph)], []
    collectives = [
        f"{count} {kind}"
        for kind, count in sorted(graph.partitions.by_type.items())
        if kind.lstrip("_").startswith(
            COLLECTIVES
        )  # devices reach each other without a send and a receive
    ]
    if (copies := copies_grid(graph)).lines:
        grids.append(copies)
        notes += (
            [Statement("shared-memory")] if run.resolved.device_type == "CPU" else []
        )
    elif not collectives:
        notes.append(Statement("nothing-sent"))
    if slicing := graph.slicing:
        parts = [
            f"{part.name} {_exact(part.bytes)} ({part.read})" for part in slicing.parts
        ]
        notes.append(Statement("slicing", values={"on": slicing.on, "parts": parts}))
        moves = [
            [short(m.source), short(m.target), _exact(m.predicted), _exact(m.counted)]
            for m in slicing.moves
        ]
        grids.append(
            Grid(
                "Bytes of the batch sent in a step",
                ["From", "to", "predicted", "in the graph"],
                moves,
            )
        )
    if collectives:
        notes.append(
            Statement("collectives-not-counted", values={"operators": collectives})
        )
    if variables:
        grids.append(variables_grid(graph))
    return Section(title, tuple(grids), tuple(notes))


def devices_grid(graph: Graph) -> Grid:
    """A line for each device: bytes of variables, slots and gradients, updates and operators that run there."""
    variables = _variables(graph)
    trains = any(variable.update.types for variable in variables)
    bytes_on: dict[str, Counter[str]] = defaultdict(Counter)
    updates: dict[str, Counter[str]] = defaultdict(Counter)
    for variable in variables:
        bytes_on[variable.device]["variables"] += variable.bytes
        for slot in variable.slots:
            bytes_on[slot.device]["slots"] += slot.bytes
        if trains:
            updates[variable.update.device].update(
                variable.update.types or ["of unknown type"]
            )
    unknown: dict[str, Counter[str]] = defaultdict(Counter)
    for gradient in _gradients(variables):
        bytes_on[gradient.device][gradient.kind] += gradient.bytes or 0
        unknown[gradient.device][gradient.kind] += gradient.bytes is None
    operators = graph.partitions.by_device or {}
    head = [
        "Device",
        "variables",
        "slots",
        "dense gradients",
        "gradients as rows",
        "updates",
        "operators",
    ]
    lines = [
        [
            short(device),
            *(
                _size(bytes_on[device][part], unknown[device][part])
                for part in ("variables", "slots", "dense", "rows")
            ),
            ", ".join(
                f"{count} {kind}" for kind, count in sorted(updates[device].items())
            )
            or "0",
            f"{operators.get(device, 0):,}",
        ]
        for device in sorted({*bytes_on, *updates, *operators})
    ]
    return Grid("On each device", head, lines)


def copies_grid(graph: Graph) -> Grid:
    """A line for each direction: tensors that one device sends to another in a step."""
    head = ["From", "to", "tensors per step", "bytes", "largest"]
    lines = []
    for copy in graph.copies or ():
        largest = ", ".join(
            f"{tensor.name} {size(tensor.bytes)}" for tensor in copy.largest[:LARGEST]
        )
        sent = _size(copy.bytes, copy.of_unknown_size)
        lines.append(
            [short(copy.source), short(copy.target), f"{copy.pairs:,}", sent, largest]
        )
    return Grid("Sent from device to device in a step", head, lines)


def _exact(num_bytes: int | None) -> str:
    return "of varying size" if num_bytes is None else f"{num_bytes:,} B"


def variables_grid(graph: Graph) -> Grid:
    """A line for each variable: its copies or parts, their slots, its gradients and updates."""
    by_name: dict[str, list[PlacedVariable]] = defaultdict(list)
    for variable in _variables(graph):
        by_name[variable.name].append(variable)
    columns: Columns = {
        "Variable": lambda copies: copies[0].name,
        "held on": lambda copies: _places(variable.device for variable in copies),
        "bytes": lambda copies: size(sum(variable.bytes for variable in copies)),
        "slots": lambda copies: _slots_cell(
            [slot for variable in copies for slot in variable.slots]
        ),
        "gradients": lambda copies: _gradients_cell(_gradients(copies)),
        "updated on": lambda copies: _places(
            variable.update.device for variable in copies
        ),
    }
    return make_grid(
        "Each variable, with all its copies or parts", columns, by_name.values()
    )


def _slots_cell(slots: Sequence[Slot]) -> str:
    return (
        f"{size(sum(slot.bytes for slot in slots))} on {_places(slot.device for slot in slots)}"
        if slots
        else "none"
    )


def _gradients_cell(gradients: Sequence[Gradient]) -> str:
    known = [gradient.bytes for gradient in gradients if gradient.bytes is not None]
    kinds = "/".join(sorted({gradient.kind for gradient in gradients}))
    places = _places(gradient.device for gradient in gradients)
    return f"{kinds}, {_size(sum(known), len(gradients) - len(known))} on {places}"


def short(device: str) -> str:
    """`CPU:0` of /job:localhost/replica:0/task:0/device:CPU:0."""
    return device.rpartition("device:")[2] or "no device"


def size(num_bytes: int) -> str:
    """Bytes in words: 0, 512 B, 31.2 KiB, 8.25 MiB."""
    if num_bytes < 1024:
        return f"{num_bytes} B" if num_bytes else "0"
    number = float(num_bytes)
    for unit in ("KiB", "MiB"):
        number /= 1024
        if number < 1024:
            return f"{number:.3g} {unit}" if number < 999.5 else f"{number:.0f} {unit}"
    return f"{number / 1024:.3g} GiB"


def _size(num_bytes: int, unknown: int) -> str:
    """Bytes in words, and how many tensors are not in them: rows of a batch whose length is not fixed have no size."""
    if not unknown:
        return size(num_bytes)
    further = f"{unknown} of unknown size"
    return f"{size(num_bytes)} + {further}" if num_bytes else further


def _variables(graph: Graph) -> tuple[PlacedVariable, ...]:
    return graph.placement.variables if graph.placement else ()


def _gradients(variables: Sequence[PlacedVariable]) -> list[Gradient]:
    """Each tower's gradient of each variable, once: a variable in parts has its gradients with every part."""
    each_once = {
        (variable.name, gradient.tower): gradient
        for variable in variables
        for gradient in variable.gradients
    }
    return list(each_once.values())


def _places(devices: Any) -> str:
    """The devices, each once, in order of appearance."""
    return " ".join(dict.fromkeys(short(device) for device in devices))
