"""Faults planted in a step are named with their variable, tower and factor.

Graphs are traced once for many faults.
"""

from __future__ import annotations

import dataclasses
import types

import numpy as np
import pytest

from benchmarks import fault_table
from rnn_scaling.config import run_config as configs
from tests.conftest import keep_as_built
from tests.support.paths import ROOT
from tests.support.training import SMALL, build_workload

TOWERS, BATCHES = 3, 3
OPTIONS = {
    "optimizer": "sgd",
    "learning_rate": 0.5,
    "num_devices": TOWERS,
    "src_max_len": 4,
    "tgt_max_len": 4,
}
# A network of one side is traced in half the time.
OPTIONS |= {**vars(SMALL), "model": "lm"}
OPTIONS |= {"variable_update": "replicated", "batch_size": 3}
EMBEDDING, DENSE = "embedding", "projection"


def resolve(**options):
    """Return the options of a run on three devices."""
    return configs.resolve({**OPTIONS, **options}, num_gpus=0, num_cores=4)


def make_engine(devices):
    """Return the engine of one process with these devices."""
    from rnn_scaling.training.engines.local import Engine

    return Engine(0, 1, tuple(devices), devices[0], "CPU", 1)


def make_source(config, engine, workload):
    """Return the data source of a run."""
    from rnn_scaling.config import registry
    from rnn_scaling.training import benchmark

    feed = benchmark.build_feed(config, engine, workload)
    return registry.load(registry.DATA_SOURCES, config.data.data_source).build(feed)


def watch_batches(config, engine, step, gradients=None):
    """Return the certificate of some batches."""
    from rnn_scaling.verification.certifier import Certifier

    watch = Certifier(config, engine, step, gradients)
    for _ in range(BATCHES):
        watch.check_batch(step())
    return watch.make_certificate()


@pytest.fixture(scope="module", autouse=True)
def as_built(tf):
    """Keep the graph as it is built; test_machine.py watches an optimized step."""
    with keep_as_built(tf):
        yield


class Mixed:
    """An update that mixes the gradients of this batch and of the batch before.

    Replica r applies sum_t now[v, r, t] * gradient of tower t, and the same sum with
    `before` over the last gradients.
    """

    def __init__(self, tf, update, specs, towers):
        self._tf = tf
        self._update = update
        self._names = [spec.name for spec in specs]
        self.now = tf.Variable(tf.zeros([len(specs), towers, towers]))
        self.before = tf.Variable(tf.zeros([len(specs), towers, towers]))
        # The gradients [T, ...] of the last batch.
        self._last = [tf.Variable(tf.zeros([towers, *spec.shape])) for spec in specs]

    def __getattr__(self, name):
        return getattr(self._update, name)

    def plant(self, now, before=None):
        """Set the factors [variable, replica, tower] and forget the last gradients."""
        self.now.assign(now)
        self.before.assign(np.zeros_like(now) if before is None else before)
        for last in self._last:
            last.assign(self._tf.zeros_like(last))

    def apply(self, tower_gradients):
        from rnn_scaling.training.gradients import densify

        tf = self._tf
        mixed = [{} for _ in tower_gradients]
        for number, name in enumerate(self._names):
            dense = tf.stack([densify(grads[name]) for grads in tower_gradients])
            last = self._last[number].read_value()
            self._last[number].assign(dense)
            for replica, grads in enumerate(mixed):
                grads[name] = tf.tensordot(self.now[number, replica], dense, 1)
                grads[name] += tf.tensordot(self.before[number, replica], last, 1)
        for updater, grads in zip(self._update.updaters, mixed):
            updater.apply(grads)


class Dealt:
    """A source that gives tower t the batch of tower `order[t]`."""

    def __init__(self, tf, source, towers):
        self._tf = tf
        self._source = source
        self.order = tf.Variable(range(towers))

    def next_batches(self, step):
        batches = self._source.next_batches(step)
        parts = [self._tf.stack(fields) for fields in zip(*batches)]
        return [
            type(batches[0])(*(part[self.order[tower]] for part in parts))
            for tower in range(len(batches))
        ]


