"""Whether every tower gets another batch at every step, where the data source promises it."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from rnn_scaling.verification.gradients import Towers

FRESH = ("device", "host", "copy", "reverse")  # sources whose batches are all drawn anew; files may end and repeat
FEWEST_IDS = 16  # of a batch: two of so few words may be equal by chance


class BatchCheck:
    """Remembers every batch by a digest."""

    def __init__(self, data_source: str) -> None:
        self._is_fresh = data_source in FRESH
        self._seen: dict[bytes, tuple[int, int]] = {}

    def fault(self, number: int, towers: Towers) -> str:
        """What is wrong with the batches of a step; empty: nothing."""
        text = ""
        for tower, batch in enumerate(towers.batches):
            digest = _digest(batch)
            step, other = self._seen.setdefault(digest, (number, tower)) if digest else (number, tower)
            if (step, other) == (number, tower) or text or not self._is_fresh:
                continue
            what = f"tower {tower} trains the same batch as tower {other}"
            text = what if step == number else f"tower {tower} trains the same batch at step {number} as at step {step}"
        return text


def _digest(batch: Any) -> bytes:
    parts = [np.asarray(part) for part in batch]
    if sum(part.size for part in parts if part.ndim > 1) < FEWEST_IDS:
        return b""
    return hashlib.blake2b(b"".join(np.ascontiguousarray(part).tobytes() for part in parts)).digest()
