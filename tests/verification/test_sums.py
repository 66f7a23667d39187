"""How the weights of local gradients are classified."""

from __future__ import annotations

import numpy as np
import pytest

from rnn_scaling.verification import sums
from rnn_scaling.verification.signatures import MicroWeights, RankWeights

BOTH = np.array([[0.0, 0.5], [0.0, 0.5]])


@pytest.mark.parametrize(
    ("weights", "over_ranks", "over_micro"),
    [
        ([[0.0, 1.0], [0.0, 0.0]], RankWeights.OWN, MicroWeights.RIGHT),
        ([[0.0, 0.5], [0.0, 0.5]], RankWeights.RIGHT, MicroWeights.RIGHT),
        ([[0.5, 0.0], [0.5, 0.0]], RankWeights.RIGHT, MicroWeights.LOST),
    ],
)
def test_a_pass_that_nobody_uses_does_not_count(weights, over_ranks, over_micro):
    found = sums.pattern(0, np.array(weights), BOTH)
    assert found == (over_ranks, over_micro)
