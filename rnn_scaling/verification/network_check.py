"""Compare a small network with random weights with a float64 NumPy reference.

The network has the cells, kernels, layers, attention and layout of the run, and few
units. The product computes loss and gradient. The reference computes the loss, and by
central differences its derivative along one random direction per variable, which shows
any wrong gradient of the variable.

`certifier` compares the network before the first batch.
"""

import dataclasses
import functools
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from rnn_scaling.analysis.statements import Statement
from rnn_scaling.models import cross_entropy, encoder_table, stacks, workloads
from rnn_scaling.models.config import ModelConfig
from rnn_scaling.models.workload import INITIAL_RANGE, VariableSpec, make_first_values
from rnn_scaling.training import gradients
from rnn_scaling.verification import kernel_checks
from rnn_scaling.verification.reference import cells, network
from rnn_scaling.verification.rule import Arrays, norm

_TOLERANCE = 1e-4  # float32, relative to the gradient's length
_STEP = 1e-5  # step of the central differences
_MAX_LAYERS = 3
# Lengths [B] of the sentences; the largest are S and T.
_LENGTHS = {
    "source_length": (6, 1, 4, 3),
    "target_length": (2, 5, 1, 4),
}
_SEED = 7
_NUM_SEEDS = 20  # draws of a small network's dropout
_MAX_SCALINGS = 4  # operations between random numbers and their comparison with a rate


@dataclasses.dataclass(frozen=True)
class NetworkComparison:
    """The comparison of one part of the network with its reference."""

    name: str
    text: str
    difference: float
    tolerance: float
    faults: tuple[Statement, ...] = ()


@functools.lru_cache(maxsize=8)
def compare_parts(
    model: ModelConfig, device_type: str, device: str, seed: int
) -> tuple[NetworkComparison, ...]:
    """Compare the parts of the network with their references.

    Several certificates in one process ask for the same network, so the result is kept.
    """
    return tuple(_compare_parts(model, device_type, device, seed))


def _make_comparison(
    name: str, text: str, difference: float, tolerance: float, fault: Statement
) -> NetworkComparison:
    """Return a comparison, with the fault if the difference is too large or NaN."""
    faults = () if difference <= tolerance else (fault,)
    return NetworkComparison(name, text, difference, tolerance, faults)


def _compare_parts(
    model: ModelConfig, device_type: str, device: str, seed: int
) -> Iterator[NetworkComparison]:
    workload = workloads.load(model.model).build(model, device_type)
    faults = tuple(_find_wrong_weights(workload.variables, seed))
    yield NetworkComparison(
        "initial weights",
        "variables with a wrong range or equal values",
        len(faults),
        0.0,
        faults,
    )
    if model.dropout:
        yield _compare_dropout(model.dropout)
    yield _compare_gradient_norm(np.random.default_rng(_SEED))
    if model.model not in network.LAST_LAYERS:
        yield from _compare_images(workload, model.label_smoothing)
        return
    with kernel_checks.full_precision(), tf.device(device):
        yield from _compare_recurrent(_shrink_model(model), device_type)
        if model.dropout:
            yield _compare_dropout_places(model, device_type)


def _shrink_model(model: ModelConfig) -> ModelConfig:
    """Return the model with few units, words and layers, in float32."""
    max_layers = _MAX_LAYERS
    if model.direction == "bi":
        # With two directions, the number of layers is even.
        is_gnmt = model.attention_architecture == "gnmt_v2"
        max_layers = 2 if is_gnmt else 2 * _MAX_LAYERS
    return dataclasses.replace(
        model,
        num_units=6,
        embedding_dim=4,
        src_vocab_size=11 if model.share_embedding else 13,
        tgt_vocab_size=11,
        num_encoder_layers=min(model.num_encoder_layers, max_layers),
        num_decoder_layers=min(model.num_decoder_layers, max_layers),
        num_heads=2,
        filter_size=7,
        dropout=0.0,
        compute_dtype="float32",
        accuracy=False,
        xla=False,
    )


