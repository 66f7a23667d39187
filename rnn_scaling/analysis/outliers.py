"""Find repeats that are far slower than the others."""

import statistics
from collections.abc import Sequence

from rnn_scaling.records.importers.cost_series import robust_deviation

_LEAST_REPEATS = 4  # with fewer repeats, no value is an outlier
SLOWER = 0.8  # share of the median; a higher value is not called slow
_SCATTERS = 5.0  # standard deviations below the median


def slow_limit(speeds: Sequence[float]) -> float:
    """Return the speed below which one of several repeats is far slower.

    Args:
      speeds: Speed of each repeat; larger is better.

    Returns:
      0.0 if there are fewer than _LEAST_REPEATS, or if their scatter is too large.
    """
    if len(speeds) < _LEAST_REPEATS:
        return 0.0
    middle = statistics.median(speeds)
    far_below = middle - _SCATTERS * robust_deviation(speeds)
    return max(0.0, min(SLOWER * middle, far_below))
