"""Whether the network computes what its papers say: a small one with random weights against float64 NumPy.

The network has the run's cells, kernels, layers, attention and layout, and few units. Loss and gradient come from the
product; the reference gives the loss, and by central differences its derivative along random directions: one direction
for each variable shows any wrong gradient of it.
"""

import dataclasses
import functools
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from rnn_scaling.analysis.statements import Statement
from rnn_scaling.models import cross_entropy, kernels, stacks, workloads
from rnn_scaling.models.config import ModelConfig
from rnn_scaling.models.workload import INITIAL_RANGE, VariableSpec, first_values
from rnn_scaling.verification import kernel_checks
from rnn_scaling.verification.reference import cells, network
from rnn_scaling.verification.rule import Arrays

TOLERANCE = 1e-4  # of float32, relative to the gradient's length
STEP = 1e-5  # of the central differences
MOST_LAYERS = 3
LENGTHS = {
    "source_length": (6, 1, 4, 3),
    "target_length": (2, 5, 1, 4),
}  # [B]; their largest are S and T
SEED = 7


@dataclasses.dataclass(frozen=True)
class NetworkComparison:
    """One part of the network and its reference: what is compared with what, and their largest difference."""

    name: str
    text: str
    difference: float
    tolerance: float
    faults: tuple[Statement, ...] = ()


@functools.lru_cache(maxsize=8)
def comparisons(
    model: ModelConfig, device_type: str, device: str, seed: int
) -> tuple[NetworkComparison, ...]:
    """The parts of the network, compared with what their papers say."""
    return tuple(_comparisons(model, device_type, device, seed))


def _compared(
    name: str, text: str, difference: float, tolerance: float, fault: Statement
) -> NetworkComparison:
    """A comparison that has this fault if the difference is too large or no number."""
    return NetworkComparison(
        name, text, difference, tolerance, () if difference <= tolerance else (fault,)
    )


def _comparisons(
    model: ModelConfig, device_type: str, device: str, seed: int
) -> Iterator[NetworkComparison]:
    workload = workloads.load(model.model).build(model, device_type)
    faults = tuple(_first_weights(workload.variables, seed))
    yield NetworkComparison(
        "initial weights",
        "variables with a wrong range or equal values",
        len(faults),
        0.0,
        faults,
    )
    if model.dropout:
        yield _dropout(model.dropout)
    if model.model not in network.LAST_LAYERS:
        yield from _images(workload, model.label_smoothing)
        return
    with kernel_checks.all_digits(), tf.device(device):
        yield from _recurrent(_small(model), device_type)


def _small(model: ModelConfig) -> ModelConfig:
    most = (
        2 * MOST_LAYERS
        if model.direction == "bi" and model.attention_architecture != "gnmt_v2"
        else MOST_LAYERS
    )
    most -= most % 2 if model.direction == "bi" else 0
    small: dict[str, Any] = {
        "num_units": 6,
        "embedding_dim": 4,
        "tgt_vocab_size": 11,
        "dropout": 0.0,
        "xla": False,
    }
    small |= {
        "src_vocab_size": 11 if model.share_embedding else 13,
        "compute_dtype": "float32",
        "accuracy": False,
    }
    small |= {"num_heads": 2, "filter_size": 7}
    for name in ("num_encoder_layers", "num_decoder_layers"):
        small[name] = min(getattr(model, name), most)
    return dataclasses.replace(model, **small)


def _recurrent(model: ModelConfig, device_type: str) -> Iterator[NetworkComparison]:
    random = np.random.default_rng(SEED)
    workload = workloads.load(model.model).build(model, device_type)
    weights = {
        s.name: random.normal(0.0, 0.5, s.shape).astype(np.float32)
        for s in workload.variables
    }
    batch = _batch(workload, random)
    layout = (
        batch
        if workload.layout.time_major
        else {name: part.T for name, part in batch.items()}
    )
    found = _computed(workload, weights, layout)
    expected = network.loss_sum(model, weights, batch)
    words = float(batch["target_length"].sum())
    items = [float(found["items"]), float(found["counted"])]
    wrong_items = Statement(
        "network-items", "wrong items", {"expected": words, "got": items[0]}
    )
    off = max(abs(count - words) for count in items)
    yield _compared("counted words", "words of a small batch", off, 0.0, wrong_items)
    off = float(
        max(abs(found[name] - expected) / expected for name in ("loss", "joined loss"))
    )
    is_near = off <= TOLERANCE
    faults = () if is_near else (_wrong_forward(model, device_type, off, random),)
    yield NetworkComparison(
        "network loss",
        "a small network against float64 NumPy, relative",
        off,
        TOLERANCE,
        faults,
    )
    if is_near:
        yield _gradient(model, weights, batch, found["gradient"])


