"""Matrix products: operations, rates, and that all of a product is done."""

import itertools
import json

import numpy as np
import pytest

from rnn_scaling.links import compute, gemm
from rnn_scaling.links.gemm import Gemm, Product

SMALL, LARGE = (4, 8, 16), (8, 8, 32)


def test_a_rate_is_of_all_devices_and_the_best_is_by_its_median():
    slow, fast = Product(SMALL, (1.0, 2.0, 4.0)), Product(LARGE, (1.0, 1.0, 2.0))
    made = Gemm("float32", 3, 1, True, (fast, slow))
    assert (made.rate(slow).median, made.rate(slow).low) == (
        3 * 1024 / 2,
        3 * 1024 / 3,
    )  # 2 m k n; longer is slower
    assert made.rate(slow).high == 3 * 1024 / 1.5
    assert made.best == made.rate(fast) and made.best.median == 3 * 4096
    assert (
        json.loads(json.dumps(gemm.to_json(made)))["best_flops_per_second"] == 3 * 4096
    )


def test_the_whole_product_is_made_on_every_device(tf, devices):
    work = compute.ComputeWork(devices[:2], SMALL, "float32")
    results, elements = work.function()
    for rank, result in enumerate(results):
        a, b = (variable.numpy() for variable in work.pairs[rank])
        assert np.allclose(result.numpy(), a @ b, atol=1e-5)
        assert float(elements[rank]) == float(result[0, 0])
    graph = work.function.get_concrete_function().graph
    placed = [op.device for op in graph.get_operations() if op.type == "MatMul"]
    assert len(placed) == 2
    assert all(name in place for name, place in zip(devices, placed, strict=False))


def work_with_clock(devices, tick_s, dtype="float32"):
    """Return a product on one device, whose clock ticks when it is read."""
    clock = itertools.count(0.0, tick_s).__next__
    return compute.ComputeWork(devices[:1], SMALL, dtype, clock=clock)


def test_a_repeat_is_the_mean_of_its_calls(tf, devices):
    work = work_with_clock(devices, 6.0, "bfloat16")
    calls, function = [], work.function
    work.calls, work.function = 3, lambda: calls.append(1) or function()
    assert work.seconds() == 2.0 and len(calls) == 3


def test_short_products_are_repeated_and_long_ones_are_not(tf, devices):
    for tick_s, calls in ((0.005, 10), (9.0, 1)):
        work = work_with_clock(devices, tick_s)
        assert work.warm_up() == pytest.approx(tick_s) and work.calls == calls


def test_products_that_would_take_too_long_are_left_out(tf, devices, monkeypatch):
    seen = []
    monkeypatch.setattr(compute, "MAX_PRODUCT_S", 0.0)
    made = compute.measure(
        devices[:2],
        [SMALL, LARGE],
        ["float32", "bfloat16"],
        3,
        1,
        True,
        lambda *at: seen.append(at),
    )
    assert [(each.dtype, [p.shape for p in each.products]) for each in made] == [
        ("float32", [SMALL]),
        ("bfloat16", [SMALL]),
    ]
    assert all(
        "left out" in each.notes[0] and len(each.products[0].seconds) == 3
        for each in made
    )
    assert seen[0] == (0, 3, "products of float32, first calls")
    assert seen[-1] == (3, 3, "matrix products")
