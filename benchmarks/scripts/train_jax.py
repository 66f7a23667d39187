"""Train a small LSTM language model with JAX on processes that share each batch.

Each process computes the sum of the loss over its sentences; one all-reduce adds the
gradients and the numbers of words.
"""

import argparse
import os

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec

from rnn_scaling.hooks.jax import observe

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=20)
flags = parser.parse_args()
rank = int(os.environ.get("RANK", "0"))
world = int(os.environ.get("WORLD_SIZE", "1"))
if world > 1:
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    address = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
    jax.distributed.initialize(address, world, rank)

WORDS, UNITS, SENTENCES, BATCH, LENGTH = 41, 24, 96, 12, 11
mesh = jax.make_mesh((world,), ("process",))
split = jax.NamedSharding(mesh, PartitionSpec("process"))
everywhere = jax.NamedSharding(mesh, PartitionSpec())


def make_sentences():
    """Return sentences [SENTENCES, LENGTH] of unequal lengths; 0 is padding."""
    random = np.random.default_rng(1)
    sentences = random.integers(1, WORDS, (SENTENCES, LENGTH))
    lengths = random.integers(3, LENGTH + 1, SENTENCES)
    sentences[np.arange(LENGTH) >= lengths[:, None]] = 0
    return sentences


def make_params(key):
    shapes = {
        "embedding": (WORDS, UNITS),
        "kernel": (2 * UNITS, 4 * UNITS),
        "bias": (4 * UNITS,),
        "head": (UNITS, WORDS),
    }
    keys = jax.random.split(key, len(shapes))
    params = {}
    for (name, shape), own_key in zip(shapes.items(), keys):
        params[name] = 0.2 * jax.random.normal(own_key, shape)
    return params


def loss_sum(params, x):
    """Return the summed loss of sentences x [B, LENGTH], and the number of words."""

    def cell(carry, inputs):
        h, c = carry
        gates = jnp.concatenate([inputs, h], 1) @ params["kernel"] + params["bias"]
        i, f, g, o = jnp.split(gates, 4, axis=1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    start = jnp.zeros((len(x), UNITS))
    inputs = params["embedding"][x[:, :-1]].swapaxes(0, 1)
    _, outputs = jax.lax.scan(cell, (start, start), inputs)
    scores = jax.nn.log_softmax(outputs @ params["head"])
    targets = x[:, 1:].T
    losses = -jnp.take_along_axis(scores, targets[..., None], axis=2)[..., 0]
    is_word = targets > 0
    return (losses * is_word).sum(), is_word.sum()


def gradients(params, x):
    """Return the loss of this process, its own gradients, and those of all processes."""
    (loss, words), own = jax.value_and_grad(loss_sum, has_aux=True)(params, x)
    total = jax.lax.psum(words, "process")
    summed = jax.lax.psum(own, "process")
    grads = jax.tree.map(lambda gradient: gradient / total, summed)
    own = jax.tree.map(lambda gradient: gradient[None], own)
    return loss[None], own, grads


all_gradients = jax.jit(
    jax.shard_map(
        gradients,
        mesh=mesh,
        in_specs=(PartitionSpec(), PartitionSpec("process")),
        out_specs=(PartitionSpec("process"), PartitionSpec("process"), PartitionSpec()),
        check_vma=False,
    )
)


@jax.jit
def update(params, velocity, grads):
    velocity = jax.tree.map(lambda v, g: 0.9 * v + g, velocity, grads)
    params = jax.tree.map(lambda w, v: w - 0.5 * v, params, velocity)
    return params, velocity


def own_part(array):
    return array.addressable_data(0)[0]


sentences = make_sentences()
params = jax.device_put(make_params(jax.random.key(3)), everywhere)
velocity = jax.tree.map(jnp.zeros_like, params)
for step in range(flags.steps):
    epoch, place = divmod(step, SENTENCES // BATCH)
    order = np.random.default_rng([5, epoch]).permutation(SENTENCES)
    samples = order[place * BATCH : (place + 1) * BATCH][rank::world]
    x = jax.make_array_from_process_local_data(split, sentences[samples])
    loss, own, grads = all_gradients(params, x)
    params = observe(
        grads=grads,
        params=params,
        samples=samples,
        own_grads=jax.tree.map(own_part, own),
        loss=own_part(loss),
    )
    params, velocity = update(params, velocity, grads)
if rank == 0:
    print("loss", float(own_part(loss)))
