"""Facts of steps, from literal records."""

from __future__ import annotations

import pytest

from rnn_scaling.verification.scripts import facts
from tests.verification.scripts.recorded import Recorded


@pytest.mark.parametrize(
    ("divisor", "weight", "scale"),
    [
        (4, 0.5, 0.5),  # one process divides by the size of its usual batch
        (4, 1.0, 0.5),
        (1, 0.5, 0.5),  # a sum, of which the ranks apply the mean
        (1, 1.0, 1.0),  # or the sum
    ],
)
def test_a_loss_with_a_constant_divisor_grows_with_the_batch(divisor, weight, scale):
    recorded = Recorded()
    recorded.weights[:] = weight
    runs = recorded.runs()
    runs["reference"]["settings"] = {"replay": {}}
    for name, count in (("serial", 4), ("parallel", 4), ("reference", 8)):
        for rank in runs[name]["ranks"]:
            micro = rank["steps"][0]["micro"][0]
            criterion = {"count": count, "sum": 1.0, "scale": 1 / divisor}
            # One process does not share the records of the others.
            rank["steps"][0]["micro"] = [{**micro, "criteria": [criterion]}]
    found = facts.find_reference_scale(runs, "parallel", "reference")
    assert found == scale


@pytest.mark.parametrize(
    ("places", "first"),
    [([[3, 5], [4, 2]], [3, 3]), ([[3, 1], [4, 2]], [3, 0]), ([[3, 5]], [3, 0])],
)
def test_the_first_step_has_as_many_draws_as_the_second(places, first):
    """Weights and data are drawn before."""
    steps = [{"place": place} for place in places]
    assert facts.first_draw({"steps": steps}) == first
