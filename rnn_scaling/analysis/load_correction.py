"""Correct the rates of disturbed runs for the load of other processes.

`rows.Row` calls `correct_rates`. Whether a run is disturbed is decided in
`disturbance`, and whether its rate can be corrected in `_measure_core_shares`.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import NamedTuple

from rnn_scaling.analysis.disturbance import (
    compute_counted_rate,
    has_disturbed_run,
    is_disturbed,
)
from rnn_scaling.records.record import RunRecord

# The correction of a rate has this relative error: the standard deviation of the
# logarithm of the corrected rate, as a share of the logarithm of the factor. Runs
# beside busy programs show it; it is used with the degrees of freedom of such an
# estimate. Source: python -m benchmarks.load_correction
CORRECTION_ERROR = 0.05
CORRECTION_DEGREES = 11
# Even without other programs, a run on many cores leaves up to this share of them idle,
# for example while one device waits for another one. If other programs run, this idle
# time cannot be measured. A run on one core leaves 0.2 to 0.7 % of it idle, and a run
# on two cores up to 2.3 %.
USUAL_IDLE = 0.05
# A run that used less than this share of its cores is not corrected.
_MIN_OWN_SHARE = 0.05


@dataclasses.dataclass(frozen=True)
class CorrectedRates:
    """Estimated rates of runs without other programs.

    Attributes:
      rates: Items/s of each run.
      error: Standard deviation that the correction adds to the logarithm of the mean
        rate. The scatter between the runs is not part of it.
    """

    rates: tuple[float, ...]
    error: float


def correct_rates(records: Sequence[RunRecord]) -> CorrectedRates | None:
    """Estimate the rates that runs would have without other programs.

    A run without a disturbance keeps its rate.

    Args:
      records: The runs of one row, whose mean rate is reported.

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
            shares = _measure_core_shares(record)
            if shares is None:
                return None
            factor = _estimate_factor(shares, _find_usual_idle(record))
            rate *= math.exp(factor.log_factor)
            errors.append(factor.error)
        rates.append(rate)
    # The errors have a common cause, so averaging the runs does not reduce them.
    return CorrectedRates(tuple(rates), math.fsum(errors) / len(records))


def _find_usual_idle(record: RunRecord) -> float:
    """Return the largest share of its cores that a run leaves idle by itself.

    A run on one core never waits for another core, so its share is 0.
    """
    cores = record.resolved.cpu_affinity
    return USUAL_IDLE * (1 - 1 / len(cores)) if cores else USUAL_IDLE


class _CoreShares(NamedTuple):
    """Shares of the time of a run's cores, 0 to 1."""

    own: float  # used by the run
    idle: float  # used by nobody


class _Factor(NamedTuple):
    """The factor that corrects a rate."""

    log_factor: float
    error: float  # standard deviation of log_factor


def _estimate_factor(shares: _CoreShares, usual_idle: float) -> _Factor:
    """Return the factor that corrects a rate.

    A run does the same work per second of its CPU time, whatever else runs. So without
    other programs, its rate would rise like its CPU time:

    - at most from `own` to all cores: log_factor = -log(own)
    - at least to the cores without the time that it leaves idle: that minus
      -log(1 - idle), for the larger one of the usual and the observed share of idle time

    Args:
      shares: How the run's cores were used.
      usual_idle: Largest share that the run may leave idle without other programs.
    """
    observed_idle = shares.idle / (shares.own + shares.idle)
    largest = -math.log(shares.own)
    smallest = max(0.0, largest + math.log(1 - max(usual_idle, observed_idle)))
    half_range = (largest - smallest) / 2
    log_factor = (largest + smallest) / 2
    # The true factor is assumed to be anywhere in the range with equal probability. The
    # standard deviation of such a number is half_range / sqrt(3).
    error = math.hypot(CORRECTION_ERROR * log_factor, half_range / math.sqrt(3))
    return _Factor(log_factor, error)


def _measure_core_shares(record: RunRecord) -> _CoreShares | None:
    """Return how a run's cores were used.

    Returns:
      None if the rate cannot be corrected:

      - the run is of another program, which may wait for anything
      - the devices are not CPUs
      - the run has several processes
      - the record lacks the shares of some measured batches
      - the run used less than _MIN_OWN_SHARE of its cores
    """
    load = record.environment.load
    windows = load.windows if load else None
    is_ours_on_cpus = record.options.is_ours and record.resolved.device_type == "CPU"
    if not is_ours_on_cpus or record.workers is not None:
        return None
    measured = len(record.batches.seconds) - record.batches.warmup
    if windows is None or windows.own is None or sum(windows.batches) != measured:
        return None
    total_s = math.fsum(windows.seconds)
    own_s = _sum_times(windows.own, windows.seconds)
    others_s = _sum_times(windows.others, windows.seconds)
    stolen_s = _sum_times(windows.steal, windows.seconds)
    own = min(1.0, own_s / total_s)
    if own < _MIN_OWN_SHARE:
        return None
    idle = max(0.0, 1 - math.fsum((own_s, others_s, stolen_s)) / total_s)
    return _CoreShares(own, idle)


def _sum_times(shares: Sequence[float], seconds: Sequence[float]) -> float:
    """Return the core seconds per core, given the share in each window."""
    return math.fsum(share * window_s for share, window_s in zip(shares, seconds))