def _gradient(
    model: ModelConfig, weights: Arrays, batch: Arrays, gradient: Arrays
) -> NetworkComparison:
    """The gradient of each variable against central differences of the reference's loss."""
    off = {
        name: _gradient_difference(model, weights, batch, name, gradient[name])
        for name in weights
    }
    wrong = [name for name, difference in off.items() if not difference <= TOLERANCE]
    part = (
        "attention"
        if all(name.startswith("attention/") for name in wrong)
        else "network"
    )
    fault = Statement(
        "network-gradient", "wrong gradient", {"variables": wrong, "part": part}
    )
    largest = max(
        off.values(),
        key=lambda difference: np.inf if np.isnan(difference) else difference,
    )
    return _compared(
        "network gradient",
        "the same against central differences",
        largest,
        TOLERANCE,
        fault,
    )


def _batch(workload: Any, random: np.random.Generator) -> dict[str, np.ndarray]:
    """Ids [T, B] and lengths [B] by field; words repeat, and padding is any word."""
    parts: dict[str, np.ndarray] = {}
    for side in workload.layout.sides:
        lengths = np.array(
            LENGTHS["target_length" if side.predicted else "source_length"], np.int32
        )
        names = ("target_input", "target_output") if side.predicted else ("source",)
        parts |= {
            name: random.integers(0, side.vocab_size - 2, (lengths.max(), len(lengths)))
            for name in names
        }
        parts["target_length" if side.predicted else "source_length"] = lengths
    return parts


def _computed(workload: Any, weights: Arrays, batch: Arrays) -> dict[str, Any]:
    """What the product makes of a batch: loss in both of its ways, items, gradient."""
    fields = workload.layout.type(
        **{name: tf.constant(part) for name, part in batch.items()}
    )

    @tf.function(autograph=False)
    def compute(values: dict[str, tf.Tensor]) -> dict[str, Any]:
        with tf.GradientTape() as tape:
            tape.watch(values)
            ids = workload.lookups(fields)
            rows = {name: tf.gather(values[name], ids[name]) for name in ids}
            dense = {name: array for name, array in values.items() if name not in ids}
            seed = tf.constant([1, SEED])
            outcome = workload.forward(dense, rows, fields, seed)
        gradient = tape.gradient(
            outcome.loss_sum, values, unconnected_gradients=tf.UnconnectedGradients.ZERO
        )
        joined = workload.losses(
            workload.outputs(dense, rows, fields, seed).logits, fields
        )
        items = {
            "items": workload.loss_items(fields),
            "counted": workload.counts(fields).loss_items,
        }
        dense = {name: tf.convert_to_tensor(part) for name, part in gradient.items()}
        return {
            "loss": outcome.loss_sum,
            "joined loss": tf.reduce_sum(joined),
            **items,
            "gradient": dense,
        }

    computed: dict[str, Any] = tf.nest.map_structure(
        lambda tensor: tensor.numpy(),
        compute({name: tf.constant(tensor) for name, tensor in weights.items()}),
    )
    return computed


def _gradient_difference(
    model: ModelConfig, weights: Arrays, batch: Arrays, name: str, gradient: np.ndarray
) -> float:
    """By how much the derivative along a random direction differs from the reference's, relative to the gradient."""
    random = np.random.default_rng([SEED, len(name)])
    way = random.normal(size=gradient.shape)
    way /= np.sqrt((way * way).sum())
    values = weights[name].astype(np.float64)
    up, down = (
        network.loss_sum(model, {**weights, name: values + sign * STEP * way}, batch)
        for sign in (1, -1)
    )
    expected = (up - down) / (2 * STEP)
    found = float((gradient * way).sum())
    return abs(found - expected) / (
        1.0 + float(np.sqrt(np.square(gradient, dtype=np.float64).sum()))
    )


