"""python -m rnn_scaling.hooks.keras SCRIPT ARGUMENTS: watch a Keras script on TensorFlow.

The script is not changed. Each call of `Optimizer.apply` is a step: its arguments are
the gradients of this process, and `update_step` gets each gradient as it is applied.
Inputs of models are recognised by content. `verify` sets TF_CONFIG for several
processes.
"""

import json
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from rnn_scaling.hooks import ranks, script
from rnn_scaling.hooks.steps import StepRecorder


class Observer:
    """Watches the optimizer and the models of one process."""

    def __init__(self, recorder: StepRecorder) -> None:
        self._recorder = recorder
        self._depth = 0
        self._rows = np.zeros(0)
        self._applied: dict[str, np.ndarray] = {}

    def install(self) -> None:
        """Replace the functions of Keras that the script is going to call."""
        optimizers = keras.optimizers.Optimizer
        self._replace(optimizers, "__init__", self._create)
        self._replace(optimizers, "apply", self._apply)
        self._replace(keras.Model, "__call__", self._call_model)
        self._replace(keras.layers.Dropout, "call", _keep_all)

    @staticmethod
    def _replace(owner: Any, name: str, replacement: Callable[..., Any]) -> None:
        original = getattr(owner, name)

        def wrapper(*args: Any, **options: Any) -> Any:
            return replacement(original, *args, **options)

        setattr(owner, name, wrapper)

    def _create(
        self, original: Any, optimizer: Any, *args: Any, **options: Any
    ) -> None:
        """Record each gradient of a new optimizer as it is applied."""
        original(optimizer, *args, **options)
        update = optimizer.update_step

        def update_step(gradient: Any, variable: Any, rate: Any) -> Any:
            name = _name(variable)

            def record(values: Any) -> None:
                self._applied[name] = values.numpy()

            tf.py_function(record, [tf.convert_to_tensor(gradient)], [])
            return update(gradient, variable, rate)

        optimizer.update_step = update_step

    def _call_model(self, original: Any, model: Any, *args: Any, **options: Any) -> Any:
        """Record the input of the outermost model."""

        def record(values: Any) -> None:
            self._rows = values.numpy()

        if self._depth == 0 and args and tf.is_tensor(args[0]):
            tf.py_function(record, [args[0]], [])
        self._depth += 1
        try:
            return original(model, *args, **options)
        finally:
            self._depth -= 1

    def _apply(
        self, original: Any, optimizer: Any, grads: Any, trainable_variables: Any = None
    ) -> Any:
        """Record a step: weights and gradients before it, the rate after it."""
        if trainable_variables is None:
            trainable_variables = optimizer._trainable_variables
        variables = list(trainable_variables)
        names = [_name(variable) for variable in variables]
        dense = [tf.convert_to_tensor(gradient) for gradient in grads]

        def begin(*tensors: Any) -> None:
            values = [tensor.numpy() for tensor in tensors]
            weights = dict(zip(names, values))
            self._recorder.set_weights(weights, {})
            own = dict(zip(names, values[len(names) :]))
            self._recorder.add_batch(own, self._rows, 0.0)

        def end(rate: Any) -> None:
            self._recorder.add_step(self._applied, [float(rate)])
            self._applied = {}

        weights = [tf.convert_to_tensor(variable) for variable in variables]
        tf.py_function(begin, [*weights, *dense], [])
        result = original(optimizer, grads, variables)
        tf.py_function(end, [tf.convert_to_tensor(optimizer.learning_rate)], [])
        if self._recorder.settings.get("perturb"):
            self._perturb(names, variables)
        return result

    def _perturb(self, names: Sequence[str], variables: Sequence[Any]) -> None:
        for name, variable in zip(names, variables):

            def perturb(values: Any, name: str = name) -> np.ndarray:
                return self._recorder.perturbed(name, values.numpy())

            value = tf.convert_to_tensor(variable)
            variable.assign(tf.py_function(perturb, [value], value.dtype))


def _keep_all(
    original: Any, layer: Any, inputs: Any, *args: Any, **options: Any
) -> Any:
    """Replace dropout, whose masks differ between numbers of processes."""
    return inputs


def _name(variable: Any) -> str:
    """Return the name of a Keras variable, or of the variable of TensorFlow in it."""
    path = getattr(variable, "path", None)
    return path or variable.name.split(":")[0]


def main(words: Sequence[str]) -> None:
    """Run one script and record its steps."""
    num_ranks = int(os.environ.get("WORLD_SIZE", "1"))
    if num_ranks > 1:
        ports = os.environ[ranks.PORTS_VARIABLE].split(",")
        workers = [f"127.0.0.1:{port}" for port in ports]
        task = {"type": "worker", "index": int(os.environ["RANK"])}
        config = {"cluster": {"worker": workers}, "task": task}
        os.environ["TF_CONFIG"] = json.dumps(config)
    recorder = StepRecorder.from_environment()
    if recorder is not None:
        Observer(recorder).install()
    script.run(words)


if __name__ == "__main__":
    main(sys.argv[1:])
