"""Whether the gradients of a script are right, and which fault explains wrong ones."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from rnn_scaling.verification import numbers, signatures, sums
from rnn_scaling.verification.scripts import accounting, comparison, samples
from rnn_scaling.verification.scripts.comparison import Noise
from rnn_scaling.verification.scripts.evidence import Evidence, Record, Relation
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

FACTOR_TOLERANCE = 1e-3
SUMS = ("SUM", "AVG")  # operations of an all-reduce that average gradients
NEAR = 0.1  # tolerance of a factor that comes with other weights
TOLERANCE_OF_FIT = 1e-2  # tolerance of a weight that is fitted to one parameter


class GradientJudge:
    """Judges the gradients that the optimizer gets."""

    def __init__(self, evidence: Evidence) -> None:
        self._evidence = evidence

    def judge(self) -> Check:
        """Return the check of the gradients."""
        locals_ = comparison.local_gradients(self._evidence.ranks, 0)
        if _are_equal(locals_):
            return self._named(0, GradientFeatures(same_samples=True), {}, None)
        relation = self._evidence.relation("parallel", "reference")
        if relation in (Relation.FEWER, Relation.REPEATED):
            return self._miscounted()
        if relation is Relation.OTHER:
            return self._by_parts()
        return self.against_reference("parallel", "reference")

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

    def _by_parts(self) -> Check:
        """Judge the first step without a reference: by local gradients and losses."""
        steps = [rank["steps"][0] for rank in self._evidence.ranks]
        locals_ = comparison.local_gradients(self._evidence.ranks, 0)
        applied = [numbers.sketches(step["gradients"]) for step in steps]
        names = self._evidence.ranks[0]["start"]["names"]
        for gradient in applied[1:]:
            difference = self._evidence.noise.compare(0, gradient, applied[0])
            if difference.parameters:
                wrong = list(difference.parameters)
                relevant = [key for key, value in applied[0].items() if np.any(value)]
                is_all = len(wrong) > 0.9 * len(relevant)
                features = GradientFeatures(
                    part=Part.ALL if is_all else Part.SOME, ranks_agree=False
                )
                subset = {key: applied[0][key] for key in wrong if key in applied[0]}
                weighting = sums.weigh(subset, locals_, {})
                if weighting is not None:
                    over_ranks, over_micro = sums.pattern(0, weighting.weights, None)
                    features = dataclasses.replace(
                        features, over_ranks=over_ranks, over_micro=over_micro
                    )
                values = {
                    "parameters": [names.get(key, key) for key in wrong],
                    "factor": 1.0,
                }
                return self._named(0, features, values, difference.ratio)
        weighting = sums.weigh(applied[0], locals_, {})
        if weighting is None or weighting.residual > sums.MIN_SHARE:
            return self._by_parameter(applied[0], locals_)
        return self._judge_balance(steps, weighting)

    def _by_parameter(
        self,
        applied: numbers.Sketches,
        locals_: list[list[numbers.Sketches]],
    ) -> Check:
        """Return the check of gradients that have unequal weights."""
        scales: dict[str, float] = {}
        for key, gradient in applied.items():
            weighting = sums.weigh({key: gradient}, locals_, {})
            if weighting is not None and weighting.residual < sums.MIN_SHARE:
                scales[key] = float(weighting.weights.mean())
        usual = float(np.median(list(scales.values()))) if scales else 0.0
        wrong = [
            key
            for key, scale in scales.items()
            if abs(scale - usual) > TOLERANCE_OF_FIT * abs(usual)
        ]
        if not usual or not wrong:
            return Check(Subject.GRADIENTS, Result.NOT_COVERED, "other-samples")
        factor = scales[wrong[0]] / usual
        names = self._evidence.ranks[0]["start"]["names"]
        features = GradientFeatures(
            part=Part.SOME, factor=self._meaning(factor, TOLERANCE_OF_FIT)
        )
        values = {
            "factor": factor,
            "parameters": [names.get(key, key) for key in wrong],
        }
        return self._named(0, features, values, None)

    def _judge_balance(
        self,
        steps: list[Record],
        weighting: sums.Weighting,
    ) -> Check:
        weights = weighting.weights
        found = accounting.balance(steps, self._evidence.reference["steps"], weights)
        if found is None:
            is_mean = np.allclose(
                weights, 1 / self._evidence.num_ranks, rtol=FACTOR_TOLERANCE
            )
            if not is_mean:
                return Check(Subject.GRADIENTS, Result.NOT_COVERED, "other-samples")
        elif not found.is_right:
            factor = found.factor or 1.0
            over_ranks, over_micro = sums.pattern(0, found.share, found.targets)
            rest_differs = found.rest is not None and not np.isclose(
                found.rest, factor, rtol=accounting.TOLERANCE_OF_REST
            )
            features = GradientFeatures(
                part=Part.ALL,
                ranks_agree=True,
                fewer_targets=found.missing > 0,
                factor=self._meaning(factor, NEAR),
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
            return self._named(0, features, values, None)
        return Check(Subject.GRADIENTS, Result.OK, "by-parts")

    @staticmethod
    def _named(
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
        num_steps = min(len(rank["steps"]) for rank in ranks)
        num_steps = min(
            num_steps, len(self._evidence.runs[reference]["ranks"][0]["steps"])
        )
        scale = scale_of_reference(self._evidence.runs, parallel, reference)
        for number in range(num_steps):
            step = self._evidence.runs[reference]["ranks"][0]["steps"][number]
            expected = numbers.scaled(numbers.sketches(step["gradients"]), scale)
            for place, rank in enumerate(ranks):
                actual = numbers.sketches(rank["steps"][number]["gradients"])
                difference = self._evidence.noise.compare(number, actual, expected)
                if not difference.is_judged:
                    if number == 0:
                        kind = "too-sensitive"
                        return Check(Subject.GRADIENTS, Result.NOT_COVERED, kind)
                    break
                largest = max(largest, difference.ratio)
                if difference.parameters:
                    return self._explain(
                        number, place, expected, difference, parallel, reference
                    )
        return Check(
            Subject.GRADIENTS,
            Result.OK,
            "gradients",
            ratio=largest,
            values={"steps": num_steps},
        )

    @staticmethod
    def _weights_before(rank: Record, number: int) -> numbers.Sketches:
        source = rank["steps"][number - 1] if number else rank["start"]
        return numbers.sketches(source["weights"])

    def _explain(
        self,
        number: int,
        place: int,
        expected: numbers.Sketches,
        difference: comparison.Difference,
        run: str,
        reference: str,
    ) -> Check:
        """Return the check of a wrong gradient with its cause."""
        ranks = self._evidence.runs[run]["ranks"]
        record = ranks[place]["steps"][number]
        actual = numbers.sketches(record["gradients"])
        wrong = list(difference.parameters)
        noise = self._evidence.noise.share(number, numbers.norm(expected))
        features, values = self._factor_features(
            record, actual, expected, wrong, max(FACTOR_TOLERANCE, 4 * noise)
        )
        locals_ = comparison.local_gradients(ranks, number)
        digests = [
            numbers.digests(rank["steps"][number]["gradients"]) for rank in ranks
        ]
        before = self._weights_before(ranks[place], number)
        subset = {key: actual[key] for key in wrong if key in actual}
        over_ranks: RankWeights | None = None
        over_micro: MicroWeights | None = None
        decay: bool | None = None
        old: bool | None = None
        weighting = sums.weigh(subset, locals_, before) if subset else None
        right = sums.weigh(
            {key: expected[key] for key in wrong if key in expected}, locals_, before
        )
        if weighting is not None and weighting.residual < sums.MIN_SHARE:
            right_weights = None
            decay = False
            if right is not None and right.residual < sums.MIN_SHARE:
                right_weights = right.weights
                decay = abs(weighting.decay - right.decay) > 1e-2 * max(
                    abs(weighting.decay), abs(right.decay)
                )
            over_ranks, over_micro = sums.pattern(
                place, weighting.weights, right_weights
            )
            values["weights"] = np.round(weighting.weights, 6).tolist()
            if right_weights is not None:
                values["right_weights"] = np.round(right_weights, 6).tolist()
            if number == 0 and self._miscounts_rest(ranks, weighting.weights):
                decay = True
        elif number > 0:
            old = self._has_old_gradients(ranks, number, place)
        if "right_weights" not in values:
            # With synchronised statistics, a right gradient is no sum of local ones.
            steps = [rank["steps"][number] for rank in ranks]
            if accounting.counts_ranks_alike(steps):
                over_ranks = RankWeights.UNIFORM
        step = self._evidence.runs[reference]["ranks"][0]["steps"][number]
        changed_outside = _is_changed_outside(
            ranks[place], number
        ) and not _is_changed_outside(self._evidence.serial, number)
        reduced = record.get("reduced") or {"SUM": 1}
        features = dataclasses.replace(
            features,
            ranks_agree=all(other == digests[0] for other in digests),
            over_ranks=over_ranks,
            over_micro=over_micro,
            decay=decay,
            buffers_differ=self._buffers_differ(run, reference, number),
            padding=accounting.counts_padding(self._evidence.serial["steps"]),
            old=old,
            changed_outside=changed_outside,
            loss_differs=accounting.losses_differ(
                [rank["steps"][number] for rank in ranks], step
            ),
            passes_differ=len(self._evidence.num_passes(number)) > 1,
            adds_or_averages=max(reduced, key=reduced.__getitem__) in SUMS,
            # In a driven run, a clipping function that is known sets all norms.
            clipped=not record["clips"] and self._clips_by_itself(reference),
        )
        return self._named(number, features, values, difference.ratio)

    @staticmethod
    def _has_old_gradients(ranks: list[Record], number: int, place: int) -> bool:
        """Return whether gradients of the step before explain the rest of a gradient."""
        actual = numbers.sketches(ranks[place]["steps"][number]["gradients"])
        old = []
        for rank in ranks:
            before = rank["steps"][number - 1]["gradients"]
            old.append([numbers.sketches(before)])
        for passes, more in zip(old, comparison.local_gradients(ranks, number - 1)):
            passes += more
        now = comparison.local_gradients(ranks, number)
        terms = [passes + more for passes, more in zip(now, old)]
        weighting = sums.weigh(actual, terms, {})
        return weighting is not None and weighting.residual < sums.MIN_SHARE

    def _miscounts_rest(self, ranks: list[Record], weights: np.ndarray) -> bool:
        """Return whether only the loss without targets has a wrong weight."""
        steps = [rank["steps"][0] for rank in ranks]
        found = accounting.balance(steps, self._evidence.serial["steps"], weights)
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
        """Return whether norms of gradients of one process are at a bound."""
        steps = self._evidence.runs[reference]["ranks"][0]["steps"][:2]
        totals = []
        for step in steps:
            lengths = [value["norm"] for value in step["gradients"].values()]
            totals.append(math.hypot(*lengths))
            longest = sorted(lengths)[-2:]
            if len(lengths) > 2 and math.isclose(longest[0], longest[1], rel_tol=1e-5):
                return True
        return len(totals) > 1 and math.isclose(totals[0], totals[1], rel_tol=1e-5)

    def _factor_features(
        self,
        record: Record,
        actual: numbers.Sketches,
        expected: numbers.Sketches,
        wrong: list[str],
        tolerance: float,
    ) -> tuple[GradientFeatures, dict[str, Any]]:
        names = self._evidence.ranks[0]["start"]["names"]
        relevant = [key for key, value in expected.items() if np.any(value)]
        some = {key: expected[key] for key in wrong if key in expected}
        found = {key: actual[key] for key in wrong if key in actual}
        factor = numbers.nearest_multiple(found, some)
        distances = numbers.distances(found, numbers.scaled(some, factor))
        residual = math.hypot(*distances.values())
        length = max(numbers.norm(some), 1e-30)
        part = Part.SOME
        sparse = [
            key for key, value in record["gradients"].items() if value["is_sparse"]
        ]
        if sparse and set(wrong) <= set(sparse):
            part = Part.SPARSE
        elif len(wrong) > 0.9 * len(relevant):
            part = Part.ALL
        meaning = None
        if residual < tolerance * length * max(1.0, abs(factor)):
            meaning = self._meaning(factor, tolerance)
        features = GradientFeatures(
            part=part, factor=meaning, near_factor=self._meaning(factor, NEAR)
        )
        values = {
            "factor": factor,
            "residual": residual / length,
            "parameters": [names.get(key, key) for key in wrong],
            "num_parameters": len(expected),
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


def _is_changed_outside(rank: Record, number: int) -> bool:
    """Return whether weights change after a step and before the next one."""
    if not 0 < number < len(rank["steps"]):
        return False
    after = numbers.digests(rank["steps"][number - 1]["weights"])
    before = rank["steps"][number].get("before", {})
    return any(after.get(key, value) != value for key, value in before.items())


def scale_of_reference(
    runs: Mapping[str, Record], parallel: str, reference: str
) -> float:
    """Return the factor by which the gradient of a replay must be multiplied.

    A loss that divides by a constant of the script, such as its batch size, adds the
    losses of the ranks if one process computes all their samples.
    """
    settings = runs[reference]["settings"]
    rank = runs[reference]["ranks"][0]
    if "replay" not in settings or "scale" in settings or not rank["steps"]:
        return 1.0
    step = rank["steps"][0]
    ranks = runs[parallel]["ranks"]
    loss = sum(micro["loss"] for micro in step["micro"])
    first_step = runs["serial"]["ranks"][0]["steps"][0]
    usual = sum(micro["loss"] for micro in first_step["micro"])
    locals_ = comparison.local_gradients(ranks, 0)
    expected = numbers.sketches(step["gradients"])
    weighting = sums.weigh(expected, locals_, {})
    if weighting is None or weighting.residual > sums.MIN_SHARE or not usual:
        return 1.0
    adds = np.abs(weighting.weights - 1.0).max() < FACTOR_TOLERANCE
    if adds and loss / usual > math.sqrt(len(ranks)):
        return 1 / len(ranks)
    return 1.0


def _are_equal(locals_: list[list[numbers.Sketches]]) -> bool:
    """Return whether all ranks have the same nonzero local gradients."""
    if len(locals_) < 2 or not locals_[0] or not locals_[0][0]:
        return False
    first = locals_[0][0]
    if numbers.norm(first) == 0:
        return False
    for passes in locals_[1:]:
        if not passes or passes[0].keys() != first.keys():
            return False
        if numbers.concatenated(passes[0]) != numbers.concatenated(first):
            return False
    return True