def _compare_recurrent(
    model: ModelConfig, device_type: str
) -> Iterator[NetworkComparison]:
    """Yield the comparisons of items, loss and gradients of a network of text."""
    random = np.random.default_rng(_SEED)
    workload = workloads.load(model.model).build(model, device_type)
    weights = _draw_weights(workload.variables, random)
    batch = _draw_batch(workload, random)
    results = _compute(workload, weights, batch)
    expected = network.loss_sum(model, weights, batch)
    num_words = float(batch["target_length"].sum())
    items = float(results["items"])
    counted_items = float(results["counted"])
    values = {"expected": num_words, "got": items}
    yield _make_comparison(
        "counted words",
        "words of a small batch",
        max(abs(items - num_words), abs(counted_items - num_words)),
        0.0,
        Statement("network-items", "wrong items", values),
    )
    # Unlike max, np.max is NaN if one of the losses is.
    losses = np.array([results["loss"], results["joined loss"]])
    error = np.max(np.abs(losses - expected))
    difference = float(error / expected)
    is_near = difference <= _TOLERANCE
    faults: tuple[Statement, ...] = ()
    if not is_near:
        faults = (_find_loss_fault(model, device_type, difference, random),)
    yield NetworkComparison(
        "network loss",
        "a small network against float64 NumPy, relative",
        difference,
        _TOLERANCE,
        faults,
    )
    if is_near:
        yield _compare_gradients(model, weights, batch, results["gradient"])


def _draw_weights(
    specs: Iterable[VariableSpec], random: np.random.Generator
) -> dict[str, np.ndarray]:
    weights = {}
    for spec in specs:
        weights[spec.name] = random.normal(0.0, 0.5, spec.shape).astype(np.float32)
    return weights


def _compare_gradients(
    model: ModelConfig, weights: Arrays, batch: Arrays, gradient: Arrays
) -> NetworkComparison:
    """Compare each gradient with central differences of the reference's loss."""
    differences = {
        name: _gradient_difference(model, weights, batch, name, gradient[name])
        for name in weights
    }
    # The condition includes NaN.
    wrong_names = [
        name for name, value in differences.items() if not value <= _TOLERANCE
    ]
    is_attention = all(name.startswith("attention/") for name in wrong_names)
    values = {
        "variables": wrong_names,
        "part": "attention" if is_attention else "network",
    }
    # np.max returns NaN if any difference is NaN.
    largest = float(np.max(list(differences.values())))
    fault = Statement("network-gradient", "wrong gradient", values)
    if np.isnan(largest):
        nan_names = [name for name in wrong_names if np.isnan(differences[name])]
        place = f"gradient of {', '.join(nan_names)}"
        fault = Statement("network-nan", "wrong gradient", {"place": place})
    return _make_comparison(
        "network gradient",
        "the same against central differences",
        largest,
        _TOLERANCE,
        fault,
    )


def _draw_batch(workload: Any, random: np.random.Generator) -> dict[str, np.ndarray]:
    """Return ids [T, B] and lengths [B] by field.

    Words repeat, and any word may be padding.
    """
    fields: dict[str, np.ndarray] = {}
    for side in workload.layout.sides:
        length_name = "source_length"
        names = ["source"]
        if side.predicted:
            length_name = "target_length"
            names = ["target_input", "target_output"]
        lengths = np.array(_LENGTHS[length_name], np.int32)
        shape = (lengths.max(), len(lengths))
        for name in names:
            fields[name] = random.integers(0, side.vocab_size - 2, shape)
        fields[length_name] = lengths
    return fields


def _compute(workload: Any, weights: Arrays, batch: Arrays) -> dict[str, Any]:
    """Return the product's loss in both implementations, its items and gradient."""
    tensors = {}
    for name, array in batch.items():
        is_time_major = workload.layout.time_major
        tensors[name] = tf.constant(array if is_time_major else array.T)
    fields = workload.layout.type(**tensors)

    @tf.function(autograph=False)
    def compute(values: dict[str, tf.Tensor]) -> dict[str, Any]:
        with tf.GradientTape() as tape:
            tape.watch(values)
            ids = workload.list_lookups(fields)
            rows = {name: tf.gather(values[name], ids[name]) for name in ids}
            dense = {name: array for name, array in values.items() if name not in ids}
            seed = tf.constant([1, _SEED])
            outcome = workload.forward(dense, rows, fields, seed)
        gradient = tape.gradient(
            outcome.loss_sum, values, unconnected_gradients=tf.UnconnectedGradients.ZERO
        )
        logits = workload.compute_outputs(dense, rows, fields, seed).logits
        return {
            "loss": outcome.loss_sum,
            "joined loss": tf.reduce_sum(workload.compute_losses(logits, fields)),
            "items": workload.count_loss_items(fields),
            "counted": workload.count_batch(fields).loss_items,
            "gradient": {
                name: tf.convert_to_tensor(slopes) for name, slopes in gradient.items()
            },
        }

    results: dict[str, Any] = tf.nest.map_structure(
        lambda tensor: tensor.numpy(),
        compute({name: tf.constant(tensor) for name, tensor in weights.items()}),
    )
    return results


