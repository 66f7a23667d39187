"""The checks of a new machine: what holds here, and what is said of a kernel, a sum or a placement that is wrong."""

from __future__ import annotations

import dataclasses
import types

import numpy as np
import pytest

from rnn_scaling.config import registry
from rnn_scaling.verification import certificates
from tests.verification.test_planted_faults import engine_of, resolve


@pytest.fixture(scope="module")
def checked(tf, devices):
    """A watch of a step on two devices that has run, and its certificate."""
    from rnn_scaling.inspection import step_checks
    from rnn_scaling.training import benchmark
    from rnn_scaling.verification import kernel_checks
    from rnn_scaling.verification.machine import MachineCheck

    config, engine = (
        resolve(num_devices=2, trace_batches=1),
        engine_of(engine_names(devices)),
    )
    with pytest.MonkeyPatch.context() as patch:
        # Collectives that fail wait for ever, and have a process of their own in test_all_reduce.
        without = {
            name: row
            for name, row in registry.ALL_REDUCES.items()
            if name in ("nccl", "pscpu", "rechd")
        }
        patch.setattr(registry, "ALL_REDUCES", without)
        patch.setattr(
            kernel_checks.kernels,
            "KERNELS",
            {"cudnn_lstm": kernel_checks.kernels.KERNELS["cudnn_lstm"]},
        )
        step = benchmark.build(config, engine)
        watch = MachineCheck(config, engine, step, step_checks.checks)
        for _ in range(2):
            watch.batch(watch._step())
        return watch, watch.end()


def engine_names(devices):
    """Two devices as a process has them, whose variables say so too."""
    return [f"/job:localhost/replica:0/task:0{name}" for name in devices[:2]]


def test_a_machine_that_does_right_is_told_check_by_check(checked):
    _, certificate = checked
    results = {check.name: check.holds for check in certificate.checks}
    assert results.pop("all-reduce nccl") is None
    assert set(results) == {
        *(
            "initial weights",
            "counted words",
            "network loss",
            "network gradient",
            "losses",
            "weights",
        ),
        *("kernel cudnn_lstm", "all-reduce pscpu", "all-reduce rechd"),
        *("placement of variables", "placement of operators"),
        *(
            "clock against the profiler's",
            "clock after the last kernel",
            "clock against the cores'",
        ),
    }
    wrong = {name for name, holds in results.items() if holds is False}
    assert all(name.startswith("clock") for name in wrong), (
        certificate.checks
    )  # a busy machine disturbs clocks
    assert certificate.holds == (not wrong) and certificate.verdict == (
        "machine" if wrong else "equal within 1e-5"
    )
    text = certificates.table(certificate)
    assert (
        "| all-reduce nccl | not run |" in text and "| kernel cudnn_lstm | ok |" in text
    )


@pytest.mark.parametrize("failure", ["", "losses differ"])
def test_operators_that_a_run_would_use_are_checked_in_both_dtypes(
    tf, devices, monkeypatch, failure
):
    from rnn_scaling.verification import kernel_checks

    monkeypatch.setattr(kernel_checks.kernels, "KERNELS", {})
    monkeypatch.setattr(kernel_checks.operators, "usable", lambda dtype: True)
    monkeypatch.setattr(kernel_checks.operators, "instruction_set", lambda: "avx2")
    monkeypatch.setattr(kernel_checks.operators_check, "failure", lambda: failure)
    (check,) = kernel_checks.kernels_on("CPU:0", "CPU")
    assert (check.name, check.holds) == (
        "operators avx2",
        not failure,
    ) and failure in check.text


def test_of_variables_that_towers_share_no_place_is_told(checked, monkeypatch):
    from rnn_scaling.inspection import observe, step_checks

    watch, _ = checked
    shared = [types.SimpleNamespace(tower=None)] * 3
    graph = types.SimpleNamespace(placement=types.SimpleNamespace(variables=shared))
    monkeypatch.setattr(observe, "graph", lambda step: graph)
    variables, _ = step_checks.placement(watch._step, watch._engine)
    assert variables.holds is None and variables.text.startswith(
        "the towers share all 3 variables"
    )


def test_what_is_wrong_is_said(checked, monkeypatch):
    from rnn_scaling.inspection import step_checks
    from rnn_scaling.verification import kernel_checks

    watch, _ = checked
    engine = watch._engine
    monkeypatch.setattr(
        registry, "ALL_REDUCES", {"rechd": registry.ALL_REDUCES["rechd"]}
    )
    lazy = types.SimpleNamespace(build=lambda devices, shards: lambda tensors: tensors)
    monkeypatch.setattr(registry, "load", lambda table, name: lazy)
    (check,) = kernel_checks.all_reduces_on(engine)
    assert (check.holds, check.text) == (
        False,
        "wrong sums of [1, 7, 257, 100000] elements",
    )
    swapped = dataclasses.replace(engine, devices=engine.devices[::-1])
    variables, operators = step_checks.placement(watch._step, swapped)
    assert (variables.holds, operators.holds) == (False, False)
    assert "of tower 0 is on " in variables.text and "are elsewhere" in operators.text
    got, want = {"a": np.array([1.0, 2.0])}, {"a": np.array([1.0, 4.0])}
    assert kernel_checks.parity.largest_error(got, want) == (0.5, "a")
