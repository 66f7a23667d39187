"""What a run's clocks say: equal devices that differ, what held them down, and how a report tells it."""

from __future__ import annotations

import dataclasses

import pytest

from rnn_scaling.analysis.clocks import clock_cautions, differing, held_down, medians
from rnn_scaling.records.decoding import build
from rnn_scaling.records.environment import Clocks, Environment
from rnn_scaling.reports import environment
from tests.support.records import make_record


def sampled(*devices, names=("GeForce GTX 1070",)):
    """A record's clocks: of each GPU its limits, and `at`: its samples."""
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


def test_the_seeds_six_cards():
    # seed 001, "Memory clock effects": six GTX 1070 at 1.7715 and 1.6830 GHz.
    fast, slow = gpu(memory=1771.5), gpu(memory=1683.0)
    (found,) = differing(sampled(fast, slow, slow, slow, fast, fast))
    assert found.key == ("GeForce GTX 1070", "memory clock", ((1, 2, 3), (0, 4, 5)))
    assert "1683 MHz" in found.text and "1771.5 MHz (+5.3%)" in found.text
    # What TensorFlow 1 called memoryClockRate was the highest SM clock.
    fast, slow = gpu(max_sm_mhz=1771.5), gpu(max_sm_mhz=1683.0)
    (found,) = differing(sampled(fast, slow, slow, slow, fast, fast))
    assert found.key[1:] == ("highest SM clock", ((1, 2, 3), (0, 4, 5)))


def test_limits_differ_too():
    found = differing(
        sampled(
            gpu(max_sm_mhz=1771, power_limit_w=150.0),
            gpu(max_sm_mhz=1683, power_limit_w=120),
        )
    )
    assert [caution.key[1] for caution in found] == ["highest SM clock", "power limit"]
    assert "150 W (+25.0%)" in found[1].text


def test_one_percent_is_alike_and_other_models_are_not_compared():
    assert differing(sampled(gpu(1000), gpu(1010))) == []
    (found,) = differing(sampled(gpu(1000), gpu(1009), gpu(1011)))
    assert "of 1004.5 MHz, GPU 2" in found.text
    assert found.key[1:] == ("SM clock", ((0, 1), (2,)))
    assert (
        differing(
            sampled(
                gpu(1000), gpu(2000), names=("GeForce GTX 1070", "GeForce GTX 1080")
            )
        )
        == []
    )


def test_medians_are_those_under_load():
    idle = {"sm_mhz": 300, "memory_mhz": 405, "reasons": 1, "utilisation": 0}
    waiting = {"sm_mhz": 300, "memory_mhz": 405, "reasons": None, "utilisation": 0}
    busy = {"sm_mhz": 1500, "memory_mhz": 4000, "reasons": 0, "utilisation": 97}
    held = sampled({"at": [idle, idle, waiting, busy]}, {"at": [busy] * 4})
    assert differing(held) == [] and medians(held) == {
        "SM": [1500, 1500],
        "memory": [4000, 4000],
    }
    slow_idle = {**idle, "reasons": 0x1 | 0x4}
    never = sampled(
        {"at": [slow_idle] * 4}, {"at": [busy] * 4}
    )  # a card that was never seen under load says nothing
    assert differing(never) == [] and held_down(never) == []
    assert medians(never) == {"SM": [1500], "memory": [4000]}


def test_what_held_clocks_down():
    free, capped, hot = ({"sm_mhz": 1500, "reasons": mask} for mask in (0, 0x4, 0x24))
    idle = {"sm_mhz": 300, "reasons": 0x1}
    held = sampled(
        {"at": [free] * 10}, {"at": [free] * 10}, {"at": [free] * 6 + [capped] * 4}
    )
    assert [(c.key, "GPU 2" in c.text, "40 %" in c.text) for c in held_down(held)] == [
        (("SW power cap",), True, True)
    ]
    held = sampled({"at": [capped] * 4}, {"at": [idle, free, hot, idle]})
    power, heat = held_down(held)
    assert (
        power.key == ("SW power cap",)
        and "GPUs 0, 1" in power.text
        and "50 to 100 %" in power.text
    )
    assert (
        heat.key == ("SW thermal slowdown",)
        and "GPU 1" in heat.text
        and "50 %" in heat.text
    )
    assert (
        held_down(sampled({"at": [free] * 99 + [capped]})) == []
    )  # once in 100 is nothing to say


@pytest.mark.parametrize(
    "given",
    [
        None,
        Clocks(error="it broke"),
        build(Clocks, {"devices": [{"index": 0, "name": "G"}], "samples": []}),
        build(
            Clocks,
            {"devices": [{"index": 0, "name": "G"}], "samples": [{"devices": [{}]}]},
        ),
    ],
)
def test_nothing_sampled_says_nothing(given):
    assert clock_cautions(given) == [] and medians(given) == {}


def run_with(held):
    return dataclasses.replace(
        make_record(config={"num_devices": 2}), environment=Environment(clocks=held)
    )


def test_a_report_says_each_kind_of_difference_once():
    slow = [
        run_with(sampled(gpu(memory=4000, reasons=4), gpu(memory=mhz, reasons=4)))
        for mhz in (3800, 3801)
    ]
    first, second = environment.statements(
        [*slow, run_with(sampled(gpu(), gpu())), run_with(None)]
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
        for fact in environment.facts([run_with(build(Clocks, cpu)), run_with(None)])
    ]
    facts = environment.facts([run_with(sampled(gpu(1500), gpu(1600)))])
    assert "SM 1500 to 1600 MHz, memory 4000 MHz" in [fact.text for fact in facts]
