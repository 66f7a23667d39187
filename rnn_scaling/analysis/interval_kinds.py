"""Describe what the interval of a number covers, or why the number has no interval.

`confidence` sets the kind of an interval; `reports/interval_texts.py` has its words. A
new kind needs both.
"""

import dataclasses
import enum


class Basis(enum.Enum):
    """The data of an interval, or the reason why it is missing."""

    UNKNOWN = enum.auto()
    # Measured numbers.
    RUNS = enum.auto()
    PAIRS = enum.auto()  # pairs of runs
    BATCHES = enum.auto()  # batches of one run
    RANKING = enum.auto()  # all candidates of a ranking hold together
    RANK_CORRELATION = enum.auto()
    HISTORY = enum.auto()  # entries of a history
    # Predicted numbers.
    REPEATS = enum.auto()
    DRAWS = enum.auto()  # random draws
    MODELS = enum.auto()  # average of several models
    FURTHER_RUN = enum.auto()
    BATCH_SIZE = enum.auto()
    SIMULATION = enum.auto()
    # Exact numbers.
    DEFINITION = enum.auto()
    COUNT = enum.auto()
    CONSTANT = enum.auto()  # independent of the measurements
    REFERENCE = enum.auto()  # the reference of a ranking
    EQUAL_RUNS = enum.auto()
    # Reasons why there is no interval.
    ONE_RUN_EACH = enum.auto()
    ONE_PROCESS = enum.auto()
    NO_SCATTER = enum.auto()
    FEW_BATCHES = enum.auto()
    FEW_ENTRIES = enum.auto()
    FEW_RUNS_FOR_FIT = enum.auto()
    ZERO_ACCURACY = enum.auto()


class Note(enum.Enum):
    """A rule that widened an interval, or changed a number."""

    POOLED = enum.auto()  # one variance for all rows with the same number of devices
    ORDERED = enum.auto()  # scatter of runs in the order of time
    DRIFT = enum.auto()  # drift of the machine between two sessions
    CORRECTED = enum.auto()  # the rate is corrected for the load of other programs
    # Disturbed batches count as well, unlike in the rates of the same table.
    ALL_BATCHES = enum.auto()
    # The rate of an entry of a history contains the load of other programs.
    DISTURBED = enum.auto()
    PRINTED = enum.auto()  # half a unit of the last digits that logs printed


# Notes about a number itself: whatever is computed from the number has them, too.
INHERITED_NOTES = (Note.CORRECTED, Note.ALL_BATCHES, Note.DISTURBED)


@dataclasses.dataclass(frozen=True)
class EnergySource:
    """The source of an energy: counters, or a power that the user stated.

    Attributes:
      measured: Kinds of counters, such as "package".
      not_measured: (kind of counter, reason) of the counters that could not be read.
      stated_power_w: Power of all machines; 0.0 if the energy was measured.
    """

    measured: tuple[str, ...] = ()
    not_measured: tuple[tuple[str, str], ...] = ()
    stated_power_w: float = 0.0


@dataclasses.dataclass(frozen=True)
class IntervalKind:
    """The meaning of an interval; reports/interval_texts.py has the words.

    Attributes:
      counts: The different numbers of runs, pairs or candidates.
      notes: Rules that widened the interval, or changed the number.
      energy: The source of an energy; None for other numbers.
    """

    basis: Basis = Basis.UNKNOWN
    counts: tuple[int, ...] = ()
    notes: tuple[Note, ...] = ()
    energy: EnergySource | None = None

    @property
    def inherited_notes(self) -> tuple[Note, ...]:
        """The notes of everything that is computed from the number."""
        return tuple([note for note in INHERITED_NOTES if note in self.notes])

    def with_note(self, note: Note) -> "IntervalKind":
        """Return the kind with one more note."""
        return dataclasses.replace(self, notes=(*self.notes, note))
