"""Time limits of runs: a trainer that hangs must not cost an hour, and one that is only slow must not be killed."""

import dataclasses

from rnn_scaling.sweeps.estimate import Estimator, Identity, duration

TIMES = 10.0  # of the expected duration
LEAST_S = 300.0  # a machine may be busy, and the first run of a day reads TensorFlow from a cold disk
SILENT_S = 1800.0  # without output, for runs whose duration is unknown
EXPECTED = {  # by basis of the estimate
    "same": "the duration of runs of the same flags",
    "scaled": "the duration that finished runs suggest",
    "rough": "a rough estimate, without a new batch",
}


@dataclasses.dataclass(frozen=True)
class Limit:
    seconds: float  # 0: none
    words: str  # the message when it is reached
    # The limit has no finished run as its basis, so that it starts anew with each sign of progress.
    is_rough: bool = False


def given(seconds: float) -> Limit:
    return Limit(seconds, f"killed after {seconds:g} s, the limit of --run_timeout")


def for_run(options: Identity, estimator: Estimator, timeout_s: float | None) -> Limit:
    """The limit of a run; `timeout_s`: that the user set; None: not set."""
    if timeout_s is not None:
        return given(timeout_s)
    expected, basis = estimator.seconds(options), estimator.basis(options)
    remedy = "--run_timeout=SECONDS sets another limit"
    if basis == "unknown":
        return Limit(SILENT_S, f"killed after {SILENT_S:g} s without output; {remedy}", is_rough=True)
    seconds = max(LEAST_S, round(TIMES * expected))
    times = f"{TIMES:g} times" if seconds > LEAST_S else f"more than {TIMES:g} times"
    words = f"killed after {seconds:g} s, {times} {EXPECTED[basis]} ({duration(expected)}); {remedy}"
    return Limit(seconds, words, basis == "rough")
