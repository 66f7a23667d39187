"""The network of models/seq2seq.py in Keras 3: its own layers, trained by `model.fit`, on TensorFlow or on JAX.

Of `replicated` one `fit` has all devices: `MirroredStrategy` (TensorFlow) or `DataParallel` (JAX) cuts the global
batch. Of `independent` each device has a model and a `fit` of its own, as Keras has no towers that exchange nothing.

S: words of a source sentence, T: of a target sentence, B: sentence pairs, U: units, V: vocabulary.
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
from rnn_scaling.frameworks.handoff import Work

_PARTS = ("source", "target_input", "target_output")
_STEPS = 2**31 - 1  # of an epoch that does not end
# Entered in the thread that builds and trains a network: TensorFlow's and Keras' choices of devices are a thread's.
Scope = Callable[[], contextlib.AbstractContextManager[Any]]


def build(work: Work, rank: int) -> Callable[[], float]:
    """A batch of `model.fit` on all devices; returns the loss a word once they have finished."""
    os.environ.setdefault(
        "TF_CPP_MIN_LOG_LEVEL", "2"
    )  # Keras loads TensorFlow on either, for its data sets
    towers = range(work.num_devices)
    scopes = _SET_UP[work.config["keras_backend"]](work)
    shares = [list(towers)] if work.exchanges else [[tower] for tower in towers]
    fits = [
        _Fit(work, share, scope) for share, scope in zip(shares, scopes, strict=True)
    ]
    words = [sum(work.loss_items[tower] for tower in share) for share in shares]

    def step() -> float:
        for fit in fits:
            fit.begin()
        return float(np.average([fit.end() for fit in fits], weights=words))

    for fit in fits:
        fit.end()  # of its start
        weakref.finalize(step, fit.leave)
    return step


class _Left(Exception):
    """Nobody asks for steps any more."""


class _Fit:
    """`model.fit` in a thread of its own, where it waits before each batch until that is asked for.

    What it does between two batches belongs to the step after it.
    """

    def __init__(self, work: Work, towers: Sequence[int], scope: Scope) -> None:
        self._permits: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[Any] = queue.SimpleQueue()
        threading.Thread(
            target=self._run,
            args=(work, towers, scope),
            daemon=True,
            name=f"fit {towers[0]}",
        ).start()

    def begin(self) -> None:
        self._permits.put(True)

    def end(self) -> float:
        """The loss a word of that batch; the first answer is that it has started. Raises what `fit` raised."""
        answer = self._answers.get()
        if isinstance(answer, BaseException):
            raise answer
        return float(answer)

    def leave(self) -> None:
        self._permits.put(False)

    def _run(self, work: Work, towers: Sequence[int], scope: Scope) -> None:
        try:
            with scope():
                self._fit(work, towers)
        except _Left:
            pass
        except BaseException as error:  # raised where the step is awaited
            self._answers.put(error)

    def _fit(self, work: Work, towers: Sequence[int]) -> None:
        import keras

        answers = self._answers
        permits = self._permits

        class Steps(keras.callbacks.Callback):
            """Waits before each batch, and tells its loss; `fit` tells the mean of the epoch so far."""

            done = 0
            mean_loss = 0.0

            def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
                answers.put(0.0)

            def on_train_batch_begin(
                self, batch: int, logs: dict[str, Any] | None = None
            ) -> None:
                if not permits.get():
                    raise _Left

            def on_train_batch_end(
                self, batch: int, logs: dict[str, Any] | None = None
            ) -> None:
                mean_loss = float((logs or {})["loss"])  # waits for the devices
                loss = mean_loss * (self.done + 1) - self.mean_loss * self.done
                self.done = self.done + 1
                self.mean_loss = mean_loss
                answers.put(loss)

        model = _network(keras, work)
        model.compile(
            _optimizer(keras, work),
            keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        )
        # [T, B] -> [B, T], as Keras' layers want them
        parts = [
            np.concatenate([work.batches[tower][name].T for tower in towers])
            for name in _PARTS
        ]
        data = _endless(parts, keras.backend.backend())
        model.fit(
            data, steps_per_epoch=_STEPS, shuffle=False, verbose=0, callbacks=[Steps()]
        )


def _endless(parts: Sequence[np.ndarray], backend: str) -> Any:
    """The global batch, again and again, as `fit` takes it on this backend."""
    source, target, labels = parts
    batch = (source, target), labels
    if backend != "tensorflow":
        return (batch for _ in itertools.count())
    import tensorflow as tf

    return tf.data.Dataset.from_tensors(batch).repeat()


def _on_tensorflow(work: Work) -> list[Scope]:
    """Sets TensorFlow and Keras up; returns the scope of each `fit`."""
    import tensorflow as tf

    num_devices = work.num_devices
    kind = "gpu" if work.on_gpus else "cpu"
    devices = [f"/{kind}:{device}" for device in range(num_devices)]
    if not work.on_gpus:
        cpu = tf.config.list_physical_devices("CPU")[0]
        if not tf.config.get_logical_device_configuration(
            cpu
        ):  # else the step of the check was built before
            tf.config.set_visible_devices([], "GPU")
            one_core = work.threads == 1  # the pools have the sizes of our trainer
            tf.config.threading.set_intra_op_parallelism_threads(
                1 if one_core else num_devices * work.threads
            )
            tf.config.threading.set_inter_op_parallelism_threads(
                num_devices if one_core else num_devices + 1
            )
            tf.config.set_logical_device_configuration(
                cpu, [tf.config.LogicalDeviceConfiguration()] * num_devices
            )
    is_reference = work.config == work.as_reference().config
    tf.config.experimental.enable_tensor_float_32_execution(not is_reference)
    if work.exchanges:
        return [lambda: tf.distribute.MirroredStrategy(devices).scope()]
    return [functools.partial(tf.device, device) for device in devices]


def _on_jax(work: Work) -> list[Scope]:
    """Sets JAX and Keras up; returns the scope of each `fit`."""
    import jax

    from rnn_scaling.frameworks import jax as ours

    devices = ours.devices_of(work)
    jax.config.update("jax_default_matmul_precision", ours.precision_of(work))
    if not work.exchanges:
        return [functools.partial(jax.default_device, device) for device in devices]

    @contextlib.contextmanager
    def data_parallel() -> Iterator[None]:
        import keras

        names = [f"{device.platform}:{device.id}" for device in devices]
        keras.distribution.set_distribution(
            keras.distribution.DataParallel(devices=names)
        )
        yield

    return [data_parallel]


_SET_UP: dict[str, Callable[[Work], list[Scope]]] = {
    "tensorflow": _on_tensorflow,
    "jax": _on_jax,
}


def _optimizer(keras: Any, work: Work) -> Any:
    """Keras' own rule; our rules have the same formulas."""
    if work.optimizer == "adam":
        return keras.optimizers.Adam(
            work.learning_rate, beta_1=0.9, beta_2=0.999, epsilon=1e-7
        )
    return keras.optimizers.SGD(
        work.learning_rate, momentum=0.9 if work.optimizer == "momentum" else 0.0
    )


def _network(keras: Any, work: Work) -> Any:
    """The model (source [B, S], target_input [B, T]) -> logits [B, T, V], with the weights of `work`."""
    config = work.config
    weights = work.weights
    policy = "mixed_bfloat16" if work.dtype == "bfloat16" else "float32"
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
        keras.Input((len(work.batches[0][part]),), dtype="int32") for part in _PARTS[:2]
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
        directions = (
            (layer.forward_layer, layer.backward_layer)
            if is_bidirectional
            else (layer,)
        )
        cells += [
            (f"encoder/layer_{number}/{name}", cell)
            for name, cell in zip(("forward", "backward"), directions)
        ]
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
    for name, layer in cells:
        kernel, bias = handoff.cell(weights, name, config["forget_bias"], gates="ifjo")
        layer.set_weights(
            [kernel[: -config["num_units"]], kernel[-config["num_units"] :], bias]
        )
    return model


def kernel(work: Work) -> str:
    return f"keras.layers.LSTM on {work.config['keras_backend']}"


if __name__ == "__main__":
    loop.start(loop.FrameworkTrainer("keras", build, kernel))
