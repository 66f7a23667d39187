"""Updates made by a rule with another constant, clipping or exchange: a trial names it."""

from __future__ import annotations

import dataclasses
import functools

import numpy as np
import pytest

from rnn_scaling.config import run_config as configs
from rnn_scaling.config.run_options import TrainingOptions
from rnn_scaling.verification import diagnosis, serial, trials
from rnn_scaling.verification.gradients import GradientPart, sum_gradients
from rnn_scaling.verification.rule import (
    OPTIMIZERS,
    RIGHT,
    Constants,
    SerialUpdateRule,
    clip_gradient,
)
from rnn_scaling.verification.serial import Exchange

SHAPES = {"kernel": (12, 16), "bias": (16,)}
UPDATES = 8
SGD, MOMENTUM, ADAM, RMSPROP = (
    {"optimizer": name} for name in ("sgd", "momentum", "adam", "rmsprop")
)
CLIP = SGD | {"max_gradient_norm": 1.0}
RAMP = SGD | {"lr_scaling": "linear", "lr_warmup_batches": 5}
DECAY = {"weight_decay": 0.1}
PIECEWISE = SGD | {"lr_schedule": "piecewise", "lr_steps": "3:0.02"}
INT8 = SGD | {"compress_gradients": "int8"}
# Each row has the options, the changed constants and the verdict.
CASES = [
    (MOMENTUM, Constants(momentum=0.99), "momentum"),
    (MOMENTUM, Constants(nesterov=True), "Nesterov"),
    (MOMENTUM, Constants(resets=(4,)), "reset slots"),
    (ADAM, Constants(resets=(3,)), "reset slots"),
    (ADAM, Constants(resets=None), "reset slots"),
    (RMSPROP, Constants(resets=(5,)), "reset slots"),
    (ADAM, Constants(beta_2=0.99), "Adam's beta_2"),
    (ADAM, Constants(epsilon=1e-3), "Adam's epsilon"),
    (ADAM, Constants(corrects=(False, True)), "bias correction"),
    (ADAM, Constants(corrects=(True, False)), "bias correction"),
    (ADAM, Constants(first_count=2, count_step=2), "Adam's step count"),
    (ADAM, Constants(count_step=0), "Adam's step count"),
    (RMSPROP, Constants(rmsprop_epsilon=0.1), "rmsprop_epsilon"),
    (MOMENTUM | DECAY, Constants(weight_decay=0.0), "weight decay"),
    (SGD | DECAY, Constants(decays_all=True), "weight decay"),
    (ADAM | DECAY, Constants(decouples=()), "weight decay"),
    (RMSPROP | DECAY, Constants(decouples=("rmsprop",)), "weight decay"),
    (PIECEWISE, Constants(is_scheduled=False), "learning rate"),
    (MOMENTUM, Constants(rate=1.5), "learning rate"),
    (RAMP, Constants(offset=1), "learning rate"),
    (RAMP, Constants(ramp=-1), "learning rate"),
    (RAMP, Constants(ramp=-5), "learning rate"),
    (CLIP, Constants(clips="nothing"), "not clipped"),
    (CLIP, Constants(clips="variable"), "clipped by variable"),
]


def resolve_config(options):
    given = {"variable_update": "replicated", "num_devices": 2, "learning_rate": 0.1}
    return configs.resolve({**given, **options}, num_gpus=0, num_cores=2)


def random_arrays(random):
    return {
        name: random.normal(size=shape).astype(np.float32)
        for name, shape in SHAPES.items()
    }


def make_updates(config, constants=RIGHT, **exchange):
    """Return the updates of a replica with this rule and exchange."""
    random = np.random.default_rng(0)
    rule = SerialUpdateRule(config.training, False, 2, constants)
    exchanged = Exchange(config, **exchange)
    updates = []
    for _ in range(UPDATES):
        parts = {
            tower: GradientPart(1.0, random_arrays(random), {}) for tower in range(2)
        }
        before = random_arrays(random)
        change = rule.update(exchanged.sum(parts), before)
        shares = {0: 0.5, 1: 0.5}
        updates.append(
            trials.ReplicaUpdate(0, parts, lambda: {}, shares, change, before)
        )
    return updates


def test_every_optimizer_has_a_rule_and_no_other_is_taken_for_one():
    [option] = [
        field
        for field in dataclasses.fields(TrainingOptions)
        if field.name == "optimizer"
    ]
    assert option.metadata["choices"] == OPTIMIZERS
    training = dataclasses.replace(resolve_config(SGD).training, optimizer="lamb")
    with pytest.raises(ValueError, match="--optimizer=lamb"):
        SerialUpdateRule(training)


@pytest.mark.parametrize("options, constants, verdict", CASES)
def test_a_changed_constant_is_named_and_a_right_run_names_none(
    options, constants, verdict
):
    config = resolve_config(options)
    assert trials.find_fault(config, make_updates(config, constants)).subject == verdict
    assert trials.find_fault(config, make_updates(config)) is None


@pytest.mark.parametrize(
    "exchange, verdict",
    [({"keeps_errors": False}, "no feedback"), ({"factor": 127 / 125}, "int8 scale")],
)
def test_a_wrong_exchange_in_8_bits_is_named(exchange, verdict):
    config = resolve_config(INT8)
    assert (
        trials.find_fault(config, make_updates(config, **exchange)).subject == verdict
    )
    assert trials.find_fault(config, make_updates(config)) is None


