"""Whether every tower gets another batch at every step, where the data source promises it."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from rnn_scaling.analysis.statements import Statement
from rnn_scaling.verification.gradients import Towers

FRESH = ("device", "host", "copy", "reverse")  # sources whose batches are all drawn anew; files may end and repeat
FEWEST_IDS = 16  # of a batch: two of so few words may be equal by chance


class BatchCheck:
    """Remembers every batch by a digest."""

    def __init__(self, data_source: str) -> None:
        self._is_fresh = data_source in FRESH
        self._seen: dict[bytes, tuple[int, int]] = {}

    def fault(self, number: int, towers: Towers) -> Statement | None:
        """The first batch of a step that came before."""
        found = None
        for tower, batch in enumerate(towers.batches):
            digest = _digest(batch)
            step, instead = self._seen.setdefault(digest, (number, tower)) if digest else (number, tower)
            if (step, instead) == (number, tower) or found or not self._is_fresh:
                continue
            values = {"tower": tower, "instead": instead, "step": number, "earlier": step}
            found = Statement("input-same-batch" if step == number else "input-same-batch-later", "same batch", values)
        return found


def _digest(batch: Any) -> bytes:
    parts = [np.asarray(part) for part in batch]
    if sum(part.size for part in parts if part.ndim > 1) < FEWEST_IDS:
        return b""
    return hashlib.blake2b(b"".join(np.ascontiguousarray(part).tobytes() for part in parts)).digest()
