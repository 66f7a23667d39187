"""A coordinator that hands steps to workers as they become free: tf.distribute's ParameterServerStrategy.

The strategy connects the processes; its ClusterCoordinator runs a step on a worker, and again on another if that one
dies. The variables are placed by their bytes and not by the strategy, which deals them to the servers in turn.
"""

import dataclasses

import tensorflow as tf

from rnn_scaling.training.engines import local
from rnn_scaling.training.engines.grpc_cluster import serve, server_devices
from rnn_scaling.training.engines.local import Engine, Request, task_name

WHERE_IT_RUNS = ""  # the device of a step's tower: that of the worker which runs it
# The names in this project and in TensorFlow's strategy.
COORDINATOR = "coordinator"
CHIEF = "chief"


def start(request: Request) -> Engine:
    """Sets this process up; only the coordinator gets a device, on the worker that runs a step."""
    place = request.place
    if place is None:
        return local.start(request)
    if place.role != COORDINATOR:
        return serve(request, place)
    local.configure(dataclasses.replace(request, device="cpu", num_devices=1))
    tf.get_logger().setLevel(
        "CRITICAL"
    )  # it prints pages about a worker that dies; the meeting says it in a line
    jobs = {
        CHIEF if role == COORDINATOR else role: list(addresses)
        for role, addresses in place.addresses.items()
    }
    strategy = tf.distribute.ParameterServerStrategy(
        tf.distribute.cluster_resolver.SimpleClusterResolver(
            tf.train.ClusterSpec(jobs), task_type=CHIEF, task_id=0, rpc_layer="grpc"
        )
    )
    return Engine(
        rank=0,
        size=1,
        devices=(WHERE_IT_RUNS,),
        host=WHERE_IT_RUNS,
        device_type=request.device.upper(),
        num_physical=1,
        servers=server_devices(place),
        strategy=strategy,
        tower_devices=tuple(
            f"{task_name('worker', worker)}/device:{request.device.upper()}:0"
            for worker in range(place.num_workers)
        ),
    )
