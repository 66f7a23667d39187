"""The network of models/seq2seq.py in JAX: scans over time, or cuDNN's LSTM on GPUs; one program on all devices.

Towers are shards along one axis of a mesh. Weights of `replicated` are whole on each of them and their gradients are
added; those of `independent` are sharded like the batch, and nothing is exchanged.

T: words of the longest sentence, B: sentence pairs, D: width of the input, U: units of a cell, V: target vocabulary.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import rnn
from jax.sharding import NamedSharding, PartitionSpec

from rnn_scaling.frameworks import loop
from rnn_scaling.frameworks.handoff import Work

UNROLL = 1  # steps of a scan per iteration of its loop; docs/frameworks.md measures that more are slower
TOWERS = "towers"
MOMENTUM = 0.9
ADAM_BETA_1 = 0.9
ADAM_BETA_2 = 0.999
ADAM_EPSILON = 1e-7
NUM_SLOTS = {"sgd": 0, "momentum": 1, "adam": 2}

Weights = Mapping[str, jax.Array]
State = tuple[jax.Array, jax.Array]  # c and h, each [B, U]
Layers = Sequence[
    Sequence[tuple[jax.Array, jax.Array]]
]  # kernel and bias of each direction of each layer


def build(work: Work, rank: int) -> Callable[[], float]:
    """A step on all devices; returns the loss a word of all towers once the devices have finished."""
    towers = work.num_devices
    optimizer = work.optimizer
    mesh = jax.make_mesh((towers,), (TOWERS,), devices=devices_of(work))
    kept = PartitionSpec() if work.exchanges else PartitionSpec(TOWERS)
    place = NamedSharding(mesh, kept)
    batch = _stacked(work, mesh)
    stacked = {
        k: v if work.exchanges else np.stack([v] * towers)
        for k, v in work.weights.items()
    }
    weights = {name: jax.device_put(value, place) for name, value in stacked.items()}
    slot = range(NUM_SLOTS[optimizer])
    slots = {
        name: tuple(jax.device_put(np.zeros_like(value), place) for _ in slot)
        for name, value in weights.items()
    }
    words = np.array(work.loss_items, np.float64)
    sharded = jax.shard_map(
        _update_of(work, float(words.sum() if work.exchanges else words[0])),
        mesh=mesh,
        in_specs=(kept, kept, PartitionSpec(TOWERS), PartitionSpec()),
        out_specs=(kept, kept, PartitionSpec(TOWERS)),
        check_vma=False,  # else the gradient of what all towers hold is added unasked, at each step of a scan
    )
    with jax.default_matmul_precision(precision_of(work)):
        compiled = (
            jax.jit(sharded, donate_argnums=(0, 1))
            .lower(weights, slots, batch, np.float32(0))
            .compile()
        )
    state = (weights, slots)
    done = 0

    def step() -> float:
        nonlocal state, done
        done += 1
        rate = np.float32(_rate(optimizer, work.learning_rate, done))
        *following, losses = jax.block_until_ready(compiled(*state, batch, rate))
        state = tuple(following)
        return float(np.asarray(losses, np.float64).sum() / words.sum())

    return step


def _update_of(work: Work, divisor: float) -> Callable[..., Any]:
    """The function (weights, slots, batch, rate) -> weights and slots after an update, and the loss, of one tower.

    `divisor` is what the gradients of the summed loss are divided by.
    """
    loss_sum = _loss_of(work)

    def update(weights: Any, slots: Any, batch: Any, rate: jax.Array) -> Any:
        """What is sharded has a first axis of length 1."""
        batch = jax.tree.map(lambda part: part[0], batch)
        if not work.exchanges:
            weights, slots = jax.tree.map(lambda part: part[0], (weights, slots))
        loss, gradients = jax.value_and_grad(loss_sum)(weights, batch)
        if work.exchanges:
            gradients = jax.lax.psum(gradients, TOWERS)
        following = {
            name: _updated(
                work.optimizer,
                weights[name],
                slots[name],
                gradients[name] / divisor,
                rate,
            )
            for name in weights
        }
        weights, slots = (
            {name: pair[which] for name, pair in following.items()}
            for which in range(2)
        )
        if not work.exchanges:
            weights, slots = jax.tree.map(lambda part: part[None], (weights, slots))
        return weights, slots, loss[None]

    return update


def kernel(work: Work) -> str:
    return "jax.experimental.rnn.lstm" if work.on_gpus else "jax.lax.scan"


def precision_of(work: Work) -> str | None:
    """Of products of float32; None: the default, which is TF32 on GPUs that have it."""
    return "highest" if work.config == work.as_reference().config else None


def devices_of(work: Work) -> list[Any]:
    """As many devices as towers; those of a CPU are made when JAX starts. Raises ValueError if there are fewer."""
    if not work.on_gpus:
        jax.config.update("jax_platforms", "cpu")
        if (
            jax.config.jax_num_cpu_devices != work.num_devices
        ):  # else the step of the check was built before
            jax.config.update("jax_num_cpu_devices", work.num_devices)
    devices = jax.devices("gpu" if work.on_gpus else "cpu")
    if len(devices) < work.num_devices:
        raise ValueError(
            f"--num_devices={work.num_devices} needs that many devices, but JAX has {len(devices)}"
        )
    return list(devices[: work.num_devices])


def _stacked(work: Work, mesh: Any) -> dict[str, jax.Array]:
    """The towers' batches, joined along a new first axis that is spread over the devices."""
    sharding = NamedSharding(mesh, PartitionSpec(TOWERS))
    return {
        key: jax.device_put(np.stack([batch[key] for batch in work.batches]), sharding)
        for key in work.batches[0]
    }


