"""Test joules per item against values computed by hand."""

import pytest

from rnn_scaling.analysis.interval_kinds import EnergySource
from rnn_scaling.analysis.machines import compute_energy_per_item
from rnn_scaling.analysis.metrics import ENERGY
from rnn_scaling.analysis.prices import PricedMachine, PriceList
from rnn_scaling.analysis.rows import build_rows
from rnn_scaling.reports import table
from tests.support.records import change_record
from tests.support.scaling_runs import run, summarise_records

PACKAGE = {"joules": {"package-0": 30.0, "package-1": 10.0}, "seconds": 2.0}


def make_run_with_energy(energy_part, rate=1000.0, seconds=2.0, **parts):
    """Return a run of some seconds at a rate."""
    items = round(rate * seconds)
    return change_record(
        run(1, rate),
        energy=energy_part,
        **parts,
        throughput={
            "items": items,
            "seconds": seconds,
            "items_per_second": items / seconds,
        },
    )


def rank(number, host, part):
    return {"rank": number, "host": host, **({"energy": part} if part else {})}


def test_joules_of_the_measured_batches():
    assert compute_energy_per_item(make_run_with_energy(PACKAGE))[0] == pytest.approx(
        40 / 2000
    )
    # The counters ran 2.1 s, the batches 2.0 s.
    late = make_run_with_energy({**PACKAGE, "seconds": 2.1})
    assert compute_energy_per_item(late)[0] == pytest.approx(40 / 2.1 * 2 / 2000)


@pytest.mark.parametrize(
    "energy", [{}, {"joules": {}, "seconds": 2.0}, {**PACKAGE, "seconds": 2.3}]
)
def test_energy_is_unknown_without_counters_of_the_batches(energy):
    assert compute_energy_per_item(make_run_with_energy(energy)) is None


@pytest.mark.parametrize(
    "ranks, joules",
    [
        ([rank(0, "a", PACKAGE), rank(1, "a", PACKAGE)], 40),
        ([rank(0, "a", PACKAGE), rank(1, "b", PACKAGE)], 80),
        ([rank(0, "a", PACKAGE), rank(1, "b", None)], None),
        (
            [
                rank(0, "a", PACKAGE),
                rank(1, "b", {"joules": {"GPU 0": 1.0}, "seconds": 2.0}),
            ],
            None,
        ),
    ],
)
def test_each_machine_counts_once(ranks, joules):
    energy = compute_energy_per_item(
        make_run_with_energy(PACKAGE, workers={"ranks": ranks})
    )
    assert (energy and energy[0]) == (joules and pytest.approx(joules / 2000))


def test_measured_energy_replaces_the_stated_power():
    runs = [
        make_run_with_energy(PACKAGE),
        make_run_with_energy({**PACKAGE, "joules": {"package-0": 44.0}}),
    ]
    prices = PriceList(chosen=PricedMachine(name="m", power_w=250.0))
    [row] = build_rows(runs, prices)
    value = row.metric(ENERGY)
    assert value.value == pytest.approx((0.020 * 0.022) ** 0.5)
    assert value.low < 0.020
    assert value.kind.energy == EnergySource(("package",))


@pytest.mark.parametrize("energy", [{}, {"joules": {"GPU 0": 40.0}, "seconds": 2.0}])
def test_the_stated_power_counts_if_runs_have_different_counters(energy):
    prices = PriceList(chosen=PricedMachine(name="m", power_w=250.0))
    [row] = build_rows(
        [make_run_with_energy(PACKAGE), make_run_with_energy(energy)], prices
    )
    value = row.metric(ENERGY)
    assert value.value == pytest.approx(250 / row.rate.value)
    assert value.kind.energy == EnergySource(stated_power_w=250.0)
    [row] = build_rows([make_run_with_energy({})])
    assert row.metric(ENERGY) is None


def test_the_table_lists_the_counters_of_a_single_run():
    part = {**PACKAGE, "not_measured": {"package-0 dram": "needs root"}}
    text = table.format_text(summarise_records([make_run_with_energy(part)]))
    assert "Energy per word (mJ)" in text
    assert "measured: package" in text and "dram (needs root)" in text


def test_each_node_has_the_stated_power():
    two = make_run_with_energy(
        {}, workers={"ranks": [rank(0, "a", None), rank(1, "b", None)]}
    )
    [row] = build_rows([two], PriceList(chosen=PricedMachine(name="m", power_w=250.0)))
    assert row.metric(ENERGY).value == pytest.approx(500 / row.rate.value)
