"""Time of a transfer as alpha + bytes / beta: the fit, its errors, and from which size on it holds. Pure functions."""

import dataclasses
import math
from collections.abc import Sequence

HOLDS_WITHIN = 0.15  # largest relative residual with which a fit is said to hold
FEWEST_POINTS = 4  # two are spent on alpha and beta; fewer than two more could not contradict the line


@dataclasses.dataclass(frozen=True)
class Fit:
    alpha_us: float  # time of a transfer of no bytes
    alpha_error_us: float  # its standard error
    # Bandwidth in 10**9 bytes a second; None where time does not grow with bytes by more than its error.
    beta_gb_per_s: float | None
    beta_error_gb_per_s: float | None  # its standard error
    largest_residual: float  # |line - time| / time over the points
    from_bytes: int  # size of the smallest transfer that was fitted
    to_bytes: int  # of the largest
    num_points: int
    traffic: int = 1  # bytes that beta counts for each byte of size

    @property
    def holds(self) -> bool:
        """True if every point is within HOLDS_WITHIN of the line, and no transfer takes less than no time.

        An alpha clearly below 0 is what a change of bandwidth, such as from a cache's to the memory's, looks like.
        """
        return self.largest_residual <= HOLDS_WITHIN and self.alpha_us >= -2 * self.alpha_error_us

    def seconds(self, num_bytes: float) -> float:
        """The line's time of a transfer of `num_bytes`."""
        slope = 0.0 if self.beta_gb_per_s is None else 1e-9 * self.traffic / self.beta_gb_per_s
        return 1e-6 * self.alpha_us + slope * num_bytes


def fit(num_bytes: Sequence[int], seconds: Sequence[float]) -> Fit:
    """Least squares of the relative error, so that 4 bytes count as much as 256 MiB.

    Raises ValueError for fewer than three points, equal sizes, or a time that is not positive.
    """
    if len(num_bytes) < 3 or len(num_bytes) != len(seconds) or len(set(num_bytes)) < 2:
        raise ValueError(f"expected three sizes or more and a time for each, got {len(num_bytes)} and {len(seconds)}")
    if not all(t > 0 and math.isfinite(t) for t in seconds):
        raise ValueError(f"expected times above 0, got {min(seconds)}")
    unit = max(num_bytes)  # of sizes: keeps the sums near 1
    import numpy as np  # late: help and wrong flags do not wait for it

    x, times = np.array(num_bytes) / unit, np.array(seconds)
    (slope, alpha), covariance = np.polyfit(x, times, 1, w=1 / times, cov=True)
    slope_error, alpha_error = np.sqrt(np.maximum(np.diag(covariance), 0))
    grows = slope > 2 * slope_error and slope > 0
    return Fit(
        float(1e6 * alpha),
        float(1e6 * alpha_error),
        float(1e-9 * unit / slope) if grows else None,
        float(1e-9 * unit * slope_error / slope**2) if grows else None,
        float(np.max(np.abs(alpha + slope * x - times) / times)),
        num_bytes[0],
        num_bytes[-1],
        len(x),
    )


def best(num_bytes: Sequence[int], seconds: Sequence[float]) -> Fit | None:
    """The fit from the smallest size from which it holds, else over all sizes; None for fewer than FEWEST_POINTS."""
    if len(num_bytes) < FEWEST_POINTS:
        return None
    for first in range(len(num_bytes) - FEWEST_POINTS + 1):
        line = fit(num_bytes[first:], seconds[first:])
        if line.holds:
            return line
    return fit(num_bytes, seconds)


def quantile(values: Sequence[float], share: float) -> float:
    """The `share` quantile (0.5: the median), between the values linearly."""
    if not values:
        raise ValueError("expected a value, got none")
    import numpy as np  # late: help and wrong flags do not wait for it

    return float(np.quantile(values, share))
