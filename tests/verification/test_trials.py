"""Updates made by a rule with another constant, clipping or exchange: a trial names it."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from rnn_scaling.config import run_config as configs
from rnn_scaling.verification import trials
from rnn_scaling.verification.gradients import GradientPart
from rnn_scaling.verification.rule import RIGHT, Constants, UpdateRule, clipped
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
# Each row: the options, the changed constants, the verdict.
CASES = [
    (MOMENTUM, Constants(momentum=0.99), "momentum"),
    (MOMENTUM, Constants(nesterov=True), "Nesterov"),
    (ADAM, Constants(beta_2=0.99), "Adam's beta_2"),
    (ADAM, Constants(epsilon=1e-3), "Adam's epsilon"),
    (ADAM, Constants(corrects=(False, True)), "bias correction"),
    (ADAM, Constants(corrects=(True, False)), "bias correction"),
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


def config_of(options):
    given = {"variable_update": "replicated", "num_devices": 2, "learning_rate": 0.1}
    return configs.resolve({**given, **options}, num_gpus=0, num_cores=2)


def random_arrays(random):
    return {
        name: random.normal(size=shape).astype(np.float32)
        for name, shape in SHAPES.items()
    }


def updates_of(config, constants=RIGHT, **exchange):
    """Return what a replica does whose rule and exchange are these."""
    random = np.random.default_rng(0)
    rule = UpdateRule(config.training, False, 2, constants)
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


@pytest.mark.parametrize("options, constants, verdict", CASES)
def test_a_changed_constant_is_named_and_a_right_run_names_none(
    options, constants, verdict
):
    config = config_of(options)
    assert trials.cause(config, updates_of(config, constants)).subject == verdict
    assert trials.cause(config, updates_of(config)) is None


@pytest.mark.parametrize(
    "exchange, verdict",
    [({"keeps": False}, "no feedback"), ({"factor": 127 / 125}, "int8 scale")],
)
def test_a_wrong_exchange_in_8_bits_is_named(exchange, verdict):
    config = config_of(INT8)
    assert trials.cause(config, updates_of(config, **exchange)).subject == verdict
    assert trials.cause(config, updates_of(config)) is None


def test_clipping_by_tower_is_named():
    config = config_of(CLIP)
    updates = []
    for update in updates_of(config):
        first, second = (clipped(part.gradient, 0.5) for part in update.parts.values())
        change = {
            name: -np.float32(0.1) * (first[name] + second[name]) for name in SHAPES
        }
        updates.append(dataclasses.replace(update, change=change))
    assert trials.cause(config, updates).subject == "clipped by tower"
