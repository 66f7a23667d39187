"""Bound how much the load of other processes may have slowed runs.

It gives a bound, not an estimate; `load_correction` has the estimate.
"""

import math
import statistics
from collections.abc import Sequence

from rnn_scaling.analysis.disturbance import (
    compute_counted_rate,
    compute_device_load,
    has_disturbed_run,
    list_noticed_load_shares,
)
from rnn_scaling.records.record import RunRecord
from rnn_scaling.system.machine.load import NOTICEABLE_LOAD

# Linux divides a core evenly, so a process that shares one takes at most about half.
MAX_SHARE_OF_SHARED_CORE = 0.5
# Load with less than this share of a change, in logarithms, changes neither its
# direction nor whether it passes a limit, except a limit near to the change itself.
_MIN_SHARE_OF_CHANGE = 0.2


def max_slowing(records: Sequence[RunRecord], all_batches: bool = False) -> float:
    """Return the largest share of the mean rate that load of others may have taken.

    A step waits for its slowest core. Load on all cores takes its share of each; load
    on one core takes at most `MAX_SHARE_OF_SHARED_CORE` of that core.

    Args:
      records: The runs.
      all_batches: Whether disturbed batches count, even if no run is disturbed.

    Returns:
      0 to 1, the mean over the runs; 0.0 without runs.
    """
    slowings = []
    all_batches = all_batches or has_disturbed_run(records)
    for record in records:
        shares = [
            max(share, min(MAX_SHARE_OF_SHARED_CORE, share * max(1, cores)))
            for share, cores in list_noticed_load_shares(record, all_batches)
        ]
        slowings.append(min(1.0, max(shares)))
    return math.fsum(slowings) / len(slowings) if slowings else 0.0


def max_slowing_beyond(
    records: Sequence[RunRecord],
    reference: Sequence[RunRecord],
    all_batches: bool = False,
) -> float:
    """Return the share of the rate that load may have taken unlike in other runs.

    Args:
      records: Runs that may be slower because of load.
      reference: Runs of the configuration that they are compared with.
      all_batches: Whether disturbed batches of both count, even if no run is disturbed.

    Returns:
      `max_slowing`; 0.0 if the reference had about as much load, or more.
    """
    slowing = max_slowing(records, all_batches)
    if not slowing or not reference:
        return 0.0
    loads = _list_device_loads(records, all_batches)
    reference_loads = _list_device_loads(reference, all_batches)
    return slowing if had_more_load(loads, reference_loads) else 0.0


def _list_device_loads(records: Sequence[RunRecord], all_batches: bool) -> list[float]:
    """Return the recorded loads as shares of one device's cores, noticeable or not."""
    all_batches = all_batches or has_disturbed_run(records)
    return [compute_device_load(record, all_batches) or 0.0 for record in records]


def had_more_load(loads: Sequence[float], reference: Sequence[float]) -> bool:
    """Return whether runs had more load than other runs, beyond chance.

    Args:
      loads: Load of each run as a share of one device's cores; not empty.
      reference: The same for the runs that they are compared with; not empty.

    Returns:
      True if the means differ by more than `NOTICEABLE_LOAD`, and by more than two
      standard errors of loads that vary as much as these. If no reference run had
      noticeable load, the difference is not by chance.
    """
    excess = statistics.fmean(loads) - statistics.fmean(reference)
    if max(reference) <= NOTICEABLE_LOAD:
        return excess > NOTICEABLE_LOAD
    variances = [
        statistics.variance(side) / len(side)
        for side in (loads, reference)
        if len(side) > 1
    ]
    return excess > max(NOTICEABLE_LOAD, 2 * math.sqrt(sum(variances)))


def may_explain(records: Sequence[RunRecord], reference: Sequence[RunRecord]) -> bool:
    """Return whether load may have caused much of the difference between two rates.

    Args:
      records: Good runs of one side.
      reference: Good runs that they are compared with.

    Returns:
      False if the largest possible effect of the load, on either side and in
      logarithms, is below `_MIN_SHARE_OF_CHANGE` of the difference.
    """
    slowing = max(max_slowing(records), max_slowing(reference))
    log_effect = -math.log1p(-slowing) if slowing < 1 else math.inf
    log_change = abs(
        math.log(_compute_median_rate(records) / _compute_median_rate(reference))
    )
    return log_effect > _MIN_SHARE_OF_CHANGE * log_change


def _compute_median_rate(records: Sequence[RunRecord]) -> float:
    all_batches = has_disturbed_run(records)
    return statistics.median(
        compute_counted_rate(run, all_batches) for run in records if run.throughput
    )
