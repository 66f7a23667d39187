"""Workers under tf.distribute.MultiWorkerMirroredStrategy.

The strategy sets up TensorFlow's collective operators by itself.

`start` is the whole interface; `config.registry` names this module.
"""

import dataclasses

import tensorflow as tf

from rnn_scaling.training.engines import local
from rnn_scaling.training.engines.local import Engine, Request

_JOB = "worker"
# Halves the step for 80 MB of gradients compared with one pack.
_BYTES_PER_PACK = 8 << 20


def start(request: Request) -> Engine:
    """Create this worker's strategy, which also starts TensorFlow and its server."""
    if request.position is None:
        return local.start(request)
    local.configure(request)
    position = request.position
    position.require_free_port()
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
        tf.train.ClusterSpec({_JOB: list(position.addresses[_JOB])}),
        task_type=_JOB,
        task_id=position.index,
        rpc_layer="grpc",
    )
    options = tf.distribute.experimental.CommunicationOptions(
        bytes_per_pack=_BYTES_PER_PACK
    )
    strategy = tf.distribute.MultiWorkerMirroredStrategy(
        cluster_resolver=resolver, communication_options=options
    )
    engine = local.describe(
        request,
        local.make_task_name(_JOB, position.index),
        position.index,
        position.num_workers,
    )
    return dataclasses.replace(engine, strategy=strategy)