def _gradient_difference(
    model: ModelConfig, weights: Arrays, batch: Arrays, name: str, gradient: np.ndarray
) -> float:
    """Return the error of the derivative along a random direction.

    The error is relative to the gradient, and compared with the reference.
    """
    random = np.random.default_rng([_SEED, len(name)])
    direction = random.normal(size=gradient.shape)
    direction /= np.sqrt((direction * direction).sum())
    values = weights[name].astype(np.float64)
    step = _STEP * direction
    forward = network.loss_sum(model, {**weights, name: values + step}, batch)
    backward = network.loss_sum(model, {**weights, name: values - step}, batch)
    expected = (forward - backward) / (2 * _STEP)
    derivative = float((gradient * direction).sum())
    return abs(derivative - expected) / (1.0 + norm(gradient))


def _find_loss_fault(
    model: ModelConfig,
    device_type: str,
    difference: float,
    random: np.random.Generator,
) -> Statement:
    """Return a statement about the piece of the network that causes a different loss.

    The loss function is checked first, then the cells; if both are right, the rest of
    the network is wrong.
    """
    kind = "network-part"
    place = network.part_around_cells(model)
    subject = f"wrong {place}"
    values: dict[str, Any] = {"part": place, "off": difference}
    if not _is_loss_function_right(model.label_smoothing, random):
        kind = "network-cross-entropy"
        place = "loss"
        subject = "wrong loss"
    elif network.num_directions(model) and (
        outputs_name := _name_wrong_outputs(model, device_type, random)
    ):
        kind = "network-cell"
        place = f"{outputs_name} of {model.unit_type} cells"
        subject = "wrong cell"
        values |= {"wrong": outputs_name, "cell": model.unit_type}
    if np.isnan(difference):
        return Statement("network-nan", subject, {"place": place})
    return Statement(kind, subject, values)


def _is_loss_function_right(
    label_smoothing: float, random: np.random.Generator
) -> bool:
    """Return whether both implementations of the loss agree with the reference."""
    hidden = random.normal(size=(5, 4, 3))
    projection = random.normal(size=(3, 11))
    labels = random.integers(0, 11, (5, 4))
    lengths = np.array(_LENGTHS["target_length"], np.int32)
    expected = network.sentences_loss(
        hidden @ projection, labels, lengths, label_smoothing
    )
    ids = tf.constant(labels)
    options = cross_entropy.LossOptions(label_smoothing=label_smoothing)
    word_weights = cross_entropy.compute_word_weights(ids, tf.constant(lengths), 0)
    logits = tf.constant((hidden @ projection).astype(np.float32))
    outputs = tf.constant(hidden.astype(np.float32))
    matrix = tf.constant(projection.astype(np.float32))
    fused = cross_entropy.sum_losses(
        outputs, matrix, ids, word_weights, options=options
    )
    losses = cross_entropy.compute_losses(logits, ids, label_smoothing)
    loss_sums = (fused.loss_sum, tf.reduce_sum(losses * word_weights))
    # A NaN is not within the tolerance.
    return all(
        abs(float(loss_sum) - expected) <= _TOLERANCE * expected
        for loss_sum in loss_sums
    )


