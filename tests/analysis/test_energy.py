"""Joules per item: measured once per machine, else by the stated power; oracle: computed by hand."""

from __future__ import annotations

import pytest

from rnn_scaling.analysis.machines import energy_per_item
from rnn_scaling.analysis.metrics import ENERGY
from rnn_scaling.analysis.prices import PricedMachine, PriceList
from rnn_scaling.analysis.rows import build_rows
from rnn_scaling.reports import table
from tests.support.records import changed
from tests.support.scaling_runs import of, run

PACKAGE = {"joules": {"package-0": 30.0, "package-1": 10.0}, "seconds": 2.0}


def used(energy_part, rate=1000.0, seconds=2.0, **parts):
    """A run of so many seconds at this rate."""
    made = changed(run(1, rate), energy=energy_part, **parts)
    items = round(rate * seconds)
    return changed(
        made,
        throughput={
            "items": items,
            "seconds": seconds,
            "items_per_second": items / seconds,
        },
    )


def rank(number, host, part):
    return {"rank": number, "host": host, **({"energy": part} if part else {})}


def test_joules_of_the_measured_batches():
    assert energy_per_item(used(PACKAGE))[0] == pytest.approx(40 / 2000)
    late = {
        **PACKAGE,
        "seconds": 2.1,
    }  # the program did something else at its end: the power is that of 2.1 s
    assert energy_per_item(used(late))[0] == pytest.approx(40 / 2.1 * 2 / 2000)
    assert energy_per_item(used({**PACKAGE, "seconds": 2.3}))[0] is None
    assert (
        energy_per_item(used({}))[0] is None
        and energy_per_item(used({"joules": {}, "seconds": 2.0}))[0] is None
    )


@pytest.mark.parametrize(
    ("ranks", "joules"),
    [
        (
            [rank(0, "a", PACKAGE), rank(1, "a", PACKAGE)],
            40,
        ),  # one machine: its domains count once
        ([rank(0, "a", PACKAGE), rank(1, "b", PACKAGE)], 80),
        ([rank(0, "a", PACKAGE), rank(1, "b", None)], None),
        ([rank(0, "a", PACKAGE), rank(1, "a", None)], 40),
        (
            [
                rank(0, "a", PACKAGE),
                rank(1, "b", {"joules": {"GPU 0": 1.0}, "seconds": 2.0}),
            ],
            None,
        ),
        (
            [
                rank(0, "a", {"joules": {"GPU 0": 1.0}, "seconds": 2.0}),
                rank(1, "a", {"joules": {"GPU 1": 3.0}, "seconds": 2.0}),
            ],
            4,
        ),
    ],
)
def test_each_machine_counts_once(ranks, joules):
    found, _ = energy_per_item(used(PACKAGE, workers={"ranks": ranks}))
    assert found == (joules and pytest.approx(joules / 2000))


def test_measured_energy_wins_over_the_stated_power():
    runs = [used(PACKAGE), used({**PACKAGE, "joules": {"package-0": 44.0}})]
    prices = PriceList(chosen=PricedMachine(name="m", power_w=250.0))
    [row] = build_rows(runs, prices)
    value = row.metric(ENERGY)
    assert (
        value.value == pytest.approx((0.020 * 0.022) ** 0.5)
        and value.low < 0.020
        and "measured: package" in value.kind
    )
    [row] = build_rows([runs[0], used({})], prices)
    value = row.metric(ENERGY)
    assert value.value == pytest.approx(250 / row.rate.value) and "250 W" in value.kind
    assert value.ends == pytest.approx((250 / row.rate.high, 250 / row.rate.low))
    gpu = used({"joules": {"GPU 0": 40.0}, "seconds": 2.0})
    [row] = build_rows([runs[0], gpu], prices)
    assert row.metric(ENERGY).value == pytest.approx(250 / row.rate.value)
    [row] = build_rows([used({})])
    assert row.metric(ENERGY) is None


def test_the_table_says_what_was_measured_also_of_a_single_run():
    part = {**PACKAGE, "not_measured": {"package-0 dram": "needs root"}}
    text = table.text(of([used(part)]))
    assert (
        "Energy per word (mJ)" in text
        and "measured: package; not measured: dram (needs root)" in text
    )


def test_of_several_nodes_each_has_the_stated_power():
    two = used({}, workers={"ranks": [rank(0, "a", None), rank(1, "b", None)]})
    [row] = build_rows([two], PriceList(chosen=PricedMachine(name="m", power_w=250.0)))
    assert row.metric(ENERGY).value == pytest.approx(500 / row.rate.value)
