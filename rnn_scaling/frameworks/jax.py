"""The network of models/seq2seq.py in JAX: one program for all devices.

On CPUs the layers are scans over time, on GPUs cuDNN's LSTM. Towers are shards along
one axis of a mesh. With `replicated`, every device has all weights and gradients are
summed. With `independent`, weights are sharded like the batch and nothing is exchanged.

T: words of the longest sentence, B: sentence pairs, D: width of the input, U: units of
a cell, V: target vocabulary.

`loop` calls `build` and `kernel` in the framework's own Python.
"""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import rnn
from jax.sharding import NamedSharding, PartitionSpec

from rnn_scaling.frameworks import loop
from rnn_scaling.frameworks.handoff import (
    ADAM_BETA_1,
    ADAM_BETA_2,
    ADAM_EPSILON,
    MOMENTUM,
    Task,
)

# Steps of a scan per iteration of its loop; more are slower (docs/frameworks.md).
_UNROLL = 1
TOWERS = "towers"
_NUM_SLOTS = {"sgd": 0, "momentum": 1, "adam": 2}

Weights = Mapping[str, jax.Array]
State = tuple[jax.Array, jax.Array]  # c and h, each [B, U]
Layers = Sequence[Sequence[tuple[jax.Array, jax.Array]]]
"""Kernel and bias per direction and layer."""


def build(task: Task, rank: int) -> Callable[[], float]:
    """Return the function of a step on all devices.

    It waits for the devices and returns the mean loss per word of all towers.
    """
    towers = task.num_devices
    optimizer = task.optimizer
    mesh = jax.make_mesh((towers,), (TOWERS,), devices=select_devices(task))
    spec = PartitionSpec() if task.exchanges else PartitionSpec(TOWERS)
    sharding = NamedSharding(mesh, spec)
    batch = _stack_batches(task, mesh)
    weights, slots = _place_variables(task, sharding)
    num_words = np.array(task.loss_items, np.float64)
    divisor = num_words.sum() if task.exchanges else num_words[0]
    sharded = jax.shard_map(
        _make_tower_update(task, float(divisor)),
        mesh=mesh,
        in_specs=(spec, spec, PartitionSpec(TOWERS), PartitionSpec()),
        out_specs=(spec, spec, PartitionSpec(TOWERS)),
        # The check would add up gradients of replicated values in each step of a scan.
        check_vma=False,
    )
    with jax.default_matmul_precision(set_matmul_precision(task)):
        compiled = (
            jax.jit(sharded, donate_argnums=(0, 1))
            .lower(weights, slots, batch, np.float32(0))
            .compile()
        )
    state = (weights, slots)
    num_steps = 0

    def step() -> float:
        nonlocal state, num_steps
        num_steps += 1
        rate = np.float32(_update_rate(optimizer, task.learning_rate, num_steps))
        *next_state, losses = jax.block_until_ready(compiled(*state, batch, rate))
        state = tuple(next_state)
        return float(np.asarray(losses, np.float64).sum() / num_words.sum())

    return step


def _place_variables(
    task: Task, sharding: NamedSharding
) -> tuple[dict[str, jax.Array], dict[str, tuple[jax.Array, ...]]]:
    """Return the weights and the optimizer's slots by name.

    Without an exchange, the first axis has a copy for each tower.
    """
    weights = {}
    slots = {}
    for name, value in task.weights.items():
        if not task.exchanges:
            value = np.stack([value] * task.num_devices)
        weights[name] = jax.device_put(value, sharding)
        zeros = np.zeros_like(value)
        slots[name] = tuple(
            jax.device_put(zeros, sharding) for _ in range(_NUM_SLOTS[task.optimizer])
        )
    return weights, slots


def _make_tower_update(task: Task, divisor: float) -> Callable[..., Any]:
    """Return the update of one tower.

    Args:
      divisor: The gradients of the summed loss are divided by it.

    Returns:
      (weights, slots, batch, rate) -> next weights, next slots and loss.
    """
    loss_sum = _make_tower_loss(task)

    def update(weights: Any, slots: Any, batch: Any, rate: jax.Array) -> Any:
        """Update one shard. Sharded arrays have a first axis of length 1."""
        batch = jax.tree.map(lambda x: x[0], batch)
        if not task.exchanges:
            weights, slots = jax.tree.map(lambda x: x[0], (weights, slots))
        loss, gradients = jax.value_and_grad(loss_sum)(weights, batch)
        if task.exchanges:
            gradients = jax.lax.psum(gradients, TOWERS)
        next_weights = {}
        next_slots = {}
        for name in weights:
            next_weights[name], next_slots[name] = _apply_optimizer(
                task.optimizer,
                weight=weights[name],
                slots=slots[name],
                gradient=gradients[name] / divisor,
                rate=rate,
            )
        if not task.exchanges:
            next_weights, next_slots = jax.tree.map(
                lambda x: x[None], (next_weights, next_slots)
            )
        return next_weights, next_slots, loss[None]

    return update


