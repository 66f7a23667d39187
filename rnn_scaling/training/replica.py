"""One copy of the variables and its update (slots, clipping, loss scale): what every update mode is built from."""

import abc
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import tensorflow as tf

from rnn_scaling.config.run_options import UpdateOptions
from rnn_scaling.data.pipeline import host_device
from rnn_scaling.models.workload import VariableSpec
from rnn_scaling.training import gradients, optimizers
from rnn_scaling.training.engines.local import Engine

T = TypeVar("T")
Gradients = Mapping[str, "gradients.Gradient"]
Specs = Sequence[VariableSpec]
Values = Mapping[str, np.ndarray]  # initial, by the variable's name

INITIAL_LOSS_SCALE = 2.0**15
LOSS_SCALE_GROWTH_STEPS = 2000


@dataclasses.dataclass(frozen=True)
class UpdateRule:
    """What every mode does with a gradient once it is complete."""

    optimizer: optimizers.Optimizer
    max_gradient_norm: float = (
        0.0  # largest global L2 norm of the gradients; 0 leaves them as they are
    )
    loss_scale: str = (
        ""  # of float16, "dynamic" or a number; empty: the loss is not scaled
    )


@dataclasses.dataclass(frozen=True)
class VariableState:
    """A variable, or the part of one that a parameter server holds, and the optimizer's slots for it."""

    name: str  # of the model's variable
    tower: int | None  # whose copy it is; None: the one that all share
    variable: tf.Variable
    slots: tuple[tf.Variable, ...]


@dataclasses.dataclass(frozen=True)
class Setup:
    """What an update mode is built from.

    Attributes:
      specs: The variables of the network.
      values: Their initial values.
      engine: The devices of the towers, and of parameter servers.
      options: The options of the update.
      rule: What happens to a gradient once it is complete.
    """

    specs: Specs
    values: Values
    engine: Engine
    options: UpdateOptions
    rule: UpdateRule


