"""Workers and parameter servers that one client drives: the first worker, whose step function spans them all.

Every other process is a TensorFlow server (gRPC) that runs what the client tells it.
"""

import dataclasses
from typing import Any

import tensorflow as tf
from tensorflow.python.eager import (
    context,
)  # no public name leads to the configuration of devices and threads

from rnn_scaling.system.machine.gpus import DeviceError
from rnn_scaling.training.cluster import Place
from rnn_scaling.training.engines import local
from rnn_scaling.training.engines.local import Engine, Request, task_name

_running: list[Any] = []  # servers; each ends with its object


def start(request: Request) -> Engine:
    """Sets this process up: the first worker gets the devices of all workers, any other process serves and gets none.

    Raises DeviceError as `local.start`, or if this process cannot listen; OpError if another cannot be reached.
    """
    place = request.place
    if place is None:
        return local.start(request)
    if (place.role, place.index) != ("worker", 0):
        return serve(request, place)
    local.configure(request)
    # Its own address is in the cluster: TensorFlow would advertise a loopback one otherwise.
    tf.config.experimental_connect_to_cluster(
        tf.train.ClusterSpec(dict(place.addresses)), "worker", 0, protocol="grpc"
    )
    engine = local.describe(request, task_name("worker", 0), 0, 1)
    devices = [
        f"{task_name('worker', worker)}/device:{engine.device_type}:{index}"
        for worker in range(place.num_workers)
        for index in range(request.num_devices)
    ]
    return dataclasses.replace(
        engine, devices=tuple(devices), servers=server_devices(place)
    )


def serve(request: Request, place: Place) -> Engine:
    """Starts this process's server, which runs what the client tells it until the process ends; see `start`."""
    local.configure(
        dataclasses.replace(request, device="cpu", num_devices=1)
        if place.role == "ps"
        else request
    )
    try:
        _running.append(
            tf.distribute.Server(
                dict(place.addresses),
                place.role,
                place.index,
                protocol="grpc",
                config=context.context().config,
            )
        )
    except tf.errors.OpError as e:
        address = place.addresses[place.role][place.index]
        raise DeviceError(f"TensorFlow cannot listen at {address}: {e.message}") from e
    return Engine(0, 1, (), "", request.device.upper(), 0)


def server_devices(place: Place) -> tuple[str, ...]:
    """The CPUs of the processes that only hold variables."""
    return tuple(
        f"{task_name('ps', index)}/device:CPU:0"
        for index in range(len(place.addresses.get("ps", ())))
    )
