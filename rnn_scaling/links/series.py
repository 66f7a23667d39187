"""What was measured: times of one link or algorithm over sizes; JSON, sizes in words, bandwidths. Pure functions.

The time of a transfer is fitted as alpha + bytes / beta: the fit, its errors, and from which size on it holds.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

MEMORY = "memory"
COPY = "copy"
ALL_REDUCE = "all_reduce"
FLOAT32_BYTES = 4
MOST_DRIFT = 1.25  # between passes; beyond, they did not measure the same machine
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
        return (
            self.largest_residual <= HOLDS_WITHIN
            and self.alpha_us >= -2 * self.alpha_error_us
        )

    def seconds(self, num_bytes: float) -> float:
        """The line's time of a transfer of `num_bytes`."""
        slope = (
            0.0
            if self.beta_gb_per_s is None
            else 1e-9 * self.traffic / self.beta_gb_per_s
        )
        return 1e-6 * self.alpha_us + slope * num_bytes


def fit(num_bytes: Sequence[int], seconds: Sequence[float]) -> Fit:
    """Least squares of the relative error, so that 4 bytes count as much as 256 MiB.

    Raises ValueError for fewer than three points, equal sizes, or a time that is not positive.
    """
    if len(num_bytes) < 3 or len(num_bytes) != len(seconds) or len(set(num_bytes)) < 2:
        raise ValueError(
            f"expected three sizes or more and a time for each, got {len(num_bytes)} and {len(seconds)}"
        )
    if not all(t > 0 and math.isfinite(t) for t in seconds):
        raise ValueError(f"expected times above 0, got {min(seconds)}")
    unit = max(num_bytes)  # of sizes: keeps the sums near 1
    import numpy as np  # late: help and wrong flags do not wait for it

    x = np.array(num_bytes) / unit
    times = np.array(seconds)
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


def best_fit(num_bytes: Sequence[int], seconds: Sequence[float]) -> Fit | None:
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


@dataclasses.dataclass(frozen=True)
class Point:
    num_bytes: int  # of a transfer; of an all-reduce, bytes of each rank's tensor
    seconds: tuple[
        float, ...
    ]  # raw times of one transfer, each the mean of `calls` transfers in a row
    calls: int = 1  # transfers in a row
    wrong: int | None = (
        None  # elements that differ from the right ones; None: not compared
    )

    @property
    def median_s(self) -> float:
        return quantile(self.seconds, 0.5)

    @property
    def quartiles_s(self) -> tuple[float, float]:
        """Lower and upper quartile of the times, in seconds."""
        return quantile(self.seconds, 0.25), quantile(self.seconds, 0.75)


@dataclasses.dataclass(frozen=True)
class Series:
    kind: str  # MEMORY, COPY or ALL_REDUCE
    name: str
    points: tuple[Point, ...] = ()
    # Bytes that count for the bandwidth for each byte of size (2: read and written, or both ways; 0: handed over
    # without a copy, so that there is no bandwidth).
    traffic: int = 1
    ranks: int = 0  # participants of an all-reduce, else 0
    notes: tuple[str, ...] = ()
    error: str = ""  # why there are no more or no right numbers; empty when all is well

    @property
    def sizes(self) -> list[int]:
        return [point.num_bytes for point in self.points]

    @property
    def medians_s(self) -> list[float]:
        return [point.median_s for point in self.points]

    def gb_per_s(self, point: Point) -> float:
        """Bandwidth in 10**9 bytes a second: bus bandwidth of an all-reduce, else counted bytes / median time."""
        rate = self.traffic * point.num_bytes / point.median_s / 1e9
        return (
            busbw_gb_per_s(point.num_bytes, point.median_s, self.ranks)
            if self.kind == ALL_REDUCE
            else rate
        )

    def fitted(self) -> Fit | None:
        """alpha + bytes / beta through the medians, `traffic` counted in bytes; None for too few sizes."""
        line = best_fit(self.sizes, self.medians_s)
        if (
            line is None
            or line.beta_gb_per_s is None
            or line.beta_error_gb_per_s is None
            or self.traffic < 2
        ):
            return line
        beta = self.traffic * line.beta_gb_per_s
        error = self.traffic * line.beta_error_gb_per_s
        return dataclasses.replace(
            line, beta_gb_per_s=beta, beta_error_gb_per_s=error, traffic=self.traffic
        )


def busbw_gb_per_s(num_bytes: int, seconds: float, num_ranks: int) -> float:
    """Bus bandwidth of one all-reduce, comparable across rank counts.

    Args:
      num_bytes: size S of each rank's tensor, in bytes.

    Returns:
      S/t * 2(n-1)/n in GB/s; 0.0 for one rank.

    Raises:
      ValueError: if `seconds` or `num_ranks` is not positive.

    Source: NVIDIA/nccl-tests, doc/PERFORMANCE.md, "AllReduce".
    """
    if seconds <= 0 or num_ranks < 1:
        raise ValueError(
            f"expected seconds > 0 and ranks >= 1, got {seconds} and {num_ranks}"
        )
    return num_bytes / seconds / 1e9 * 2 * (num_ranks - 1) / num_ranks


def sizes_between(smallest: int, largest: int, factor: int) -> list[int]:
    """smallest, smallest * factor, ... up to the largest, inclusive."""
    sizes = [smallest]
    while sizes[-1] * factor <= largest:
        sizes.append(sizes[-1] * factor)
    return sizes


def counted(number: int, noun: str) -> str:
    """ "1 core", "8 GPUs"."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def size_text(num_bytes: float) -> str:
    """ "4 B", "64 KiB", "1.5 MiB"."""
    for unit, size in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if num_bytes >= size:
            return f"{num_bytes / size:.3g} {unit}"
    return f"{num_bytes:.0f} B"


def to_json(series: Series) -> dict[str, Any]:
    line = series.fitted()
    return {
        **dataclasses.asdict(series),
        "fit": None if line is None else dataclasses.asdict(line),
    }


def joined(parts: Sequence[Series]) -> Series:
    """One series of several passes over the same sizes: the times of all, the errors and wrong elements of any."""
    first = parts[0]
    by_size: dict[int, list[Point]] = {}
    for part in parts:
        for point in part.points:
            by_size.setdefault(point.num_bytes, []).append(point)
    points = []
    for size in sorted(by_size):
        passes = by_size[size]
        counts = [p.wrong for p in passes if p.wrong is not None]
        # A pass that did not get to the comparison leaves the size unproven.
        wrong = max(counts) if len(counts) == len(passes) else None
        points.append(
            Point(
                size,
                tuple(t for p in passes for t in p.seconds),
                passes[0].calls,
                wrong,
            )
        )
    errors = list(dict.fromkeys(part.error for part in parts if part.error))
    notes = dict.fromkeys(note for part in parts for note in part.notes)
    ratio = drift(parts)
    if ratio is not None and not 1 / MOST_DRIFT <= ratio <= MOST_DRIFT:
        notes[
            f"the last pass took {ratio:.2f} times as long as the first: other load; measure again"
        ] = None
    return dataclasses.replace(
        first, points=tuple(points), notes=tuple(notes), error="; ".join(errors)
    )


def drift(parts: Sequence[Series]) -> float | None:
    """Time of the last pass over that of the first: the median over their common sizes; None for a single pass."""
    first, last = (
        {point.num_bytes: point.median_s for point in part.points}
        for part in (parts[0], parts[-1])
    )
    ratios = [last[size] / first[size] for size in first if size in last]
    return quantile(ratios, 0.5) if ratios and len(parts) > 1 else None
