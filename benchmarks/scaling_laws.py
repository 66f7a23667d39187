"""Simple laws of scaling that a prediction is compared with, each fitted by least squares of relative errors.

n devices have the rate X(n) in items/s. All coefficients except the line's are at least 0.

    line    X = a + b n
    Amdahl  1/X = a + b/n                              G. Amdahl, AFIPS 1967
    USL     1/X = a/n + b (n-1)/n + c (n-1)            N. Gunther, Guerrilla Capacity Planning, 2007
    ring    1/X = a/n + b 2(n-1)/n^2 if scaling is weak, 1/X = a/n + b 2(n-1)/n if it is strong

Two points do not determine the universal scalability law (USL). Of equally good fits, the one with fewest terms is
taken.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np

from rnn_scaling.analysis.prediction.curves import STRONG, WEAK

LAWS = ("line", "Amdahl", "USL", "ring")
BETTER = 1e-9  # by how much more terms must reduce the sum of squared relative errors

Terms = tuple[Callable[[np.ndarray], np.ndarray], ...]
TERMS: dict[tuple[str, str], Terms] = {
    ("Amdahl", ""): (np.ones_like, lambda n: 1 / n),
    ("USL", ""): (lambda n: 1 / n, lambda n: (n - 1) / n, lambda n: n - 1),
    ("ring", WEAK): (lambda n: 1 / n, lambda n: 2 * (n - 1) / n**2),
    ("ring", STRONG): (lambda n: 1 / n, lambda n: 2 * (n - 1) / n),
}


def extrapolated(
    law: str, n: np.ndarray, rates: np.ndarray, scaling: str, more: np.ndarray
) -> np.ndarray:
    """Rates `[k]` on `more` devices `[k]`, by a law of LAWS fitted to the `rates` `[j]` on `n` devices `[j]`."""
    n, more = n.astype(float), more.astype(float)
    if law == "line":
        slope, start = np.polyfit(n, rates, 1, w=1 / rates)
        return start + slope * more
    terms = TERMS[law, scaling if law == "ring" else ""]
    columns = np.stack([rates * term(n) for term in terms], axis=-1)
    return 1 / (np.stack([term(more) for term in terms], axis=-1) @ _fitted(columns))


def _fitted(columns: np.ndarray) -> np.ndarray:
    """Coefficients `[k]`, none negative, that make the sum of `columns` `[j, k]` closest to 1."""
    best, fewest = np.inf, np.zeros(columns.shape[1])
    for size in range(1, columns.shape[1] + 1):
        for chosen in map(list, itertools.combinations(range(columns.shape[1]), size)):
            found = np.linalg.lstsq(
                columns[:, chosen], np.ones(len(columns)), rcond=None
            )[0]
            error = float(np.sum((columns[:, chosen] @ found - 1) ** 2))
            if found.min() >= 0 and error < best - BETTER:
                best, fewest = error, np.zeros(columns.shape[1])
                fewest[chosen] = found
    return fewest