@pytest.fixture(scope="module")
def planted(tf, devices):
    """Return a function that certifies a step on three towers with planted faults."""
    from rnn_scaling.training import benchmark
    from rnn_scaling.training.train_step import TrainStep
    from rnn_scaling.verification.gradients import SerialGradients

    config = resolve()
    engine = make_engine(devices[:TOWERS])
    workload = build_workload(config.model)
    update = benchmark.build_update(config, engine, workload)
    update = Mixed(tf, update, workload.variables, TOWERS)
    source = Dealt(tf, make_source(config, engine, workload), TOWERS)
    step = TrainStep(workload, source, update, engine, config)
    gradients = SerialGradients(config, engine)
    first = [
        (state.variable, state.variable.numpy()) for state in step.list_variables()
    ]
    names = [spec.name for spec in workload.variables]

    def certify(now=None, before=None, order=range(TOWERS), **options):
        for variable, value in first:
            variable.assign(value)
        step._step.assign(0)
        source.order.assign(list(order))
        right = np.ones((len(names), TOWERS, TOWERS), np.float32)
        update.plant(
            right if now is None else now(right, names), before and before(right)
        )
        return watch_batches(resolve(**options), engine, step, gradients)

    return certify


def change_variable(variable, change):
    """Return a function that changes the factors of one variable."""

    def changed(right, names):
        number = names.index(variable)
        right[number] = change(right[number])
        return right

    return changed


def leave_out_tower(right):
    """Leave tower 1 out."""
    right[..., 1] = 0
    return right


def apply_on_tower_1_only(factors):
    """Let replica 2 apply nothing."""
    factors[2] = 0
    return factors


ALL = {"variables": ["every variable"]}
LATE = {"now": lambda right, _: 0 * right, "before": lambda right: right}
# Each row has the planted fault, the verdict, and values of its statements.
FAULTS = [
    ({"now": lambda right, _: TOWERS * right}, "sum", {"factor": 3.0, **ALL}),
    ({"now": lambda right, _: right / TOWERS}, "mean", {"factor": 0.333, **ALL}),
    (LATE, "stale by 1 step", ALL),
    (
        {"now": lambda right, _: leave_out_tower(right)},
        "tower left out",
        {"tower": 1, **ALL},
    ),
    (
        {"now": change_variable(EMBEDDING, lambda factors: 2 * factors)},
        "factor 2",
        {"variables": [EMBEDDING], "factor": 2.0},
    ),
    (
        {"now": change_variable(DENSE, lambda factors: np.eye(TOWERS))},
        "not exchanged",
        {"variables": [DENSE]},
    ),
    (
        {"now": change_variable(DENSE, apply_on_tower_1_only)},
        "not updated",
        {"variables": [DENSE], "towers": ["tower 2"]},
    ),
    ({"order": [0, 0, 2]}, "another's batch", {"tower": 1, "instead": 0}),
]


def check(certificate, verdict, holds=False, **values):
    """Check the verdict of a certificate and values of its statements."""
    statements = certificate.statements
    assert (certificate.verdict, certificate.holds) == (verdict, holds), statements
    found = {}
    for statement in statements:
        found |= statement["values"]
    if found.get("factor"):
        found["factor"] = round(found["factor"], 3)
    assert {name: found.get(name) for name in values} == values


def test_every_fault_of_the_benchmark_fits_the_code():
    for fault in fault_table.FAULTS:
        assert fault.find_in((ROOT / fault.file).read_text()), fault.name


@pytest.mark.parametrize("plant, verdict, values", FAULTS)
def test_a_fault_is_named(plant, verdict, values, planted):
    check(planted(**plant), verdict, batch=0, **values)


def test_a_right_run_is_certified_and_breaks_the_guarantees_of_other_modes(
    planted,
):
    certificate = planted()
    check(certificate, "equal within 1e-5", True)
    assert certificate.replicas == TOWERS and len(certificate.batches) == BATCHES
    assert certificate.weights_difference < 1e-6 < 1e-3 < certificate.weights_moved
    check(planted(variable_consistency="relaxed"), "not stale")
    kept = planted(**LATE, variable_consistency="relaxed")
    check(kept, "stale by 1 step", True)
    check(planted(variable_update="independent"), "exchanged")


