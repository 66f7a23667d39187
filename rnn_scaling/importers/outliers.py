"""Numbers far below their brothers: steps, runs and links that were slow where the others were not. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

LEAST = 4  # numbers below which none can stand out
SHARE = 0.8  # of the middle: what runs at more is not called slow
SCATTERS = 5.0  # scatters below the middle, the scatter by the median of the deviations: the slow ones do not widen it
_TO_DEVIATION = 1.4826  # of a normal distribution: standard deviation / median of the deviations


def middle(values: Sequence[float]) -> float:
    """The median; 0 of nothing."""
    return statistics.median(values) if values else 0.0


def slow(values: Sequence[float]) -> list[int]:
    """Indices of the values, of which larger is better, that lie far below the others.

    Returns:
      None of them where there are fewer than LEAST; else those below both SHARE of the median and SCATTERS scatters.
    """
    if len(values) < LEAST:
        return []
    centre = statistics.median(values)
    scatter = _TO_DEVIATION * statistics.median(abs(value - centre) for value in values)
    limit = min(SHARE * centre, centre - SCATTERS * scatter)
    return [i for i, value in enumerate(values) if value < limit]
