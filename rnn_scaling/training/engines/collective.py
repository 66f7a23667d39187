"""Workers that exchange through TensorFlow's collective operators, without a strategy.

Each process runs a server, which `tf.distribute.MultiWorkerMirroredStrategy` would also
start. A plain `CollectiveReduceV2` then spans the workers.

`start` is the whole interface; `config.registry` names this module.
"""

from tensorflow.core.protobuf import cluster_pb2, tensorflow_server_pb2

# TensorFlow has no public name for the collective operators of several processes.
from tensorflow.python.eager import context

from rnn_scaling.training.engines import local
from rnn_scaling.training.engines.local import Engine, Request

_JOB = "worker"
_LEADER = local.make_task_name(_JOB, 0)  # numbers the members of each group


def start(request: Request) -> Engine:
    """Set up this worker's devices and a server for the other workers."""
    if request.position is None:
        return local.start(request)
    local.configure(request)
    position = request.position
    position.require_free_port()
    context.context().configure_collective_ops(
        collective_leader=_LEADER,
        device_filters=(f"/job:{_JOB}/task:{position.index}",),
    )
    context.context().enable_collective_ops(
        tensorflow_server_pb2.ServerDef(
            cluster=cluster_pb2.ClusterDef(
                job=[
                    cluster_pb2.JobDef(
                        name=_JOB, tasks=dict(enumerate(position.addresses[_JOB]))
                    )
                ]
            ),
            job_name=_JOB,
            task_index=position.index,
            protocol="grpc",
            default_session_config=context.context().config,
        )
    )
    return local.describe(
        request,
        local.make_task_name(_JOB, position.index),
        position.index,
        position.num_workers,
    )
