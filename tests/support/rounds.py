"""A clock for rounds of runs that nobody makes."""

from __future__ import annotations

import dataclasses
import math


@dataclasses.dataclass
class Minutes:
    """Rounds of runs that take a minute each."""

    minutes: float = math.inf
    records: dict = dataclasses.field(default_factory=dict)

    def has_time_for(self, runs):
        missing = [run for run in runs if run.label not in self.records]
        return len(missing) <= self.minutes - len(self.records)
