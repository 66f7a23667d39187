"""How sure the rate of one process is by its own batches, which follow each other and are alike. Pure functions."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

Numbers = Sequence[float] | np.ndarray
MIN_BATCHES = 10  # fewer batches of one process say too little about their own spread


def within_process(step_s: Numbers, items: Numbers) -> float | None:
    """Relative standard error of one process's rate from its own batches, autocorrelation included.

    The rate is a ratio of sums, so its error is the long-run error of seconds - items/rate. The long-run variance is
    the mean square of the first cosine coefficients (fewer with fewer batches), each with one degree of freedom.

    Returns:
      The standard error / rate, to be used with Student's t of `cosines(n)` degrees; None below MIN_BATCHES batches.

    Source: Lazarus, Lewis, Stock and Watson, "HAR Inference", JBES 36(4), 2018, doi:10.1080/07350015.2018.1506926.
    """
    check_batches(step_s, items)
    n = len(step_s)
    if n < MIN_BATCHES:
        return None
    seconds, work = np.asarray(step_s, float), np.asarray(items, float)
    whole = seconds.sum()
    residual = (seconds - work * (whole / work.sum())) / (whole / n)
    return math.sqrt(long_run_variance(residual) / n)


def long_run_variance(values: np.ndarray) -> float:
    """n times the variance of the mean of a stationary series `[n]`, from its `cosines(n)` slowest cosines."""
    n = len(values)
    centred = values - values.mean()
    mirrored = np.fft.rfft(np.concatenate([centred, centred[::-1]]))  # a cosine transform is one of the mirrored series
    order = np.arange(1, cosines(n) + 1)
    cosine = (mirrored[order] * np.exp(-0.5j * math.pi * order / n)).real / 2
    return float(np.mean(cosine**2) * 2 / n)


def cosines(n: int) -> int:
    """How many cosines the long-run variance of n values is made of: 0.4 n^(2/3), at least 3."""
    return max(3, round(0.4 * n ** (2 / 3)))


def check_batches(step_s: Numbers, items: Numbers) -> None:
    """Raises ValueError if the lists are empty or differ in length, or a value is not positive and finite."""
    if not len(step_s) or len(step_s) != len(items):
        raise ValueError(f"expected seconds and items of the same batches, got {len(step_s)} and {len(items)}")
    for name, numbers in (("seconds", step_s), ("items", items)):
        if not isinstance(numbers, np.ndarray) and min(numbers) > 0 and all(map(math.isfinite, numbers)):
            continue  # thousands of short runs are told sooner than they are arrays
        values = np.asarray(numbers, float)
        wrong = np.flatnonzero(~(np.isfinite(values) & (values > 0)))
        if len(wrong):
            raise ValueError(f"expected positive {name}, got {values[wrong[0]]} in batch {wrong[0]}")
