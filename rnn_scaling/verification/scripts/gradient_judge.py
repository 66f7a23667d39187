"""Whether the gradients of a script are right, and which fault explains wrong ones."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from rnn_scaling.verification import numbers, signatures, sums
from rnn_scaling.verification.scripts import accounting, comparison, facts, samples
from rnn_scaling.verification.scripts.comparison import Noise
from rnn_scaling.verification.scripts.evidence import (
    Evidence,
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

FACTOR_TOLERANCE = 1e-3
SUMS = ("SUM", "AVG")  # operations of an all-reduce that average gradients
ROUGH_FACTOR_TOLERANCE = 0.1  # of a factor that comes with other weights
TOLERANCE_OF_FIT = 1e-2  # tolerance of a weight that is fitted to one parameter


class GradientJudge:
    """Judges the gradients that the optimizer gets."""

    def __init__(self, evidence: Evidence) -> None:
        self._evidence = evidence

    def judge(self) -> Check:
        """Return the check of the gradients."""
        steps = [rank["steps"][0] for rank in self._evidence.ranks]
        locals_ = comparison.local_gradients(steps)
        if facts.are_equal(locals_):
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
        locals_ = comparison.local_gradients(steps)
        applied = [numbers.sketches(step["gradients"]) for step in steps]
        names = self._evidence.ranks[0]["start"]["names"]
        for gradient in applied[1:]:
            difference = self._evidence.noise.compare(0, gradient, applied[0])
            if difference.parameters:
                wrong = list(difference.parameters)
                features = GradientFeatures(
                    part=_part(wrong, applied[0]), ranks_agree=False
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
                factor=self._meaning(factor, ROUGH_FACTOR_TOLERANCE),
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
        for number in range(num_steps):
            expected = self._expected(number, parallel, reference)
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

    def _expected(self, number: int, parallel: str, reference: str) -> numbers.Sketches:
        """Return the right gradient of a step."""
        step = self._evidence.runs[reference]["ranks"][0]["steps"][number]
        scale = facts.scale_of_reference(self._evidence.runs, parallel, reference)
        return numbers.scaled(numbers.sketches(step["gradients"]), scale)

    def _is_right_elsewhere(
        self, number: int, place: int, parallel: str, reference: str
    ) -> bool:
        """Return whether another optimizer gets right gradients of the same passes."""
        num_steps = len(self._evidence.runs[reference]["ranks"][0]["steps"])
        steps = self._evidence.runs[parallel]["ranks"][place]["steps"][:num_steps]
        passes = steps[number]["micro"]
        for other, step in enumerate(steps):
            if other == number or not passes or step["micro"] != passes:
                continue
            actual = numbers.sketches(step["gradients"])
            expected = self._expected(other, parallel, reference)
            if not self._evidence.noise.compare(other, actual, expected).parameters:
                return True
        return False

    @staticmethod
    def _weights_before(rank: Record, number: int) -> numbers.Sketches:
        source = previous_step(rank, number) or rank["start"]
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
        steps = [rank["steps"][number] for rank in ranks]
        record = steps[place]
        actual = numbers.sketches(record["gradients"])
        wrong = list(difference.parameters)
        noise = self._evidence.noise.share(number, numbers.norm(expected))
        features, values = self._factor_features(
            record, actual, expected, wrong, max(FACTOR_TOLERANCE, 4 * noise)
        )
        if self._is_right_elsewhere(number, place, run, reference):
            features = dataclasses.replace(features, part=Part.SOME)
        locals_ = comparison.local_gradients(steps)
        digests = [numbers.digests(each["gradients"]) for each in steps]
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
        else:
            old = facts.has_old_gradients(ranks, number, place)
        # With synchronised statistics, a right gradient is no sum of local ones.
        if "right_weights" not in values and accounting.counts_ranks_alike(steps):
            over_ranks = RankWeights.UNIFORM
        step = self._evidence.runs[reference]["ranks"][0]["steps"][number]
        changed_outside = facts.is_changed_outside(
            ranks[place], number
        ) and not facts.is_changed_outside(self._evidence.serial, number)
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
            loss_differs=accounting.losses_differ(steps, step),
            lengths_differ=facts.has_other_lengths(steps, step),
            exchanges=facts.exchanges_values(steps),
            one_is_right=self._is_one_right(number, steps, expected),
            weights_agree=facts.have_equal_weights(ranks, number + 1),
            passes_differ=len(self._evidence.num_passes(number)) > 1,
            adds_or_averages=max(reduced, key=reduced.__getitem__) in SUMS,
            # In a driven run, a clipping function that is known sets all norms.
            clipped=not record["clips"] and self._clips_by_itself(reference),
        )
        return self._named(number, features, values, difference.ratio)

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
        some = {key: expected[key] for key in wrong if key in expected}
        found = {key: actual[key] for key in wrong if key in actual}
        factor = numbers.nearest_multiple(found, some)
        distances = numbers.distances(found, numbers.scaled(some, factor))
        residual = math.hypot(*distances.values())
        length = max(numbers.norm(some), 1e-30)
        part = _part(wrong, expected)
        sparse = [
            key for key, value in record["gradients"].items() if value["is_sparse"]
        ]
        if sparse and set(wrong) <= set(sparse):
            part = Part.SPARSE
        meaning = None
        if residual < tolerance * length * max(1.0, abs(factor)):
            meaning = self._meaning(factor, tolerance)
        features = GradientFeatures(
            part=part,
            factor=meaning,
            is_multiple=meaning is not None,
            near_factor=self._meaning(factor, ROUGH_FACTOR_TOLERANCE),
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


def _part(wrong: Sequence[str], gradients: numbers.Sketches) -> Part:
    """Return whether all gradients are wrong, except those that are zero."""
    num_relevant = sum(1 for value in gradients.values() if np.any(value))
    return Part.ALL if len(wrong) > 0.9 * num_relevant else Part.SOME
