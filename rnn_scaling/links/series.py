"""What was measured: times of one link or algorithm over sizes; JSON, sizes in words, bandwidths. Pure functions."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from rnn_scaling.links.fit import Fit, best, quantile

MEMORY, COPY, ALL_REDUCE = "memory", "copy", "all_reduce"
FLOAT32_BYTES = 4
MOST_DRIFT = 1.25  # between passes; beyond, they did not measure the same machine


@dataclasses.dataclass(frozen=True)
class Point:
    num_bytes: int  # of a transfer; of an all-reduce, bytes of each rank's tensor
    seconds: tuple[float, ...]  # raw times of one transfer, each the mean of `calls` transfers in a row
    calls: int = 1  # transfers in a row
    wrong: int | None = None  # elements that differ from the right ones; None: not compared

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
        return busbw_gb_per_s(point.num_bytes, point.median_s, self.ranks) if self.kind == ALL_REDUCE else rate

    def fitted(self) -> Fit | None:
        """alpha + bytes / beta through the medians, `traffic` counted in bytes; None for too few sizes."""
        line = best(self.sizes, self.medians_s)
        if line is None or line.beta_gb_per_s is None or line.beta_error_gb_per_s is None or self.traffic < 2:
            return line
        beta, error = self.traffic * line.beta_gb_per_s, self.traffic * line.beta_error_gb_per_s
        return dataclasses.replace(line, beta_gb_per_s=beta, beta_error_gb_per_s=error, traffic=self.traffic)


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
        raise ValueError(f"expected seconds > 0 and ranks >= 1, got {seconds} and {num_ranks}")
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
    return {**dataclasses.asdict(series), "fit": None if line is None else dataclasses.asdict(line)}


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
        points.append(Point(size, tuple(t for p in passes for t in p.seconds), passes[0].calls, wrong))
    errors = list(dict.fromkeys(part.error for part in parts if part.error))
    notes = dict.fromkeys(note for part in parts for note in part.notes)
    ratio = drift(parts)
    if ratio is not None and not 1 / MOST_DRIFT <= ratio <= MOST_DRIFT:
        notes[f"the last pass took {ratio:.2f} times as long as the first: other load; measure again"] = None
    return dataclasses.replace(first, points=tuple(points), notes=tuple(notes), error="; ".join(errors))


def drift(parts: Sequence[Series]) -> float | None:
    """Time of the last pass over that of the first: the median over their common sizes; None for a single pass."""
    first, last = ({point.num_bytes: point.median_s for point in part.points} for part in (parts[0], parts[-1]))
    ratios = [last[size] / first[size] for size in first if size in last]
    return quantile(ratios, 0.5) if ratios and len(parts) > 1 else None
