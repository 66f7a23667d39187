"""Find rows whose records prove that more devices do not train the same model.

With the same items in every step, a right parallel program has the losses of one
device, apart from rounding. Two programs that are random may differ by their seeds, so
a difference only proves something if repeats show that the program is deterministic:
they have the same losses to the last digit.
"""

import dataclasses
import itertools
from collections.abc import Sequence

from rnn_scaling.analysis.rows import Row, series_key
from rnn_scaling.records.record import RunRecord

# Rounding in another order of addition stays far below this share of the loss in the
# first steps; later, training amplifies it.
FIRST_STEPS = 10
TOLERANCE = 1e-3
# Words of options of 16-bit programs, whose rounding is larger.
SHORT_TYPES = ("bfloat16", "float16", "bf16", "fp16", "half", "mixed")
SHORT_TOLERANCE = 2e-2
FEWEST_REPEATS = 2
# Data sources of the suite whose batches depend on the step and not on the devices.
SPLIT_SOURCES = ("text", "copy", "reverse")

Losses = Sequence[float | None]


@dataclasses.dataclass(frozen=True, eq=False)
class OtherLosses:
    """A configuration whose losses differ from the same one on fewer devices.

    step: The first step with another loss; 1 is the first step of the run.
    loss: The loss of that step; reference_loss on the fewer devices.
    repeats: Fewest repeats with equal losses on either side.
    """

    row: Row
    reference: Row
    step: int
    loss: float
    reference_loss: float
    repeats: int


def other_losses(rows: Sequence[Row]) -> list[OtherLosses]:
    """Return the rows whose losses provably differ from those on fewer devices.

    Each row is compared with the row of its series on the fewest devices.
    """
    found = []
    references: dict[object, Row] = {}
    comparable = [row for row in rows if _has_the_same_batches(row)]
    for row in sorted(comparable, key=lambda row: row.num_devices):
        reference = references.setdefault(series_key(row), row)
        proof = None if reference is row else _compared(row, reference)
        if proof is not None:
            found.append(proof)
    return found


def _has_the_same_batches(row: Row) -> bool:
    """Return whether a correct program has the same batches on any number of devices.

    Each tower of this suite draws its own synthetic data and its own dropout masks.
    Other programs are expected to split one batch.
    """
    if not row.is_ours:
        return True
    return row.options["data_source"] in SPLIT_SOURCES and not row.options["dropout"]


def _compared(row: Row, reference: Row) -> OtherLosses | None:
    losses = _deterministic_losses(row.good_runs)
    reference_losses = _deterministic_losses(reference.good_runs)
    if losses is None or reference_losses is None:
        return None
    items = _common_items([*row.good_runs, *reference.good_runs])
    num_steps = min(len(losses), len(reference_losses), len(items))
    differing = []
    allowed = _tolerance([row, reference])
    digits = _last_digit([*row.good_runs, *reference.good_runs])
    for step in range(num_steps):
        loss = losses[step]
        reference_loss = reference_losses[step]
        if loss is None or reference_loss is None:
            continue
        if abs(loss - reference_loss) > allowed * abs(reference_loss) + digits:
            differing.append(step)
    if not differing or differing[0] >= FIRST_STEPS:
        return None
    first = differing[0]
    if 2 * len(differing) <= num_steps - first:  # a single outlier
        return None
    loss = losses[first]
    reference_loss = reference_losses[first]
    assert loss is not None and reference_loss is not None
    repeats = min(len(row.good_runs), len(reference.good_runs))
    return OtherLosses(row, reference, first + 1, loss, reference_loss, repeats)


def _deterministic_losses(runs: Sequence[RunRecord]) -> Losses | None:
    """Return the losses that all repeats have; None if they differ or are too few."""
    if len(runs) < FEWEST_REPEATS:
        return None
    num_steps = min(len(run.batches.loss) for run in runs)
    losses = [tuple(run.batches.loss[:num_steps]) for run in runs]
    known = [loss for loss in losses[0] if loss is not None]
    return losses[0] if known and len(set(losses)) == 1 else None


def _common_items(runs: Sequence[RunRecord]) -> list[int]:
    """Return the items of the first steps, as long as all runs have the same."""
    common = []
    for items in zip(*(run.batches.items for run in runs)):
        if len(set(items)) > 1:
            break
        common.append(items[0])
    return common


def _last_digit(runs: Sequence[RunRecord]) -> float:
    """Return one unit of the last digit of losses that were read from logs, else 0."""
    units = [0.0]
    for run in runs:
        if run.log_format:
            decimals = [_num_decimals(loss) for loss in run.batches.loss]
            units.append(10.0 ** -max(decimals, default=0))
    return max(units)


def _num_decimals(loss: float | None) -> int:
    if loss is None:
        return 0
    return len(f"{loss:.12f}".rstrip("0").partition(".")[2])


def _tolerance(rows: Sequence[Row]) -> float:
    values = itertools.chain.from_iterable(row.options.known.items() for row in rows)
    words = " ".join([f"{name}={value}" for name, value in values]).lower()
    is_short = any(name in words for name in SHORT_TYPES)
    return SHORT_TOLERANCE if is_short else TOLERANCE
