"""The certificates of a run's processes as one."""

from __future__ import annotations

from rnn_scaling.records.certificate import Certificate, Check, joined


def certificate(verdict, holds, *checks):
    """A certificate of one replica; checks: (name, holds, difference)."""
    made = tuple(
        Check(name=name, holds=held, text="", difference=difference)
        for name, held, difference in checks
    )
    return Certificate(
        verdict=verdict,
        holds=holds,
        sentence="",
        weights_moved=len(made) / 4,
        checks=made,
    )


def test_the_decisive_fault_and_the_worst_of_each_check_remain():
    right = certificate("equal", True, ("network", True, 1e-7), ("weights", True, 0.5))
    unequal = certificate("sum", False, ("weights", False, 0.1))
    whole = joined(
        [right, unequal, certificate("same batch", False, ("losses", True, None))]
    )
    assert (whole.verdict, whole.holds, whole.replicas, whole.weights_moved) == (
        "same batch",
        False,
        3,
        0.5,
    )
    differences = {
        check.name: (check.holds, check.difference) for check in whole.checks
    }
    assert differences == {
        "network": (True, 1e-7),
        "weights": (False, 0.1),
        "losses": (True, None),
    }
    assert joined([]) is None
