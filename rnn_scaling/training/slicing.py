"""Predict the bytes that a step copies to give each tower its slice of a global batch.

A batch has B samples, of which tower i needs b_i. Consider a part of P bytes that
towers read. If it is cut on the host, P * b_i / B bytes go to tower i and P bytes to
all towers. If it is cut on the devices, P bytes go to each of N towers and N * P bytes
to all. Ids are such a part, because they number the rows of a tower's gradient. If they
are cut on the devices, P * b_i / B bytes return from each tower for the look-up. A
tower whose device is the host needs no copy.

`sliced_step` describes its cut with these classes, and `inspection` compares the
prediction with the graph.
"""

import dataclasses

from rnn_scaling.records.step_parts import SlicedPart

# The values of --slice_on: where slices are cut.
HOST = "host"
_DEVICE = "device"
# The readers of a part of the batch. Records contain them, so they never change.
# The parts of a step that read a tensor.
TOWER = "tower"  # the towers only
LOOKUP = "lookup"  # the towers and a look-up on the host
ELSEWHERE = "lookup elsewhere"  # the towers and a look-up on another device
LOSS = "loss"  # the loss only
STATIC = "known"  # no operator, because its values are constants of the graph


@dataclasses.dataclass(frozen=True)
class Cut:
    """How a global batch is cut."""

    location: str  # HOST or DEVICE
    parts: tuple[SlicedPart, ...]
    batch_sizes: tuple[int, ...]  # samples of each tower


def predict_bytes(cut: Cut, tower: int) -> tuple[int, int] | None:
    """Return the bytes of the batch that a step copies between host and a tower.

    Returns:
      The bytes from the host to the tower's device, which is not the host, and back.
      None if the lengths of sentences vary, or if rows are looked up on other devices.
    """
    samples = cut.batch_sizes[tower]
    all_samples = sum(cut.batch_sizes)
    cuts_on_devices = cut.location == _DEVICE
    bytes_sent = 0
    bytes_returned = 0
    for part in cut.parts:
        if part.read in (LOSS, STATIC):
            continue
        if part.bytes is None or part.read == ELSEWHERE:
            return None
        # All samples have the same number of bytes.
        tower_bytes = part.bytes // all_samples * samples
        bytes_sent += part.bytes if cuts_on_devices else tower_bytes
        if cuts_on_devices and part.read == LOOKUP:
            bytes_returned += tower_bytes
    return bytes_sent, bytes_returned
