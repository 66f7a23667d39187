"""How long a run may take: a trainer that hangs must not cost an hour, and one that is only slow must not be killed."""

from __future__ import annotations

import dataclasses

from rnn_scaling.sweeps.estimate import Estimator, Identity, duration

TIMES = 10.0  # what a run is expected to take
LEAST_S = 300.0  # a machine may be busy, and the first run of a day reads TensorFlow from a cold disk
SILENT_S = 1800.0  # that a run of which nothing is known may say nothing


@dataclasses.dataclass(frozen=True)
class Limit:
    """The limit of one run.

    seconds: 0: none; words: what is said when it strikes; is_rough: no finished run speaks for it, so that it counts
      anew from each sign that the run goes on.
    """

    seconds: float
    words: str
    is_rough: bool = False


def given(seconds: float) -> Limit:
    """The limit that the user set."""
    return Limit(seconds, f"not done after {seconds:g} s, the limit of --run_timeout")


def of(options: Identity, estimator: Estimator, timeout_s: float | None) -> Limit:
    """The limit of a run.

    Args:
      timeout_s: what the user set; None: nothing.
    """
    if timeout_s is not None:
        return given(timeout_s)
    expected, basis = estimator.seconds(options), estimator.basis(options)
    if basis == "unknown":
        words = f"killed after {SILENT_S:g} s without a new line of output; --run_timeout=SECONDS sets another limit"
        return Limit(SILENT_S, words, is_rough=True)
    seconds = max(LEAST_S, round(TIMES * expected))
    times = f"{TIMES:g} times" if seconds > LEAST_S else f"more than {TIMES:g} times"
    what = {
        "same": "what runs of the same flags took",
        "scaled": "what it should take by the runs that have finished",
        "rough": "what it should take by a rough estimate, without a new batch",
    }[basis]
    words = f"killed after {seconds:g} s, {times} {what} ({duration(expected)}); --run_timeout=SECONDS sets the limit"
    return Limit(seconds, words, basis == "rough")
