"""The load of other processes: the share of time that is neither this run's nor idle."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from rnn_scaling.system.machine import load
from rnn_scaling.system.machine.load import (
    CpuTimes,
    Load,
    LoadMeter,
    WindowMeter,
    choose_window_seconds,
    parse_stat,
    share_of_one_device,
)
from rnn_scaling.training.state import RunState
from tests.support.configs import resolve
from tests.support.records import make_record

STAT = """cpu  500 0 100 900 10 0 0 40 0 0
cpu0 100 10 50 400 5 1 2 30 0 0
cpu1 400 0 50 500 5 0 0 10 0 0
cpu10 9 9 9 9 9 9 9 9 0 0
intr 1 2 3
"""


def test_proc_stat_counts_only_the_watched_cores():
    assert parse_stat(STAT, [0], 100) == (4.05, 0.3)
    assert parse_stat(STAT, [0, 1], 100) == (9.1, 0.4)


@pytest.mark.parametrize("core, text", [(2, STAT), (0, "cpu0 0 0 0 0 0 0 0 0 0 0\n")])
def test_the_load_is_unknown_without_times_of_a_core(core, text):
    assert parse_stat(text, [core], 100) is None


def meter(*samples, cores=(0, 1)):
    given = iter(samples)
    return LoadMeter(cores, lambda _: next(given))


def test_load_is_what_others_used_of_the_cores_time():
    load = meter(CpuTimes(10.0, 5.0, 1.0, 2.0), CpuTimes(20.0, 20.0, 2.0, 13.0)).read()
    assert load.others == pytest.approx(4 / 20)
    assert load.steal == pytest.approx(1 / 20)
    assert load.seconds == 10.0


@pytest.mark.parametrize(
    "num_cores, num_devices, felt",
    [(2, 2, 0.09), (4, 1, 0.045), (64, 64, 1.0), (0, 8, 0.045)],
)
def test_all_load_may_have_fallen_on_one_device(num_cores, num_devices, felt):
    assert share_of_one_device(0.045, num_cores, num_devices) == pytest.approx(felt)


def test_unknown_where_the_system_does_not_tell():
    assert meter(None, None).read() is None


@pytest.mark.parametrize("num_devices, warned", [(1, False), (2, True)])
def test_a_run_warns_of_what_may_have_slowed_one_of_its_devices(num_devices, warned):
    state = RunState(resolve({"num_devices": num_devices}))
    state.resolved["cpu_affinity"] = [*range(num_devices)]
    state.machine.load = Load(0.045, 0.0, 9.0)
    caution = state.machine.describe_disturbance(make_record())
    assert ("other processes used 4%" in caution) == warned


BUSY = "import os, sys\nwhile os.times().user < 0.3: pass\nprint(flush=True)\nsys.stdin.read()"


def test_what_a_program_started_is_not_load_of_others():
    """Count the CPU time of child processes, during and after their lives."""
    before = load.sample_with_descendants([0]).process
    with subprocess.Popen(
        [sys.executable, "-c", BUSY], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        child.stdout.readline()
        assert load.sample_with_descendants([0]).process - before > 0.25
    assert load.sample_with_descendants([0]).process - before > 0.25


def test_a_process_that_ends_while_its_file_is_looked_for_is_left_out(monkeypatch):
    """Reading /proc raises ESRCH, not ENOENT, if a process ends at that moment."""

    def raise_no_such_process(path, **arguments):
        raise ProcessLookupError(3, "No such process")

    monkeypatch.setattr(Path, "exists", raise_no_such_process)
    assert load.sample_with_descendants([0]).process > 0


class Machine:
    """Two cores and a clock that a test moves."""

    def __init__(self, sample_s=0.0):
        self.now = 100.0
        self.others = 0.0
        self.own = 0.0
        self._sample_s = sample_s

    def sample(self, cores):
        self.now += self._sample_s
        return CpuTimes(self.now, self.own + self.others, 0.0, self.own)

    def batch(self, seconds, share=0.0):
        self.now += seconds
        self.own += seconds
        self.others += 2 * seconds * share

    def meter(self):
        def clock():
            return self.now

        return WindowMeter([0, 1], 2, self.sample, clock, clock)


def measure_windows(machine, batches):
    """Return (batches, share of others) of each window of (seconds, share) batches."""
    meter = machine.meter()
    for number, (seconds, share) in enumerate(batches, 1):
        machine.batch(seconds, share)
        meter.end_batch(number)
    meter.finish(len(batches))
    return [(each.batches, round(each.load.others, 6)) for each in meter.list_windows()]


@pytest.mark.parametrize(
    "num_batches, batch_s, expected",
    [
        (6, 0.2, [3, 3]),
        (7, 0.2, [3, 4]),  # a rest of 0.2 s is too short
        (2, 0.01, [2]),
        (10_000, 0.001, [500] * 20),
    ],
)
def test_windows_are_whole_batches_of_half_a_second(num_batches, batch_s, expected):
    # Half of the last digit, so that rounding does not decide when a window is over.
    batches = [(batch_s + 1e-9, 0.0)] * num_batches
    windows = measure_windows(Machine(), batches)
    assert [count for count, _ in windows] == expected


def test_a_window_has_the_load_of_its_own_batches():
    batches = [(0.26, 0.0)] * 2 + [(0.26, 0.5)] * 2 + [(0.26, 0.0), (0.26, 0.25)]
    windows = measure_windows(Machine(), batches)
    assert windows == [(2, 0.0), (2, 0.5), (2, 0.125)]


def test_a_slow_reading_makes_the_windows_longer():
    """Reading the load takes at most a hundredth of the time."""
    windows = measure_windows(Machine(sample_s=0.02), [(0.25, 0.0)] * 32)
    assert [count for count, _ in windows] == [8, 8, 8, 8]


def test_windows_are_unknown_if_the_system_does_not_report_the_load():
    meter = WindowMeter([0], 1, lambda _: None, lambda: 0.0)
    meter.finish(3)
    assert meter.list_windows() is None


@pytest.mark.parametrize("num_cores", [1, 2, 16, 64])
@pytest.mark.parametrize("share, most_disturbed", [(0.0, 0.001), (0.01, 0.01)])
def test_clock_ticks_are_no_disturbance(num_cores, share, most_disturbed):
    """Simulate the idle times of cores with one device each, in whole ticks of 10 ms."""
    random = np.random.default_rng(1)
    window_s = choose_window_seconds(num_cores, num_cores)
    starts = random.uniform(0, 0.01, (4000, num_cores))
    idle_s = random.uniform(0, 0.3, (4000, num_cores))
    ticks_s = 0.01 * (np.floor((starts + idle_s) * 100) - np.floor(starts * 100))
    errors_s = (idle_s - ticks_s).sum(axis=1)
    shares = share + errors_s / window_s  # of one core
    assert np.mean(shares > load.NOTICEABLE_LOAD) <= most_disturbed
    assert np.mean(0.1 + errors_s / window_s > load.NOTICEABLE_LOAD) > 0.999