def kernel(task: Task) -> str:
    return "jax.experimental.rnn.lstm" if task.uses_gpus else "jax.lax.scan"


def set_matmul_precision(task: Task) -> str | None:
    """Return the precision of float32 products; None allows TF32 on GPUs."""
    return "highest" if task.config == task.as_reference().config else None


def select_devices(task: Task) -> list[Any]:
    """Return one device per tower; devices of a CPU are created when JAX starts.

    Raises:
      ValueError: If JAX has fewer devices.
    """
    if not task.uses_gpus:
        jax.config.update("jax_platforms", "cpu")
        # After the step of the check, JAX already has the devices.
        if jax.config.jax_num_cpu_devices != task.num_devices:
            jax.config.update("jax_num_cpu_devices", task.num_devices)
    devices = jax.devices("gpu" if task.uses_gpus else "cpu")
    if len(devices) < task.num_devices:
        raise ValueError(
            f"--num_devices={task.num_devices} must be at most {len(devices)}, "
            "the number of JAX's devices"
        )
    return list(devices[: task.num_devices])


def _stack_batches(task: Task, mesh: Any) -> dict[str, jax.Array]:
    """Join the towers' batches along a new first axis, sharded over the devices."""
    sharding = NamedSharding(mesh, PartitionSpec(TOWERS))
    stacked = {}
    for key in task.batches[0]:
        arrays = np.stack([batch[key] for batch in task.batches])
        stacked[key] = jax.device_put(arrays, sharding)
    return stacked


def _make_tower_loss(
    task: Task,
) -> Callable[[Weights, Mapping[str, jax.Array]], jax.Array]:
    """Return (weights, batch) -> sum of -log p(label) over a tower's target words."""
    config = task.config
    dtype = jnp.dtype(task.dtype)
    run_layers = with_cudnn if task.uses_gpus else with_scans
    encoder, decoder = _list_cell_names(config)
    units = config["num_units"]
    forget_bias = np.zeros(4 * units, np.float32)
    forget_bias[2 * units : 3 * units] = config["forget_bias"]

    def cells(weights: Weights, names: Sequence[Sequence[str]]) -> Layers:
        layers = []
        for layer_names in names:
            layer = []
            for name in layer_names:
                bias = weights[f"{name}/bias"] + forget_bias
                kernel = weights[f"{name}/kernel"]
                layer.append((kernel.astype(dtype), bias.astype(dtype)))
            layers.append(layer)
        return layers

    def rows(weights: Weights, table: str, ids: jax.Array) -> jax.Array:
        return weights[table].at[ids].get(mode="promise_in_bounds").astype(dtype)

    def loss_sum(weights: Weights, batch: Mapping[str, jax.Array]) -> jax.Array:
        source = rows(weights, "src_embedding", batch["source"])
        target = rows(weights, "tgt_embedding", batch["target_input"])
        zeros = jnp.zeros((source.shape[1], units), dtype)
        _, states = run_layers(
            cells(weights, encoder),
            source,
            [(zeros, zeros)] * config["num_encoder_layers"],
        )
        outputs, _ = run_layers(cells(weights, decoder), target, states)
        logits = (outputs @ weights["projection"].astype(dtype)).astype(jnp.float32)
        at_label = jnp.take_along_axis(
            logits, batch["target_output"][..., None], axis=2, mode="promise_in_bounds"
        )
        return (jax.nn.logsumexp(logits, axis=2) - at_label[..., 0]).sum()

    return loss_sum


