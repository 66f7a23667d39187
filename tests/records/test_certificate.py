"""The certificates of a run's processes are merged into one."""

from rnn_scaling.records.certificate import Certificate, Check, merge


def certificate(verdict, holds, *checks):
    """Return a certificate of one replica; checks are (name, holds, difference)."""
    parts = []
    for name, check_holds, difference in checks:
        parts.append(
            Check(name=name, holds=check_holds, text="", difference=difference)
        )
    moved = len(checks) / 4
    return Certificate(
        verdict=verdict, holds=holds, weights_moved=moved, checks=tuple(parts)
    )


def test_the_decisive_fault_and_the_worst_of_each_check_remain():
    right = certificate("equal", True, ("network", True, 1e-7), ("weights", True, 0.5))
    unequal = certificate("sum", False, ("weights", False, 0.1))
    same_batch = certificate("same batch", False, ("losses", True, None))
    merged = merge([right, unequal, same_batch])
    assert (merged.verdict, merged.holds) == ("same batch", False)
    assert merged.replicas == 3
    assert merged.weights_moved == 0.5
    checks = {check.name: (check.holds, check.difference) for check in merged.checks}
    assert checks == {
        "network": (True, 1e-7),
        "weights": (False, 0.1),
        "losses": (True, None),
    }
    assert merge([]) is None
