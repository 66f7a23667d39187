"""Records of runs beside other processes, whose load in each window is known."""

import statistics

from tests.support.records import change_record, read_fields, throughput


def make_windows(shares, batches, steal=0.0):
    """Return windows of equally many batches with these loads, as in a file."""
    return {
        "batches": [batches] * len(shares),
        "seconds": [0.5] * len(shares),
        "others": [*shares],
        "steal": [steal] * len(shares),
    }


def make_run_beside_load(quiet, shares, run_load=None, steal=0.0):
    """Return a run whose batches took twice as long in windows above 5 % of load.

    Args:
      quiet: The run without load; its measured batches fill the windows.
      shares: The load of each window.
      run_load: The load of the whole run; None for the mean of the windows.
      steal: What the hypervisor took in each window.
    """
    warmup = quiet.batches.warmup
    seconds = list(quiet.batches.seconds)
    per_window = (len(seconds) - warmup) // len(shares)
    for number in range(warmup, len(seconds)):
        if shares[(number - warmup) // per_window] > 0.05:
            seconds[number] *= 2
    load = {
        "others": statistics.fmean(shares) if run_load is None else run_load,
        "steal": 0.0,
        "seconds": 9.0,
        "windows": make_windows(shares, per_window, steal),
    }
    batches = {"warmup": warmup, "seconds": seconds, "items": [*quiet.batches.items]}
    return change_record(
        quiet,
        batches=batches,
        throughput=throughput(batches),
        environment={**read_fields(quiet)["environment"], "load": load},
    )
