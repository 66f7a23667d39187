"""Whether the gradients of a script are right, and which fault explains wrong ones.

`judge` asks it once per verdict. It measures features; `signatures` names the cause.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from rnn_scaling.verification import numbers, signatures, sums
from rnn_scaling.verification.scripts import (
    accounting,
    batch_means,
    comparison,
    facts,
    samples,
)
from rnn_scaling.verification.scripts.comparison import Noise
from rnn_scaling.verification.scripts.evidence import (
    Evidence,
    OwnNoise,
    Record,
    Relation,
    previous_step,
)
from rnn_scaling.verification.scripts.verdict import Check, Result, wrong_check
from rnn_scaling.verification.signatures import (
    Factor,
    GradientFeatures,
    MicroWeights,
    Part,
    RankWeights,
    SampleFeatures,
    Subject,
)

_URGENCY = (Result.OK, Result.NOT_COVERED, Result.WRONG)
_FACTOR_TOLERANCE = 1e-3
SUMS = ("SUM", "AVG")  # operations of an all-reduce that average gradients
_ROUGH_FACTOR_TOLERANCE = 0.1  # of a factor that comes with other weights
_TOLERANCE_OF_FIT = 1e-2  # tolerance of a weight that is fitted to one parameter


@dataclasses.dataclass(frozen=True)
class _WrongGradient:
    """A gradient that differs from the gradient of one process.

    Attributes:
      number: The step, from 0.
      rank_index: The rank that applies it.
      expected: The right gradient.
      difference: The difference of both.
      parallel: Name of the run on several ranks.
      reference: Name of the run of one process on the same samples.
    """

    number: int
    rank_index: int
    expected: numbers.Sketches
    difference: comparison.Difference
    parallel: str
    reference: str

    @property
    def keys(self) -> list[str]:
        """The keys of the wrong parameters."""
        return list(self.difference.parameters)


@dataclasses.dataclass(frozen=True)
class _WeightFindings:
    """How local gradients are weighted in a wrong gradient; None if it is unknown.

    Attributes:
      over_ranks: How the weights of ranks differ from the right ones.
      over_micro: How the weights of micro-batches differ from the right ones.
      decay: Whether a wrong multiple of the parameters is added.
      old: Whether gradients of the step before are added.
      weights: The weight of each local gradient, [rank][micro-batch].
      right_weights: The weights in the right gradient, [rank][micro-batch].
    """

    over_ranks: RankWeights | None = None
    over_micro: MicroWeights | None = None
    decay: bool | None = None
    old: bool | None = None
    weights: np.ndarray | None = None
    right_weights: np.ndarray | None = None

    def values(self) -> dict[str, Any]:
        """Return the known weights as values of a check."""
        values = {}
        if self.weights is not None:
            values["weights"] = np.round(self.weights, 6).tolist()
        if self.right_weights is not None:
            values["right_weights"] = np.round(self.right_weights, 6).tolist()
        return values


class GradientJudge:
    """Judges the gradients that the optimizer gets."""

    def __init__(self, evidence: Evidence) -> None:
        self._evidence = evidence

    def judge(self) -> Check:
        """Return the check of the gradients."""
        check = self._judge_all_ranks()
        if check.result is Result.OK:
            return self._disagreement_with_own_noise() or check
        return check

    def _judge_all_ranks(self) -> Check:
        """Return the check of the gradients with noise that all ranks share."""
        # Fixed numbers alone, such as of simulated worlds, may be equal on all ranks.
        ranks, _ = self._evidence.with_own_noise(self._evidence.serial)
        steps = [rank["steps"][0] for rank in ranks]
        if facts.have_equal_local_gradients(comparison.local_gradients(steps)):
            return self._make_wrong_check(
                0, GradientFeatures(same_samples=True), {}, None
            )
        relation = self._evidence.relation("parallel", "reference")
        if relation in (Relation.FEWER, Relation.REPEATED):
            return self._miscounted()
        if relation is Relation.OTHER:
            return self._by_parts(self._evidence.reference)
        check = self.against_reference("parallel", "reference")
        if check.step == 1 and batch_means.is_mean_of_batches(self._evidence, steps):
            return self._by_parts(self._evidence.serial)
        if check.result is Result.WRONG and self._evidence.mixes_batch():
            return self._by_parts(self._evidence.reference)
        return check

    def _disagreement_with_own_noise(self) -> Check | None:
        """Return the check of the first step with other gradients on other ranks.

        If noise is fixed, gradients of noise alone are equal on all ranks.
        """
        for number in range(self._evidence.num_steps):
            steps = self._evidence.noisy_steps(number)
            if steps and (check := self._disagreement(number, steps)):
                return check
        return None

    def _miscounted(self) -> Check:
        """Return the check of ranks that leave out samples, or read some twice."""
        steps = [rank["steps"][0] for rank in self._evidence.ranks]
        rows, reference_rows = samples.rows_of_steps(
            steps, [self._evidence.reference["steps"][0]]
        )
        missing = (reference_rows - rows).total()
        repeated = (rows - reference_rows).total()
        values = {
            "missing": missing,
            "total": reference_rows.total(),
            "repeated": repeated,
        }
        features = SampleFeatures(missing=missing > 0, repeated=repeated > 0)
        cause = signatures.find_cause(Subject.SAMPLES, features)
        return wrong_check(Subject.GRADIENTS, "gradients", 1, cause, values)

    def _by_parts(self, one_process: Record) -> Check:
        """Judge all steps without one process that computes them.

        Later steps of an optimizer only show faults, such as those of unequal batches.

        Args:
          one_process: A process whose batches count as they should.
        """
        known: set[int] = set()
        checks = []
        steps = self._evidence.ranks[0]["steps"][: self._evidence.num_steps]
        for number, step in enumerate(steps):
            check = self._step_by_parts(number, one_process)
            if step["optimizer"] not in known or check.result is Result.WRONG:
                known.add(step["optimizer"])
                checks.append(check)
        # A wrong step first, then one that cannot be judged.
        return max(checks, key=lambda check: _URGENCY.index(check.result))

    def _step_by_parts(self, number: int, one_process: Record) -> Check:
        """Judge a step without a reference: by local gradients and losses."""
        steps = [rank["steps"][number] for rank in self._evidence.ranks]
        if check := self._disagreement(number, steps):
            return check
        local_gradients = comparison.local_gradients(steps)
        applied = numbers.sketches(steps[0]["gradients"])
        weighting = sums.weigh(applied, local_gradients, {})
        if weighting is None or weighting.residual > sums.MIN_SHARE:
            return self._by_parameter(number, applied, local_gradients)
        return self._judge_balance(number, steps, weighting, one_process)

    def _disagreement(self, number: int, steps: list[Record]) -> Check | None:
        """Return the check of ranks that apply other gradients; None if all are equal."""
        applied = [numbers.sketches(step["gradients"]) for step in steps]
        for gradient in applied[1:]:
            difference = self._evidence.noise.compare(number, gradient, applied[0])
            if difference.parameters:
                break
        else:
            return None
        wrong = list(difference.parameters)
        features = GradientFeatures(
            part=_all_or_some(wrong, applied[0]),
            ranks_agree=False,
            are_multiples=facts.are_multiples(steps),
            passes_differ=len(self._evidence.num_passes(number)) > 1,
        )
        local_gradients = comparison.local_gradients(steps)
        weighting = sums.weigh(_select(applied[0], wrong), local_gradients, {})
        if weighting is not None:
            over_ranks, over_micro = sums.pattern(0, weighting.weights, None)
            features = dataclasses.replace(
                features, over_ranks=over_ranks, over_micro=over_micro
            )
        names = self._evidence.ranks[0]["start"]["names"]
        values = {
            "parameters": [names.get(key, key) for key in wrong],
            "factor": 1.0,
        }
        return self._make_wrong_check(number, features, values, difference.ratio)

    def _not_comparable(self) -> Check:
        """Return the check of gradients whose parts do not explain them either."""
        kind = "other-samples"
        if self._evidence.own_noise is OwnNoise.DIFFERENT:
            kind = "other-noise"
        elif self._evidence.mixes_batch():
            kind = "mixed-batches"
        return Check(Subject.GRADIENTS, Result.NOT_COVERED, kind)

    def _by_parameter(
        self,
        number: int,
        applied: numbers.Sketches,
        local_gradients: list[list[numbers.Sketches]],
    ) -> Check:
        """Return the check of gradients that have unequal weights."""
        scales: dict[str, float] = {}
        for key, gradient in applied.items():
            weighting = sums.weigh({key: gradient}, local_gradients, {})
            if weighting is not None and weighting.residual < sums.MIN_SHARE:
                scales[key] = float(weighting.weights.mean())
        usual = float(np.median(list(scales.values()))) if scales else 0.0
        wrong = [
            key
            for key, scale in scales.items()
            if abs(scale - usual) > _TOLERANCE_OF_FIT * abs(usual)
        ]
        if not usual or not wrong:
            return self._not_comparable()
        factor = scales[wrong[0]] / usual
        names = self._evidence.ranks[0]["start"]["names"]
        features = GradientFeatures(
            part=Part.SOME, factor=self._meaning(factor, _TOLERANCE_OF_FIT)
        )
        values = {
            "factor": factor,
            "parameters": [names.get(key, key) for key in wrong],
        }
        return self._make_wrong_check(number, features, values, None)

    def _judge_balance(
        self,
        number: int,
        steps: list[Record],
        weighting: sums.Weighting,
        one_process: Record,
    ) -> Check:
        """Judge gradients by how much each target counts."""
        weights = weighting.weights
        serial_steps = []
        serial_step = None
        for serial_number, step in enumerate(one_process["steps"]):
            if step["optimizer"] == steps[0]["optimizer"]:
                serial_steps.append(step)
                if serial_number >= number and serial_step is None:
                    serial_step = step
        found = None
        if serial_step is not None:
            total = accounting.serial_total(serial_steps)
            found = accounting.balance(steps, serial_step, total, weights)
        mean_weight = 1 / self._evidence.num_ranks
        if found is not None and not found.is_right:
            return self._explain_balance(number, found)
        if found is None and self._evidence.mixes_batch():
            return self._judge_isolated(number, steps[-1], weights / mean_weight)
        if found is None and not np.allclose(
            weights, mean_weight, rtol=_FACTOR_TOLERANCE
        ):
            return self._not_comparable()
        return Check(Subject.GRADIENTS, Result.OK, "by-parts")

    def _judge_isolated(self, number: int, step: Record, weights: np.ndarray) -> Check:
        """Compare the gradient of a rank's samples with one process that reads them.

        Args:
          number: The step; only the first one is compared.
          step: The step of the last rank.
          weights: The weights of the local gradients, as multiples of a mean.
        """
        if not np.allclose(weights, weights.flat[0], rtol=_FACTOR_TOLERANCE):
            return self._not_comparable()
        isolated = self._evidence.runs["isolated"]["ranks"][0]["steps"][0]
        passes = comparison.local_gradients([step])[0]
        right = Check(Subject.GRADIENTS, Result.OK, "by-parts")
        if number or len(passes) > 1 or len(isolated["micro"]) > 1:
            return right
        expected = numbers.sketches(isolated["gradients"])
        factor = numbers.nearest_multiple(passes[0], expected) * float(weights.flat[0])
        meaning = self._meaning(factor, _TOLERANCE_OF_FIT)
        if meaning is None:
            return right
        features = GradientFeatures(part=Part.ALL, factor=meaning)
        values = {"factor": factor, "parameters": ["every parameter"]}
        return self._make_wrong_check(number, features, values, None)

    def _explain_balance(self, number: int, found: accounting.Balance) -> Check:
        """Return the check of targets that do not count as on one process."""
        factor = found.factor or 1.0
        over_ranks, over_micro = sums.pattern(0, found.share, found.targets)
        rest_differs = found.rest is not None and not np.isclose(
            found.rest, factor, rtol=accounting.TOLERANCE_OF_REST
        )
        meaning = self._meaning(factor, _ROUGH_FACTOR_TOLERANCE)
        if meaning is Factor.OTHER and not found.is_even:
            meaning = None  # It is only the mean of several factors.
        features = GradientFeatures(
            part=Part.ALL,
            ranks_agree=True,
            fewer_targets=found.missing > 0,
            is_even=found.is_even,
            factor=meaning,
            over_ranks=over_ranks,
            over_micro=over_micro,
            decay=rest_differs,
        )
        values = {
            "missing": found.missing,
            "total": found.missing + int(found.targets.sum()),
            "factor": factor,
            "parameters": ["every parameter"],
        }
        return self._make_wrong_check(number, features, values, None)

    @staticmethod
    def _make_wrong_check(
        number: int,
        features: GradientFeatures,
        values: dict[str, Any],
        ratio: float | None,
    ) -> Check:
        """Return the check of wrong gradients with the cause that the features give."""
        cause = signatures.find_cause(Subject.GRADIENTS, features)
        return Check(
            Subject.GRADIENTS,
            Result.WRONG,
            "gradients",
            step=number + 1,
            ratio=ratio,
            cause=cause,
            values={"features": features.known(), **values},
        )

    def against_reference(self, parallel: str, reference: str) -> Check:
        """Compare a run with the run of one process on the same samples."""
        largest = 0.0
        ranks = self._evidence.runs[parallel]["ranks"]
        reference_rank = self._evidence.runs[reference]["ranks"][0]
        num_steps = min(len(rank["steps"]) for rank in [*ranks, reference_rank])
        for number in range(num_steps):
            if self._reads_elsewhere(number, parallel, reference):
                break
            expected = self._expected(number, parallel, reference)
            for rank_index, rank in enumerate(ranks):
                actual = numbers.sketches(rank["steps"][number]["gradients"])
                difference = self._evidence.noise.compare(number, actual, expected)
                if not difference.is_judged and number == 0:
                    kind = "too-sensitive"
                    return Check(Subject.GRADIENTS, Result.NOT_COVERED, kind)
                if not difference.is_judged:
                    break
                largest = max(largest, difference.ratio)
                if difference.parameters:
                    wrong = _WrongGradient(
                        number,
                        rank_index=rank_index,
                        expected=expected,
                        difference=difference,
                        parallel=parallel,
                        reference=reference,
                    )
                    return self._explain(wrong)
        return Check(
            Subject.GRADIENTS,
            Result.OK,
            "gradients",
            ratio=largest,
            values={"steps": num_steps},
        )

    def _reads_elsewhere(self, number: int, parallel: str, reference: str) -> bool:
        """Return whether a step reads from a loader whose samples are not prescribed."""
        replay = self._evidence.runs[reference]["settings"].get("replay")
        reads = self._evidence.runs[parallel]["ranks"][0]["steps"][number]["reads"]
        loaders = {read["loader"] for read in reads}
        return bool(replay and loaders) and replay["loader"] not in loaders

    def _expected(self, number: int, parallel: str, reference: str) -> numbers.Sketches:
        """Return the right gradient of a step."""
        step = self._evidence.runs[reference]["ranks"][0]["steps"][number]
        scale = facts.find_reference_scale(self._evidence.runs, parallel, reference)
        return numbers.scaled(numbers.sketches(step["gradients"]), scale)

    def _is_right_elsewhere(self, wrong: _WrongGradient) -> bool:
        """Return whether another optimizer gets right gradients of the same passes."""
        runs = self._evidence.runs
        num_steps = len(runs[wrong.reference]["ranks"][0]["steps"])
        rank = runs[wrong.parallel]["ranks"][wrong.rank_index]
        passes = rank["steps"][wrong.number]["micro"]
        for number, step in enumerate(rank["steps"][:num_steps]):
            if number == wrong.number or not passes or step["micro"] != passes:
                continue
            actual = numbers.sketches(step["gradients"])
            expected = self._expected(number, wrong.parallel, wrong.reference)
            if not self._evidence.noise.compare(number, actual, expected).parameters:
                return True
        return False

    @staticmethod
    def _weights_before(rank: Record, number: int) -> numbers.Sketches:
        source = previous_step(rank, number) or rank["start"]
        return numbers.sketches(source["weights"])

    def _explain(self, wrong: _WrongGradient) -> Check:
        """Return the check of a wrong gradient with its cause."""
        ranks = self._evidence.runs[wrong.parallel]["ranks"]
        steps = [each["steps"][wrong.number] for each in ranks]
        features, values = self._factor_features(wrong, steps[wrong.rank_index])
        if features.part is Part.ALL and self._is_right_elsewhere(wrong):
            features = dataclasses.replace(features, part=Part.SOME)
        found = self._find_weights(wrong, ranks, steps)
        over_ranks = found.over_ranks
        # With synchronised statistics, a right gradient is no sum of local ones.
        if found.right_weights is None and accounting.counts_ranks_alike(steps):
            over_ranks = RankWeights.UNIFORM
        features = dataclasses.replace(
            features,
            over_ranks=over_ranks,
            over_micro=found.over_micro,
            decay=found.decay,
            old=found.old,
            no_sum=found.weights is not None and found.right_weights is None,
            **self._facts(wrong, ranks, steps),
        )
        values |= found.values()
        ratio = wrong.difference.ratio
        return self._make_wrong_check(wrong.number, features, values, ratio)

    def _facts(
        self, wrong: _WrongGradient, ranks: list[Record], steps: list[Record]
    ) -> dict[str, Any]:
        """Return the features of a wrong gradient that other records show."""
        number = wrong.number
        serial = self._evidence.serial
        step = steps[wrong.rank_index]
        reference_rank = self._evidence.runs[wrong.reference]["ranks"][0]
        reference_step = reference_rank["steps"][number]
        digests = [numbers.digests(each["gradients"]) for each in steps]
        reduced = step.get("reduced") or {"SUM": 1}
        is_changed = facts.weights_change_between_steps(ranks[wrong.rank_index], number)
        return {
            "ranks_agree": all(each == digests[0] for each in digests),
            "buffers_differ": self._buffers_differ(
                wrong.parallel, wrong.reference, number
            ),
            "padding": accounting.counts_padding(serial["steps"]),
            "changed_outside": is_changed
            and not facts.weights_change_between_steps(serial, number),
            "loss_differs": accounting.losses_differ(steps, reference_step),
            "lengths_differ": facts.pads_to_different_lengths(steps, reference_step),
            "exchanges": facts.uses_other_ranks(steps, "exchanges"),
            "shares_values": facts.uses_other_ranks(steps, "shares_values"),
            "one_is_right": self._is_one_right(number, steps, wrong.expected),
            "weights_agree": facts.next_step_starts_equally(ranks, number),
            "is_later": previous_step(ranks[0], number) is not None,
            "are_multiples": facts.are_multiples(steps),
            "passes_differ": len(self._evidence.num_passes(number)) > 1,
            "adds_or_averages": max(reduced, key=reduced.__getitem__) in SUMS,
            # In a driven run, a clipping function that is known sets all norms.
            "clipped": not step["clips"] and self._clips_by_itself(wrong.reference),
        }

    def _find_weights(
        self, wrong: _WrongGradient, ranks: list[Record], steps: list[Record]
    ) -> _WeightFindings:
        """Explain a wrong gradient as a weighted sum of the ranks' local gradients."""
        rank_index = wrong.rank_index
        local_gradients = comparison.local_gradients(steps)
        weights_before = self._weights_before(ranks[rank_index], wrong.number)
        actual = numbers.sketches(steps[rank_index]["gradients"])
        selected = _select(actual, wrong.keys)
        weighting = None
        if selected:
            weighting = sums.weigh(selected, local_gradients, weights_before)
        if weighting is None or not weighting.residual < sums.MIN_SHARE:
            old = facts.contains_previous_gradients(ranks, wrong.number, rank_index)
            return _WeightFindings(old=old)
        right = sums.weigh(
            _select(wrong.expected, wrong.keys), local_gradients, weights_before
        )
        right_weights = None
        decay = False
        if right is not None and right.residual < sums.MIN_SHARE:
            right_weights = right.weights
            largest_decay = max(abs(weighting.decay), abs(right.decay))
            decay = abs(weighting.decay - right.decay) > 1e-2 * largest_decay
        if wrong.number == 0 and self._miscounts_rest(ranks, weighting.weights):
            decay = True
        over_ranks, over_micro = sums.pattern(
            rank_index, weighting.weights, right_weights
        )
        return _WeightFindings(
            over_ranks=over_ranks,
            over_micro=over_micro,
            decay=decay,
            weights=weighting.weights,
            right_weights=right_weights,
        )

    def _is_one_right(
        self, number: int, steps: list[Record], expected: numbers.Sketches
    ) -> bool:
        """Return whether a rank applies the right gradient."""
        for step in steps:
            actual = numbers.sketches(step["gradients"])
            if not self._evidence.noise.compare(number, actual, expected).parameters:
                return True
        return False

    def _miscounts_rest(self, ranks: list[Record], weights: np.ndarray) -> bool:
        """Return whether only the loss without targets has a wrong weight."""
        steps = [rank["steps"][0] for rank in ranks]
        serial_steps = self._evidence.serial["steps"]
        total = accounting.serial_total(serial_steps)
        found = accounting.balance(steps, serial_steps[0], total, weights)
        if found is None or found.rest is None or not found.factor:
            return False
        tolerance = accounting.TOLERANCE_OF_REST
        is_right = math.isclose(found.factor, 1.0, rel_tol=tolerance)
        return is_right and not math.isclose(found.rest, 1.0, rel_tol=tolerance)

    def _buffers_differ(self, run: str, reference: str, number: int) -> bool:
        """Return whether buffers differ from the buffers of one process."""
        actual = self._evidence.runs[run]["ranks"][0]["steps"][number]["buffers"]
        expected = self._evidence.runs[reference]["ranks"][0]["steps"][number][
            "buffers"
        ]
        if not actual or numbers.digests(actual) == numbers.digests(expected):
            return False
        noise = Noise(self._evidence.reference, self._evidence.perturbed, "buffers")
        difference = noise.compare(
            number, numbers.sketches(actual), numbers.sketches(expected)
        )
        return bool(difference.parameters)

    def _clips_by_itself(self, reference: str) -> bool:
        """Return whether norms or elements of gradients of one process are at a bound."""
        steps = self._evidence.runs[reference]["ranks"][0]["steps"][:2]
        totals = []
        for step in steps:
            gradients = step["gradients"].values()
            totals.append(math.hypot(*[value["norm"] for value in gradients]))
            # Both biases of an LSTM have the same gradient.
            distinct = {value["digest"]: value for value in gradients}.values()
            lengths = [value["norm"] for value in distinct]
            peaks = [value.get("peak", 0.0) for value in distinct]
            longest = sorted(lengths)[-2:]
            highest = sorted(peaks)[-2:]
            if len(lengths) > 2 and math.isclose(longest[0], longest[1], rel_tol=1e-5):
                return True
            if len(peaks) > 1 and highest[0] == highest[1] > 0:
                return True
        return len(totals) > 1 and math.isclose(totals[0], totals[1], rel_tol=1e-5)

    def _factor_features(
        self, wrong: _WrongGradient, step: Record
    ) -> tuple[GradientFeatures, dict[str, Any]]:
        """Compare a wrong gradient with multiples of the right one.

        Args:
          wrong: The gradient.
          step: The record of its step on its rank.

        Returns:
          Its features, and the values of the check.
        """
        noise = self._evidence.noise.share(wrong.number, numbers.norm(wrong.expected))
        tolerance = max(_FACTOR_TOLERANCE, 4 * noise)
        expected = _select(wrong.expected, wrong.keys)
        actual = _select(numbers.sketches(step["gradients"]), wrong.keys)
        factor = numbers.nearest_multiple(actual, expected)
        distances = numbers.distances(actual, numbers.scaled(expected, factor))
        residual = math.hypot(*distances.values())
        length = max(numbers.norm(expected), 1e-30)
        meaning = None
        if residual < tolerance * length * max(1.0, abs(factor)):
            meaning = self._meaning(factor, tolerance)
        features = GradientFeatures(
            part=_find_part(wrong, step),
            factor=meaning,
            is_multiple=meaning is not None,
            near_factor=self._meaning(factor, _ROUGH_FACTOR_TOLERANCE),
        )
        names = self._evidence.ranks[0]["start"]["names"]
        values = {
            "factor": factor,
            "residual": residual / length,
            "parameters": [names.get(key, key) for key in wrong.keys],
            "num_parameters": len(wrong.expected),
        }
        return features, values

    def _meaning(self, factor: float, tolerance: float) -> Factor | None:
        """Return the meaning of a factor of the gradient; None for 1."""
        if abs(factor - 1.0) <= tolerance:
            return None
        meanings: dict[Factor, float] = {
            Factor.RANKS: self._evidence.num_ranks,
            Factor.INVERSE_RANKS: 1 / self._evidence.num_ranks,
        }
        if self._evidence.num_micro > 1:
            by_micro: dict[Factor, float] = {
                Factor.MICRO: self._evidence.num_micro,
                Factor.INVERSE_MICRO: 1 / self._evidence.num_micro,
            }
            # If one process has the factor too, it comes from its micro-batches.
            if np.isclose(self._factor_of_accumulation(), factor, rtol=0.1):
                meanings = {**by_micro, **meanings}
            else:
                meanings = {**meanings, **by_micro}
        for meaning, value in meanings.items():
            if math.isclose(factor, value, rel_tol=tolerance):
                return meaning
        return Factor.OTHER

    def _factor_of_accumulation(self) -> float:
        """Return the factor of one process with its own micro-batches."""
        run = self._evidence.runs.get("accumulated")
        if run is None or not run["ranks"][0]["steps"]:
            return 1.0
        actual = numbers.sketches(run["ranks"][0]["steps"][0]["gradients"])
        expected = numbers.sketches(self._evidence.reference["steps"][0]["gradients"])
        return numbers.nearest_multiple(actual, expected)


def _select(sketches: numbers.Sketches, keys: Sequence[str]) -> numbers.Sketches:
    """Return the sketches with these keys; missing ones are left out."""
    return {key: sketches[key] for key in keys if key in sketches}


def _find_part(wrong: _WrongGradient, step: Record) -> Part:
    """Return which parameters are wrong: only sparse ones, or all, or some."""
    gradients = step["gradients"]
    sparse_keys = {key for key, value in gradients.items() if value["is_sparse"]}
    if sparse_keys and sparse_keys.issuperset(wrong.keys):
        return Part.SPARSE
    return _all_or_some(wrong.keys, wrong.expected)


def _all_or_some(wrong: Sequence[str], gradients: numbers.Sketches) -> Part:
    """Return whether all gradients are wrong, except those that are zero."""
    num_relevant = sum(1 for value in gradients.values() if np.any(value))
    return Part.ALL if len(wrong) > 0.9 * num_relevant else Part.SOME
