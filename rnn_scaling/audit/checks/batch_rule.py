"""Weak scaling keeps the batch size of a device, strong scaling that of all: a series that does both is two series."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rnn_scaling.audit import batches
from rnn_scaling.audit.finding import UNLIKELY, Finding, name_row, of_row
from rnn_scaling.audit.having import WithDevices, having
from rnn_scaling.audit.scaling_table import ScalingRow, ScalingTable


def check(name: str, table: ScalingTable, rows: Sequence[ScalingRow]) -> Iterator[Finding | None]:
    """Yields a finding when the rows of one series mix weak and strong scaling, None when they do not.

    Args:
      name: of the check that the finding belongs to.
      table: that the rows stand in.
      rows: of one series. Nothing is said of fewer than three numbers of devices, nor where the same devices have
        several batch sizes: those are series of their own.
    """
    if "accumulation" in table.roles.values():
        return  # a global batch is what was accumulated
    by_devices: dict[int, WithDevices] = {}
    for row in having(rows, WithDevices):
        if batches.size(row) and batches.size(by_devices.setdefault(row.devices, row)) != batches.size(row):
            return
    known = [row for _, row in sorted(by_devices.items())]
    if len(known) < 3 or len({bool(row.global_batch_size) for row in known}) > 1:
        return
    weak, strong = batches.keeping(known)
    together = [batches.of_all(row) for row in known]
    grows = all(left.low <= right.high for left, right in zip(together, together[1:]))
    if len(weak) == len(known) or len(strong) == len(known) or grows:
        yield None
        return
    members = strong if len(strong) >= len(weak) else weak
    yield _finding(name, table, known, [row for k, row in enumerate(known) if k not in members])


def _finding(name: str, table: ScalingTable, known: Sequence[WithDevices], odd: Sequence[WithDevices]) -> Finding:
    field = "global_batch_size" if known[0].global_batch_size else "batch_size"
    sizes = ", ".join(f"{batches.size(row):g}" for row in known)
    devices = ", ".join(str(row.devices) for row in known)
    totals = ", ".join(f"{batches.size(row) * (1 if row.global_batch_size else row.devices):g}" for row in known)
    cause = (
        f"mixes weak and strong: split the table. {sizes} on {devices} devices is {totals} together: neither the same "
        "in all rows (strong scaling) nor growing with the devices (weak), so that the rows are not of one series"
    )
    expected = "the size that the other rows have, a device or together"
    also = "".join(f" and {name_row(row)}" for row in odd[1:])
    return of_row(name, UNLIKELY, table, odd[0], field, expected, cause, also)