def _wrong_forward(
    model: ModelConfig, device_type: str, off: float, random: np.random.Generator
) -> Statement:
    """Which part of the network gives a different loss: the loss itself, the cells, or what is around them."""
    hidden = random.normal(size=(5, 4, 3))
    projection = random.normal(size=(3, 11))
    labels = random.integers(0, 11, (5, 4))
    lengths = np.array(LENGTHS["target_length"], np.int32)
    expected = network.sentences_loss(
        hidden @ projection, labels, lengths, model.label_smoothing
    )
    ids = tf.constant(labels)
    options = cross_entropy.LossOptions(label_smoothing=model.label_smoothing)
    counted = cross_entropy.word_weights(ids, tf.constant(lengths), 0)
    logits = tf.constant((hidden @ projection).astype(np.float32))
    outputs, matrix = (
        tf.constant(array.astype(np.float32)) for array in (hidden, projection)
    )
    sums = [
        cross_entropy.loss_sum(outputs, matrix, ids, counted, options=options).loss_sum,
        tf.reduce_sum(
            cross_entropy.losses(logits, ids, model.label_smoothing) * counted
        ),
    ]
    if any(abs(float(total) - expected) > TOLERANCE * expected for total in sums):
        return Statement("network-cross-entropy", "wrong loss", {"off": off})
    if network.directions(model) and (
        wrong := _wrong_layers(model, device_type, random)
    ):
        return Statement(
            "network-cell",
            "wrong cell",
            {"wrong": wrong, "cell": model.unit_type, "off": off},
        )
    part = network.part_around_cells(model)
    return Statement("network-part", f"wrong {part}", {"part": part, "off": off})


def _wrong_layers(
    model: ModelConfig, device_type: str, random: np.random.Generator
) -> str:
    """Return which outputs of the run's kernel are not the reference's, or ""."""
    directions = network.directions(model)
    stack = stacks.stack_of(model, 1, directions)
    kernel = kernels.load(model.encoder_type, device_type, model.unit_type)
    weights = [
        {
            spec.name: random.normal(0.0, 0.5, spec.shape).astype(np.float32)
            for spec in stack.cell_weights(cell)
        }
        for cell in range(directions)
    ]
    x = random.normal(size=(6, 4, model.embedding_dim))
    lengths = np.array(LENGTHS["source_length"], np.int32)
    arguments = [tuple(map(tf.constant, cell.values())) for cell in weights]
    layout = x if model.time_major else x.transpose(1, 0, 2)
    fed = tf.constant(layout.astype(np.float32)), tf.constant(lengths)
    outputs, states = kernel.build(stack)(arguments, *fed, None, tf.constant([1, 2]))
    expected, last = cells.layers(model, x, lengths, [weights])
    found = outputs.numpy() if model.time_major else outputs.numpy().transpose(1, 0, 2)
    names = ("outputs", "outputs of the backward direction")
    halves = (np.split(array, directions, axis=2) for array in (found, expected))
    pairs = list(zip(names, *halves))
    for state, by_cell in zip(states, zip(*last)):
        pairs.append(("last states", state.numpy(), np.stack(by_cell)))
    wrong = [name for name, a, b in pairs if np.abs(a - b).max() > TOLERANCE]
    return wrong[0] if wrong else ""


def _first_weights(specs: tuple[VariableSpec, ...], seed: int) -> Iterator[Statement]:
    """Uniform ones fill their range, biases are 0, and no two of a shape are equal."""
    names: dict[tuple[int, ...], str] = {}  # the first variable of each shape
    for spec in specs:
        value = first_values([spec], seed)[spec.name]
        if spec.name.endswith("/bias") and value.any():
            yield Statement("network-bias", "other weights", {"variable": spec.name})
        if spec.name.endswith("/bias") or spec.initial != "uniform" or value.size < 100:
            continue
        spread = float(np.std(value)) / (INITIAL_RANGE / np.sqrt(3.0))
        if not (0.8 < spread < 1.25 and abs(value).max() <= INITIAL_RANGE):
            yield Statement(
                "network-not-uniform",
                "other weights",
                {"variable": spec.name, "bound": INITIAL_RANGE},
            )
        name = names.setdefault(spec.shape, spec.name)
        renamed = dataclasses.replace(spec, name=name)
        if name != spec.name and np.array_equal(
            value, first_values([renamed], seed)[name]
        ):
            yield Statement(
                "network-equal-weights",
                "other weights",
                {"variable": spec.name, "instead": name},
            )


