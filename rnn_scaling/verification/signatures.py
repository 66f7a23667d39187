"""Causes of wrong training by their signature: a table of data.

Each kind of evidence has a class of features; None is a feature that is unknown. A row
matches if the evidence has each feature of the row that is not None. The first matching
row names the cause. `scripts.gradient_judge` provides features of scripts, `diagnosis`
those of the modes of this suite.
"""

import dataclasses
import enum
from collections.abc import Mapping, Sequence
from typing import Any


class Cause(str, enum.Enum):
    """The cause of a wrong training; each has a template `script-cause-...`."""

    SUMMED = "summed"
    DIVIDED_TWICE = "divided-twice"
    MEAN_OF_RANKS = "mean-of-ranks"
    OWN_DIVISOR = "own-divisor"
    MEAN_OF_MICRO_BATCHES = "mean-of-micro-batches"
    MICRO_BATCHES_SUMMED = "micro-batches-summed"
    MICRO_BATCH_REPEATED = "micro-batch-repeated"
    MICRO_BATCH_LOST = "micro-batch-lost"
    LAST_NOT_SYNCHRONISED = "last-micro-batch"
    SOME_NOT_SYNCHRONISED = "some-micro-batches"
    NOT_SYNCHRONISED = "not-synchronised"
    PARAMETER_NOT_SYNCHRONISED = "parameter-not-synchronised"
    SPARSE_NOT_AVERAGED = "sparse-not-averaged"
    PARAMETER_SCALED = "parameter-scaled"
    RANK_LEFT_OUT = "rank-left-out"
    CLIPPED_LOCALLY = "clipped-locally"
    CLIPPED_MICRO_BATCHES = "clipped-micro-batches"
    CLIPPING = "clipping"
    SCHEDULE_STEPPED_OFTEN = "schedule-stepped-often"
    RATE_SCALED = "rate-scaled"
    OPTIONS_SCALED = "options-scaled"
    RATES_DIFFER = "rates-differ"
    REGULARISER = "regulariser"
    SAME_SAMPLES = "same-samples"
    SAMPLES_REPEATED = "samples-repeated"
    SAMPLES_MISSING = "samples-missing"
    SAME_ORDER = "same-order"
    EQUAL_NOISE = "equal-noise"
    EQUAL_DROPOUT = "equal-dropout"
    INITIAL_WEIGHTS = "initial-weights"
    REPLICAS_DRIFT = "replicas-drift"
    STATES_DIFFER = "states-differ"
    STATISTICS = "statistics"
    LOCAL_SEARCH = "local-search"
    SCHEDULE_LOST = "schedule-lost"
    STATE_LOST = "state-lost"
    PARAMETERS_DIFFER = "parameters-differ"
    EVAL_MODE = "eval-mode"
    PRECISION_DIFFERS = "precision-differs"
    CLIP_BOUNDS = "clip-bounds"
    OPTIONS_DIFFER = "options-differ"
    OWN_ORDER = "own-order"
    OLD_GRADIENTS = "old-gradients"
    UNEQUAL_STEPS = "unequal-steps"
    OTHER_OPERATION = "other-operation"
    PADDING_COUNTED = "padding-counted"
    CHANGED_OUTSIDE = "changed-outside"
    OTHER_LOSS = "other-loss"
    OWN_STATE = "own-state"
    LOSS_OF_BATCH = "loss-of-batch"
    PADDING_READ = "padding-read"
    ONE_RANK_RIGHT = "one-rank-right"
    WEIGHTS_AVERAGED = "weights-averaged"
    VALUES_WITHOUT_GRADIENT = "values-without-gradient"
    OTHER_FACTOR = "other-factor"
    UNEXPLAINED = "unexplained"


class Subject(str, enum.Enum):
    """A kind of evidence."""

    SAMPLES = "samples"
    ORDER = "order of samples"
    INITIAL = "initial weights"
    GRADIENTS = "gradients"
    ACCUMULATION = "accumulation"
    RATES = "learning rates"
    SETTINGS = "settings of processes"
    RANDOM = "random samples"
    DROPOUT = "dropout"
    WEIGHTS = "weights of ranks"
    BUFFERS = "buffers"
    STATE = "optimizer state"
    CLIPPING = "driven run"


