"""Test cautions about the sampled clocks of a run, and their sentences in reports."""

import dataclasses

import pytest

from rnn_scaling.analysis.clocks import (
    ClockDifference,
    Throttling,
    compute_median_clocks_mhz,
    find_differences,
    find_throttling,
    format_caution,
    list_clock_cautions,
)
from rnn_scaling.records.decoding import build
from rnn_scaling.records.environment import Clocks, Environment
from rnn_scaling.reports import environment
from tests.support.records import make_record


def make_clocks(*devices, names=("GeForce GTX 1070",)):
    """Return the clocks of a record from the limits and samples (`at`) of each GPU."""
    limits = [{k: v for k, v in d.items() if k != "at"} for d in devices]
    static = [
        {"index": i, "name": names[i % len(names)], **each}
        for i, each in enumerate(limits)
    ]
    length = max(len(d["at"]) for d in devices)
    samples = [
        {"at_s": 0.5 * i, "devices": [d["at"][i % len(d["at"])] for d in devices]}
        for i in range(length)
    ]
    return build(
        Clocks,
        {"source": "NVML", "interval_s": 0.5, "devices": static, "samples": samples},
    )


def gpu(sm=1500, memory=4000, reasons=0, count=1, **limits):
    return {
        **limits,
        "at": [{"sm_mhz": sm, "memory_mhz": memory, "reasons": reasons}] * count,
    }


@pytest.mark.parametrize(
    "field, fast, slow",
    [
        ("memory_mhz", gpu(memory=1771.5), gpu(memory=1683.0)),
        # TensorFlow 1 printed the highest SM clock as memoryClockRate.
        ("max_sm_mhz", gpu(max_sm_mhz=1771.5), gpu(max_sm_mhz=1683.0)),
    ],
)
def test_six_equal_cards_with_two_clocks_differ(field, fast, slow):
    [difference] = find_differences(make_clocks(fast, slow, slow, slow, fast, fast))
    levels = ((1683.0, (1, 2, 3)), (1771.5, (0, 4, 5)))
    assert difference == ClockDifference("GeForce GTX 1070", field, levels)
    text = format_caution(difference)
    assert "1683 MHz" in text and "1771.5 MHz (+5.3%)" in text


def test_clocks_within_one_percent_are_equal():
    assert find_differences(make_clocks(gpu(1000), gpu(1010))) == []
    [difference] = find_differences(make_clocks(gpu(1000), gpu(1009), gpu(1011)))
    assert difference.levels == ((1004.5, (0, 1)), (1011, (2,)))


def test_other_models_are_not_compared():
    names = ("GeForce GTX 1070", "GeForce GTX 1080")
    assert find_differences(make_clocks(gpu(1000), gpu(2000), names=names)) == []


def test_medians_are_those_under_load():
    idle = {"sm_mhz": 300, "memory_mhz": 405, "reasons": 1, "utilisation": 0}
    waiting = {"sm_mhz": 300, "memory_mhz": 405, "reasons": None, "utilisation": 0}
    busy = {"sm_mhz": 1500, "memory_mhz": 4000, "reasons": 0, "utilisation": 97}
    clocks = make_clocks({"at": [idle, idle, waiting, busy]}, {"at": [busy] * 4})
    assert find_differences(clocks) == []
    assert compute_median_clocks_mhz(clocks) == {
        "SM": [1500, 1500],
        "memory": [4000, 4000],
    }
    slow_idle = {**idle, "reasons": 0x1 | 0x4}
    always_idle = make_clocks({"at": [slow_idle] * 4}, {"at": [busy] * 4})
    assert list_clock_cautions(always_idle) == []
    assert compute_median_clocks_mhz(always_idle) == {"SM": [1500], "memory": [4000]}


def test_throttling_is_reported_by_reason():
    free, capped, hot = ({"sm_mhz": 1500, "reasons": mask} for mask in (0, 0x4, 0x24))
    idle = {"sm_mhz": 300, "reasons": 0x1}
    clocks = make_clocks({"at": [free] * 10}, {"at": [free] * 6 + [capped] * 4})
    assert find_throttling(clocks) == [Throttling("SW power cap", ((1, 0.4),))]
    clocks = make_clocks({"at": [capped] * 4}, {"at": [idle, free, hot, idle]})
    power, heat = find_throttling(clocks)
    assert power == Throttling("SW power cap", ((0, 1.0), (1, 0.5)))
    assert heat == Throttling("SW thermal slowdown", ((1, 0.5),))
    text = format_caution(power)
    assert "GPUs 0, 1" in text and "50 to 100 %" in text
    assert find_throttling(make_clocks({"at": [free] * 99 + [capped]})) == []


def run_with(held):
    return dataclasses.replace(
        make_record(config={"num_devices": 2}), environment=Environment(clocks=held)
    )


def test_a_report_has_one_sentence_per_kind_of_difference():
    slow = [
        run_with(make_clocks(gpu(memory=4000, reasons=4), gpu(memory=mhz, reasons=4)))
        for mhz in (3800, 3801)
    ]
    first, second = environment.make_statements(
        [*slow, run_with(make_clocks(gpu(), gpu())), run_with(None)]
    )
    assert first.values == second.values == {"runs": 2, "total": 4}
    assert "3800 MHz" in first.subject and "SW power cap" in second.subject


def test_a_report_shows_the_clocks_during_the_runs():
    cpu = {
        "devices": [{"core": 0}],
        "samples": [
            {"at_s": 0.0, "devices": [{"mhz": mhz}]} for mhz in (2000, 2600, 2500)
        ],
    }
    assert "CPU 2500 MHz" in [
        fact.text
        for fact in environment.list_facts(
            [run_with(build(Clocks, cpu)), run_with(None)]
        )
    ]
    facts = environment.list_facts([run_with(make_clocks(gpu(1500), gpu(1600)))])
    assert "SM 1500 to 1600 MHz, memory 4000 MHz" in [fact.text for fact in facts]
