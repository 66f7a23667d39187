"""Each update rule against its formula in numpy, for dense and sparse gradients."""

import numpy as np
import pytest

from rnn_scaling.config import learning_rate
from rnn_scaling.config.learning_rate import LearningRate
from rnn_scaling.config.run_config import OPTIONS
from tests.support.configs import resolve

pytestmark = pytest.mark.usefixtures("as_built")

RATE = 0.1
STEPS = 5
ROWS, WIDTH = 6, 3
INDICES = np.array(
    [[4, 1, 4, 0], [2, 2, 2, 2], [5, 0, 1, 0], [3, 3, 5, 5], [1, 4, 1, 4]]
)


def _sgd(w, slots, g, step):
    return w - RATE * g, slots


def _momentum(w, slots, g, step):
    accumulated = 0.9 * slots[0] - RATE * g
    return w + accumulated, [accumulated]


def _adam(w, slots, g, step):
    m = 0.9 * slots[0] + 0.1 * g
    v = 0.999 * slots[1] + 0.001 * g**2
    t = step + 1
    rate = RATE * np.sqrt(1 - 0.999**t) / (1 - 0.9**t)
    return w - rate * m / (np.sqrt(v) + 1e-7), [m, v]


def _rmsprop(w, slots, g, step):
    s = 0.9 * slots[0] + 0.1 * g**2
    a = 0.9 * slots[1] + RATE * g / np.sqrt(s + 1.0)
    return w - a, [s, a]


RULES = {  # every choice of --optimizer
    "sgd": (_sgd, []),
    "momentum": (_momentum, [0]),
    "rmsprop": (_rmsprop, [1, 0]),
    "adam": (_adam, [0, 0]),
}


@pytest.fixture(scope="module")
def optimizers(tf):
    from rnn_scaling.training import optimizers

    return optimizers


def _rows():
    generator = np.random.default_rng(1)
    return generator.normal(size=(STEPS, 4, WIDTH)).astype(np.float32)


def _dense_gradients():
    dense = np.zeros((STEPS, ROWS, WIDTH), np.float64)
    for step, rows in enumerate(_rows()):
        np.add.at(dense[step], INDICES[step], rows)
    return dense


def _compute_expected(name, scale, decay=0.0):
    rule, first = RULES[name]
    w = np.ones((ROWS, WIDTH))
    slots = [np.full((ROWS, WIDTH), value) for value in first]
    for step, g in enumerate(_dense_gradients()):
        g = g * (1.0 if scale is None else scale)
        kept = w * (1 - RATE * decay) if name == "adam" else w
        w, slots = rule(kept, slots, g if name == "adam" else g + decay * w, step)
    return w, slots


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize(
    "sparse, scale, decay", [(False, None, 0.0), (True, 0.25, 0.3), (False, 0.25, 0.3)]
)
def test_five_steps_match_the_formula(
    tf, devices, optimizers, name, sparse, scale, decay
):
    # Adam decays like AdamW; the others add the decay to the clipped gradient.
    optimizer = optimizers.build(name, RATE, decay)
    device = devices[1]
    with tf.device(device):
        variable = tf.Variable(tf.ones([ROWS, WIDTH]))
    slots = optimizer.create_slots(variable, device)
    choices = OPTIONS["optimizer"].metadata["choices"]
    assert set(choices) == set(RULES)
    assert len(slots) == len(RULES[name][1])
    assert all(slot.device.endswith("CPU:1") for slot in slots)

    @tf.function(autograph=False)
    def update(gradient, step):
        factor = None if scale is None else tf.constant(scale)
        optimizer.apply(variable, slots, gradient, factor, step)

    for step in range(STEPS):
        gradient = tf.constant(_dense_gradients()[step], tf.float32)
        if sparse:
            parts = (_rows()[step], INDICES[step], [ROWS, WIDTH])
            gradient = tf.IndexedSlices(*map(tf.constant, parts))
        update(gradient, tf.constant(step, tf.int64))
    expected, expected_slots = _compute_expected(name, scale, decay)
    np.testing.assert_allclose(variable.numpy(), expected, rtol=2e-6, atol=2e-6)
    for slot, values in zip(slots, expected_slots, strict=True):
        np.testing.assert_allclose(slot.numpy(), values, rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("name", RULES)
def test_weight_decay_leaves_vectors_and_scalars_alone(tf, optimizers, name):
    for shape in ([2], []):
        variable = tf.Variable(tf.ones(shape))
        optimizer = optimizers.build(name, RATE, weight_decay=0.5)
        slots = optimizer.create_slots(variable, "CPU:0")
        step = tf.constant(0, tf.int64)
        optimizer.apply(variable, slots, tf.zeros(shape), None, step)
        assert variable.numpy().tolist() == np.ones(shape).tolist()


@pytest.mark.parametrize("name", RULES)
def test_each_update_has_its_learning_rate(tf, optimizers, name, monkeypatch):
    # The rates are 0.1, 0.2, 0.3, 0.4, 0.4 and so on.
    rising = LearningRate(0.1, 4, 3)
    variable = tf.Variable(tf.ones([2]))
    optimizer = optimizers.build(name, rising)
    slots = optimizer.create_slots(variable, "CPU:0")

    @tf.function(autograph=False)
    def update(step):
        optimizer.apply(variable, slots, tf.constant([0.5, -1.0]), None, step)

    want, kept = np.ones(2), [np.full(2, value) for value in RULES[name][1]]
    for step, rate in enumerate([0.1, 0.2, 0.3, 0.4, 0.4]):
        monkeypatch.setitem(globals(), "RATE", rate)
        want, kept = RULES[name][0](want, kept, np.array([0.5, -1.0]), step)
        update(tf.constant(step, tf.int64))
        np.testing.assert_allclose(variable.numpy(), want, atol=2e-5)


def test_linear_scaling_multiplies_the_learning_rate_by_the_towers():
    def of(**given):
        given = {"learning_rate": 0.5, **given}
        rate = learning_rate.from_config(resolve(given))
        return rate.first, rate.last, rate.is_constant

    several = {
        "num_devices": 2,
        "variable_update": "collective_all_reduce",
        "num_workers": 2,
    }
    linear = {"lr_scaling": "linear"}
    assert of(**several) == of(**linear, lr_warmup_batches=9) == (0.5, 0.5, True)
    several |= linear
    assert of(**several) == (0.5, 2.0, True)
    assert of(**several, lr_warmup_batches=9) == (0.5, 2.0, False)
    assert of(**several, gradient_accumulation_steps=3) == (0.5, 6.0, True)
