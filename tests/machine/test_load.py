"""Load of others: what is neither this run's nor idle."""

from __future__ import annotations

import pytest

from rnn_scaling.machine.load import CpuTimes, LoadMeter, parse_stat

STAT = """cpu  500 0 100 900 10 0 0 40 0 0
cpu0 100 10 50 400 5 1 2 30 0 0
cpu1 400 0 50 500 5 0 0 10 0 0
cpu10 9 9 9 9 9 9 9 9 0 0
intr 1 2 3
"""


def test_proc_stat_counts_only_the_watched_cores():
    assert parse_stat(STAT, [0], 100) == (1.63, 0.3)
    assert parse_stat(STAT, [0, 1], 100) == (6.13, 0.4)


def meter(*samples, cores=(0, 1)):
    given = iter(samples)
    return LoadMeter(cores, lambda _: next(given))


def test_load_is_what_others_used_of_the_cores_time():
    load = meter(CpuTimes(10.0, 5.0, 1.0, 2.0), CpuTimes(20.0, 20.0, 2.0, 13.0)).read()
    assert (load.others, load.steal, load.seconds) == (pytest.approx(4 / 20), pytest.approx(1 / 20), 10.0)


def test_rounding_of_clock_ticks_is_no_negative_load():
    assert meter(CpuTimes(0.0, 0.0, 0.0, 0.0), CpuTimes(10.0, 9.99, 0.0, 10.0)).read().others == 0.0


def test_unknown_where_the_system_does_not_tell():
    assert meter(None, None).read() is None
