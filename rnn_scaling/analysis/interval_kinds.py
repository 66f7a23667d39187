"""Describe what the interval of a number covers, or why the number has no interval.

The value of a `Basis` or `Note` is the name of its template in
reports/templates/phrases/intervals.txt. A new member needs a template there.
"""

import dataclasses
import enum


class Basis(enum.Enum):
    """The data of an interval, or the reason why it is missing."""

    UNKNOWN = ""
    # Measured numbers.
    RUNS = "interval-runs"
    PAIRS = "interval-pairs"  # pairs of runs
    BATCHES = "interval-batches"  # batches of one run
    RANKING = "interval-ranking"  # all candidates of a ranking hold together
    RANK_CORRELATION = "interval-rank-correlation"
    HISTORY = "interval-history"  # entries of a history
    # Predicted numbers.
    REPEATS = "interval-repeats"
    DRAWS = "interval-draws"  # random draws
    MODELS = "interval-models"  # average of several models
    FURTHER_RUN = "interval-further-run"
    BATCH_SIZE = "interval-batch-size"
    SIMULATION = "interval-simulation"
    # Exact numbers.
    DEFINITION = "interval-definition"
    COUNT = "interval-count"
    CONSTANT = "interval-constant"  # independent of the measurements
    REFERENCE = "interval-reference"  # the reference of a ranking
    EQUAL_RUNS = "interval-equal-runs"
    # Reasons why there is no interval.
    ONE_RUN_EACH = "interval-one-run-each"
    ONE_PROCESS = "interval-one-process"
    NO_SCATTER = "interval-no-scatter"
    FEW_BATCHES = "interval-few-batches"
    FEW_ENTRIES = "interval-few-entries"
    FEW_RUNS_FOR_FIT = "interval-few-runs-for-fit"
    ZERO_ACCURACY = "interval-zero-accuracy"


class Note(enum.Enum):
    """A rule that widened an interval, or changed a number."""

    POOLED = "interval-note-pooled"  # one variance for all rows with the same number of devices
    ORDERED = "interval-note-ordered"  # scatter of runs in the order of time
    DRIFT = "interval-note-drift"  # drift of the machine between two sessions
    CORRECTED = "interval-note-corrected"  # the rate is corrected for the load of other programs
    # Disturbed batches count as well, unlike in the rates of the same table.
    ALL_BATCHES = "interval-note-all-batches"
    # The rate of an entry of a history contains the load of other programs.
    DISTURBED = "interval-note-disturbed"
    PRINTED = (
        "interval-note-printed"  # half a unit of the last digits that logs printed
    )


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
    """The meaning of an interval.

    Attributes:
      counts: Numbers of runs, pairs or candidates, each one once.
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
