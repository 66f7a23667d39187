"""Find runs whose records prove that they do not train the same model as others.

With the same items in every step, a right parallel program has the learning rates,
gradient norms and losses of one device, apart from rounding. Two programs that are
random may differ by their seeds, so a difference only proves something if repeats show
that the program is deterministic: they have the same values to the last digit.

Reports ask within one folder, and `compare` between two sides.
"""

import dataclasses
import itertools
import re
import shlex
from collections.abc import Sequence
from pathlib import Path

from rnn_scaling.analysis.rows import Row, make_series_key
from rnn_scaling.analysis.statements import Word
from rnn_scaling.config import registry
from rnn_scaling.config.spelling import make_sweep_command
from rnn_scaling.records.record import RunRecord

# Rounding by a different order of addition stays far below this share of the loss in
# the first steps; later, training amplifies it.
_FIRST_STEPS = 10
_TOLERANCE = 1e-3
# Words of options of 16-bit programs, whose rounding is larger.
_SHORT_TYPES = ("bfloat16", "float16", "bf16", "fp16", "half", "mixed")
_SHORT_TOLERANCE = 2e-2
# Rounding changes the norm of a gradient more than the loss.
_NORM_FACTOR = 10
# Training that diverges amplifies rounding within a few steps. Up to a step with this
# multiple of the first loss, or of the first gradient norm without losses, values prove
# something.
_MAX_GROWTH = 1.5
_RATE_TOLERANCE = 1e-5  # tolerance of learning rates, which programs keep in float32
_MIN_REPEATS = 2
# Data sources of the suite whose batches depend on the step and not on the devices.
_SPLIT_SOURCES = ("text", "copy", "reverse")

# Commands that `verify --trainer` takes: Python, without a launcher of processes.
_PYTHON = re.compile(r"python[0-9.]*")
_LAUNCHERS = ("torch.distributed", "accelerate", "deepspeed")
_PLACE = re.compile(r"\{(\w+)\}")

Values = Sequence[float | None]


class Quantity(Word):
    """The reported quantities of a step, nearest to the cause first."""

    LEARNING_RATE = "learning_rate"
    GRADIENT_NORM = "grad_norm"
    LOSS = "loss"


@dataclasses.dataclass(frozen=True)
class TrainingDifference:
    """The first step in which a quantity differs from the reference runs.

    Attributes:
      quantity: The quantity.
      step: The first step with another value; 1 is the first one that was recorded.
      value: The value in that step; `reference_value` in the reference runs.
      repeats: Fewest repeats with equal values on either side.
      is_logged: Whether a log contains the values, so that the program may have made
        several steps per recorded batch.
    """

    quantity: Quantity
    step: int
    value: float
    reference_value: float
    repeats: int
    is_logged: bool = False


@dataclasses.dataclass(frozen=True, eq=False)
class OtherTraining:
    """A configuration that trains otherwise than the same one on fewer devices.

    Attributes:
      row: The configuration.
      reference: The same one on the fewest devices.
      differences: At least one, the first step first.
    """

    row: Row
    reference: Row
    differences: tuple[TrainingDifference, ...]

    @property
    def loss(self) -> TrainingDifference | None:
        """The difference of the losses; None if they agree."""
        losses = [each for each in self.differences if each.quantity is Quantity.LOSS]
        return losses[0] if losses else None


@dataclasses.dataclass(frozen=True)
class ChangedTraining:
    """A configuration that trains otherwise after a change.

    Attributes:
      label: The configuration's name.
      differences: At least one, the first step first.
      command: Checks the training after the change.
    """

    label: str
    differences: tuple[TrainingDifference, ...]
    command: str


def find_other_training(rows: Sequence[Row]) -> list[OtherTraining]:
    """Return the rows that provably train otherwise than on fewer devices.

    Each row is compared with the row of its series on the fewest devices.
    """
    other_training = []
    references: dict[object, Row] = {}
    comparable = [row for row in rows if _has_the_same_batches(row)]
    for row in sorted(comparable, key=lambda row: row.num_devices):
        reference = references.setdefault(make_series_key(row), row)
        if reference is row:
            continue
        if differences := _compare_training(row, reference):
            other_training.append(OtherTraining(row, reference, differences))
    return other_training


def find_changed_training(
    label: str, row_before: Row, row_after: Row
) -> ChangedTraining | None:
    """Return how a configuration with the same options trains otherwise; None if equal.

    Args:
      label: The configuration's name.
      row_before: The runs before the change.
      row_after: The runs after the change.
    """
    has_other_devices = row_before.num_devices != row_after.num_devices
    if has_other_devices and not all(
        map(_has_the_same_batches, (row_before, row_after))
    ):
        return None
    differences = _compare_training(row_after, row_before)
    if not differences:
        return None
    return ChangedTraining(label, differences, check_command(row_after))


def _compare_training(row: Row, reference: Row) -> tuple[TrainingDifference, ...]:
    """Return the quantities of which two rows provably have other values.

    Both must have the same batches, if their steps have the same items.

    Returns:
      The differences, the first step first; in the same step, nearest to the cause
      first.
    """
    differences = filter(
        None, [_compare_quantity(row, reference, quantity) for quantity in Quantity]
    )
    return tuple(sorted(differences, key=lambda difference: difference.step))


