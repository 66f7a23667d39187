"""How evenly a row's work lay on its towers, and how much of what they computed was padding."""

from __future__ import annotations

from rnn_scaling.analysis.rows import Row, measured_batches


def imbalance(row: Row) -> float:
    """How much faster the row would be if every step's positions were spread evenly over its towers; 0: not at all.

    A step takes as long as its slowest tower, and a tower as long as it has positions (items and padding), so step k
    of t seconds would have taken t x mean / max of the towers' positions.
    """
    seconds = balanced = 0.0
    for record in row.good:
        if not record.batches.tower_positions:
            return 0.0
        step_s, _ = measured_batches(record)
        for time_s, towers in zip(step_s, record.batches.tower_positions[record.batches.warmup :]):
            seconds += time_s
            balanced += time_s * (sum(towers) / (len(towers) * max(towers)))  # of even towers exactly the time
    return max(0.0, seconds / balanced - 1) if balanced else 0.0  # rounding alone can make even towers a gain


def padding(row: Row) -> float | None:
    """Share of the computed positions that are padding; None where the record does not tell."""
    items = positions = 0
    for record in row.good:
        first = record.batches.warmup
        items += sum(sum(towers) for towers in record.batches.tower_items[first:])
        positions += sum(sum(towers) for towers in record.batches.tower_positions[first:])
    return 1 - items / positions if positions else None
