"""Memory, time and cost of some work: lines through peaks, measured peaks, and the best number of devices."""

from __future__ import annotations

import itertools
import math

import pytest

from rnn_scaling.analysis.confidence import Interval
from rnn_scaling.analysis.prediction.curves import (
    Curve,
    MeasuredPoint,
    PredictedPoint,
    Prediction,
)
from rnn_scaling.analysis.prediction.sizing import fixed_share, memory_gib, sizes
from rnn_scaling.analysis.prices import PricedMachine
from rnn_scaling.analysis.rows import build_rows
from tests.support.records import make_record

MIB, GIB = 2**20, 2**30
# Peaks in MiB of a small translation model, by devices and batch size: sweep --num_units=128 --embedding_dim=128
# --src_vocab_size=2000 --tgt_vocab_size=2000 --src_max_len=20 --tgt_max_len=20 --batch_size=16,32,64,128.
MEASURED = {(1, 16): (626, 629), (1, 32): (642,), (1, 64): (668, 683), (1, 128): (741,)}
MEASURED |= {(2, 16): (701,), (2, 32): (744,), (2, 64): (826, 822), (2, 128): (990,)}


def rows_of(peaks, seconds=lambda batch: 0.1, mode="replicated"):
    """Rows of runs with these peaks in MiB, by (devices, batch size); their steps take `seconds`."""
    runs = [
        make_record(
            config={
                "num_devices": devices,
                "batch_size": batch,
                "variable_update": mode,
                "optimizer": "adam",
            },
            seconds=[seconds(batch)] * 20,
            items=[10 * batch * devices] * 20,
            memory={"peak_process_bytes": round(peak * MIB), "peak_device_bytes": None},
            parameters={
                "trainable": 10 * MIB,
                "bytes": 40 * MIB,
                "optimizer": 20 * MIB,
            },
        )
        for (devices, batch), values in peaks.items()
        for peak in values
    ]
    return {(row.num_devices, row.batch_size): row for row in build_rows(runs)}


def test_a_line_goes_through_devices_and_samples():
    sizes_ = itertools.product((1, 2), (16, 32))
    rows = rows_of({(n, b): [300 + n * (100 + 4 * b)] * 2 for n, b in sizes_})
    for devices, factor in ((1, 1), (8, 1), (8, 4), (64, 0.5)):
        expected = (300 + devices * (100 + 4 * 16 * factor)) / 1024
        found = memory_gib(rows[1, 16], [*rows.values()], devices, factor)
        assert (
            found.value == pytest.approx(expected, rel=1e-6)
            and found.low < expected < found.high
        )
        shared = memory_gib(
            rows[1, 16], [*rows.values()], 64, factor, per_machine=devices
        )
        assert shared.value == pytest.approx(expected, rel=1e-6)


def test_measured_peaks_of_the_largest_batch_are_inside_the_interval_of_the_smaller_ones():
    rows = rows_of({key: peaks for key, peaks in MEASURED.items() if key[1] < 128})
    for (devices, batch), peaks in MEASURED.items():
        found = memory_gib(rows[1, 16], [*rows.values()], devices, batch / 16)
        assert all(found.low <= peak / 1024 <= found.high for peak in peaks), (
            devices,
            batch,
        )
        assert found.value == pytest.approx(sum(peaks) / len(peaks) / 1024, rel=0.03)


def test_one_batch_size_gives_bounds_and_one_number_of_devices_nothing_beyond():
    rows = rows_of({(1, 16): (600, 601), (2, 16): (700, 702)})
    bounds = memory_gib(rows[1, 16], [*rows.values()], 1, 2.0)
    assert bounds.low == pytest.approx(600.5 / 1024, rel=1e-3)
    assert bounds.high == pytest.approx(
        (600.5 + 600.5 - 4 * 40) / 1024, rel=1e-3
    )  # variable, gradient, two slots
    assert memory_gib(rows[1, 16], [rows[1, 16]], 2) is None


def test_a_gpu_holds_only_its_own_samples():
    runs = [
        make_record(
            config={"num_devices": n, "batch_size": b, "device": "gpu"},
            resolved={"device_type": "GPU"},
            memory={
                "peak_process_bytes": GIB,
                "peak_device_bytes": [(200 + 3 * b) * MIB] * n,
            },
        )
        for n, b in ((1, 16), (2, 16), (2, 32))
        for _ in range(2)
    ]
    rows = build_rows(runs)
    assert memory_gib(rows[0], rows, 64, 4.0).value == pytest.approx(
        (200 + 3 * 64) / 1024
    )


@pytest.mark.parametrize("share", [0.0, 0.3, 0.8])
def test_two_batch_sizes_tell_the_fixed_share(share):
    rows = rows_of(
        {(1, b): (600, 600) for b in (16, 32)},
        seconds=lambda batch: share + (1 - share) * batch / 16,
    )
    assert fixed_share(rows[1, 16], [*rows.values()]).value == pytest.approx(
        share, abs=1e-6
    )
    assert fixed_share(rows[1, 16], [rows[1, 16]]) is None


def prediction(efficiencies):
    rates = {
        n: Interval(1000.0 * n * e, 900.0 * n * e, 1100.0 * n * e)
        for n, e in efficiencies
    }
    points = [PredictedPoint(n, rate, None, {}) for n, rate in rates.items()]
    measured = (
        MeasuredPoint(1, 1000.0, 0.01, math.inf),
        MeasuredPoint(2, 1990.0, 0.01, math.inf),
    )
    return Prediction(Curve("a series", "words", "weak", measured), tuple(points), {})


PRICED = PricedMachine(name="a", gpus=4, price_per_hour=2.0, currency="USD")


def test_time_and_cost_follow_from_the_rate_and_complete_machines():
    found = sizes(prediction([(4, 0.9), (8, 0.5)]), (), (), 3.6e6, PRICED)
    by_devices = {size.devices: size for size in found.sizes}
    assert [*by_devices] == [1, 2, 4, 8] and found.currency == "USD"
    assert by_devices[8].machines == 2 and by_devices[8].seconds.value == pytest.approx(
        900
    )
    assert by_devices[8].cost.value == pytest.approx(1.0) and by_devices[
        4
    ].cost.value == pytest.approx(2000 / 3600)
    assert by_devices[8].seconds.low < 900 < by_devices[8].seconds.high
    [best] = found.statements
    assert (best.values["fastest"], best.values["cheapest"], best.values["both"]) == (
        8,
        4,
        4,
    )
    stated = sizes(
        prediction([(4, 0.9), (8, 0.5)]), (), (), 3.6e6, PRICED, devices_per_machine=8
    )
    assert {size.machines for size in stated.sizes} == {1}
    [fastest] = sizes(prediction([(4, 0.9), (8, 0.5)]), (), (), 3.6e6).statements
    assert (
        fastest.kind == "size-fastest"
        and not {"cheapest", "both"} & fastest.values.keys()
    ), "without a price"


def test_beyond_the_limit_of_the_batch_nothing_is_claimed():
    rows = rows_of({(1, 16): (600,), (2, 16): (700,)})
    found = sizes(
        prediction([(4, 0.9), (8, 0.5)]),
        [*rows.values()],
        [*rows.values()],
        1e6,
        None,
        None,
        64,
    )
    assert [size.devices for size in found.sizes] == [1, 2, 4]
    assert found.statements[-1].kind == "size-limit" and found.currency == ""
    assert sizes(prediction([(4, 0.9)])).statements == ()