class Part(str, enum.Enum):
    """Parameters whose gradients are wrong."""

    ALL = "all"
    SOME = "some"
    SPARSE = "sparse"


class Factor(str, enum.Enum):
    """The applied gradient as a multiple of the correct one."""

    RANKS = "ranks"
    INVERSE_RANKS = "1/ranks"
    MICRO = "micro"
    INVERSE_MICRO = "1/micro"
    OTHER = "other"


class RankWeights(str, enum.Enum):
    """How the gradients of ranks are weighted."""

    RIGHT = "right"
    UNIFORM = "uniform"
    OWN = "own"
    LEFT_OUT = "left out"
    OTHER = "other"


class MicroWeights(str, enum.Enum):
    """How the gradients of micro-batches are weighted."""

    RIGHT = "right"
    UNIFORM = "uniform"
    LAST_OWN = "last own"
    SOME_OWN = "some own"
    LOST = "lost"
    REPEATED = "repeated"
    OTHER = "other"


class Quantity(str, enum.Enum):
    """A setting that all processes should share."""

    PARAMETERS = "parameters"
    EVAL_MODES = "modules in eval mode"
    PRECISION = "precision"
    CLIP_BOUNDS = "clipping bounds"
    RATES = "learning rates"
    OPTIONS = "options"


class Shards(str, enum.Enum):
    """How the samples of ranks overlap if as many are missing as repeated."""

    SAME = "same"
    OVERLAPPING = "overlapping"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Features:
    """Evidence without features."""

    def known(self) -> dict[str, Any]:
        """Return the features that are not None."""
        values = {
            field.name: getattr(self, field.name) for field in dataclasses.fields(self)
        }
        return {name: value for name, value in values.items() if value is not None}


@dataclasses.dataclass(frozen=True, kw_only=True)
class GradientFeatures(Features):
    """Features of gradients that the optimizer gets.

    Attributes:
      same_samples: Whether all ranks compute the same gradients.
      fewer_targets: Whether all targets count right, but there are fewer than on one
        process.
      is_even: Whether all targets count alike.
      part: The parameters that are wrong.
      ranks_agree: Whether all ranks apply the same gradient.
      factor: The multiple of the correct gradient; None if it is not a multiple.
      is_multiple: Whether it is a multiple of the correct gradient, but not equal.
      near_factor: The factor for gradients that are nearly a multiple.
      over_ranks: The weights of ranks; None if no weights explain the gradient.
      over_micro: The same for micro-batches.
      decay: Whether a multiple of the weights is added.
      buffers_differ: Whether buffers differ from the buffers of one process.
      padding: Whether one process divides its loss by a number with padding.
      old: Whether gradients of the step before are added.
      changed_outside: Whether weights change between two steps only with several ranks.
      loss_differs: Whether the ranks' losses of the same samples differ from one
        process.
      passes_differ: Whether the ranks make different numbers of backward passes.
      adds_or_averages: Whether most numbers that are all-reduced are added or averaged.
      clipped: Whether gradients of one process have the length of a bound.
      lengths_differ: Whether one process pads the same samples to other lengths.
      exchanges: Whether a forward pass uses values of other ranks without their
        gradient.
      shares_values: Whether a forward pass uses values of other ranks.
      one_is_right: Whether a rank applies the right gradient.
      weights_agree: Whether all ranks begin the next step with equal weights.
      is_later: Whether the gradients of an earlier step of the optimizer are right.
      no_sum: Whether the gradient of one process is no sum of local gradients.
      are_multiples: Whether ranks apply different multiples of the same gradient.
    """

    same_samples: bool | None = None
    fewer_targets: bool | None = None
    is_even: bool | None = None
    part: Part | None = None
    ranks_agree: bool | None = None
    factor: Factor | None = None
    is_multiple: bool | None = None
    near_factor: Factor | None = None
    over_ranks: RankWeights | None = None
    over_micro: MicroWeights | None = None
    decay: bool | None = None
    buffers_differ: bool | None = None
    padding: bool | None = None
    old: bool | None = None
    changed_outside: bool | None = None
    loss_differs: bool | None = None
    passes_differ: bool | None = None
    adds_or_averages: bool | None = None
    clipped: bool | None = None
    lengths_differ: bool | None = None
    exchanges: bool | None = None
    shares_values: bool | None = None
    one_is_right: bool | None = None
    weights_agree: bool | None = None
    is_later: bool | None = None
    no_sum: bool | None = None
    are_multiples: bool | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClippingFeatures(Features):
    """Features of the norms that a script clips.

    Attributes:
      often: Whether it clips once per micro-batch.
      local_norms: Whether the norms of ranks differ.
    """

    often: bool | None = None
    local_norms: bool | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class SettingFeatures(Features):
    """The setting that differs between ranks."""

    quantity: Quantity | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class RateFeatures(Features):
    """Features of learning rates.

    Attributes:
      often: Whether the schedule is stepped once per rank and not once per step.
      options: Whether options of optimizers, and not rates, differ.
    """

    often: bool | None = None
    options: bool | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class SampleFeatures(Features):
    """Features of the samples of all ranks.

    Attributes:
      shards: How the ranks' samples overlap; None if they hardly do.
      missing: Whether samples of one process are missing.
      repeated: Whether samples are read more often than by one process.
    """

    shards: Shards | None = None
    missing: bool | None = None
    repeated: bool | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class StateFeatures(Features):
    """Whether the state that is lost belongs to a schedule, not to an optimizer."""

    of_schedule: bool | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReplicaFeatures(Features):
    """Features of tensors that differ between ranks.

    Attributes:
      searches_differ: Whether optimizers search along a line by other losses.
      passes_differ: Whether the ranks make different numbers of backward passes.
      states_differ: Whether equal gradients are applied to equal weights.
    """

    searches_differ: bool | None = None
    passes_differ: bool | None = None
    states_differ: bool | None = None


