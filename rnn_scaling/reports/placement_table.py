"""Where a run's variables, slots, gradients, updates and operators are, and what travels, as tables. Pure.

What `log_device_placement` would print for each operator, added up.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

from rnn_scaling.files.markdown import markdown_table
from rnn_scaling.records.record import RunRecord
from rnn_scaling.records.step_names import COLLECTIVES
from rnn_scaling.records.step_parts import Gradient, Graph, PlacedVariable, Slicing

SHARED_MEMORY = "Logical CPU devices share the machine's memory: what one sends to another is passed on and not copied."
Grid = tuple[list[str], list[list[str]]]  # header, lines
LARGEST = 3  # tensors of each direction that are named


def markdown(run: RunRecord, variables: bool = True) -> str:
    """The placement of a traced run: its devices, what they send each other and, if wanted, every variable."""
    graph = run.graph
    if graph is None:
        return ""
    parts = ["What is on each device:\n", markdown_table(*devices_grid(graph))]
    head, lines = copies_grid(graph)
    collectives = _collectives(graph)
    if lines:
        parts += ["What one device sends to another in a step:\n", markdown_table(head, lines)]
        if run.resolved.device_type == "CPU":
            parts.append(f"{SHARED_MEMORY}\n")
    elif not collectives:
        parts.append("No device sends another anything.\n")
    if graph.slicing is not None:
        parts += [f"{_how_sliced(graph.slicing)}\n", markdown_table(*_slices_grid(graph.slicing))]
    if collectives:
        parts.append(f"What collective operators exchange is not counted here: {collectives}.\n")
    if variables:
        parts += ["Each variable, all its copies or parts together:\n", markdown_table(*variables_grid(graph))]
    return "\n".join(parts)


def _collectives(graph: Graph) -> str:
    """ "4 CollectiveReduceV2, ...": operators whose devices reach each other without a send and a receive."""
    by_type = graph.partitions.by_type
    return ", ".join(f"{n} {kind}" for kind, n in sorted(by_type.items()) if kind.lstrip("_").startswith(COLLECTIVES))


def devices_grid(graph: Graph) -> Grid:
    """A line a device: bytes of variables, slots and gradients on it, updates and operators that run there.

    Args:
      graph: a record's `graph`.
    """
    variables = _variables(graph)
    bytes_on: dict[str, Counter[str]] = defaultdict(Counter)
    updates: dict[str, Counter[str]] = defaultdict(Counter)
    for each in variables:
        bytes_on[each.device]["variables"] += each.bytes
        for slot in each.slots:
            bytes_on[slot.device]["slots"] += slot.bytes
        updates[each.update.device].update(each.update.types or ["of unknown type"])
    unknown: dict[str, Counter[str]] = defaultdict(Counter)
    for gradient in _gradients(variables):
        bytes_on[gradient.device][gradient.kind] += gradient.bytes or 0
        unknown[gradient.device][gradient.kind] += gradient.bytes is None
    operators = graph.partitions.by_device or {}
    head = ["Device", "variables", "slots", "dense gradients", "gradients as rows", "updates", "operators"]
    lines = [
        [
            short(device),
            *(_size(bytes_on[device][part], unknown[device][part]) for part in ("variables", "slots", "dense", "rows")),
            ", ".join(f"{count} {kind}" for kind, count in sorted(updates[device].items())) or "0",
            f"{operators.get(device, 0):,}",
        ]
        for device in sorted({*bytes_on, *updates, *operators})
    ]
    return head, lines


def copies_grid(graph: Graph) -> Grid:
    """A line a direction: tensors that one device sends to another in a step."""
    head = ["From", "to", "tensors a step", "bytes", "the largest"]
    lines = []
    for each in graph.copies or ():
        largest = ", ".join(f"{tensor.name} {size(tensor.bytes)}" for tensor in each.largest[:LARGEST])
        sent = _size(each.bytes, each.of_unknown_size)
        lines.append([short(each.source), short(each.target), f"{each.pairs:,}", sent, largest])
    return head, lines


def _slices_grid(slicing: Slicing) -> Grid:
    """A line a direction: bytes of the global batch that move in a step, as predicted and as counted."""
    head = ["From", "to", "of the batch, predicted", "in the graph"]
    return head, [
        [short(move.source), short(move.target), *(_exact(n) for n in (move.predicted, move.counted))]
        for move in slicing.moves
    ]


def _how_sliced(slicing: Slicing) -> str:
    parts = ", ".join(f"{part.name} {_exact(part.bytes)} ({part.read})" for part in slicing.parts)
    return f"The global batch is cut on the {slicing.on}. Its parts, and what reads them: {parts}."


def _exact(num_bytes: int | None) -> str:
    return "of varying size" if num_bytes is None else f"{num_bytes:,} B"


def variables_grid(graph: Graph) -> Grid:
    """A line a variable: its copies or parts, their slots, its gradients and updates."""
    by_name: dict[str, list[PlacedVariable]] = defaultdict(list)
    for each in _variables(graph):
        by_name[each.name].append(each)
    head = ["Variable", "held on", "bytes", "slots", "gradients", "updated on"]
    lines = []
    for name, copies in by_name.items():
        gradients = _gradients(copies)
        slots = [slot for each in copies for slot in each.slots]
        lines.append(
            [
                name,
                _places(each.device for each in copies),
                size(sum(each.bytes for each in copies)),
                f"{size(sum(slot.bytes for slot in slots))} on {_places(s.device for s in slots)}" if slots else "none",
                f"{'/'.join(sorted({g.kind for g in gradients}))}, {_gradient_bytes(gradients)} on "
                f"{_places(g.device for g in gradients)}",
                _places(each.update.device for each in copies),
            ]
        )
    return head, lines


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
    rest = f"{unknown} of unknown size"
    return f"{size(num_bytes)} + {rest}" if num_bytes else rest


def _variables(graph: Graph) -> tuple[PlacedVariable, ...]:
    return graph.placement.variables if graph.placement else ()


def _gradients(variables: Sequence[PlacedVariable]) -> list[Gradient]:
    """Each tower's gradient of each variable, once: a variable in parts has its gradients with every part."""
    each_once = {(each.name, gradient.tower): gradient for each in variables for gradient in each.gradients}
    return list(each_once.values())


def _gradient_bytes(gradients: Sequence[Gradient]) -> str:
    known = [gradient.bytes for gradient in gradients if gradient.bytes is not None]
    return size(sum(known)) if len(known) == len(gradients) else "of unknown size"  # rows of a batch of any length


def _places(devices: Any) -> str:
    """The devices, each once, in order of appearance."""
    return " ".join(dict.fromkeys(short(device) for device in devices))
