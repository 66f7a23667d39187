"""Create the variables and apply gradients to them: the base classes of update modes.

Optimizer slots, clipping and loss scaling are the same for all modes. A new mode is a
subclass of `VariableUpdate` in variable_update/; most modes extend its subclass
`Replicas`. `TrainStep` calls the methods while it traces the step.

Checkpoints name variables by the path of attributes to them: a renamed attribute makes
earlier checkpoints unreadable.
"""

import abc
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import tensorflow as tf

from rnn_scaling.config.run_options import UpdateOptions
from rnn_scaling.data.pipeline import name_host_device
from rnn_scaling.models.workload import VariableSpec
from rnn_scaling.training import gradients, optimizers
from rnn_scaling.training.engines.local import Engine

T = TypeVar("T")
Gradients = Mapping[str, "gradients.Gradient"]
Specs = Sequence[VariableSpec]
Values = Mapping[str, np.ndarray]  # initial values by the variable's name

_INITIAL_LOSS_SCALE = 2.0**15
LOSS_SCALE_GROWTH_STEPS = 2000


@dataclasses.dataclass(frozen=True)
class UpdateRule:
    """How complete gradients change the variables; the same in every mode.

    `verification.rule.SerialUpdateRule` reimplements it in NumPy to verify it.
    """

    optimizer: optimizers.Optimizer
    # Maximum global L2 norm of the gradients; 0 for no limit.
    max_gradient_norm: float = 0.0
    # The loss scale for float16: "dynamic", a number, or empty for no scale.
    loss_scale: str = ""


@dataclasses.dataclass(frozen=True)
class VariableState:
    """A variable, or a parameter server's part of it, with the optimizer's slots."""

    name: str  # name of the network's variable
    tower: int | None  # the tower that owns the copy; None if all towers share it
    variable: tf.Variable
    slots: tuple[tf.Variable, ...]


@dataclasses.dataclass(frozen=True)
class Setup:
    """The arguments of an update mode.

    Attributes:
      specs: The variables of the network.
      values: The initial values of the variables.
      engine: The devices of the towers, and of parameter servers.
      options: The options of the update.
      rule: The optimizer and its settings, which apply complete gradients.
    """

    specs: Specs
    values: Values
    engine: Engine
    options: UpdateOptions
    rule: UpdateRule


class VariableUpdate(abc.ABC):
    """The exchange of gradients between towers, and their use in the update.

    `TrainStep` traces the step with these methods, in this order:

    1. `count_total_items`
    2. for each tower, inside `run`: `read_weights`, `read_rows` and `read_loss_scale`
    3. `apply`, once. It calls `choose_gradients` if the mode may apply late gradients.

    `list_variables` and `count_skipped_updates` are called outside of a step, after
    the run.

    Attributes:
      devices: The devices of the towers.
      embeddings: Names of the variables that are looked up.
      gathered_embeddings: Names of the embeddings whose gradients are exchanged as rows
        (--sparse_gradients=gather).
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
        self.gathered_embeddings: frozenset[str] = frozenset()
        if options.sparse_gradients == "gather":
            self.gathered_embeddings = self.embeddings
        self._deferred: list[DeferredGradients] = []
        if options.variable_consistency == "relaxed":
            self._deferred = [
                DeferredGradients(specs, device) for device in self.devices
            ]

    def choose_gradients(
        self, tower_gradients: Sequence[Gradients]
    ) -> Sequence[Gradients]:
        """Return the gradients that this step applies.

        With --variable_consistency=relaxed, they are the gradients of the previous
        step.
        """
        if not self._deferred:
            return tower_gradients
        return [
            deferred.swap(grads)
            for deferred, grads in zip(self._deferred, tower_gradients)
        ]

    def count_total_items(self, items: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """Return the number that each tower divides its summed loss by.

        This is the number of items of all towers, in all processes, that share an
        update. So the exchange only has to add gradients.

        Args:
          items: The items in each tower's summed loss, float32 scalars on the host.
        """
        return [tf.add_n(list(items))] * len(items)

    def run(self, tower: Callable[[int], T]) -> list[T]:
        """Build every tower: call `tower(index)` on each tower's device."""
        return gradients.map_devices(self.devices, tower, range(len(self.devices)))

    @abc.abstractmethod
    def read_weights(self, tower: int) -> dict[str, tf.Tensor]:
        """Return the dense variables' values, float32, on the tower's device."""

    @abc.abstractmethod
    def read_rows(self, tower: int, name: str, ids: tf.Tensor) -> tf.Tensor:
        """Return rows of an embedding, `ids.shape + [D]`, on the tower's device."""

    def read_loss_scale(self, tower: int) -> tf.Tensor | None:
        """Return the factor of a tower's loss, or None without loss scaling."""
        has_one_updater = len(self.updaters) == 1
        updater = self.updaters[0 if has_one_updater else tower]
        return updater.read_loss_scale()

    @abc.abstractmethod
    def apply(self, tower_gradients: Sequence[Gradients]) -> None:
        """Exchange the towers' gradients and update the variables."""

    @abc.abstractmethod
    def list_variables(self) -> list[VariableState]:
        """Return every variable that the update changes, with its slots."""

    def count_skipped_updates(self) -> int | None:
        """Return the largest number of updates that a copy skipped.

        Call it outside of a step.

        Returns:
          None without loss scaling.
        """
        counts = [
            int(updater.skipped.numpy())
            for updater in self.updaters
            if updater.skipped is not None
        ]
        return max(counts, default=None)

    def describe_all_reduce(self) -> list[dict[str, Any]]:
        """Return the chosen all-reduce as [{algorithm, shards, max_bytes}].

        It is empty for modes without a choice.
        """
        return []