def _list_cell_names(
    config: Mapping[str, Any],
) -> tuple[list[list[str]], list[list[str]]]:
    """Return the names of the cells of encoder and decoder, per layer and direction."""
    directions = ["forward"]
    if config["direction"] == "bi":
        directions.append("backward")
    encoder = []
    for layer in range(config["num_encoder_layers"] // len(directions)):
        encoder.append([f"encoder/layer_{layer}/{name}" for name in directions])
    decoder = [[f"decoder/layer_{n}"] for n in range(config["num_decoder_layers"])]
    return encoder, decoder


def with_scans(
    layers: Layers, x: jax.Array, states: Sequence[State]
) -> tuple[jax.Array, list[State]]:
    """Run layers of one or two directions as scans over time.

    Args:
      layers: Kernel [D+U, 4U] and bias [4U] per direction and layer, gates i, j, f, o.
      x: [T, B, D].
      states: The first states of the cells.

    Returns:
      The outputs [T, B, U * directions], and the last states of the cells.
    """
    last: list[State] = []
    for cells in layers:
        results = []
        for backward, (kernel, bias) in enumerate(cells):
            state, outputs = _scan(
                x, states[len(last)], kernel, bias, backward=bool(backward)
            )
            last.append(state)
            results.append(outputs)
        x = jnp.concatenate(results, axis=2) if len(results) > 1 else results[0]
    return x, last


def _scan(
    x: jax.Array, state: State, kernel: jax.Array, bias: jax.Array, backward: bool
) -> tuple[State, jax.Array]:
    """Run a cell of `with_scans`; the input's product is computed before the loop."""
    width = x.shape[2]

    def step(state: State, projected: jax.Array) -> tuple[State, jax.Array]:
        c, h = state
        i, j, f, o = jnp.split(projected + h @ kernel[width:], 4, axis=1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(j)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (c, h), h

    last, outputs = jax.lax.scan(
        step, state, x @ kernel[:width] + bias, reverse=backward, unroll=_UNROLL
    )
    return last, outputs


def with_cudnn(
    layers: Layers, x: jax.Array, states: Sequence[State]
) -> tuple[jax.Array, list[State]]:
    """Run `with_scans` with cuDNN, in float32 even for bfloat16: JAX has no other type.

    cuDNN reads all weights from one array: the matrices of all cells, then their
    biases, two per gate. The gates are i, f, j, o.
    """
    dtype = x.dtype
    units = states[0][0].shape[1]
    matrices = []
    biases = []
    for kernel, bias in itertools.chain.from_iterable(layers):
        kernel = _order_gates(kernel.astype(jnp.float32))
        bias = _order_gates(bias.astype(jnp.float32))
        matrices += [kernel[:-units].T, kernel[-units:].T]
        biases += [bias, jnp.zeros_like(bias)]
    flat = jnp.concatenate([w.ravel() for w in (*matrices, *biases)])
    c, h = (jnp.stack(cells).astype(jnp.float32) for cells in zip(*states))
    sentences = jnp.swapaxes(x, 0, 1).astype(jnp.float32)
    lengths = jnp.full(x.shape[1], len(x), jnp.int32)
    # Positional arguments, because JAX marks the static ones by their position.
    y, h, c = rnn.lstm(
        sentences,
        h,
        c,
        flat,
        lengths,
        x.shape[2],
        units,
        len(layers),
        0.0,
        len(layers[0]) > 1,
        None,
    )
    last_states = list(zip(c.astype(dtype), h.astype(dtype)))
    return jnp.swapaxes(y, 0, 1).astype(dtype), last_states


def _order_gates(gates: jax.Array) -> jax.Array:
    """Return the gates i, j, f, o along the last axis in cuDNN's order i, f, j, o."""
    i, j, f, o = jnp.split(gates, 4, axis=-1)
    return jnp.concatenate([i, f, j, o], axis=-1)


def _update_rate(optimizer: str, learning_rate: float, step: int) -> float:
    """Return the factor of an update; Adam's corrects the bias of both averages.

    Args:
      step: 1 for the first step.
    """
    if optimizer != "adam":
        return learning_rate
    corrected = learning_rate * math.sqrt(1.0 - ADAM_BETA_2**step)
    return corrected / (1.0 - ADAM_BETA_1**step)


def _apply_optimizer(
    optimizer: str,
    weight: jax.Array,
    slots: tuple[jax.Array, ...],
    gradient: jax.Array,
    rate: jax.Array,
) -> tuple[jax.Array, tuple[jax.Array, ...]]:
    """Return the next values of a weight and its slots, see training/optimizers.py.

    Args:
      rate: From `_update_rate`.
    """
    if optimizer == "sgd":
        return weight - rate * gradient, ()
    if optimizer == "momentum":
        velocity = MOMENTUM * slots[0] - rate * gradient
        return weight + velocity, (velocity,)
    m = slots[0] + (1 - ADAM_BETA_1) * (gradient - slots[0])
    v = slots[1] + (1 - ADAM_BETA_2) * (gradient * gradient - slots[1])
    return weight - rate * m / (jnp.sqrt(v) + ADAM_EPSILON), (m, v)


if __name__ == "__main__":
    loop.start(loop.FrameworkTrainer("jax", build, kernel))
