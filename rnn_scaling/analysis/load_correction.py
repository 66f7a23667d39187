"""Correct the rates of disturbed runs for the load of other processes.

`rows` corrects rates with it. It decides nothing: `disturbance` has the rule for when a
rate is corrected.
"""

import dataclasses
import math
import operator
from collections.abc import Sequence

from rnn_scaling.analysis.disturbance import (
    compute_counted_rate,
    has_disturbed_run,
    is_disturbed,
)
from rnn_scaling.records.record import RunRecord

# Standard deviation of the logarithm of a corrected rate, as a share of the logarithm of
# the correction, and the degrees of freedom that are assumed for it.
# Source: python -m benchmarks.load_correction
CORRECTION_ERROR = 0.05
CORRECTION_DEGREES = 11
# Share of its cores that a run on many cores may leave idle without other programs, for
# example while one device waits for another one. Beside other programs, it cannot be
# seen. A run on one core leaves 0.2 to 0.7 % idle, and a run on two cores up to 2.3 %.
USUAL_IDLE = 0.05
# A run that had a smaller share of its cores is not corrected.
_MIN_OWN_SHARE = 0.05


@dataclasses.dataclass(frozen=True)
class CorrectedRates:
    """The rates of runs as they would be without other programs.

    Attributes:
      rates: Items/s of each run.
      error: Standard deviation of the logarithm of their mean that the correction
        adds to the scatter between the runs.
    """

    rates: tuple[float, ...]
    error: float


def correct_rates(records: Sequence[RunRecord]) -> CorrectedRates | None:
    """Return the rates of runs as they would be without other programs.

    Quiet runs keep the rate of their quiet batches.

    Args:
      records: Runs that are averaged.

    Returns:
      None if no run is disturbed, or if a disturbed run cannot be corrected.
    """
    if not has_disturbed_run(records):
        return None
    rates = []
    errors = []
    for record in records:
        rate = compute_counted_rate(record)
        if is_disturbed(record):
            shares = _own_and_idle_share(record)
            if shares is None:
                return None
            cores = record.resolved.cpu_affinity
            usual_idle = USUAL_IDLE * (1 - 1 / len(cores)) if cores else USUAL_IDLE
            log_factor, error = _correction(*shares, usual_idle)
            rate *= math.exp(log_factor)
            errors.append(error)
        rates.append(rate)
    # The errors have the same cause, so that their mean is not smaller.
    return CorrectedRates(tuple(rates), math.fsum(errors) / len(records))


def _correction(own: float, idle: float, usual_idle: float) -> tuple[float, float]:
    """Return the logarithm of the factor that corrects a rate, and its error.

    A run does the same work per second of its own CPU time, whatever else runs, and the
    question is how much CPU time it would have without other programs. It has all of its
    cores, except for up to `usual_idle` or the share that was idle beside other programs.

    Args:
      own: Share of the run's cores that the run used.
      idle: Share that nobody used.
      usual_idle: Largest share that the run may leave idle without other programs.
    """
    largest = -math.log(own)
    smallest = max(0.0, largest + math.log(1 - max(usual_idle, idle / (own + idle))))
    half_range = (largest - smallest) / 2
    log_factor = (largest + smallest) / 2
    # Any value within the range is equally likely.
    return log_factor, math.hypot(
        CORRECTION_ERROR * log_factor, half_range / math.sqrt(3)
    )


def _own_and_idle_share(record: RunRecord) -> tuple[float, float] | None:
    """Return the shares of a run's cores that it used, and that nobody used.

    Returns:
      None if a correction is impossible: the run is of another program, which may wait
      for anything, the devices are not CPUs, the run has several processes, its record
      lacks the shares, or it had too little of its cores.
    """
    watched = record.environment.load
    windows = watched.windows if watched else None
    keeps_cores_busy = record.options.is_ours and record.resolved.device_type == "CPU"
    if not keeps_cores_busy or record.workers is not None:
        return None
    measured = len(record.batches.seconds) - record.batches.warmup
    if windows is None or windows.own is None or sum(windows.batches) != measured:
        return None
    total_s = math.fsum(windows.seconds)
    used_s = dict.fromkeys(("own", "others", "steal"), 0.0)
    for name in used_s:
        shares = getattr(windows, name)
        used_s[name] = math.fsum(map(operator.mul, shares, windows.seconds))
    own = min(1.0, used_s["own"] / total_s)
    if own < _MIN_OWN_SHARE:
        return None
    return own, max(0.0, 1 - math.fsum(used_s.values()) / total_s)
