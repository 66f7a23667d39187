"""Simulate the search for changes in a history: its false alarms, and how soon it finds.

    python -m benchmarks.history [--histories=5000]

Histories are simulated and searched with the code of `history show`. docs/history.md has
the tables.
"""

from __future__ import annotations

import argparse
import dataclasses

import numpy as np

from rnn_scaling.analysis.history.levels import find_levels
from rnn_scaling.system.files.markdown import format_table

NUM_ENTRIES = 100
# A slow entry is 10 % slower.
SLOW = -0.1
# The change to be found, in the logarithm of the rate.
STEP = np.log(0.95)
NUM_BEFORE = (10, 16, 20, 50)
STEPS_PERCENT = (2, 3, 4, 5, 7, 10)
NUM_AFTER = (2, 3, 5, 10, 20)


@dataclasses.dataclass(frozen=True)
class Conditions:
    """How the log rates of entries scatter.

    Attributes:
      processes: Processes of an entry.
      process_percent: Standard deviation of processes, in %.
      entry_percent: Standard deviation of entries, in %.
      correlation: Correlation of neighbouring entries.
      degrees: Degrees of freedom of the entries' t distribution; None if it is normal.
      slow: Share of entries that are 10 % slower.
      num_curves: Curves that are searched at once.
    """

    processes: int = 3
    process_percent: float = 1.5
    entry_percent: float = 0.5
    correlation: float = 0.0
    degrees: float | None = None
    slow: float = 0.0
    num_curves: int = 1


CASES = {
    "3 processes, 1.5 %; entries 0.5 %": Conditions(),
    "5 processes, 1.5 %; entries 0.5 %": Conditions(processes=5),
    "1 process, 1.5 %; entries 0.5 %": Conditions(processes=1),
    "3 processes, 0.5 %; entries 1.5 %": Conditions(
        process_percent=0.5, entry_percent=1.5
    ),
    "3 processes, 3 %; entries 1 %": Conditions(process_percent=3.0, entry_percent=1.0),
    "10 curves, each 3 processes, 1.5 %; entries 0.5 %": Conditions(num_curves=10),
    "neighbouring entries correlated by 0.3": Conditions(correlation=0.3),
    "neighbouring entries correlated by 0.6": Conditions(correlation=0.6),
    "entries 1.5 %, correlated by 0.6": Conditions(correlation=0.6, entry_percent=1.5),
    "entries from Student's t with 3 degrees": Conditions(degrees=3.0),
    "1 entry of 50 is 10 % slower": Conditions(slow=0.02),
}


class Simulator:
    """Simulates histories and searches them.

    Args:
      conditions: How the entries scatter.
      generator: Source of random numbers.
    """

    def __init__(self, conditions: Conditions, generator: np.random.Generator) -> None:
        self._conditions = conditions
        self._generator = generator

    def find_changes(self, before: int, after: int = 0, step: float = 0.0) -> list[int]:
        """Simulate a curve; return the entries at which the search finds a change.

        Args:
          before: Entries before the true change.
          after: Entries after it.
          step: How much it changes the logarithm of the rate.
        """
        count = before + after
        values, deviation = self._draw(count)
        values[before:] += step
        return find_levels(
            values,
            [self._conditions.processes] * count,
            deviation,
            self._conditions.num_curves,
        ).cuts

    def share_of_alarms(self, histories: int) -> float:
        """Return the share of histories without a change in which one is found."""
        found = 0
        for _ in range(histories):
            changes = []
            for _ in range(self._conditions.num_curves):
                changes += self.find_changes(NUM_ENTRIES)
            found += bool(changes)
        return found / histories

    def share_found(
        self, histories: int, before: int, after: int = 3, step: float = STEP
    ) -> float:
        """Return the share of changes that are found at their entry or beside it.

        Args:
          histories: Number of histories.
          before: Entries before the change.
          after: Entries after it.
          step: How much it changes the logarithm of the rate.
        """
        found = 0
        for _ in range(histories):
            changes = self.find_changes(before, after, step)
            found += any(abs(change - before) <= 1 for change in changes)
        return found / histories

    def _draw(self, count: int) -> tuple[np.ndarray, float]:
        """Return mean log rates of entries, and the deviation seen between processes."""
        conditions = self._conditions
        random = self._generator
        if conditions.degrees is None:
            entries = random.normal(size=count)
        else:
            entries = random.standard_t(conditions.degrees, count)
        if conditions.correlation:
            innovation = np.sqrt(1 - conditions.correlation**2)
            for number in range(1, count):
                before = conditions.correlation * entries[number - 1]
                entries[number] = before + innovation * entries[number]
        noise = random.normal(
            0, conditions.process_percent / 100, (count, conditions.processes)
        )
        slow = SLOW * (random.random(count) < conditions.slow)
        deviation = 0.0
        if conditions.processes > 1:
            deviation = float(np.sqrt(noise.var(1, ddof=1).mean()))
        rates = conditions.entry_percent / 100 * entries + noise.mean(1) + slow
        return rates, deviation


def make_table_of_scatters(generator: np.random.Generator, histories: int) -> str:
    """Return how often changes are found, and found without a change, by scatter."""
    few = histories // 10
    rows = []
    for name, conditions in CASES.items():
        simulator = Simulator(conditions, generator)
        count = few if conditions.num_curves > 1 else histories
        row = [name, f"{100 * simulator.share_of_alarms(count):.2f} %"]
        print(row, flush=True)
        for before in NUM_BEFORE:
            row.append(f"{100 * simulator.share_found(few, before):.0f} %")
        rows.append(row)
    head = ["Scatter (standard deviation)", "False alarms in 100 entries"]
    head += [f"-5 % found after {before}" for before in NUM_BEFORE]
    return format_table(head, rows)


def make_table_of_changes(generator: np.random.Generator, histories: int) -> str:
    """Return how soon changes of several sizes are found after 20 entries."""
    simulator = Simulator(Conditions(), generator)
    rows = []
    for percent in STEPS_PERCENT:
        row = [f"{percent} %"]
        for after in NUM_AFTER:
            step = np.log(1 - percent / 100)
            share = simulator.share_found(histories // 10, 20, after, step)
            row.append(f"{100 * share:.0f} %")
        rows.append(row)
    head = ["Change after 20 entries", *(f"found with {n} more" for n in NUM_AFTER)]
    return format_table(head, rows)


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--histories", type=int, default=5000, help="number of simulated histories"
    )
    histories = parser.parse_args().histories
    generator = np.random.default_rng(24)
    print(make_table_of_scatters(generator, histories))
    print(make_table_of_changes(generator, histories))


if __name__ == "__main__":
    main()
