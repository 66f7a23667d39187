"""A coordinator that schedules steps on free workers.

tf.distribute's ParameterServerStrategy connects the processes. Its ClusterCoordinator
runs a step on a worker, and on another worker if the first one dies. This project
places the variables by their size; the strategy would assign them in turn.

`start` is the whole interface; `config.registry` names this module.
"""

import dataclasses

import tensorflow as tf

from rnn_scaling.training.engines import local
from rnn_scaling.training.engines.grpc_cluster import list_server_devices, serve
from rnn_scaling.training.engines.local import Engine, Request, make_task_name

# The device of a step's tower: TensorFlow uses the worker that runs the step.
_UNPLACED = ""
# The names in this project and in TensorFlow's strategy.
COORDINATOR = "coordinator"
_CHIEF = "chief"


def start(request: Request) -> Engine:
    """Set up this process.

    Only the coordinator gets a device, which is on the worker that runs a step.
    """
    position = request.position
    if position is None:
        return local.start(request)
    if position.role != COORDINATOR:
        return serve(request, position)
    local.configure(dataclasses.replace(request, device="cpu", num_devices=1))
    # TensorFlow prints pages about a worker that dies; the rendezvous reports one line.
    tf.get_logger().setLevel("CRITICAL")
    jobs = {
        _CHIEF if role == COORDINATOR else role: list(addresses)
        for role, addresses in position.addresses.items()
    }
    strategy = tf.distribute.ParameterServerStrategy(
        tf.distribute.cluster_resolver.SimpleClusterResolver(
            tf.train.ClusterSpec(jobs), task_type=_CHIEF, task_id=0, rpc_layer="grpc"
        )
    )
    return Engine(
        rank=0,
        size=1,
        devices=(_UNPLACED,),
        host=_UNPLACED,
        device_type=request.device.upper(),
        num_physical=1,
        servers=list_server_devices(position),
        strategy=strategy,
        tower_devices=tuple(
            f"{make_task_name('worker', worker)}/device:{request.device.upper()}:0"
            for worker in range(position.num_workers)
        ),
    )