def _name_wrong_outputs(
    model: ModelConfig, device_type: str, random: np.random.Generator
) -> str:
    """Return the name of the kernel's outputs that differ from the reference, or ""."""
    num_directions = network.num_directions(model)
    stack = stacks.build_stack(model, 1, num_directions)
    kernel = encoder_table.load(model.encoder_type, device_type, model.unit_type)
    weights = [
        _draw_weights(stack.list_cell_weights(cell), random)
        for cell in range(num_directions)
    ]
    x = random.normal(size=(6, 4, model.embedding_dim))
    lengths = np.array(_LENGTHS["source_length"], np.int32)
    arguments = [tuple(map(tf.constant, cell.values())) for cell in weights]
    inputs = x if model.time_major else x.transpose(1, 0, 2)
    outputs, states = kernel.build(stack)(
        arguments,
        tf.constant(inputs.astype(np.float32)),
        tf.constant(lengths),
        None,
        tf.constant([1, 2]),
    )
    actual = outputs.numpy()
    if not model.time_major:
        actual = actual.transpose(1, 0, 2)
    expected, last_states = cells.run_layers(model, x, lengths, [weights])
    names = ("outputs", "outputs of the backward direction")
    actual_directions = np.split(actual, num_directions, axis=2)
    expected_directions = np.split(expected, num_directions, axis=2)
    for name, array, reference in zip(names, actual_directions, expected_directions):
        if _differs(array, reference):
            return name
    for state, cell_states in zip(states, zip(*last_states)):
        if _differs(state.numpy(), np.stack(cell_states)):
            return "last states"
    return ""


def _differs(array: np.ndarray, reference: np.ndarray) -> bool:
    return not np.abs(array - reference).max() <= _TOLERANCE  # includes NaN


def _find_wrong_weights(
    specs: tuple[VariableSpec, ...], seed: int
) -> Iterator[Statement]:
    """Check the initial values.

    Uniform values fill their range, biases are 0, and variables of equal shape differ.
    """
    first_names: dict[tuple[int, ...], str] = {}  # the first variable of each shape
    for spec in specs:
        value = make_first_values([spec], seed)[spec.name]
        if spec.name.endswith("/bias") and value.any():
            yield Statement("network-bias", "other weights", {"variable": spec.name})
        if spec.name.endswith("/bias") or spec.initial != "uniform" or value.size < 100:
            continue
        spread = float(np.std(value)) / (INITIAL_RANGE / np.sqrt(3.0))
        if not (0.8 < spread < 1.25 and abs(value).max() <= INITIAL_RANGE):
            values = {"variable": spec.name, "bound": INITIAL_RANGE}
            yield Statement("network-not-uniform", "other weights", values)
        first_name = first_names.setdefault(spec.shape, spec.name)
        if first_name == spec.name:
            continue
        renamed = dataclasses.replace(spec, name=first_name)
        if np.array_equal(value, make_first_values([renamed], seed)[first_name]):
            values = {"variable": spec.name, "instead": first_name}
            yield Statement("network-equal-weights", "other weights", values)


def _compare_dropout(rate: float) -> NetworkComparison:
    """Check the share of dropped elements and the scale of the retained ones.

    Another seed or stream must drop other elements.
    """
    inputs = tf.ones([100, 200])
    draw = stacks.drop(inputs, rate, tf.constant([3, 1]), 0).numpy()
    retained = draw[draw != 0]
    difference = abs(1.0 - retained.size / draw.size - rate)
    tolerance = float(5 * np.sqrt(rate * (1 - rate) / draw.size))
    largest_error = np.abs(retained * (1 - rate) - 1).max(initial=0)
    faults = []
    if difference > tolerance or largest_error > 1e-3:
        faults.append(Statement("network-dropout", "wrong dropout", {"rate": rate}))
    for seed, stream in (([4, 1], 0), ([3, 1], 1)):
        second_draw = stacks.drop(inputs, rate, tf.constant(seed), stream).numpy()
        if np.array_equal(draw, second_draw):
            faults.append(Statement("network-dropout-repeats", "wrong dropout"))
            break
    return NetworkComparison(
        "dropout",
        "share of 20,000 elements against --dropout",
        difference,
        tolerance,
        tuple(faults),
    )


def _compare_gradient_norm(random: np.random.Generator) -> NetworkComparison:
    """Compare the norm of a sparse gradient with NumPy's norm of the dense gradient.

    Clipping uses it. Rows with the same index are added before they are squared.
    """
    num_words = 5
    indices = random.integers(0, num_words, 12)
    rows = random.normal(size=(len(indices), 3)).astype(np.float32)
    dense = np.zeros((num_words, rows.shape[1]), np.float64)
    np.add.at(dense, indices, rows)
    sparse = tf.IndexedSlices(
        tf.constant(rows), tf.constant(indices), tf.constant(dense.shape)
    )
    difference = abs(
        float(gradients.compute_squared_norm(sparse)) / norm(dense) ** 2 - 1.0
    )
    return _make_comparison(
        "gradient norm",
        "repeated rows of an embedding against NumPy, relative",
        difference,
        _TOLERANCE,
        Statement("network-norm", "wrong norm", {"off": difference}),
    )