def grow_losses(step):
    """Return `Serial.step` with losses that are a thousandth too large."""

    def wrapper(self, number, towers):
        steps = step(self, number, towers)
        for each in steps:
            for tower, part in each.parts.items():
                each.parts[tower] = dataclasses.replace(
                    part, loss_sum=part.loss_sum * 1.001
                )
        return steps

    return wrapper


def test_growing_rounding_is_not_a_fault_if_each_update_is_right(planted, monkeypatch):
    from rnn_scaling.verification.certifier import Certifier
    from rnn_scaling.verification.serial import Serial

    monkeypatch.setattr(
        Certifier,
        "_allowed_difference",
        lambda self, training, name, value, number: 1.0 if number < 1 else -1.0,
    )
    # The loss of a network may show how its weights were rounded.
    monkeypatch.setattr(Serial, "step", grow_losses(Serial.step))
    for plant in ({}, {**LATE, "variable_consistency": "relaxed"}):
        check(planted(**plant), "right step by step", True, batch=1)
    check(planted(change_variable(DENSE, apply_on_tower_1_only)), "not updated")


def test_samples_that_no_tower_takes_are_missed(planted, monkeypatch):
    monkeypatch.setattr(configs.RunConfig, "tower_batch_sizes", lambda self: (3, 3, 3))
    certificate = planted(global_batch_size=11, batch_size=4)
    check(certificate, "samples left out", batch=0, got=9, expected=11)


class WithoutTheLast:
    """A source that removes the last sample from the first tower's batch."""

    def __init__(self, source):
        self._source = source

    def next_batches(self, step):
        first, *others = self._source.next_batches(step)
        return [type(first)(*(part[..., :-1] for part in first)), *others]


class EqualDropout:
    """A workload with equal dropout on all towers."""

    def __init__(self, workload):
        self._workload = workload

    def __getattr__(self, name):
        return getattr(self._workload, name)

    def forward(self, weights, rows, batch, seed):
        return self._workload.forward(
            weights, rows, batch, [seed[0] // TOWERS * TOWERS, seed[1]]
        )


@pytest.mark.parametrize(
    "options, word, values",
    [
        (
            {"global_batch_size": 8, "batch_size": 3},
            "items left out",
            {"tower": 0, "got": 8, "expected": 12},
        ),
        ({"dropout": 0.5, "seed": 3}, "another's dropout", {"tower": 1, "instead": 0}),
    ],
)
def test_a_tower_that_misses_a_sample_or_draws_anothers_dropout_is_named(
    options, word, values, devices
):
    from rnn_scaling.training import benchmark
    from rnn_scaling.training.train_step import TrainStep

    config = resolve(**options)
    engine = make_engine(devices[:TOWERS])
    workload = build_workload(config.model)
    update = benchmark.build_update(config, engine, workload)
    source = make_source(config, engine, workload)
    if config.model.dropout:
        workload = EqualDropout(workload)
    else:
        source = WithoutTheLast(source)
    step = TrainStep(workload, source, update, engine, config)
    check(watch_batches(config, engine, step), word, **values)


def test_averages_of_another_towers_batches_are_named(tf):
    from rnn_scaling.verification.certifier import Certifier
    from rnn_scaling.verification.findings import Findings

    watch = Certifier.__new__(Certifier)
    watch._towers = range(2)
    watch._findings = Findings()
    watch._guarantee = types.SimpleNamespace(share=2.0**-10)
    first = {"mean": np.zeros(3, np.float32)}
    watch._gradients = types.SimpleNamespace(first_moving=first)
    serial = {
        tower: {"mean": np.full(3, 0.5 + tower, np.float32)} for tower in range(2)
    }
    watch._serial = types.SimpleNamespace(moving=serial)
    towers = [{"mean": tf.Variable(values["mean"])} for values in serial.values()]
    watch._step = types.SimpleNamespace(moving=lambda: towers)
    watch._check_moving(0)
    assert watch._findings.first_fault is None
    towers[1]["mean"].assign(serial[0]["mean"])
    watch._check_moving(0)
    assert watch._findings.first_fault.subject == "other averages"
    assert watch._findings.first_fault.values == {"variable": "mean", "tower": 1}
