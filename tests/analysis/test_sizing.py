"""Memory, time and cost of work: lines through peaks, and the best number of devices."""

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
from rnn_scaling.analysis.prediction.sizing import (
    compute_sizes,
    estimate_memory_gib,
    find_fixed_share,
)
from rnn_scaling.analysis.prices import PricedMachine
from rnn_scaling.analysis.rows import build_rows
from tests.support.records import make_record

MIB = 2**20
GIB = 2**30
# Peaks in MiB of a small translation model, by devices and batch size: sweep
# --num_units=128 --embedding_dim=128 --src_vocab_size=2000 --tgt_vocab_size=2000
# --src_max_len=20 --tgt_max_len=20 --batch_size=16,32,64,128.
MEASURED = {(1, 16): (626, 629), (1, 32): (642,), (1, 64): (668, 683), (1, 128): (741,)}
MEASURED |= {(2, 16): (701,), (2, 32): (744,), (2, 64): (826, 822), (2, 128): (990,)}


def make_rows(peaks, seconds=lambda batch: 0.1, mode="replicated"):
    """Return rows of runs with these peaks in MiB, by (devices, batch size)."""
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
    rows = make_rows({(n, b): [300 + n * (100 + 4 * b)] * 2 for n, b in sizes_})
    for devices, factor in ((1, 1), (8, 1), (8, 4), (64, 0.5)):
        expected = (300 + devices * (100 + 4 * 16 * factor)) / 1024
        memory = estimate_memory_gib(rows[1, 16], [*rows.values()], devices, factor)
        assert memory.value == pytest.approx(expected, rel=1e-6)
        assert memory.low < expected < memory.high
        shared = estimate_memory_gib(rows[1, 16], [*rows.values()], 64, factor, devices)
        assert shared.value == pytest.approx(expected, rel=1e-6)


def test_measured_peaks_of_the_largest_batch_are_inside_the_interval_of_the_smaller_ones():
    rows = make_rows({key: peaks for key, peaks in MEASURED.items() if key[1] < 128})
    for (devices, batch), peaks in MEASURED.items():
        memory = estimate_memory_gib(rows[1, 16], [*rows.values()], devices, batch / 16)
        assert memory.low <= min(peaks) / 1024 <= max(peaks) / 1024 <= memory.high
        assert memory.value == pytest.approx(sum(peaks) / len(peaks) / 1024, rel=0.03)


def test_one_batch_size_gives_bounds_and_one_number_of_devices_nothing_beyond():
    rows = make_rows({(1, 16): (600, 601), (2, 16): (700, 702)})
    bounds = estimate_memory_gib(rows[1, 16], [*rows.values()], 1, 2.0)
    assert bounds.low == pytest.approx(600.5 / 1024, rel=1e-3)
    assert bounds.high == pytest.approx(
        (600.5 + 600.5 - 4 * 40) / 1024, rel=1e-3
    )  # variable, gradient, two slots
    assert estimate_memory_gib(rows[1, 16], [rows[1, 16]], 2) is None


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
    memory = estimate_memory_gib(rows[0], rows, 64, 4.0)
    assert memory.value == pytest.approx((200 + 3 * 64) / 1024)


@pytest.mark.parametrize("share", [0.0, 0.3, 0.8])
def test_two_batch_sizes_give_the_fixed_share(share):
    rows = make_rows(
        {(1, b): (600, 600) for b in (16, 32)},
        seconds=lambda batch: share + (1 - share) * batch / 16,
    )
    fitted = find_fixed_share(rows[1, 16], [*rows.values()])
    assert fitted.value == pytest.approx(share, abs=1e-6)
    assert find_fixed_share(rows[1, 16], [rows[1, 16]]) is None


def prediction(efficiencies):
    points = []
    for n, e in efficiencies:
        rate = Interval(1000.0 * n * e, 900.0 * n * e, 1100.0 * n * e)
        points.append(PredictedPoint(n, rate, None, {}))
    measured = (
        MeasuredPoint(1, 1000.0, 0.01, math.inf),
        MeasuredPoint(2, 1990.0, 0.01, math.inf),
    )
    return Prediction(Curve("a series", "words", "weak", measured), tuple(points), {})


SLOWER = [(4, 0.9), (8, 0.5)]
PRICED = PricedMachine(name="a", gpus=4, price_per_hour=2.0, currency="USD")


def test_time_and_cost_follow_from_the_rate_and_complete_machines():
    needs = compute_sizes(prediction(SLOWER), (), (), 3.6e6, PRICED)
    assert [size.devices for size in needs.sizes] == [1, 2, 4, 8]
    assert needs.currency == "USD"
    *_, four, eight = needs.sizes
    assert eight.machines == 2
    assert eight.seconds.value == pytest.approx(900)
    assert eight.seconds.low < 900 < eight.seconds.high
    assert eight.cost.value == pytest.approx(1.0)
    assert four.cost.value == pytest.approx(2000 / 3600)
    [best] = needs.statements
    assert best.values == {"fastest": 8, "cheapest": 4, "both": 4, "machine": 4}
    stated = compute_sizes(
        prediction(SLOWER), (), (), 3.6e6, PRICED, devices_per_machine=8
    )
    assert {size.machines for size in stated.sizes} == {1}
    [fastest] = compute_sizes(prediction(SLOWER), (), (), 3.6e6).statements
    assert fastest.kind == "size-fastest"
    assert not {"cheapest", "both"} & fastest.values.keys(), "without a price"


def test_device_counts_beyond_the_limit_of_the_batch_are_left_out():
    rows = make_rows({(1, 16): (600,), (2, 16): (700,)})
    rows = [*rows.values()]
    needs = compute_sizes(prediction(SLOWER), rows, rows, 1e6, max_global_batch=64)
    assert [size.devices for size in needs.sizes] == [1, 2, 4]
    assert needs.statements[-1].kind == "size-limit"
    assert needs.currency == ""
    assert compute_sizes(prediction([(4, 0.9)])).statements == ()
