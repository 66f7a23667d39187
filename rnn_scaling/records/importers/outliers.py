"""Find values that are far below the others."""

import statistics
from collections.abc import Sequence

LEAST_REPEATS = 4  # with fewer repeats, no value is an outlier
SLOWER = 0.8  # share of the median; a higher value is not called slow
SCATTERS = 5.0  # standard deviations below the median
_TO_DEVIATION = 1.4826  # normal distribution: deviation / median absolute deviation


def robust_deviation(values: Sequence[float]) -> float:
    """Return the standard deviation that the median absolute deviation implies."""
    middle = statistics.median(values)
    return _TO_DEVIATION * statistics.median(abs(value - middle) for value in values)


def slow_limit(speeds: Sequence[float]) -> float:
    """Return the speed below which one of several repeats is far slower.

    Args:
      speeds: Speed of each repeat; larger is better.

    Returns:
      0.0 if there are fewer than LEAST_REPEATS, or if their scatter is too large.
    """
    if len(speeds) < LEAST_REPEATS:
        return 0.0
    middle = statistics.median(speeds)
    far_below = middle - SCATTERS * robust_deviation(speeds)
    return max(0.0, min(SLOWER * middle, far_below))