def create_variables(
    specs: Specs, values: Values, device: str, prefix: str
) -> dict[str, tf.Variable]:
    """Create the variables of `specs` with their initial values on one device."""
    with tf.device(device):
        return {
            spec.name: tf.Variable(values[spec.name], name=f"{prefix}/{spec.name}")
            for spec in specs
        }


def sum_bytes_by_device(states: Sequence[VariableState]) -> dict[str, int]:
    """Return the bytes of the variables, without slots, by device."""
    total: dict[str, int] = {}
    for variable_state in states:
        variable = variable_state.variable
        total.setdefault(variable.device, 0)
        total[variable.device] += gradients.count_bytes(variable)
    return total


class _LossScale:
    """A loss scale for float16.

    It counts consecutive steps with finite gradients, after which a dynamic scale
    grows, and skipped steps, for the record.
    """

    def __init__(self, loss_scale: str) -> None:
        """Create the variables on the current device.

        Args:
          loss_scale: "dynamic" or a number.
        """
        self._is_dynamic = loss_scale == "dynamic"
        self.value = tf.Variable(
            _INITIAL_LOSS_SCALE if self._is_dynamic else float(loss_scale),
            trainable=False,
        )
        self._good_steps = tf.Variable(0, dtype=tf.int64, trainable=False)
        self.skipped = tf.Variable(0, dtype=tf.int64, trainable=False)

    def adjust(self, is_finite: tf.Tensor) -> None:
        """Count a step and adjust a dynamic scale, on the current device.

        The scale is halved if the gradients are not finite, and doubled after
        LOSS_SCALE_GROWTH_STEPS finite steps.
        """
        self.skipped.assign(tf.where(is_finite, self.skipped, self.skipped + 1))
        if not self._is_dynamic:
            return
        zero = tf.zeros([], tf.int64)
        num_good = tf.where(is_finite, self._good_steps + 1, zero)
        grows = num_good >= LOSS_SCALE_GROWTH_STEPS
        factor = tf.where(is_finite, tf.where(grows, 2.0, 1.0), 0.5)
        self.value.assign(tf.maximum(1.0, self.value * factor))
        self._good_steps.assign(tf.where(grows, zero, num_good))


class Updater:
    """Apply gradients to variables that are updated together.

    All arithmetic on a gradient happens on its variable's device. Only norms and the
    scale are sent to other devices.
    """

    def __init__(
        self, variables: Mapping[str, tf.Variable], rule: UpdateRule, device: str
    ) -> None:
        self._variables = dict(variables)
        self._optimizer = rule.optimizer
        self._max_gradient_norm = rule.max_gradient_norm
        self._device = device
        self._slots = {
            name: self._optimizer.create_slots(v, v.device)
            for name, v in self._variables.items()
        }
        with tf.device(name_host_device(device)):
            self._updates = tf.Variable(
                0, dtype=tf.int64, trainable=False, name="updates"
            )
        with tf.device(device):
            self._loss_scale = _LossScale(rule.loss_scale) if rule.loss_scale else None
        self.skipped = self._loss_scale.skipped if self._loss_scale else None

    def list_slots(self, name: str) -> optimizers.Slots:
        """Return the optimizer's slots of a variable."""
        return self._slots[name]

    def read_loss_scale(self) -> tf.Tensor | None:
        """Return the current loss scale, a float32 scalar, or None without one."""
        if self._loss_scale is None:
            return None
        return self._loss_scale.value.read_value()

    def apply(self, grads: Gradients) -> list[Any]:
        """Update every variable once.

        With loss scaling, the update is skipped if gradients are not finite, and a
        dynamic scale is adjusted.

        Args:
          grads: Gradients of the unscaled mean loss by variable name.

        Returns:
          The operations of the update, for `tf.control_dependencies`.
        """
        norm = None
        if self._max_gradient_norm or self._loss_scale is not None:
            norm = self._compute_global_norm(grads)
        if self._loss_scale is None:
            return self._update(grads, norm)

        def update() -> tf.Tensor:
            self._update(grads, norm)
            return tf.constant(0)

        is_finite = tf.math.is_finite(norm)
        updated = tf.cond(is_finite, update, lambda: tf.constant(0))
        with tf.device(self._device):
            self._loss_scale.adjust(is_finite)
        return [updated]

    def _update(self, grads: Gradients, norm: tf.Tensor | None) -> list[Any]:
        """Apply the clipped gradients to every variable on its device."""
        scale = None
        if self._max_gradient_norm:
            with tf.device(self._device):
                scale = gradients.clip_scale(norm, self._max_gradient_norm)
        step = self._updates.read_value()
        update_operators = []
        for name, variable in self._variables.items():
            with tf.device(variable.device):
                update_operators.append(
                    self._optimizer.apply(
                        variable, self._slots[name], grads[name], scale, step
                    )
                )
        self._updates.assign_add(1)
        return update_operators

    def _compute_global_norm(self, grads: Gradients) -> tf.Tensor:
        """Return the L2 norm of all gradients together, on the updater's device."""
        squares = []
        for name, variable in self._variables.items():
            with tf.device(variable.device):
                squares.append(gradients.compute_squared_norm(grads[name]))
        with tf.device(self._device):
            return tf.sqrt(tf.add_n(squares))


