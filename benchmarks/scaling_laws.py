"""Simple laws of scaling that a prediction is compared with.

n devices have the rate X(n) in items/s. Each law is fitted by least squares of relative
errors. All coefficients except the line's are at least 0.

    line    X = a + b n
    Amdahl  1/X = a + b/n                     G. Amdahl, AFIPS 1967
    USL     1/X = a/n + b (n-1)/n + c (n-1)   N. Gunther, Guerrilla Capacity Planning, 2007
    ring    1/X = a/n + b 2(n-1)/n^2          if scaling is weak
            1/X = a/n + b 2(n-1)/n            if it is strong

Two points do not determine the universal scalability law (USL). Of equally good fits,
the one with fewest terms is taken.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np

from rnn_scaling.analysis.prediction.curves import STRONG, WEAK

LAWS = ("line", "Amdahl", "USL", "ring")
# More terms must reduce the sum of squared relative errors by more than this.
MIN_GAIN = 1e-9

Terms = tuple[Callable[[np.ndarray], np.ndarray], ...]

TERMS: dict[tuple[str, str], Terms] = {
    ("Amdahl", ""): (np.ones_like, lambda n: 1 / n),
    ("USL", ""): (lambda n: 1 / n, lambda n: (n - 1) / n, lambda n: n - 1),
    ("ring", WEAK): (lambda n: 1 / n, lambda n: 2 * (n - 1) / n**2),
    ("ring", STRONG): (lambda n: 1 / n, lambda n: 2 * (n - 1) / n),
}


def extrapolate(
    law: str, n: np.ndarray, rates: np.ndarray, scaling: str, more: np.ndarray
) -> np.ndarray:
    """Return the rates that a fitted law has on more devices.

    Args:
      law: One of LAWS.
      n: Numbers of devices to fit, [j].
      rates: Rates on these devices, [j].
      scaling: WEAK or STRONG.
      more: Numbers of devices to predict, [k].

    Returns:
      Rates, [k].
    """
    n = n.astype(float)
    more = more.astype(float)
    if law == "line":
        slope, start = np.polyfit(n, rates, 1, w=1 / rates)
        return start + slope * more
    terms = TERMS[law, scaling if law == "ring" else ""]
    coefficients = _fit([rates * term(n) for term in terms])
    times = np.stack([term(more) for term in terms], axis=-1) @ coefficients
    return 1 / times


def _fit(terms: list[np.ndarray]) -> np.ndarray:
    """Return coefficients >= 0 that make the sum of the terms closest to 1."""
    columns = np.stack(terms, axis=-1)
    best_error = np.inf
    coefficients = np.zeros(len(terms))
    for size in range(1, len(terms) + 1):
        for combination in itertools.combinations(range(len(terms)), size):
            chosen = list(combination)
            found = np.linalg.lstsq(
                columns[:, chosen], np.ones(len(columns)), rcond=None
            )[0]
            error = float(np.sum((columns[:, chosen] @ found - 1) ** 2))
            if found.min() >= 0 and error < best_error - MIN_GAIN:
                best_error = error
                coefficients = np.zeros(len(terms))
                coefficients[chosen] = found
    return coefficients
