"""Our own networks: the products of their graphs, and that they learn."""

import numpy as np
import pytest

from rnn_scaling.models.workload import make_first_values
from rnn_scaling.models.workloads import WORKLOADS
from tests.models.images.test_zoo import build_network
from tests.models.test_images import count_flops


@pytest.mark.usefixtures("as_built")
@pytest.mark.parametrize("name, learning_rate", [("resnet20", 0.1), ("alexnet", 0.02)])
def test_the_loss_falls_and_the_graph_has_the_flops_of_the_table(
    tf, name, learning_rate
):
    batch_size = 4
    network = build_network(name, "cifar10")
    random = np.random.default_rng(1)
    images = tf.constant(random.uniform(-1, 1, (batch_size, 32, 32, 3)), tf.float32)
    labels = tf.constant(random.integers(0, 10, batch_size))
    weights, averages = (
        tf.nest.map_structure(tf.Variable, make_first_values(specs, 1))
        for specs in (network.variables, network.moving)
    )

    @tf.function(autograph=False)
    def step():
        variables = {**weights, **averages}
        values = {key: variable.read_value() for key, variable in variables.items()}
        logits, moving = network.compute_logits(values, images, tf.constant([0, 0]))
        assert moving.keys() == averages.keys()
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
        loss = tf.reduce_mean(losses)
        gradients = tf.gradients(loss, [values[key] for key in weights])
        for key, gradient in zip(weights, gradients):
            weights[key].assign_sub(learning_rate * gradient)
        for key, value in moving.items():
            averages[key].assign(value)
        return loss

    graph = step.get_concrete_function().graph
    per_image = WORKLOADS[name].flops_per_sample({"dataset": "cifar10"})
    assert count_flops(graph) == per_image * batch_size
    losses = [float(step()) for _ in range(6)]
    assert losses[-1] < 0.8 * losses[0], losses