@dataclasses.dataclass(frozen=True)
class Signature:
    """A row of the table."""

    cause: Cause
    features: Features


def _gradients(cause: Cause, **features: Any) -> Signature:
    return Signature(cause, GradientFeatures(**features))


# The order of the groups decides if a fault has the features of several rows.
_GRADIENT_TABLE = (
    # The ranks do not compute the batch of one process, so nothing else is comparable.
    _gradients(Cause.SAME_SAMPLES, same_samples=True),
    _gradients(Cause.SAMPLES_MISSING, fewer_targets=True),
    _gradients(Cause.UNEQUAL_STEPS, passes_differ=True),
    # Other numbers are exchanged, so weights of this step's gradients mean nothing.
    _gradients(Cause.OLD_GRADIENTS, old=True),
    _gradients(Cause.OTHER_OPERATION, adds_or_averages=False),
    # Some micro-batches are exchanged and some are not, or more than once. The ranks
    # then disagree as well, and a single weight may look like a factor.
    _gradients(Cause.LAST_NOT_SYNCHRONISED, over_micro=MicroWeights.LAST_OWN),
    _gradients(Cause.SOME_NOT_SYNCHRONISED, over_micro=MicroWeights.SOME_OWN),
    _gradients(Cause.MICRO_BATCH_REPEATED, over_micro=MicroWeights.REPEATED),
    # The ranks disagree. A factor would be that of one rank.
    _gradients(
        Cause.PARAMETER_NOT_SYNCHRONISED,
        part=Part.SPARSE,
        ranks_agree=False,
        over_ranks=RankWeights.OWN,
    ),
    _gradients(Cause.SPARSE_NOT_AVERAGED, part=Part.SPARSE),
    _gradients(
        Cause.WEIGHTS_AVERAGED,
        part=Part.ALL,
        ranks_agree=False,
        over_ranks=RankWeights.OWN,
        weights_agree=True,
    ),
    _gradients(
        Cause.NOT_SYNCHRONISED,
        part=Part.ALL,
        ranks_agree=False,
        over_ranks=RankWeights.OWN,
    ),
    _gradients(
        Cause.PARAMETER_NOT_SYNCHRONISED,
        part=Part.SOME,
        ranks_agree=False,
    ),
    # Decay and clipping change the length, so the gradient may be nearly a multiple.
    _gradients(Cause.REGULARISER, decay=True),
    # Local norms give the ranks other weights; another norm of the whole does not.
    _gradients(Cause.CLIPPING, clipped=True, ranks_agree=True, is_multiple=True),
    _gradients(Cause.CLIPPED_LOCALLY, clipped=True, ranks_agree=True),
    _gradients(Cause.CLIPPED_LOCALLY, clipped=True, is_multiple=True),
    _gradients(Cause.OWN_DIVISOR, are_multiples=True),
    # The mean over the ranks divides a gradient that only one rank has.
    _gradients(
        Cause.VALUES_WITHOUT_GRADIENT,
        factor=Factor.INVERSE_RANKS,
        exchanges=True,
    ),
    # A multiple of all parameters. Padding gives another factor, so it comes after the
    # factors with a meaning.
    _gradients(Cause.SUMMED, part=Part.ALL, factor=Factor.RANKS),
    _gradients(Cause.DIVIDED_TWICE, part=Part.ALL, factor=Factor.INVERSE_RANKS),
    _gradients(Cause.MICRO_BATCHES_SUMMED, part=Part.ALL, factor=Factor.MICRO),
    _gradients(Cause.PADDING_COUNTED, part=Part.ALL, padding=True),
    _gradients(Cause.OWN_DIVISOR, is_even=False, over_ranks=RankWeights.OTHER),
    _gradients(Cause.OTHER_FACTOR, part=Part.ALL, factor=Factor.OTHER),
    _gradients(Cause.OTHER_FACTOR, part=Part.ALL, factor=Factor.INVERSE_MICRO),
    # The same multiples of some parameters.
    _gradients(Cause.PARAMETER_SCALED, part=Part.SOME, factor=Factor.RANKS),
    _gradients(Cause.PARAMETER_SCALED, part=Part.SOME, factor=Factor.INVERSE_RANKS),
    _gradients(Cause.PARAMETER_SCALED, part=Part.SOME, factor=Factor.OTHER),
    # Weights that are zero cannot come from statistics or from a wrong mean.
    _gradients(Cause.RANK_LEFT_OUT, over_ranks=RankWeights.LEFT_OUT),
    _gradients(Cause.RANK_LEFT_OUT, over_ranks=RankWeights.OWN, ranks_agree=True),
    _gradients(Cause.MICRO_BATCH_LOST, over_micro=MicroWeights.LOST),
    # Other statistics change every local gradient, so fitted weights may be chance.
    _gradients(Cause.STATISTICS, buffers_differ=True),
    # The layers after an exchanged value have right gradients.
    _gradients(Cause.VALUES_WITHOUT_GRADIENT, part=Part.SOME, exchanges=True),
    # Uniform weights. A sum of ranks weights them uniformly too, so it comes first.
    _gradients(Cause.SUMMED, over_ranks=RankWeights.UNIFORM, near_factor=Factor.RANKS),
    _gradients(Cause.MEAN_OF_MICRO_BATCHES, over_micro=MicroWeights.UNIFORM),
    _gradients(Cause.MEAN_OF_RANKS, over_ranks=RankWeights.UNIFORM),
    # Facts that any of the faults above may bring with it.
    _gradients(Cause.CHANGED_OUTSIDE, changed_outside=True),
    _gradients(Cause.VALUES_WITHOUT_GRADIENT, exchanges=True),
    _gradients(Cause.STATISTICS, loss_differs=True, shares_values=True),
    _gradients(Cause.OWN_STATE, loss_differs=True, is_later=True),
    _gradients(Cause.OTHER_LOSS, loss_differs=True),
    _gradients(
        Cause.ONE_RANK_RIGHT, part=Part.ALL, ranks_agree=False, one_is_right=True
    ),
    _gradients(Cause.CLIPPED_LOCALLY, clipped=True),
    _gradients(Cause.MEAN_OF_RANKS, over_ranks=RankWeights.OTHER, no_sum=False),
    _gradients(Cause.PADDING_READ, lengths_differ=True),
    _gradients(Cause.LOSS_OF_BATCH, no_sum=True),
    _gradients(Cause.UNEXPLAINED),
)
_CAUSES_OF_SETTINGS = {
    Quantity.PARAMETERS: Cause.PARAMETERS_DIFFER,
    Quantity.PRECISION: Cause.PRECISION_DIFFERS,
    Quantity.EVAL_MODES: Cause.EVAL_MODE,
    Quantity.CLIP_BOUNDS: Cause.CLIP_BOUNDS,
    Quantity.RATES: Cause.RATES_DIFFER,
    Quantity.OPTIONS: Cause.OPTIONS_DIFFER,
}
TABLES: Mapping[Subject, Sequence[Signature]] = {
    Subject.GRADIENTS: _GRADIENT_TABLE,
    # Clipping of each micro-batch sees local norms too, so it comes first.
    Subject.CLIPPING: (
        Signature(Cause.CLIPPED_MICRO_BATCHES, ClippingFeatures(often=True)),
        Signature(Cause.CLIPPED_LOCALLY, ClippingFeatures(local_norms=True)),
        Signature(Cause.CLIPPING, ClippingFeatures()),
    ),
    Subject.SETTINGS: tuple(
        Signature(cause, SettingFeatures(quantity=quantity))
        for quantity, cause in _CAUSES_OF_SETTINGS.items()
    ),
    Subject.RATES: (
        Signature(Cause.SCHEDULE_STEPPED_OFTEN, RateFeatures(often=True)),
        Signature(Cause.OPTIONS_SCALED, RateFeatures(options=True)),
        Signature(Cause.RATE_SCALED, RateFeatures()),
    ),
    # Shards that overlap have missing and repeated samples too.
    Subject.SAMPLES: (
        Signature(Cause.SAME_SAMPLES, SampleFeatures(shards=Shards.SAME)),
        Signature(Cause.OWN_ORDER, SampleFeatures(shards=Shards.OVERLAPPING)),
        Signature(Cause.SAMPLES_MISSING, SampleFeatures(missing=True)),
        Signature(Cause.SAMPLES_REPEATED, SampleFeatures(repeated=True)),
    ),
    Subject.ORDER: (Signature(Cause.SAME_ORDER, Features()),),
    Subject.RANDOM: (Signature(Cause.EQUAL_NOISE, Features()),),
    Subject.DROPOUT: (Signature(Cause.EQUAL_DROPOUT, Features()),),
    Subject.INITIAL: (Signature(Cause.INITIAL_WEIGHTS, Features()),),
    Subject.WEIGHTS: (
        Signature(Cause.LOCAL_SEARCH, ReplicaFeatures(searches_differ=True)),
        Signature(Cause.UNEQUAL_STEPS, ReplicaFeatures(passes_differ=True)),
        Signature(Cause.STATES_DIFFER, ReplicaFeatures(states_differ=True)),
        Signature(Cause.REPLICAS_DRIFT, ReplicaFeatures()),
    ),
    Subject.BUFFERS: (Signature(Cause.STATISTICS, ReplicaFeatures()),),
    Subject.STATE: (
        Signature(Cause.SCHEDULE_LOST, StateFeatures(of_schedule=True)),
        Signature(Cause.STATE_LOST, StateFeatures()),
    ),
}


def find_cause(subject: Subject, features: Features) -> Cause:
    """Return the cause of the first row that matches.

    Raises:
      TypeError: If the subject has features of another class.
    """
    row = find_row(subject, features)
    return row.cause if row else Cause.UNEXPLAINED


def find_row(subject: Subject, features: Features) -> Signature | None:
    """Return the first row that matches; None if none does."""
    known = features.known()
    for row in TABLES[subject]:
        if type(row.features) is not type(features):
            raise TypeError(
                f"{subject.value} has {type(row.features).__name__}, "
                f"got {type(features).__name__}"
            )
        if row.features.known().items() <= known.items():
            return row
    return None