def _compare_dropout_places(model: ModelConfig, device_type: str) -> NetworkComparison:
    """Check how often a small network drops elements, and the share of each place.

    A place is one array whose elements are dropped, such as the outputs of a sublayer.
    """
    rate = model.dropout
    small_model = dataclasses.replace(_shrink_model(model), dropout=rate)
    expected = network.count_dropout_places(small_model)
    masks = _collect_dropout_masks(small_model, device_type)
    difference = 0.0
    tolerance = 1.0
    for draws in masks:
        share = 1.0 - float(draws.mean())
        allowed_difference = 5.0 * float(np.sqrt(rate * (1.0 - rate) / draws.size))
        if abs(share - rate) * tolerance >= difference * allowed_difference:
            difference = abs(share - rate)
            tolerance = allowed_difference
    faults = []
    if len(masks) != expected:
        values = {"got": len(masks), "expected": expected}
        faults.append(Statement("network-dropout-places", "wrong dropout", values))
    if difference > tolerance:
        faults.append(Statement("network-dropout", "wrong dropout", {"rate": rate}))
    if _has_equal_masks(masks):
        faults.append(Statement("network-dropout-repeats", "wrong dropout"))
    return NetworkComparison(
        "places of dropout",
        f"share of each of {expected} places of a small network",
        difference,
        tolerance,
        tuple(faults),
    )


def _collect_dropout_masks(model: ModelConfig, device_type: str) -> list[np.ndarray]:
    """Return which elements a small network retains, for several seeds.

    Returns:
      Per place, boolean [N, ...] for N seeds.
    """
    random = np.random.default_rng(_SEED)
    workload = workloads.load(model.model).build(model, device_type)
    weights = _draw_weights(workload.variables, random)
    tensors = {}
    for name, array in _draw_batch(workload, random).items():
        is_time_major = workload.layout.time_major
        tensors[name] = tf.constant(array if is_time_major else array.T)
    fields = workload.layout.type(**tensors)

    @tf.function(autograph=False)
    def compute(seed: tf.Tensor) -> tuple[tf.Tensor, ...]:
        values = {name: tf.constant(array) for name, array in weights.items()}
        ids = workload.list_lookups(fields)
        rows = {name: tf.gather(values[name], ids[name]) for name in ids}
        dense = {name: array for name, array in values.items() if name not in ids}
        workload.forward(dense, rows, fields, seed)
        return tuple(_find_masks(tf.compat.v1.get_default_graph()))

    draws = [compute(tf.constant([1, seed])) for seed in range(_NUM_SEEDS)]
    return [tf.stack(masks).numpy() for masks in zip(*draws)]


def _find_masks(graph: Any) -> list[tf.Tensor]:
    """Return the comparisons of random numbers with a rate in a graph."""
    masks = []
    for operation in graph.get_operations():
        if operation.type != "GreaterEqual":
            continue
        source = operation.inputs[0].op
        # Random numbers are scaled and moved to their range.
        for _ in range(_MAX_SCALINGS):
            if source.inputs and not source.type.startswith("StatelessRandom"):
                source = source.inputs[0].op
        if source.type.startswith("StatelessRandom"):
            masks.append(operation.outputs[0])
    return masks


def _has_equal_masks(masks: list[np.ndarray]) -> bool:
    """Return whether two places of a network drop the same elements."""
    digests = {mask.tobytes() + str(mask.shape).encode() for mask in masks}
    return len(digests) < len(masks)


def _compare_images(
    workload: Any, label_smoothing: float
) -> Iterator[NetworkComparison]:
    """Compare the loss of random logits, and batch normalisation if the network has it."""
    from rnn_scaling.models.batch import ImageBatch

    random = np.random.default_rng(_SEED)
    logits = random.normal(size=(6, 10))
    labels = random.integers(0, 10, 6)
    batch = ImageBatch(tf.zeros([6, 1, 1, 3]), tf.constant(labels))
    losses = workload.compute_losses(
        tf.constant(logits.astype(np.float32)), batch
    ).numpy()
    expected = network.cross_entropy(logits, labels, label_smoothing)
    yield _make_comparison(
        "cross entropy",
        "random logits against float64 NumPy",
        float(np.abs(losses - expected).max()),
        _TOLERANCE,
        Statement("network-image-loss", "wrong loss"),
    )
    items = float(workload.count_loss_items(batch))
    fault = Statement("network-image-items", "wrong items", {"got": items})
    yield _make_comparison(
        "counted images", "images of a small batch", abs(items - 6.0), 0.0, fault
    )
    if workload.moving:
        yield from _compare_normalization(random)


