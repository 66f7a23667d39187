"""The checks of a new machine pass here, and find a wrong kernel, sum or placement."""

from __future__ import annotations

import dataclasses
import types

import numpy as np
import pytest

from rnn_scaling.config import registry
from rnn_scaling.verification import certificates
from tests.verification.test_planted_faults import make_engine, resolve


@pytest.fixture(scope="module")
def checked(tf, devices):
    """Return a watch of a step on two devices and its certificate."""
    from rnn_scaling.inspection import step_checks
    from rnn_scaling.training import benchmark
    from rnn_scaling.verification import kernel_checks
    from rnn_scaling.verification.machine import MachineCheck

    config = resolve(num_devices=2, trace_batches=1)
    # The full names that variables have.
    names = [f"/job:localhost/replica:0/task:0{name}" for name in devices[:2]]
    engine = make_engine(names)
    with pytest.MonkeyPatch.context() as patch:
        # Collectives that fail wait for ever; test_all_reduce tests them in a process.
        sums = {name: registry.ALL_REDUCES[name] for name in ("nccl", "pscpu", "rechd")}
        patch.setattr(registry, "ALL_REDUCES", sums)
        kernel = kernel_checks.encoder_table.ENCODERS["cudnn_lstm"]
        patch.setattr(kernel_checks.encoder_table, "ENCODERS", {"cudnn_lstm": kernel})
        step = benchmark.build(config, engine)
        watch = MachineCheck(config, engine, step, step_checks.check_step)
        for _ in range(2):
            watch.check_batch(watch._step())
        return watch, watch.make_certificate()


def test_a_right_machine_passes_every_check(checked):
    _, certificate = checked
    results = {check.name: check.holds for check in certificate.checks}
    assert results.pop("all-reduce nccl") is None
    names = {"initial weights", "counted words", "network loss", "network gradient"}
    names |= {"gradient norm", "losses", "weights", "kernel cudnn_lstm"}
    names |= {"all-reduce pscpu", "all-reduce rechd"}
    names |= {"placement of variables", "placement of operators"}
    names |= {"clock against the profiler's", "clock after the last kernel"}
    assert set(results) == names | {"clock against the cores'"}
    failures = {name for name, holds in results.items() if holds is False}
    # A busy machine disturbs clocks.
    assert all(name.startswith("clock") for name in failures), certificate.checks
    assert certificate.holds == (not failures)
    verdict = "machine" if failures else "equal within 1e-5"
    assert certificate.verdict == verdict
    text = certificates.table(certificate)
    assert "| all-reduce nccl | not run |" in text
    assert "| kernel cudnn_lstm | ok |" in text


@pytest.mark.parametrize("failure", ["", "losses differ"])
def test_the_operators_of_a_run_are_checked(tf, devices, monkeypatch, failure):
    from rnn_scaling.verification import kernel_checks

    monkeypatch.setattr(kernel_checks.encoder_table, "ENCODERS", {})
    monkeypatch.setattr(kernel_checks.operators, "is_usable", lambda dtype: True)
    monkeypatch.setattr(kernel_checks.operators, "find_instruction_set", lambda: "avx2")
    monkeypatch.setattr(kernel_checks.operators_check, "find_failure", lambda: failure)
    (check,) = kernel_checks.check_kernels("CPU:0", "CPU")
    assert (check.name, check.holds) == ("operators avx2", not failure)
    assert failure in check.text


def test_shared_variables_have_no_placement_check(checked, monkeypatch):
    from rnn_scaling.inspection import observe, step_checks

    watch, _ = checked
    shared = [types.SimpleNamespace(tower=None)] * 3
    graph = types.SimpleNamespace(placement=types.SimpleNamespace(variables=shared))
    monkeypatch.setattr(observe, "describe_graph", lambda step: graph)
    variables = step_checks.check_variable_placement(watch._step, watch._engine)
    assert variables.holds is None


def test_wrong_sums_and_placements_are_found(checked, monkeypatch):
    from rnn_scaling.inspection import step_checks
    from rnn_scaling.verification import kernel_checks

    watch, _ = checked
    engine = watch._engine
    reduces = {"rechd": registry.ALL_REDUCES["rechd"]}
    monkeypatch.setattr(registry, "ALL_REDUCES", reduces)
    lazy = types.SimpleNamespace(build=lambda devices, shards: lambda tensors: tensors)
    monkeypatch.setattr(registry, "load", lambda table, name: lazy)
    (check,) = kernel_checks.check_all_reduces(engine)
    assert check.holds is False
    assert str([*kernel_checks.SIZES]) in check.text
    swapped = dataclasses.replace(engine, devices=engine.devices[::-1])
    variables = step_checks.check_variable_placement(watch._step, swapped)
    operators = step_checks.check_operator_placement(watch._step, swapped)
    assert (variables.holds, operators.holds) == (False, False)
    got = {"a": np.array([1.0, 2.0])}
    expected = {"a": np.array([1.0, 4.0])}
    assert kernel_checks.parity.find_largest_error(got, expected) == (0.5, "a")
