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
    found = facts.scale_of_reference(runs, "parallel", "reference")
    assert found == scale