class Replicas(VariableUpdate):
    """A copy of the variables on every tower's device, each with its updater.

    It is the base class of most modes.
    """

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.copies = self._create(setup.specs, setup.values)
        self.updaters = [
            Updater(copy, setup.rule, device)
            for copy, device in zip(self.copies, self.devices)
        ]

    def _create(self, specs: Specs, values: Values) -> list[dict[str, tf.Variable]]:
        return [
            create_variables(specs, values, device, f"tower_{i}")
            for i, device in enumerate(self.devices)
        ]

    def read_weights(self, tower: int) -> dict[str, tf.Tensor]:
        return {
            name: v.read_value()
            for name, v in self.copies[tower].items()
            if name not in self.embeddings
        }

    def read_rows(self, tower: int, name: str, ids: tf.Tensor) -> tf.Tensor:
        return tf.gather(self.copies[tower][name], ids)

    def apply(self, tower_gradients: Sequence[Gradients]) -> None:
        """Update each copy with the gradients of its tower."""
        for index, (updater, grads) in enumerate(
            zip(self.updaters, tower_gradients, strict=True)
        ):
            with tf.name_scope(f"update/tower_{index}/"):
                updater.apply(grads)

    def list_variables(self) -> list[VariableState]:
        states = []
        for tower, (copy, updater) in enumerate(zip(self.copies, self.updaters)):
            for name, variable in copy.items():
                states.append(
                    VariableState(name, tower, variable, updater.list_slots(name))
                )
        return states


class DeferredGradients:
    """Delay one tower's gradients by exactly one step; the first step gets zeros."""

    def __init__(self, specs: Specs, device: str) -> None:
        self._device = device
        self._specs = list(specs)
        self._dense: dict[str, tf.Variable] = {}
        self._rows: dict[str, tuple[tf.Variable, tf.Variable]] = {}
        with tf.device(device):
            for spec in self._specs:
                if spec.kind == "embedding":
                    width = spec.shape[1]
                    rows = _create_resizable(tf.zeros([0, width]), [None, width])
                    indices = _create_resizable(tf.zeros([0], tf.int64), [None])
                    self._rows[spec.name] = (rows, indices)
                else:
                    self._dense[spec.name] = tf.Variable(
                        tf.zeros(spec.shape), trainable=False
                    )

    def swap(self, grads: Gradients) -> dict[str, gradients.Gradient]:
        """Return the gradients of the previous step and keep `grads` for the next one."""
        # XLA refuses variables whose shape changes. An embedding's rows change shape
        # with the batch.
        with tf.device(self._device), tf.xla.experimental.jit_scope(compile_ops=False):
            previous = self._read()
            self._store(grads)
        return previous

    def _read(self) -> dict[str, gradients.Gradient]:
        previous = {
            name: variable.read_value() for name, variable in self._dense.items()
        }
        for spec in self._specs:
            if spec.name in self._rows:
                rows, indices = self._rows[spec.name]
                previous[spec.name] = tf.IndexedSlices(
                    rows.read_value(), indices.read_value(), tf.constant(spec.shape)
                )
        return previous

    def _store(self, grads: Gradients) -> None:
        for name, gradient in grads.items():
            if name in self._dense:
                self._dense[name].assign(gradient)
            else:
                rows, indices = self._rows[name]
                rows.assign(gradient.values)
                indices.assign(tf.cast(gradient.indices, tf.int64))


def _create_resizable(initial: tf.Tensor, shape: list[int | None]) -> tf.Variable:
    return tf.Variable(initial, shape=tf.TensorShape(shape), trainable=False)
