"""Find repeats that are far slower than the others.

One rule for imported rates and MLPerf's scores.
"""

import statistics
from collections.abc import Sequence

from rnn_scaling.records.importers.cost_series import compute_robust_deviation

_MIN_REPEATS = 4  # with fewer repeats, no value is an outlier
_MAX_SHARE_OF_MEDIAN = 0.8  # a value above this share is not called slow
_MIN_DEVIATIONS = 5.0  # a slow value is this many standard deviations below the median


def find_slow_limit(speeds: Sequence[float]) -> float:
    """Return the speed below which one of several repeats is far slower.

    Args:
      speeds: Speed of each repeat; larger is better.

    Returns:
      0.0 if there are fewer than _MIN_REPEATS, or if their scatter is too large.
    """
    if len(speeds) < _MIN_REPEATS:
        return 0.0
    middle = statistics.median(speeds)
    far_below = middle - _MIN_DEVIATIONS * compute_robust_deviation(speeds)
    return max(0.0, min(_MAX_SHARE_OF_MEDIAN * middle, far_below))
