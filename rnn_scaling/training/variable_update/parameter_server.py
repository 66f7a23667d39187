"""parameter_server and distributed_parameter_server: all towers share one copy.

The variables are on the host, or spread over GPUs or over processes that only store
variables.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from rnn_scaling.training import gradients
from rnn_scaling.training.replica import (
    Gradients,
    Setup,
    Specs,
    Updater,
    Values,
    VariableState,
    VariableUpdate,
    create_variables,
)


@dataclasses.dataclass(frozen=True)
class Partition:
    """Rows [start, stop) of a variable on one device."""

    name: str
    start: int
    stop: int
    device: str

    @property
    def num_rows(self) -> int:
        return self.stop - self.start


class _Piece(NamedTuple):
    """Rows of a variable that have no device yet."""

    size: float  # elements
    name: str
    start: int
    stop: int


def place_parts(
    specs: Specs, devices: Sequence[str], divides_large: bool
) -> dict[str, list[Partition]]:
    """Balance variables over devices by size.

    The largest comes first, and each goes to the device with the smallest load.

    Args:
      specs: The variables.
      devices: The devices.
      divides_large: Whether a variable larger than a device's share (total size /
        devices) is split along its first dimension, into equal parts of at most that
        share.

    Returns:
      The parts of each variable in the order of their rows.
    """
    sizes = {spec.name: math.prod(spec.shape) for spec in specs}
    share = sum(sizes.values()) / len(devices)
    pieces: list[_Piece] = []
    for spec in specs:
        rows = spec.shape[0]
        count = min(rows, math.ceil(sizes[spec.name] / share)) if divides_large else 1
        edges = [round(rows * k / count) for k in range(count + 1)]
        row_size = sizes[spec.name] / rows
        for start, stop in zip(edges, edges[1:]):
            pieces.append(_Piece((stop - start) * row_size, spec.name, start, stop))
    load = dict.fromkeys(devices, 0.0)
    partitions: dict[str, list[Partition]] = {spec.name: [] for spec in specs}
    for piece in sorted(pieces, key=lambda piece: -piece.size):
        device = min(load, key=load.__getitem__)
        load[device] += piece.size
        partition_of_piece = Partition(piece.name, piece.start, piece.stop, device)
        partitions[piece.name].append(partition_of_piece)
    for placed in partitions.values():
        placed.sort(key=lambda partition: partition.start)
    return partitions


class ParameterServer(VariableUpdate):
    """One copy of the variables that all towers read and update."""

    _applied: Sequence[Any] = ()  # the operations that update the variables

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        specs = setup.specs
        self.servers = list_server_devices(setup)
        self._parts = place_parts(
            specs, self.servers, setup.options.partition_large_variables
        )
        self._variables: dict[str, list[tf.Variable]] = {}
        by_name: dict[str, tf.Variable] = {}
        for name, partitions in self._parts.items():
            variables = [_create(partition, setup.values) for partition in partitions]
            self._variables[name] = variables
            by_name |= {variable.name: variable for variable in variables}
        self._updater = Updater(by_name, setup.rule, self.servers[0])
        self.updaters = [self._updater]
        self._staged: list[dict[str, tf.Variable]] = []
        if setup.options.staged_vars:
            self._staged = [
                create_variables(specs, setup.values, device, f"staged/tower_{tower}")
                for tower, device in enumerate(self.devices)
            ]

    def read_weights(self, tower: int) -> dict[str, tf.Tensor]:
        names = [name for name in self._variables if name not in self.embeddings]
        if self._staged:
            return {name: self._staged[tower][name].read_value() for name in names}
        with tf.name_scope("exchange/read/"):
            return {name: self._read(name, self.devices[tower]) for name in names}

    def read_rows(self, tower: int, name: str, ids: tf.Tensor) -> tf.Tensor:
        if self._staged:
            return tf.gather(self._staged[tower][name], ids)
        with tf.name_scope("exchange/read/"):
            rows = _look_up(self._variables[name], self._parts[name], ids)
            with tf.device(self.devices[tower]):
                return tf.identity(rows)

    def apply(self, tower_gradients: Sequence[Gradients]) -> None:
        with tf.name_scope("exchange/"):
            self._copy_to_towers()
            tower_gradients = self.choose_gradients(tower_gradients)
            summed: dict[str, gradients.Gradient] = {}
            for name in self._parts:
                summed |= self._sum_parts(
                    name, [grads[name] for grads in tower_gradients]
                )
        with tf.name_scope("update/"):
            self._applied = self._updater.apply(summed)

    def _copy_to_towers(self) -> None:
        """Copy the variables to the towers before this update; their next step reads them."""
        for device, staged in zip(self.devices, self._staged):
            for name, variable in staged.items():
                variable.assign(self._read(name, device))

    def _sum_parts(
        self, name: str, tower_gradients: Sequence[gradients.Gradient]
    ) -> dict[str, gradients.Gradient]:
        """Return the sum over the towers for each part of a variable, on its device."""
        tower_pieces = []
        for tower, gradient in enumerate(tower_gradients):
            tower_pieces.append(self._split(name, gradient, tower))
        summed = {}
        # Of each part, the pieces of all towers.
        for variable, partition, pieces in zip(
            self._variables[name], self._parts[name], zip(*tower_pieces)
        ):
            with tf.device(partition.device):
                summed[variable.name] = gradients.add(list(pieces))
        return summed

    def list_variables(self) -> list[VariableState]:
        states = []
        for name, variables in self._variables.items():
            for variable in variables:
                slots = self._updater.list_slots(variable.name)
                states.append(VariableState(name, None, variable, slots))
        return states

    def _read(self, name: str, device: str) -> tf.Tensor:
        values = [variable.read_value() for variable in self._variables[name]]
        with tf.device(device):
            return tf.identity(values[0]) if len(values) == 1 else tf.concat(values, 0)

    def _split(
        self, name: str, gradient: gradients.Gradient, tower: int
    ) -> list[gradients.Gradient]:
        """Split one tower's gradient of a variable into the gradients of its parts."""
        partitions = self._parts[name]
        with tf.device(self.devices[tower]):
            if name not in self.gathered_embeddings:
                gradient = gradients.densify(gradient)
            if len(partitions) == 1:
                return [gradient]
            if not isinstance(gradient, tf.IndexedSlices):
                return tf.split(
                    gradient, [partition.num_rows for partition in partitions], 0
                )
            return [_select_rows(gradient, partition) for partition in partitions]


