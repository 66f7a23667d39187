"""The network of models/seq2seq.py in Keras 3, trained by `model.fit`.

It has Keras' layers and runs on TensorFlow or JAX. With `replicated`, one `fit` has all
devices: `MirroredStrategy` (TensorFlow) or `DataParallel` (JAX) splits the global
batch. With `independent`, each device has its own model and `fit`, because Keras has no
towers that exchange nothing.

S, T: words of a source and a target sentence, B: sentence pairs, U: units, V:
vocabulary.

`loop` calls `build` and `kernel` in the framework's own Python.
"""

import contextlib
import functools
import itertools
import os
import queue
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from rnn_scaling.frameworks import handoff, loop
from rnn_scaling.frameworks.handoff import Task

_FIELDS = ("source", "target_input", "target_output")
_STEPS_PER_EPOCH = 2**31 - 1  # steps per epoch, so many that the epoch does not end
Scope = Callable[[], contextlib.AbstractContextManager[Any]]
"""Context in the thread of a `fit`; TensorFlow and Keras choose devices per thread."""


def build(task: Task, rank: int) -> Callable[[], float]:
    """Return the function of one batch of `model.fit` on all devices.

    It waits for the devices and returns the mean loss per word.
    """
    # Keras loads TensorFlow on both backends, for its data sets.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    towers = range(task.num_devices)
    scopes = _SET_UP[task.config["keras_backend"]](task)
    shares = [list(towers)] if task.exchanges else [[tower] for tower in towers]
    fits = []
    num_words = []
    for share, scope in zip(shares, scopes, strict=True):
        fits.append(_Fit(task, share, scope))
        num_words.append(sum(task.loss_items[tower] for tower in share))

    def step() -> float:
        for fit in fits:
            fit.begin()
        return float(np.average([fit.end() for fit in fits], weights=num_words))

    for fit in fits:
        fit.end()  # waits for its start
        weakref.finalize(step, fit.stop)
    return step


class _StopError(Exception):
    """No more steps are needed."""


class _Fit:
    """`model.fit` in a separate thread, where it waits for `begin` before each batch.

    The time between two batches belongs to the second one.
    """

    def __init__(self, task: Task, towers: Sequence[int], scope: Scope) -> None:
        self._permits: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[Any] = queue.SimpleQueue()
        threading.Thread(
            target=self._run,
            args=(task, towers, scope),
            daemon=True,
            name=f"fit {towers[0]}",
        ).start()

    def begin(self) -> None:
        self._permits.put(True)

    def end(self) -> float:
        """Wait for the batch and return its mean loss per word.

        The first call waits for the start of `fit`.

        Raises:
          BaseException: The exception of `fit`.
        """
        answer = self._answers.get()
        if isinstance(answer, BaseException):
            raise answer
        return float(answer)

    def stop(self) -> None:
        self._permits.put(False)

    def _run(self, task: Task, towers: Sequence[int], scope: Scope) -> None:
        try:
            with scope():
                self._fit(task, towers)
        except _StopError:
            pass
        except BaseException as error:  # raised again in `end`
            self._answers.put(error)

    def _fit(self, task: Task, towers: Sequence[int]) -> None:
        """Build the model and call `fit`, which ends by a _StopError."""
        import keras

        answers = self._answers
        permits = self._permits

        class Steps(keras.callbacks.Callback):
            """Waits before each batch and sends its loss.

            `fit` reports the mean loss of the epoch so far.
            """

            num_steps = 0
            mean_loss = 0.0

            def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
                answers.put(0.0)

            def on_train_batch_begin(
                self, batch: int, logs: dict[str, Any] | None = None
            ) -> None:
                if not permits.get():
                    raise _StopError

            def on_train_batch_end(
                self, batch: int, logs: dict[str, Any] | None = None
            ) -> None:
                mean_loss = float((logs or {})["loss"])  # waits for the devices
                loss = (
                    mean_loss * (self.num_steps + 1) - self.mean_loss * self.num_steps
                )
                self.num_steps += 1
                self.mean_loss = mean_loss
                answers.put(loss)

        model = _build_network(keras, task)
        model.compile(
            _build_optimizer(keras, task),
            keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        )
        # Keras' layers read [B, T].
        arrays = []
        for name in _FIELDS:
            fields = [task.batches[tower][name].T for tower in towers]
            arrays.append(np.concatenate(fields))
        data = _repeat_batch(arrays, keras.backend.backend())
        model.fit(
            data,
            steps_per_epoch=_STEPS_PER_EPOCH,
            shuffle=False,
            verbose=0,
            callbacks=[Steps()],
        )


def _repeat_batch(arrays: Sequence[np.ndarray], backend: str) -> Any:
    """Return the endless global batch in the type that the backend's `fit` reads."""
    source, target, labels = arrays
    batch = (source, target), labels
    if backend != "tensorflow":
        return (batch for _ in itertools.count())
    import tensorflow as tf

    return tf.data.Dataset.from_tensors(batch).repeat()