def _has_the_same_batches(row: Row) -> bool:
    """Return whether a correct program has the same batches on any number of devices.

    Each tower of this suite draws its own synthetic data and its own dropout masks.
    Other programs are expected to split one batch.
    """
    if not registry.find_mode(row.options["variable_update"]).trains_one_model:
        return False
    if not row.is_ours:
        return True
    return row.options["data_source"] in _SPLIT_SOURCES and not row.options["dropout"]


def _compare_quantity(
    row: Row, reference: Row, quantity: Quantity
) -> TrainingDifference | None:
    """Return how a quantity differs; None if it agrees or proves nothing."""
    values = _list_deterministic_values(row.good_runs, quantity)
    reference_values = _list_deterministic_values(reference.good_runs, quantity)
    if values is None or reference_values is None:
        return None
    runs = [*row.good_runs, *reference.good_runs]
    num_steps = min(len(values), len(reference_values), len(_find_common_items(runs)))
    tolerance = _compute_tolerance([row, reference], quantity)
    digits = _find_last_digit(runs) if quantity is Quantity.LOSS else 0.0
    differing_steps = []
    for step in range(num_steps):
        value = values[step]
        reference_value = reference_values[step]
        if value is None or reference_value is None:
            continue
        if abs(value - reference_value) > tolerance * abs(reference_value) + digits:
            differing_steps.append((step, value, reference_value))
    if not differing_steps:
        return None
    first, value, reference_value = differing_steps[0]
    # Training does not amplify the rounding of a learning rate.
    is_rate = quantity is Quantity.LEARNING_RATE
    if first >= _FIRST_STEPS and not is_rate:
        return None
    if not is_rate and not all(_is_stable(run, first) for run in runs):
        return None
    if 2 * len(differing_steps) <= num_steps - first:  # a single outlier
        return None
    repeats = min(len(row.good_runs), len(reference.good_runs))
    is_logged = any(run.log_format for run in runs)
    return TrainingDifference(
        quantity,
        step=first + 1,
        value=value,
        reference_value=reference_value,
        repeats=repeats,
        is_logged=is_logged,
    )


def _is_stable(run: RunRecord, step: int) -> bool:
    """Return whether a run had not begun to diverge before a step, counted from 0."""
    column = run.batches.loss or run.batches.grad_norm or ()
    known_losses = [value for value in column[:step] if value is not None]
    return not known_losses or max(known_losses) <= _MAX_GROWTH * abs(known_losses[0])


def _list_deterministic_values(
    runs: Sequence[RunRecord], quantity: Quantity
) -> Values | None:
    """Return the values that all repeats have; None if they differ or are too few."""
    if len(runs) < _MIN_REPEATS:
        return None
    columns = [getattr(run.batches, quantity.value) or () for run in runs]
    num_steps = min(map(len, columns))
    values = [tuple(column[:num_steps]) for column in columns]
    known_values = [value for value in values[0] if value is not None]
    return values[0] if known_values and len(set(values)) == 1 else None


def _find_common_items(runs: Sequence[RunRecord]) -> list[int]:
    """Return the items of the first steps, as long as all runs have the same."""
    common = []
    for items in zip(*(run.batches.items for run in runs)):
        if len(set(items)) > 1:
            break
        common.append(items[0])
    return common


def _find_last_digit(runs: Sequence[RunRecord]) -> float:
    """Return one unit of the last digit of losses that were read from logs, else 0."""
    units = [0.0]
    for run in runs:
        if run.log_format:
            decimals = map(_count_decimals, run.batches.loss)
            units.append(10.0 ** -max(decimals, default=0))
    return max(units)


def _count_decimals(loss: float | None) -> int:
    if loss is None:
        return 0
    return len(f"{loss:.12f}".rstrip("0").partition(".")[2])


def _compute_tolerance(rows: Sequence[Row], quantity: Quantity) -> float:
    """Return the largest relative difference of rounding."""
    if quantity is Quantity.LEARNING_RATE:
        return _RATE_TOLERANCE
    values = itertools.chain.from_iterable(row.options.known.items() for row in rows)
    words = " ".join([f"{name}={value}" for name, value in values]).lower()
    is_short = any(name in words for name in _SHORT_TYPES)
    allowed = _SHORT_TOLERANCE if is_short else _TOLERANCE
    return _NORM_FACTOR * allowed if quantity is Quantity.GRADIENT_NORM else allowed


def check_command(row: Row) -> str:
    """Return the command that checks the training of a configuration."""
    if row.is_ours:
        return f"{make_sweep_command(row.options)} --certify"
    trainer = str(row.options.known.get("trainer_command") or "")
    if not _is_for_verify(trainer):
        trainer = "python3 SCRIPT"
    return f"./run.sh verify --trainer={shlex.quote(trainer)}"


def _is_for_verify(trainer: str) -> bool:
    """Return whether `verify --trainer` takes the command of a sweep unchanged."""
    program = Path(trainer.split(" ")[0]).name
    if not _PYTHON.fullmatch(program):
        return False
    if any(launcher in trainer for launcher in _LAUNCHERS):
        return False
    return set(_PLACE.findall(trainer)) <= {"num_devices"}