def _dropout(rate: float) -> NetworkComparison:
    """Of many ones a share is 0, the others are 1 / (1 - rate), and another seed or stream draws others."""
    ones = tf.ones([100, 200])
    draws = [
        stacks.drop(ones, rate, tf.constant(seed), stream).numpy()
        for seed, stream in (([3, 1], 0), ([4, 1], 0))
    ]
    draws.append(stacks.drop(ones, rate, tf.constant([3, 1]), 1).numpy())
    retained = draws[0][draws[0] != 0]
    off = abs(1.0 - retained.size / draws[0].size - rate)
    allowed = float(5 * np.sqrt(rate * (1 - rate) / draws[0].size))
    faults = []
    if off > allowed or np.abs(retained * (1 - rate) - 1).max(initial=0) > 1e-3:
        faults.append(Statement("network-dropout", "wrong dropout", {"rate": rate}))
    if any(np.array_equal(draws[0], draw) for draw in draws[1:]):
        faults.append(Statement("network-dropout-repeats", "wrong dropout"))
    return NetworkComparison(
        "dropout",
        "share of 20,000 elements against --dropout",
        off,
        allowed,
        tuple(faults),
    )


def _images(workload: Any, label_smoothing: float) -> Iterator[NetworkComparison]:
    """The loss of random logits, and a batch normalisation's outputs and averages, where the network has such."""
    from rnn_scaling.models.batch import ImageBatch

    random = np.random.default_rng(SEED)
    logits = random.normal(size=(6, 10))
    labels = random.integers(0, 10, 6)
    batch = ImageBatch(tf.zeros([6, 1, 1, 3]), tf.constant(labels))
    found = workload.losses(tf.constant(logits.astype(np.float32)), batch).numpy()
    off = float(
        np.abs(found - network.cross_entropy(logits, labels, label_smoothing)).max()
    )
    fault = Statement("network-image-loss", "wrong loss")
    yield _compared(
        "cross entropy", "random logits against float64 NumPy", off, TOLERANCE, fault
    )
    items = float(workload.loss_items(batch))
    fault = Statement("network-image-items", "wrong items", {"got": items})
    yield _compared(
        "counted images", "images of a small batch", abs(items - 6.0), 0.0, fault
    )
    if workload.moving:
        yield from _normalization(random)


def _normalization(random: np.random.Generator) -> Iterator[NetworkComparison]:
    """A batch normalisation's outputs and averages, in Keras' networks and in ours: arXiv:1502.03167."""
    x = random.normal(2.0, 3.0, (4, 2, 2, 3))
    first = {"mean": random.normal(size=3), "variance": random.uniform(1, 2, 3)}
    tensor = tf.constant(x.astype(np.float32))
    fused = sys.modules.get("rnn_scaling.models.images.keras_applications")
    if fused:
        layer = fused.FusedBatchNormalization()
        layer.build(tensor.shape)
        layer.set_weights([np.ones(3), np.zeros(3), *first.values()])
        y = layer(tensor, training=True)
        decay = layer.momentum
        epsilon = layer.epsilon
        unbiased = 1.0
        following = {"mean": layer.moving_mean, "variance": layer.moving_variance}
    else:
        from rnn_scaling.models.images.layers import EPSILON, Layers

        values = {"gamma": np.ones(3), "beta": np.zeros(3)}
        values |= {f"moving_{name}": average for name, average in first.items()}
        layers = Layers(
            "NHWC", lambda spec: tf.constant(values[spec.name].astype(np.float32)), None
        )
        num = x[..., 0].size
        y = layers.batch_normalization(tensor)
        decay = 0.9
        epsilon = EPSILON
        unbiased = num / (num - 1)
        following = {name: layers.moving[f"moving_{name}"] for name in first}
    batch = {"mean": x.mean((0, 1, 2)), "variance": unbiased * x.var((0, 1, 2))}
    off = float(
        np.abs(
            y.numpy() - (x - batch["mean"]) / np.sqrt(x.var((0, 1, 2)) + epsilon)
        ).max()
    )
    fault = Statement("network-normalisation", "wrong normalisation")
    yield _compared(
        "normalisation",
        "a batch against its own mean and variance",
        off,
        10 * TOLERANCE,
        fault,
    )
    for name, value in following.items():
        expected = decay * first[name] + (1.0 - decay) * batch[name]
        off = float(np.abs(value.numpy() - expected).max() / np.abs(expected).max())
        fault = Statement(
            "network-moving", "other averages", {"average": name, "decay": decay}
        )
        yield _compared(
            f"moving {name}", "after a batch, relative", off, TOLERANCE, fault
        )
