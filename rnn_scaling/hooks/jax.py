"""Let `verify --trainer --framework=jax` watch a JAX script.

Two lines in the script are enough:

    from rnn_scaling.hooks.jax import observe

    params = observe(grads=grads, params=params, samples=samples)  # before each update

Outside of `verify` the call only returns the weights. In `verify` it records the step;
one run gets weights that are changed by one rounding, which gives the tolerance. All
masks of `jax.random.bernoulli`, of dropout or of data augmentation, are ones in
`verify`.
"""

from typing import Any

import jax
import numpy as np

from rnn_scaling.hooks.steps import StepRecorder

_recorder = StepRecorder.from_environment()


def _disable_dropout() -> None:
    """Make all masks of `jax.random.bernoulli` ones.

    JAX has no dropout of its own that could be replaced: its libraries draw masks by
    `bernoulli`. So other masks are ones too, such as masks of data augmentation, in the
    runs of one process as in the runs of several.
    """

    def ones(key: Any, p: Any = 0.5, shape: Any = None, *others: Any, **_: Any) -> Any:
        return jax.numpy.ones(np.shape(p) if shape is None else shape, bool)

    jax.random.bernoulli = ones


if _recorder is not None:
    _disable_dropout()


def observe(
    *,
    grads: Any,
    params: Any,
    samples: Any = (),
    own_grads: Any = None,
    loss: Any = 0.0,
    learning_rate: Any = 0.0,
    state: Any = None,
) -> Any:
    """Record one step, before the optimizer updates the weights.

    In `verify`, the call after the last step ends the process.

    Args:
      grads: The gradients that the optimizer gets; a tree like `params`.
      params: The weights before the update.
      samples: The numbers [B] of this process's samples, or their contents [B, ...].
      own_grads: The gradients of this process before the exchange. More faults have a
        name if they are known.
      loss: The loss of this process.
      learning_rate: The rate of this step.
      state: Other arrays of the model, such as statistics of batch normalisation.

    Returns:
      The weights with which the script should continue.
    """
    recorder = _recorder
    if recorder is None:
        return params
    recorder.set_weights(_arrays(params), _arrays(state))
    recorder.add_batch(_arrays(own_grads), _local(samples), float(_local(loss)))
    recorder.add_step(_arrays(grads), [float(_local(learning_rate))])

    def perturb(path: Any, weight: Any) -> Any:
        values = _local(weight)
        changed = recorder.perturbed(jax.tree_util.keystr(path), values)
        return weight if changed is values else jax.device_put(changed, weight.sharding)

    return jax.tree_util.tree_map_with_path(perturb, params)


def _arrays(tree: Any) -> dict[str, np.ndarray]:
    """Return the leaves of a tree by their paths."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {jax.tree_util.keystr(path): _local(leaf) for path, leaf in leaves}


def _local(leaf: Any) -> np.ndarray:
    """Return the numbers of an array that every process has.

    Raises:
      ValueError: If a process has only a part of it.
    """
    if not isinstance(leaf, jax.Array) or leaf.is_fully_addressable:
        return np.asarray(leaf)
    if not leaf.is_fully_replicated:
        raise ValueError(
            f"observe got an array of shape {leaf.shape} that is sharded over processes; "
            "gather it with jax.experimental.multihost_utils.process_allgather"
        )
    return np.asarray(leaf.addressable_data(0))