def _set_up_tensorflow(task: Task) -> list[Scope]:
    """Set TensorFlow and Keras up; return the scope of each `fit`."""
    import tensorflow as tf

    num_devices = task.num_devices
    kind = "gpu" if task.uses_gpus else "cpu"
    devices = [f"/{kind}:{device}" for device in range(num_devices)]
    if not task.uses_gpus:
        cpu = tf.config.list_physical_devices("CPU")[0]
        # After the step of the check, TensorFlow already has the devices.
        if not tf.config.get_logical_device_configuration(cpu):
            tf.config.set_visible_devices([], "GPU")
            # The thread pools have the sizes of this suite's trainer.
            intra_op_threads = 1
            inter_op_threads = num_devices
            if task.threads > 1:
                intra_op_threads = num_devices * task.threads
                inter_op_threads = num_devices + 1
            tf.config.threading.set_intra_op_parallelism_threads(intra_op_threads)
            tf.config.threading.set_inter_op_parallelism_threads(inter_op_threads)
            tf.config.set_logical_device_configuration(
                cpu, [tf.config.LogicalDeviceConfiguration()] * num_devices
            )
    is_reference = task.config == task.as_reference().config
    tf.config.experimental.enable_tensor_float_32_execution(not is_reference)
    if task.exchanges:
        return [lambda: tf.distribute.MirroredStrategy(devices).scope()]
    return [functools.partial(tf.device, device) for device in devices]


def _set_up_jax(task: Task) -> list[Scope]:
    """Set JAX and Keras up; return the scope of each `fit`."""
    import jax

    from rnn_scaling.frameworks import jax as jax_trainer

    devices = jax_trainer.select_devices(task)
    jax.config.update(
        "jax_default_matmul_precision", jax_trainer.set_matmul_precision(task)
    )
    if not task.exchanges:
        return [functools.partial(jax.default_device, device) for device in devices]

    @contextlib.contextmanager
    def make_data_parallel() -> Iterator[None]:
        import keras

        names = [f"{device.platform}:{device.id}" for device in devices]
        keras.distribution.set_distribution(
            keras.distribution.DataParallel(devices=names)
        )
        yield

    return [make_data_parallel]


_SET_UP: dict[str, Callable[[Task], list[Scope]]] = {
    "tensorflow": _set_up_tensorflow,
    "jax": _set_up_jax,
}


def _build_optimizer(keras: Any, task: Task) -> Any:
    """Return Keras' optimizer; this suite's optimizers have the same formulas."""
    if task.optimizer == "adam":
        return keras.optimizers.Adam(
            task.learning_rate,
            beta_1=handoff.ADAM_BETA_1,
            beta_2=handoff.ADAM_BETA_2,
            epsilon=handoff.ADAM_EPSILON,
        )
    momentum = handoff.MOMENTUM if task.optimizer == "momentum" else 0.0
    return keras.optimizers.SGD(task.learning_rate, momentum=momentum)


def _build_network(keras: Any, task: Task) -> Any:
    """Return the task's network: source [B, S], target_input [B, T] -> logits [B, T, V]."""
    config = task.config
    weights = task.weights
    policy = "mixed_bfloat16" if task.dtype == "bfloat16" else "float32"
    is_bidirectional = config["direction"] == "bi"
    num_layers = config["num_encoder_layers"] // (2 if is_bidirectional else 1)

    def lstm(name: str, returns_sequences: bool) -> Any:
        return keras.layers.LSTM(
            config["num_units"],
            return_sequences=returns_sequences,
            return_state=True,
            dtype=policy,
            name=name,
        )

    def embedding(table: str) -> Any:
        rows, columns = weights[table].shape
        return keras.layers.Embedding(rows, columns, dtype=policy, name=table)

    source, target = (
        keras.Input((len(task.batches[0][name]),), dtype="int32")
        for name in _FIELDS[:2]
    )
    embeddings = {
        table: embedding(table) for table in ("src_embedding", "tgt_embedding")
    }
    x = embeddings["src_embedding"](source)
    states = []
    cells = []
    for number in range(num_layers):
        layer = lstm(f"encoder_{number}", returns_sequences=number < num_layers - 1)
        if is_bidirectional:
            layer = keras.layers.Bidirectional(layer, dtype=policy)
        x, *final = layer(x)
        states += [final[first : first + 2] for first in range(0, len(final), 2)]
        name = f"encoder/layer_{number}"
        if is_bidirectional:
            cells.append((f"{name}/forward", layer.forward_layer))
            cells.append((f"{name}/backward", layer.backward_layer))
        else:
            cells.append((f"{name}/forward", layer))
    y = embeddings["tgt_embedding"](target)
    for number, state in enumerate(states):
        layer = lstm(f"decoder_{number}", returns_sequences=True)
        y, *_ = layer(y, initial_state=state)
        cells.append((f"decoder/layer_{number}", layer))
    projection = keras.layers.Dense(
        weights["projection"].shape[1], use_bias=False, dtype=policy, name="projection"
    )
    model = keras.Model([source, target], projection(y))
    for table, layer in embeddings.items():
        layer.set_weights([weights[table]])
    projection.set_weights([weights["projection"]])
    _set_cell_weights(cells, task)
    return model


def _set_cell_weights(cells: Sequence[tuple[str, Any]], task: Task) -> None:
    """Copy the task's weights into Keras' layers by the names of their cells."""
    units = task.config["num_units"]
    forget_bias = task.config["forget_bias"]
    for name, layer in cells:
        kernel, bias = handoff.make_reference_cell(
            task.weights, name, forget_bias, gates="ifjo"
        )
        layer.set_weights([kernel[:-units], kernel[-units:], bias])


def kernel(task: Task) -> str:
    return f"keras.layers.LSTM on {task.config['keras_backend']}"


if __name__ == "__main__":
    loop.start(loop.FrameworkTrainer("keras", build, kernel))
