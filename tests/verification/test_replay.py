"""Updates made by a rule with another constant, clipping or exchange: the replay names what was changed."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from rnn_scaling.config import run_config as configs
from rnn_scaling.verification import replay
from rnn_scaling.verification.diagnosis import ReplicaUpdate
from rnn_scaling.verification.gradients import GradientPart
from rnn_scaling.verification.rule import RIGHT, Constants, UpdateRule, clipped
from rnn_scaling.verification.serial import Exchange

SHAPES = {"kernel": (12, 16), "bias": (16,)}
UPDATES = 8
CLIP = {"max_gradient_norm": 1.0}
RAMP = {"lr_scaling": "linear", "lr_warmup_batches": 5}
DECAY = {"weight_decay": 0.1}
PIECEWISE = {"lr_schedule": "piecewise", "lr_steps": "3:0.02"}
INT8 = {"variable_update": "replicated", "compress_gradients": "int8"}


def _by_tower(parts):
    return [dict(clipped(part.gradient, 0.5)) for part in parts.values()]


CASES = {
    "momentum": ({"optimizer": "momentum"}, Constants(momentum=0.99), {}, "momentum"),
    "Nesterov": ({"optimizer": "momentum"}, Constants(nesterov=True), {}, "Nesterov"),
    "beta_1": ({"optimizer": "adam"}, Constants(beta_1=0.99), {}, "Adam's beta_1"),
    "beta_2": ({"optimizer": "adam"}, Constants(beta_2=0.99), {}, "Adam's beta_2"),
    "epsilon": ({"optimizer": "adam"}, Constants(epsilon=1e-3), {}, "Adam's epsilon"),
    "correction": (
        {"optimizer": "adam"},
        Constants(corrects=(False, False)),
        {},
        "bias correction",
    ),
    "correction of gradients": (
        {"optimizer": "adam"},
        Constants(corrects=(False, True)),
        {},
        "bias correction",
    ),
    "correction of squares": (
        {"optimizer": "adam"},
        Constants(corrects=(True, False)),
        {},
        "bias correction",
    ),
    "rmsprop": (
        {"optimizer": "rmsprop"},
        Constants(rmsprop_epsilon=0.1),
        {},
        "rmsprop_epsilon",
    ),
    "no decay": (
        {"optimizer": "momentum", **DECAY},
        Constants(weight_decay=0.0),
        {},
        "weight decay",
    ),
    "decay of biases": (
        {"optimizer": "sgd", **DECAY},
        Constants(decays_all=True),
        {},
        "weight decay",
    ),
    "decay in the gradient": (
        {"optimizer": "adam", **DECAY},
        Constants(decouples=()),
        {},
        "weight decay",
    ),
    "decay of the weights": (
        {"optimizer": "rmsprop", **DECAY},
        Constants(decouples=("rmsprop",)),
        {},
        "weight decay",
    ),
    "schedule": (
        {"optimizer": "sgd", **PIECEWISE},
        Constants(is_scheduled=False),
        {},
        "learning rate",
    ),
    "rate": ({"optimizer": "momentum"}, Constants(rate=1.5), {}, "learning rate"),
    "ramp": (
        {"optimizer": "sgd", "lr_scaling": "linear", "lr_warmup_batches": 5},
        Constants(offset=1),
        {},
        "learning rate",
    ),
    "shorter ramp": (
        {"optimizer": "sgd", **RAMP},
        Constants(ramp=-1),
        {},
        "learning rate",
    ),
    "no ramp": ({"optimizer": "sgd", **RAMP}, Constants(ramp=-5), {}, "learning rate"),
    "not clipped": (
        {"optimizer": "sgd", **CLIP},
        Constants(clips="nothing"),
        {},
        "not clipped",
    ),
    "by variable": (
        {"optimizer": "sgd", **CLIP},
        Constants(clips="variable"),
        {},
        "clipped by variable",
    ),
    "feedback": ({"optimizer": "sgd", **INT8}, RIGHT, {"keeps": False}, "no feedback"),
    "scale": ({"optimizer": "sgd", **INT8}, RIGHT, {"factor": 127 / 125}, "int8 scale"),
}


def updates_of(config, constants, **exchange):
    """What a replica does whose rule and exchange are these."""
    random, rule, exchanged = (
        np.random.default_rng(0),
        UpdateRule(config.training, False, 2, constants),
        Exchange(config, **exchange),
    )
    made = []
    for _ in range(UPDATES):
        draws = [
            {
                name: random.normal(size=shape).astype(np.float32)
                for name, shape in SHAPES.items()
            }
            for _ in "ab"
        ]
        parts = {tower: GradientPart(1.0, each, {}) for tower, each in enumerate(draws)}
        before = {
            name: random.normal(size=shape).astype(np.float32)
            for name, shape in SHAPES.items()
        }
        change = rule.update(exchanged.sum(parts), before)
        made.append(ReplicaUpdate(0, parts, {0: 0.5, 1: 0.5}, change, before))
    return made


@pytest.mark.parametrize("case", CASES)
def test_a_changed_constant_is_named_and_a_right_run_names_none(case):
    options, constants, exchange, word = CASES[case]
    given = {
        "variable_update": "replicated",
        "num_devices": 2,
        "learning_rate": 0.1,
        **options,
    }
    config = configs.resolve(given, num_gpus=0, num_cores=2)
    found = replay.cause(config, updates_of(config, constants, **exchange))
    assert found is not None and found.subject == word, found
    assert replay.cause(config, updates_of(config, RIGHT)) is None


def test_clipping_by_tower_is_named():
    given = {
        "variable_update": "replicated",
        "num_devices": 2,
        "optimizer": "sgd",
        "learning_rate": 0.1,
        **CLIP,
    }
    config = configs.resolve(given, num_gpus=0, num_cores=2)
    made = []
    for update in updates_of(config, RIGHT):
        first, second = _by_tower(update.parts)
        change = {
            name: -np.float32(0.1) * (first[name] + second[name]) for name in SHAPES
        }
        made.append(dataclasses.replace(update, change=change))
    assert replay.cause(config, made).subject == "clipped by tower"