def _loss_of(work: Work) -> Callable[[Weights, Mapping[str, jax.Array]], jax.Array]:
    """The function (weights, batch of a tower) -> sum of -log p(label) over its target words."""
    config = work.config
    dtype = jnp.dtype(work.dtype)
    run = with_cudnn if work.on_gpus else with_scans
    directions = (
        ("forward", "backward") if config["direction"] == "bi" else ("forward",)
    )
    layers = range(config["num_encoder_layers"] // len(directions))
    encoder = [
        [f"encoder/layer_{layer}/{direction}" for direction in directions]
        for layer in layers
    ]
    decoder = [
        [f"decoder/layer_{layer}"] for layer in range(config["num_decoder_layers"])
    ]
    units = config["num_units"]
    forget_bias = np.zeros(4 * units, np.float32)
    forget_bias[2 * units : 3 * units] = config["forget_bias"]

    def cells(weights: Weights, names: Sequence[Sequence[str]]) -> Layers:
        return [
            [
                (
                    weights[f"{n}/kernel"].astype(dtype),
                    (weights[f"{n}/bias"] + forget_bias).astype(dtype),
                )
                for n in layer
            ]
            for layer in names
        ]

    def rows(weights: Weights, table: str, ids: jax.Array) -> jax.Array:
        return weights[table].at[ids].get(mode="promise_in_bounds").astype(dtype)

    def loss_sum(weights: Weights, batch: Mapping[str, jax.Array]) -> jax.Array:
        source = rows(weights, "src_embedding", batch["source"])
        target = rows(weights, "tgt_embedding", batch["target_input"])
        zeros = jnp.zeros((source.shape[1], units), dtype)
        _, states = run(
            cells(weights, encoder),
            source,
            [(zeros, zeros)] * config["num_encoder_layers"],
        )
        outputs, _ = run(cells(weights, decoder), target, states)
        logits = (outputs @ weights["projection"].astype(dtype)).astype(jnp.float32)
        at_label = jnp.take_along_axis(
            logits, batch["target_output"][..., None], axis=2, mode="promise_in_bounds"
        )
        return (jax.nn.logsumexp(logits, axis=2) - at_label[..., 0]).sum()

    return loss_sum


def with_scans(
    layers: Layers, x: jax.Array, states: Sequence[State]
) -> tuple[jax.Array, list[State]]:
    """Layers of one or two directions of x [T, B, D] -> outputs [T, B, U * directions], and the cells' last states.

    layers: kernel [D+U, 4U] and bias [4U] of each direction of each layer, gates i, j, f, o.
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
    """One direction of one layer, as of `with_scans`; the input's product is made for all steps at once."""
    width = x.shape[2]

    def step(state: State, projected: jax.Array) -> tuple[State, jax.Array]:
        c, h = state
        i, j, f, o = jnp.split(projected + h @ kernel[width:], 4, axis=1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(j)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (c, h), h

    last, outputs = jax.lax.scan(
        step, state, x @ kernel[:width] + bias, reverse=backward, unroll=UNROLL
    )
    return last, outputs


def with_cudnn(
    layers: Layers, x: jax.Array, states: Sequence[State]
) -> tuple[jax.Array, list[State]]:
    """As `with_scans`, by cuDNN, which JAX offers in float32: bfloat16 is computed so.

    cuDNN takes all weights in one array: the matrices of all cells, then their biases, two a gate; gates i, f, j, o.
    """
    dtype = x.dtype
    units = states[0][0].shape[1]
    matrices = []
    biases = []
    for kernel, bias in (cell for cells in layers for cell in cells):
        kernel, bias = (
            _gates_ifjo(part.astype(jnp.float32)) for part in (kernel, bias)
        )
        matrices += [kernel[:-units].T, kernel[-units:].T]
        biases += [bias, jnp.zeros_like(bias)]
    flat = jnp.concatenate([part.ravel() for part in (*matrices, *biases)])
    c, h = (jnp.stack(of_cells).astype(jnp.float32) for of_cells in zip(*states))
    sentences = jnp.swapaxes(x, 0, 1).astype(jnp.float32)
    lengths = jnp.full(x.shape[1], len(x), jnp.int32)
    # By position: a function with a gradient of its own tells static arguments by their places.
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
    return jnp.swapaxes(y, 0, 1).astype(dtype), list(
        zip(c.astype(dtype), h.astype(dtype))
    )


def _gates_ifjo(part: jax.Array) -> jax.Array:
    """Gates i, j, f, o along the last axis in cuDNN's order."""
    i, j, f, o = jnp.split(part, 4, axis=-1)
    return jnp.concatenate([i, f, j, o], axis=-1)


def _rate(optimizer: str, learning_rate: float, step: int) -> float:
    """The factor of an update, in float64: step 1 is the first. Adam's corrects both of its averages."""
    if optimizer != "adam":
        return learning_rate
    return (
        learning_rate * math.sqrt(1.0 - ADAM_BETA_2**step) / (1.0 - ADAM_BETA_1**step)
    )


def _updated(
    optimizer: str,
    weight: jax.Array,
    slots: tuple[jax.Array, ...],
    gradient: jax.Array,
    rate: jax.Array,
) -> tuple[jax.Array, tuple[jax.Array, ...]]:
    """The next value of a weight and of its slots, as training/optimizers.py has them; `rate` is what `_rate` gives."""
    if optimizer == "sgd":
        return weight - rate * gradient, ()
    if optimizer == "momentum":
        moved = MOMENTUM * slots[0] - rate * gradient
        return weight + moved, (moved,)
    m = slots[0] + (1 - ADAM_BETA_1) * (gradient - slots[0])
    v = slots[1] + (1 - ADAM_BETA_2) * (gradient * gradient - slots[1])
    return weight - rate * m / (jnp.sqrt(v) + ADAM_EPSILON), (m, v)


if __name__ == "__main__":
    loop.start(loop.FrameworkTrainer("jax", build, kernel))
