"""What it takes to hand the slices of one global batch to the towers, in closed form: bytes that a step moves. Pure.

A part of P bytes that towers read, of a batch of B samples of which tower i has b_i: cut on the host, P * b_i / B go to
tower i and P to all; cut on the devices, P go to each of N and N * P to all. Ids are such a part, as they number the
rows of a tower's gradient; cut on the devices they come back for the look-up, P * b_i / B from each. A tower whose
device is the host costs nothing.
"""

import dataclasses

from rnn_scaling.records.step_parts import SlicedPart

# The values of --slice_on: where slices are cut.
HOST = "host"
DEVICE = "device"
TOWER = "tower"
LOOKUP = "lookup"
ELSEWHERE = "lookup elsewhere"
LOSS = "loss"
KNOWN = "known"
"""What reads a part of the batch: the towers; a look-up too, on the host or on another device; the loss alone; nobody,
for its values are known while tracing."""


@dataclasses.dataclass(frozen=True)
class Cut:
    """How a global batch is cut. on: HOST or DEVICE. batch_sizes: samples of each tower."""

    on: str
    parts: tuple[SlicedPart, ...]
    batch_sizes: tuple[int, ...]


def predicted_bytes(cut: Cut, tower: int) -> tuple[int, int] | None:
    """Bytes of the batch that the host sends to a tower's other device in a step, and that come back.

    None where the lengths of sentences vary, or rows are looked up on devices that are not the host.
    """
    samples = cut.batch_sizes[tower]
    all_samples = sum(cut.batch_sizes)
    there = 0
    back = 0
    for part in cut.parts:
        if part.read in (LOSS, KNOWN):
            continue
        if part.bytes is None or part.read == ELSEWHERE:
            return None
        tower_bytes = (
            part.bytes // all_samples * samples
        )  # every sample has as many bytes
        there += part.bytes if cut.on == DEVICE else tower_bytes
        back += tower_bytes if cut.on == DEVICE and part.read == LOOKUP else 0
    return there, back