def _create(partition: Partition, values: Values) -> tf.Variable:
    """Create the variable of a partition on its device, with its initial rows."""
    with tf.device(partition.device):
        return tf.Variable(
            values[partition.name][partition.start : partition.stop],
            name=f"{partition.name}/rows_{partition.start}",
        )


def _look_up(
    variables: Sequence[tf.Variable], partitions: Sequence[Partition], ids: tf.Tensor
) -> tf.Tensor:
    """Return the rows `ids`; only these rows leave the devices of the parts."""
    if len(partitions) == 1:
        with tf.device(partitions[0].device):
            return tf.gather(variables[0], ids)
    flat = tf.reshape(ids, [-1])
    owner = tf.searchsorted(
        tf.constant([partition.stop for partition in partitions], flat.dtype),
        flat,
        side="right",
    )
    positions = tf.dynamic_partition(tf.range(tf.size(flat)), owner, len(partitions))
    rows = []
    for variable, partition, position in zip(variables, partitions, positions):
        with tf.device(partition.device):
            rows.append(
                tf.gather(variable, tf.gather(flat, position) - partition.start)
            )
    joined_rows = tf.dynamic_stitch(positions, rows)
    return tf.reshape(
        joined_rows, tf.concat([tf.shape(ids), tf.shape(joined_rows)[1:]], 0)
    )


def _select_rows(gradient: tf.IndexedSlices, partition: Partition) -> tf.IndexedSlices:
    """Return the rows of a sparse gradient that belong to a partition."""
    positions = tf.where(
        (gradient.indices >= partition.start) & (gradient.indices < partition.stop)
    )[:, 0]
    values = tf.gather(gradient.values, positions)
    indices = tf.gather(gradient.indices, positions) - partition.start

    return tf.IndexedSlices(
        values, indices, tf.constant([partition.num_rows, gradient.values.shape[1]])
    )


def list_server_devices(setup: Setup) -> Sequence[str]:
    """Return the devices that hold the variables."""
    engine = setup.engine
    if engine.servers:
        return engine.servers
    on_gpus = setup.options.param_server_device == "gpu"
    return engine.devices if on_gpus else [engine.host]


build = ParameterServer
