"""Load of others: what is neither this run's nor idle."""

from __future__ import annotations

import subprocess
import sys

import pytest

from rnn_scaling.config import run_config as configs
from rnn_scaling.system.machine import load
from rnn_scaling.system.machine.load import (
    CpuTimes,
    Load,
    LoadMeter,
    of_one_device,
    parse_stat,
)
from rnn_scaling.training.state import RunState

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
    assert (load.others, load.steal, load.seconds) == (
        pytest.approx(4 / 20),
        pytest.approx(1 / 20),
        10.0,
    )


def test_rounding_of_clock_ticks_is_no_negative_load():
    assert (
        meter(CpuTimes(0.0, 0.0, 0.0, 0.0), CpuTimes(10.0, 9.99, 0.0, 10.0))
        .read()
        .others
        == 0.0
    )


@pytest.mark.parametrize(
    "num_cores, num_devices, felt",
    [
        (2, 2, 0.09),
        (4, 1, 0.045),
        (2, 4, 0.09),
        (8, 4, 0.18),
        (64, 64, 1.0),
        (0, 8, 0.045),
    ],
)
def test_all_load_may_have_fallen_on_one_device(num_cores, num_devices, felt):
    assert of_one_device(0.045, num_cores, num_devices) == pytest.approx(felt)


def test_unknown_where_the_system_does_not_tell():
    assert meter(None, None).read() is None


@pytest.mark.parametrize("num_devices, warned", [(1, False), (2, True)])
def test_a_run_warns_of_what_may_have_slowed_one_of_its_devices(num_devices, warned):
    state = RunState(
        configs.resolve({"num_devices": num_devices}, num_gpus=0, num_cores=2)
    )
    state.resolved["cpu_affinity"] = [*range(num_devices)]
    state.load = Load(0.045, 0.0, 9.0)
    assert ("other processes used 4%" in state.load_caution()) == warned


BUSY = "import os, sys\nwhile os.times().user < 0.3: pass\nprint(flush=True)\nsys.stdin.read()"


def test_what_a_program_started_is_not_load_of_others():
    """Loaders of data, while they run and after they ended."""
    before = load.sample_with_descendants([0]).process
    with subprocess.Popen(
        [sys.executable, "-c", BUSY], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        child.stdout.readline()
        assert load.sample_with_descendants([0]).process - before > 0.25
    assert load.sample_with_descendants([0]).process - before > 0.25