class _NormalizedBatch(NamedTuple):
    """A batch after normalisation, and the constants that it should use.

    Attributes:
      outputs: [N, H, W, C].
      averages: Name -> the moving average after the batch, [C].
      decay: Weight of the earlier average.
      epsilon: Addend to the variance.
      variance_factor: Variance that is averaged / variance of the batch.
    """

    outputs: tf.Tensor
    averages: Mapping[str, Any]
    decay: float
    epsilon: float
    variance_factor: float


def _compare_normalization(random: np.random.Generator) -> Iterator[NetworkComparison]:
    """Compare the outputs and averages of batch normalisation, arXiv:1502.03167.

    Networks of Keras have a layer with other constants than this project's networks.
    """
    x = random.normal(2.0, 3.0, (4, 2, 2, 3))
    first = {"mean": random.normal(size=3), "variance": random.uniform(1, 2, 3)}
    keras = sys.modules.get("rnn_scaling.models.images.keras_applications")
    actual = _normalize_with_keras(keras, x, first) if keras else _normalize(x, first)
    variance = x.var((0, 1, 2))
    batch = {"mean": x.mean((0, 1, 2)), "variance": actual.variance_factor * variance}
    expected = (x - batch["mean"]) / np.sqrt(variance + actual.epsilon)
    yield _make_comparison(
        "normalisation",
        "a batch against its own mean and variance",
        float(np.abs(actual.outputs.numpy() - expected).max()),
        10 * _TOLERANCE,
        Statement("network-normalisation", "wrong normalisation"),
    )
    for name, average in actual.averages.items():
        expected = actual.decay * first[name] + (1.0 - actual.decay) * batch[name]
        error = np.abs(average.numpy() - expected).max()
        fault_values = {"average": name, "decay": actual.decay}
        yield _make_comparison(
            f"moving {name}",
            "after a batch, relative",
            float(error / np.abs(expected).max()),
            _TOLERANCE,
            Statement("network-moving", "other averages", fault_values),
        )


def _normalize_with_keras(keras: Any, x: np.ndarray, first: Arrays) -> _NormalizedBatch:
    """Normalize a batch with the layer of the networks of Keras.

    Args:
      keras: The module `keras_applications`.
      x: The batch, [N, H, W, C].
      first: The mean and the variance that are averaged with those of the batch.
    """
    tensor = tf.constant(x.astype(np.float32))
    layer = keras.FusedBatchNormalization()
    layer.build(tensor.shape)
    layer.set_weights([np.ones(3), np.zeros(3), *first.values()])
    outputs = layer(tensor, training=True)
    return _NormalizedBatch(
        outputs=outputs,
        averages={"mean": layer.moving_mean, "variance": layer.moving_variance},
        decay=layer.momentum,
        epsilon=layer.epsilon,
        variance_factor=1.0,
    )


def _normalize(x: np.ndarray, first: Arrays) -> _NormalizedBatch:
    """Normalize a batch like this project's networks, which average the unbiased variance."""
    from rnn_scaling.models.images.layers import EPSILON, Layers

    values = {"gamma": np.ones(3), "beta": np.zeros(3)}
    values |= {f"moving_{name}": average for name, average in first.items()}

    def make_variable(spec: VariableSpec) -> tf.Tensor:
        return tf.constant(values[spec.name].astype(np.float32))

    layers = Layers("NHWC", make_variable, None)
    outputs = layers.batch_normalization(tf.constant(x.astype(np.float32)))
    num_per_channel = x[..., 0].size
    return _NormalizedBatch(
        outputs=outputs,
        averages={name: layers.moving[f"moving_{name}"] for name in first},
        decay=0.9,
        epsilon=EPSILON,
        variance_factor=num_per_channel / (num_per_channel - 1),
    )