def test_clipping_by_tower_is_named():
    config = resolve_config(CLIP)
    updates = []
    for update in make_updates(config):
        first, second = (
            clip_gradient(part.gradient, 0.5) for part in update.parts.values()
        )
        change = {
            name: -np.float32(0.1) * (first[name] + second[name]) for name in SHAPES
        }
        updates.append(dataclasses.replace(update, change=change))
    assert trials.find_fault(config, updates).subject == "clipped by tower"


def make_accumulated_updates(config, combined):
    """Return updates of two micro-batches per tower, each made by `combined`.

    Args:
      config: The options.
      combined: Takes micro-gradients and items by (tower, micro-batch) and returns
        the gradient that is applied.
    """
    random = np.random.default_rng(0)
    updates = []
    for _ in range(UPDATES):
        items = random.integers(5, 60, (2, 2)).astype(float).tolist()
        total = sum(map(sum, items))
        micro = {}
        for tower in range(2):
            for number in range(2):
                share = np.float32(items[tower][number] / total)
                arrays = random_arrays(random)
                micro[tower, number] = {name: share * arrays[name] for name in arrays}
        parts = {}
        for tower in range(2):
            gradients = [micro[tower, 0], micro[tower, 1]]
            parts[tower] = GradientPart(
                1.0, sum_gradients(gradients), {}, micro_gradients=gradients
            )
        before = random_arrays(random)
        gradient = combined(micro, items)
        change = {name: -np.float32(0.1) * array for name, array in gradient.items()}
        shares = {tower: sum(items[tower]) / total for tower in range(2)}
        updates.append(
            trials.ReplicaUpdate(
                0, parts, functools.partial(dict, parts), shares, change, before, items
            )
        )
    return updates


def scale_gradient(gradient, factor):
    return {name: np.float32(factor) * array for name, array in gradient.items()}


def average_micro_batches(micro, items):
    total = sum(map(sum, items))
    return sum_gradients(
        [
            scale_gradient(gradient, total / items[tower][number] / 4)
            for (tower, number), gradient in micro.items()
        ]
    )


def sum_last_micro_batches(micro, items):
    return sum_gradients([micro[0, 1], micro[1, 1]])


def sum_clipped_micro_batches(micro, items):
    sums = [sum_gradients([micro[0, number], micro[1, number]]) for number in range(2)]
    return sum_gradients([clip_gradient(gradient, 0.5) for gradient in sums])


def right_sum(micro, items):
    return sum_gradients(list(micro.values()))


TWICE = SGD | {"gradient_accumulation_steps": 2}


@pytest.mark.parametrize(
    "combined, verdict",
    [
        (average_micro_batches, "mean of micro-batches"),
        (sum_last_micro_batches, "last micro-batch"),
    ],
)
def test_wrongly_added_micro_batches_are_named(combined, verdict):
    config = resolve_config(TWICE)
    found = diagnosis.explain(config, make_accumulated_updates(config, combined), 0)
    assert {fault.subject for fault in found.values()} == {verdict}
    assert (
        diagnosis.explain(config, make_accumulated_updates(config, right_sum), 0) == {}
    )
    bounded = resolve_config(TWICE | {"max_gradient_norm": 1e6})
    updates = make_accumulated_updates(bounded, combined)
    assert trials.find_fault(bounded, updates).subject == verdict


def test_clipping_each_micro_batch_is_named():
    config = resolve_config(TWICE | {"max_gradient_norm": 1.0})
    updates = make_accumulated_updates(config, sum_clipped_micro_batches)
    assert trials.find_fault(config, updates).subject == "clipped by micro-batch"


def test_micro_batches_of_a_part_are_divided_by_the_loss_scale():
    gradients = [{"w": np.float32([2.0])}, {"w": np.float32([6.0])}]
    part = GradientPart(1.0, sum_gradients(gradients), {}, micro_gradients=gradients)
    divided = serial._divide_by_loss_scale(part, np.float32(2.0))
    assert sum_gradients(divided.micro_gradients) == divided.gradient
    assert divided.gradient["w"] == 4.0


def exchange_last_micro_batches(micro, items):
    # The tower of the replica, 0, adds its own first micro-batch.
    return sum_gradients([micro[0, 0], micro[0, 1], micro[1, 1]])


def repeat_first_micro_batches(micro, items):
    first = sum_gradients([micro[0, 0], micro[1, 0]])
    return sum_gradients([scale_gradient(first, 2), micro[0, 1], micro[1, 1]])


@pytest.mark.parametrize(
    "combined, verdict",
    [
        (exchange_last_micro_batches, "not exchanged"),
        (repeat_first_micro_batches, "micro-batch repeated"),
        (right_sum, None),
    ],
)
def test_weights_of_micro_batches_name_a_fault_that_no_trial_computes(
    combined, verdict
):
    config = resolve_config({**SGD, "gradient_accumulation_steps": 2})
    updates = make_accumulated_updates(config, combined)
    explanations = diagnosis.explain(config, updates, 0)
    assert {each.subject for each in explanations.values()} == {verdict} - {None}
