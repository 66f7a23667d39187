"""Fixtures of all tests of training."""

import pytest


@pytest.fixture(scope="module")
def large_weights(tf):
    """Draw initial weights within +-1, so that all gradients exceed a tolerance."""
    from rnn_scaling.models import workload

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(workload, "INITIAL_RANGE", 1.0)
        yield
