"""Transfer times of a link or an algorithm by size: fits, bandwidths and JSON.

The time of a transfer is fitted as alpha + bytes / beta. No function here reads a
clock or a file.

`to_json` writes all fields of `Series` and `Fit` to links.json, which `predict --links`
reads: never rename one.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

SCHEMA = "rnn_scaling.links/1"  # schema of links.json
MEMORY = "memory"
COPY = "copy"
ALL_REDUCE = "all_reduce"
FLOAT32_BYTES = 4
_MAX_DRIFT = 1.25  # a larger ratio between passes means that other load changed
MAX_FIT_RESIDUAL = 0.15  # largest relative residual of a fit that holds
_MIN_POINTS = 4  # two for alpha and beta, and two that can contradict the line


@dataclasses.dataclass(frozen=True)
class Fit:
    """A straight line fitted to the times of transfers by their bytes.

    Attributes:
      alpha_us: The time of a transfer of 0 bytes.
      alpha_error_us: The standard error of alpha_us.
      beta_gb_per_s: Bandwidth in 10**9 bytes per second; None if the time does not grow
        with the bytes by more than the error of the slope.
      beta_error_gb_per_s: The standard error of beta_gb_per_s.
      largest_residual: The largest |line - time| / time.
      from_bytes: The size of the smallest fitted transfer.
      to_bytes: The size of the largest fitted transfer.
      num_points: The number of fitted points.
      traffic: Bytes per byte of size that beta_gb_per_s includes; see `Series`.
    """

    alpha_us: float
    alpha_error_us: float
    beta_gb_per_s: float | None
    beta_error_gb_per_s: float | None
    largest_residual: float
    from_bytes: int
    to_bytes: int
    num_points: int
    traffic: int = 1

    @property
    def holds(self) -> bool:
        """Whether the line explains all points, and alpha is not clearly negative.

        A line explains a point within MAX_FIT_RESIDUAL. A clearly negative alpha means
        that the bandwidth changes with the size, for example where a cache ends.
        """
        return (
            self.largest_residual <= MAX_FIT_RESIDUAL
            and self.alpha_us >= -2 * self.alpha_error_us
        )

    def seconds(self, num_bytes: float) -> float:
        """Return the time of a transfer on the line."""
        slope = 0.0
        if self.beta_gb_per_s is not None:
            slope = 1e-9 * self.traffic / self.beta_gb_per_s
        return 1e-6 * self.alpha_us + slope * num_bytes


def fit_line(num_bytes: Sequence[int], seconds: Sequence[float]) -> Fit:
    """Fit a line by least squares of relative errors.

    Relative errors make 4 bytes count as much as 256 MiB.

    Args:
      num_bytes: At least three sizes in ascending order, which are not all equal.
      seconds: The time of each size, above 0.

    Raises:
      ValueError: If the sizes or times break these rules.
    """
    if len(num_bytes) < 3 or len(num_bytes) != len(seconds):
        raise ValueError(
            "expected three sizes or more and a time for each, got "
            f"{len(num_bytes)} sizes and {len(seconds)} times"
        )
    if list(num_bytes) != sorted(num_bytes) or num_bytes[0] == num_bytes[-1]:
        raise ValueError(
            f"expected sizes in ascending order, got {', '.join(map(str, num_bytes))}"
        )
    if not all(t > 0 and math.isfinite(t) for t in seconds):
        raise ValueError(f"expected times above 0, got {min(seconds)}")
    import numpy as np  # --help and errors of flags do not need it.

    unit = max(num_bytes)  # Sums near 1 have smaller rounding errors.
    relative_sizes = np.array(num_bytes) / unit
    times = np.array(seconds)
    (slope, alpha), covariance = np.polyfit(
        relative_sizes, times, 1, w=1 / times, cov=True
    )
    slope_error, alpha_error = np.sqrt(np.maximum(np.diag(covariance), 0))
    grows = slope > 2 * slope_error and slope > 0
    beta_gb_per_s = None
    beta_error_gb_per_s = None
    if grows:
        beta_gb_per_s = float(1e-9 * unit / slope)
        beta_error_gb_per_s = float(1e-9 * unit * slope_error / slope**2)
    residuals = alpha + slope * relative_sizes - times
    return Fit(
        alpha_us=float(1e6 * alpha),
        alpha_error_us=float(1e6 * alpha_error),
        beta_gb_per_s=beta_gb_per_s,
        beta_error_gb_per_s=beta_error_gb_per_s,
        largest_residual=float(np.max(np.abs(residuals) / times)),
        from_bytes=num_bytes[0],
        to_bytes=num_bytes[-1],
        num_points=len(num_bytes),
    )


def find_best_fit(num_bytes: Sequence[int], seconds: Sequence[float]) -> Fit | None:
    """Return the fit of the most sizes that one line can explain.

    Small sizes are left out one by one until the line holds, because their time has
    other causes. If no line holds, all sizes are fitted.

    Returns:
      None for fewer than _MIN_POINTS sizes.
    """
    if len(num_bytes) < _MIN_POINTS:
        return None
    for first in range(len(num_bytes) - _MIN_POINTS + 1):
        fit = fit_line(num_bytes[first:], seconds[first:])
        if fit.holds:
            return fit
    return fit_line(num_bytes, seconds)


def quantile(values: Sequence[float], share: float) -> float:
    """Return a quantile of values (0.5 for the median) with linear interpolation."""
    if not values:
        raise ValueError("expected a value, got none")
    import numpy as np  # --help and errors of flags do not need it.

    return float(np.quantile(values, share))


@dataclasses.dataclass(frozen=True)
class Point:
    """The times of one size.

    Attributes:
      num_bytes: Bytes of a transfer, or of each rank's tensor in an all-reduce.
      seconds: Raw times of one transfer, each the mean of `calls` in a row.
      calls: Transfers in a row.
      wrong: The number of wrong elements; None if they were not compared.
    """

    num_bytes: int
    seconds: tuple[float, ...]
    calls: int = 1
    wrong: int | None = None

    @property
    def median_s(self) -> float:
        """The median time of a transfer."""
        return quantile(self.seconds, 0.5)

    @property
    def quartiles_s(self) -> tuple[float, float]:
        """The lower and the upper quartile of the times, in seconds."""
        return quantile(self.seconds, 0.25), quantile(self.seconds, 0.75)


@dataclasses.dataclass(frozen=True)
class Series:
    """The times of one link or algorithm.

    Attributes:
      kind: MEMORY, COPY or ALL_REDUCE.
      name: The name of the link or algorithm.
      points: One point per size.
      traffic: Bytes that the bandwidth counts per byte of size: 2 if bytes are read and
        written, or go both ways; 0 if nothing is copied, so that there is no bandwidth.
      ranks: Ranks of an all-reduce, else 0.
      notes: Remarks for the report.
      error: Why numbers are missing or wrong, or "".
    """

    kind: str
    name: str
    points: tuple[Point, ...] = ()
    traffic: int = 1
    ranks: int = 0
    notes: tuple[str, ...] = ()
    error: str = ""

    @property
    def sizes(self) -> list[int]:
        """The bytes of each point."""
        return [point.num_bytes for point in self.points]

    @property
    def medians_s(self) -> list[float]:
        """The median time of each point."""
        return [point.median_s for point in self.points]

    def gb_per_s(self, point: Point) -> float:
        """Return the bandwidth in 10**9 bytes per second.

        For an all-reduce this is the bus bandwidth.
        """
        if self.kind == ALL_REDUCE:
            return busbw_gb_per_s(point.num_bytes, point.median_s, self.ranks)
        return self.traffic * point.num_bytes / point.median_s / 1e9

    def fit_medians(self) -> Fit | None:
        """Fit the median times, with `traffic` bytes per byte of size in beta.

        Returns:
          None for fewer than _MIN_POINTS sizes.
        """
        fit = find_best_fit(self.sizes, self.medians_s)
        if fit is None or self.traffic < 2:
            return fit
        if fit.beta_gb_per_s is None or fit.beta_error_gb_per_s is None:
            return fit
        return dataclasses.replace(
            fit,
            beta_gb_per_s=self.traffic * fit.beta_gb_per_s,
            beta_error_gb_per_s=self.traffic * fit.beta_error_gb_per_s,
            traffic=self.traffic,
        )


def busbw_gb_per_s(num_bytes: int, seconds: float, num_ranks: int) -> float:
    """Return the bus bandwidth of one all-reduce, comparable across rank counts.

    Args:
      num_bytes: Size S of each rank's tensor, in bytes.
      seconds: Duration t of one all-reduce.
      num_ranks: Number of ranks n, at least 1.

    Returns:
      S/t * 2(n-1)/n in GB/s; 0.0 for one rank.

    Raises:
      ValueError: If `seconds` or `num_ranks` is not positive.

    Source: NVIDIA/nccl-tests, doc/PERFORMANCE.md, "AllReduce".
    """
    if seconds <= 0 or num_ranks < 1:
        raise ValueError(
            f"expected seconds > 0 and ranks >= 1, got {seconds} and {num_ranks}"
        )
    return num_bytes / seconds / 1e9 * 2 * (num_ranks - 1) / num_ranks


def list_sizes(smallest: int, largest: int, factor: int) -> list[int]:
    """Return smallest, smallest * factor, ... up to the largest, inclusive."""
    sizes = [smallest]
    while sizes[-1] * factor <= largest:
        sizes.append(sizes[-1] * factor)
    return sizes


def to_json(series: Series) -> dict[str, Any]:
    """Return a series with its fit for links.json."""
    fit = series.fit_medians()
    return {
        **dataclasses.asdict(series),
        "fit": None if fit is None else dataclasses.asdict(fit),
    }


def join_passes(passes: Sequence[Series]) -> Series:
    """Return one series with the times, notes and errors of all passes.

    A note is added if the last pass differs from the first by more than _MAX_DRIFT.
    """
    points_by_size: dict[int, list[Point]] = {}
    notes: dict[str, None] = {}
    errors: dict[str, None] = {}
    for series in passes:
        for point in series.points:
            points_by_size.setdefault(point.num_bytes, []).append(point)
        notes.update(dict.fromkeys(series.notes))
        if series.error:
            errors[series.error] = None
    points = [_join_points(points_by_size[size]) for size in sorted(points_by_size)]
    drift = _measure_drift(passes)
    if drift is not None and not 1 / _MAX_DRIFT <= drift <= _MAX_DRIFT:
        note = (
            f"the last pass took {drift:.2f} times as long as the first, "
            "probably because of other load; measure again"
        )
        notes[note] = None
    return dataclasses.replace(
        passes[0], points=tuple(points), notes=tuple(notes), error="; ".join(errors)
    )


def _join_points(points: Sequence[Point]) -> Point:
    """Return a point with all times of one size, and the most wrong elements."""
    seconds: list[float] = []
    for point in points:
        seconds += point.seconds
    # A pass that ended before the comparison leaves the size unproven.
    wrong_counts = [point.wrong for point in points if point.wrong is not None]
    num_wrong = None
    if len(wrong_counts) == len(points):
        num_wrong = max(wrong_counts)
    return Point(points[0].num_bytes, tuple(seconds), points[0].calls, num_wrong)


def _measure_drift(passes: Sequence[Series]) -> float | None:
    """Return how many times as long the last pass took as the first.

    Returns:
      The median ratio over the common sizes; None for a single pass.
    """
    first = {point.num_bytes: point.median_s for point in passes[0].points}
    last = {point.num_bytes: point.median_s for point in passes[-1].points}
    ratios = [last[size] / first[size] for size in first if size in last]
    return quantile(ratios, 0.5) if ratios and len(passes) > 1 else None
