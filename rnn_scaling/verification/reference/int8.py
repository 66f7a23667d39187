"""`--compress_gradients=int8` in NumPy: what a tower sends and what it keeps for the next step.

R: rows, D: elements of a row. Source of the feedback: Seide et al., "1-bit stochastic gradient descent", 2014.
"""

import numpy as np

LARGEST = 127


def sent(rows: np.ndarray, factor: float = 1.0) -> np.ndarray:
    """[R, D] as they arrive: whole multiples of 1/127 of a row's largest element; another `factor` is a fault."""
    scales = np.abs(rows).max(axis=1, keepdims=True, initial=0.0) / np.float32(LARGEST)
    return np.round(np.divide(rows, scales, out=np.zeros_like(rows), where=scales > 0)) * (scales * np.float32(factor))


class Feedback:
    """What one tower loses of each dense gradient, which comes with the next."""

    def __init__(self, keeps: bool = True, factor: float = 1.0) -> None:
        """factor: of what arrives; another than 1 is one, too."""
        self._keeps, self._factor = keeps, factor
        self._lost: dict[str, np.ndarray] = {}

    def dense(self, name: str, gradient: np.ndarray) -> np.ndarray:
        """What arrives of a gradient, of any shape."""
        whole = gradient + self._lost.get(name, np.float32(0.0))
        arrived = sent(whole.reshape(1, -1), self._factor).reshape(whole.shape)
        if self._keeps:
            self._lost[name] = whole - arrived
        return arrived


def gathered(shape: tuple[int, ...], ids: np.ndarray, rows: np.ndarray, factor: float = 1.0) -> np.ndarray:
    """The dense gradient [V, D] of an embedding whose touched rows [R, D] travel one by one, with a scale each."""
    total = np.zeros(shape, np.float32)
    np.add.at(total, ids, sent(rows, factor))
    return total