class VariableUpdate(abc.ABC):
    """How towers get their variables, and what happens to their gradients.

    Its methods add operators to the step.

    Attributes:
      devices: The devices of the towers.
      embeddings: Names of the variables that are looked up.
      gathered: Names of the variables whose gradients are exchanged as touched rows.
      updaters: The update of each copy of the variables.
    """

    updaters: Sequence["Updater"]

    def __init__(self, setup: Setup) -> None:
        specs = setup.specs
        options = setup.options
        self.devices = list(setup.engine.devices)
        self.embeddings = frozenset(
            spec.name for spec in specs if spec.kind == "embedding"
        )
        self.gathered: frozenset[str] = frozenset()
        if options.sparse_gradients == "gather":
            self.gathered = self.embeddings
        self._deferred: list[DeferredGradients] = []
        if options.variable_consistency == "relaxed":
            self._deferred = [
                DeferredGradients(specs, device) for device in self.devices
            ]

    def due(self, tower_gradients: Sequence[Gradients]) -> Sequence[Gradients]:
        """Return the gradients that this step applies.

        With --variable_consistency=relaxed, they are those of the step before.
        """
        if not self._deferred:
            return tower_gradients
        return [
            deferred.swap(grads)
            for deferred, grads in zip(self._deferred, tower_gradients)
        ]

    def total_items(self, items: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """What each tower divides its summed loss by, so that the exchange of gradients is a plain sum.

        The items of all towers, of other processes too, that it shares its update with. `items`: that each tower's loss
        is a sum over, float32 scalars on the host.
        """
        return [tf.add_n(list(items))] * len(items)

    def run(self, tower: Callable[[int], T]) -> list[T]:
        """Builds every tower: calls `tower(index)` on the tower's device and returns the results in order."""
        return gradients.map_devices(self.devices, tower, range(len(self.devices)))

    @abc.abstractmethod
    def weights(self, tower: int) -> dict[str, tf.Tensor]:
        """The dense variables' values, float32, on the tower's device."""

    @abc.abstractmethod
    def lookup(self, tower: int, name: str, ids: tf.Tensor) -> tf.Tensor:
        """Rows of an embedding by their numbers, `ids.shape + [D]`, on the tower's device."""

    def loss_scale(self, tower: int) -> tf.Tensor | None:
        """What the tower multiplies its loss by before it differentiates; None without loss scaling."""
        return self.updaters[tower if len(self.updaters) > 1 else 0].loss_scale()

    @abc.abstractmethod
    def apply(self, tower_gradients: Sequence[Gradients]) -> None:
        """Exchanges the towers' gradients and updates the variables."""

    @abc.abstractmethod
    def variable_states(self) -> list[VariableState]:
        """Every variable that the update changes, with its slots."""

    def skipped_updates(self) -> int | None:
        """How many updates a copy left out, the most of any; None without loss scaling. Not for use in a step."""
        skipped = [
            updater.skipped for updater in self.updaters if updater.skipped is not None
        ]
        return max((int(count.numpy()) for count in skipped), default=None)

    def all_reduce(self) -> list[dict[str, Any]]:
        """The resolved all-reduce, [{algorithm, shards, max_bytes}]; empty for modes that choose none."""
        return []


def place(
    specs: Specs, values: Values, device: str, prefix: str
) -> dict[str, tf.Variable]:
    """Creates the variables of `specs` with these initial values on one device."""
    with tf.device(device):
        return {
            spec.name: tf.Variable(values[spec.name], name=f"{prefix}/{spec.name}")
            for spec in specs
        }


def bytes_by_device(states: Sequence[VariableState]) -> dict[str, int]:
    """Sums the variables' bytes, without slots, over their devices."""
    total: dict[str, int] = {}
    for variable_state in states:
        variable = variable_state.variable
        total[variable.device] = total.get(variable.device, 0) + gradients.num_bytes(
            variable
        )
    return total


class _LossScale:
    """What a loss is multiplied by, the steps in a row whose gradients were finite, and those that were not, in all."""

    def __init__(self, kind: str) -> None:
        """kind: "dynamic" or a number. The variables are on the current device."""
        self._is_dynamic = kind == "dynamic"
        self.value = tf.Variable(
            INITIAL_LOSS_SCALE if self._is_dynamic else float(kind), trainable=False
        )
        self._good_steps = tf.Variable(0, dtype=tf.int64, trainable=False)
        self.skipped = tf.Variable(0, dtype=tf.int64, trainable=False)

    def adjust(self, finite: tf.Tensor) -> None:
        """Counts, and halves a dynamic scale, or doubles it after enough steps; on the current device."""
        self.skipped.assign(tf.where(finite, self.skipped, self.skipped + 1))
        if not self._is_dynamic:
            return
        good = tf.where(finite, self._good_steps + 1, tf.zeros([], tf.int64))
        grow = good >= LOSS_SCALE_GROWTH_STEPS
        factor = tf.where(finite, tf.where(grow, 2.0, 1.0), 0.5)
        self.value.assign(tf.maximum(1.0, self.value * factor))
        self._good_steps.assign(tf.where(grow, tf.zeros([], tf.int64), good))


class Updater:
    """Applies gradients to variables that are updated together.

    All arithmetic on a gradient happens on its variable's device; only norms and the scale travel.
    """

    def __init__(
        self, variables: Mapping[str, tf.Variable], rule: UpdateRule, device: str
    ) -> None:
        self._variables = dict(variables)
        self._optimizer = rule.optimizer
        self._max_gradient_norm = rule.max_gradient_norm
        self._device = device
        self._slots = {
            name: self._optimizer.slots(v, v.device)
            for name, v in self._variables.items()
        }
        with tf.device(host_device(device)):
            self._updates = tf.Variable(
                0, dtype=tf.int64, trainable=False, name="updates"
            )
        with tf.device(device):
            self._loss_scale = _LossScale(rule.loss_scale) if rule.loss_scale else None
        self.skipped = self._loss_scale.skipped if self._loss_scale else None

    def slots(self, name: str) -> optimizers.Slots:
        return self._slots[name]

    def loss_scale(self) -> tf.Tensor | None:
        """The present one, a float32 scalar; None without loss scaling."""
        return None if self._loss_scale is None else self._loss_scale.value.read_value()

    def apply(self, grads: Gradients) -> list[Any]:
        """Updates every variable once; returns what must have run until then, as `tf.control_dependencies` takes it.

        Args:
          grads: by variable name, of the unscaled mean loss. With loss scaling, gradients that are not finite skip the
            update and halve a dynamic scale; after 2,000 finite steps it doubles.
        """
        norm = (
            self._global_norm(grads)
            if self._max_gradient_norm or self._loss_scale is not None
            else None
        )
        if self._loss_scale is None:
            return self._update(grads, norm)

        def update() -> tf.Tensor:
            self._update(grads, norm)
            return tf.constant(0)

        finite = tf.math.is_finite(norm)
        updated = tf.cond(finite, update, lambda: tf.constant(0))
        with tf.device(self._device):
            self._loss_scale.adjust(finite)
        return [updated]

    def _update(self, grads: Gradients, norm: tf.Tensor | None) -> list[Any]:
        scale = None
        if self._max_gradient_norm:
            with tf.device(self._device):
                scale = gradients.clip_scale(norm, self._max_gradient_norm)
        step = self._updates.read_value()
        applied = []
        for name, variable in self._variables.items():
            with tf.device(variable.device):
                applied.append(
                    self._optimizer.apply(
                        variable, self._slots[name], grads[name], scale, step
                    )
                )
        self._updates.assign_add(1)
        return applied

    def _global_norm(self, grads: Gradients) -> tf.Tensor:
        squares = []
        for name, variable in self._variables.items():
            with tf.device(variable.device):
                squares.append(gradients.squared_norm(grads[name]))
        with tf.device(self._device):
            return tf.sqrt(tf.add_n(squares))


class Replicas(VariableUpdate):
    """A copy of the variables on every tower's device, each with its updater: what four of the modes start from."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.copies = self._create(setup.specs, setup.values)
        self.updaters = [
            Updater(copy, setup.rule, device)
            for copy, device in zip(self.copies, self.devices)
        ]

    def _create(self, specs: Specs, values: Values) -> list[dict[str, tf.Variable]]:
        return [
            place(specs, values, device, f"tower_{i}")
            for i, device in enumerate(self.devices)
        ]

    def weights(self, tower: int) -> dict[str, tf.Tensor]:
        return {
            name: v.read_value()
            for name, v in self.copies[tower].items()
            if name not in self.embeddings
        }

    def lookup(self, tower: int, name: str, ids: tf.Tensor) -> tf.Tensor:
        return tf.gather(self.copies[tower][name], ids)

    def apply(self, tower_gradients: Sequence[Gradients]) -> None:
        """Updates each copy with its own gradients."""
        for index, (updater, grads) in enumerate(
            zip(self.updaters, tower_gradients, strict=True)
        ):
            with tf.name_scope(f"update/tower_{index}/"):
                updater.apply(grads)

    def variable_states(self) -> list[VariableState]:
        return [
            VariableState(name, tower, variable, updater.slots(name))
            for tower, (copy, updater) in enumerate(zip(self.copies, self.updaters))
            for name, variable in copy.items()
        ]


class DeferredGradients:
    """Holds one tower's gradients back for exactly one step; the first step yields zeros."""

    def __init__(self, specs: Specs, device: str) -> None:
        self._device, self._specs = device, list(specs)
        self._dense: dict[str, tf.Variable] = {}
        self._rows: dict[str, tuple[tf.Variable, tf.Variable]] = {}
        with tf.device(device):
            for spec in self._specs:
                if spec.kind == "embedding":
                    rows = _resizable(
                        tf.zeros([0, spec.shape[1]]), [None, spec.shape[1]]
                    )
                    self._rows[spec.name] = (
                        rows,
                        _resizable(tf.zeros([0], tf.int64), [None]),
                    )
                else:
                    self._dense[spec.name] = tf.Variable(
                        tf.zeros(spec.shape), trainable=False
                    )

    def swap(self, grads: Gradients) -> dict[str, gradients.Gradient]:
        """Returns the gradients of the step before and keeps these for the next."""
        # XLA refuses variables whose shape changes, as that of an embedding's rows does with the batch.
        with tf.device(self._device), tf.xla.experimental.jit_scope(compile_ops=False):
            previous = {
                name: variable.read_value() for name, variable in self._dense.items()
            }
            for spec in self._specs:
                if spec.kind == "embedding":
                    rows, indices = (
                        variable.read_value() for variable in self._rows[spec.name]
                    )
                    previous[spec.name] = tf.IndexedSlices(
                        rows, indices, tf.constant(spec.shape)
                    )
            for name, gradient in grads.items():
                if name in self._dense:
                    self._dense[name].assign(gradient)
                else:
                    rows, indices = self._rows[name]
                    rows.assign(gradient.values)
                    indices.assign(tf.cast(gradient.indices, tf.int64))
        return previous


def _resizable(initial: tf.Tensor, shape: list[int | None]) -> tf.Variable:
    return tf.Variable(initial, shape=tf.TensorShape(shape), trainable=False)
