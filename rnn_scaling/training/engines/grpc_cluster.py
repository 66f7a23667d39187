"""Workers and parameter servers that one client drives.

The client is the first worker, whose step function spans all processes. Every other
process is a TensorFlow server (gRPC) that runs the client's operators.

`config.registry` names this module for `start`; `coordinator` uses its servers as well.
"""

import dataclasses
from typing import Any

import tensorflow as tf

# TensorFlow has no public name for the configuration of devices and threads.
from tensorflow.python.eager import context

from rnn_scaling.system.machine.gpus import DeviceError
from rnn_scaling.training.cluster import RankPosition
from rnn_scaling.training.engines import local
from rnn_scaling.training.engines.local import Engine, Request, make_task_name

_running: list[Any] = []  # servers; each ends with its object


def start(request: Request) -> Engine:
    """Set up this process.

    The first worker gets the devices of all workers. Every other process only serves
    and gets no device.

    Raises:
      DeviceError: For the reasons of `local.start`, or if this process cannot listen.
      OpError: If another process cannot be reached.
    """
    position = request.position
    if position is None:
        return local.start(request)
    if (position.role, position.index) != ("worker", 0):
        return serve(request, position)
    local.configure(request)
    # The cluster contains its address, because TensorFlow would otherwise advertise a
    # loopback address.
    tf.config.experimental_connect_to_cluster(
        tf.train.ClusterSpec(dict(position.addresses)), "worker", 0, protocol="grpc"
    )
    engine = local.describe(request, make_task_name("worker", 0), 0, 1)
    devices = []
    for worker in range(position.num_workers):
        task = make_task_name("worker", worker)
        for index in range(request.num_devices):
            devices.append(f"{task}/device:{engine.device_type}:{index}")
    return dataclasses.replace(
        engine, devices=tuple(devices), servers=list_server_devices(position)
    )


def serve(request: Request, position: RankPosition) -> Engine:
    """Start this process's server, which runs until the process ends; see `start`."""
    local.configure(
        dataclasses.replace(request, device="cpu", num_devices=1)
        if position.role == "ps"
        else request
    )
    try:
        _running.append(
            tf.distribute.Server(
                dict(position.addresses),
                position.role,
                position.index,
                protocol="grpc",
                config=context.context().config,
            )
        )
    except tf.errors.OpError as e:
        address = position.addresses[position.role][position.index]
        raise DeviceError(
            f"TensorFlow cannot listen at {address}: {e.message}; end the program "
            "that uses this port, or give this rank another port"
        ) from e
    return Engine(
        0,
        size=1,
        devices=(),
        host="",
        device_type=request.device.upper(),
        num_physical=0,
    )


def list_server_devices(position: RankPosition) -> tuple[str, ...]:
    """Return the CPUs of the processes that only store variables."""
    return tuple(
        f"{make_task_name('ps', index)}/device:CPU:0"
        for index in range(len(position.addresses.get("ps", ())))
    )
