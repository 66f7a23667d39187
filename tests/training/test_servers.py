"""Variables on other processes.

Training that one client drives equals serial training. Each step of a coordinator runs
once, and its staleness is recorded. Each cluster of real processes starts once.
"""

import dataclasses
import re

import numpy as np
import pytest

from tests.support import forked, served
from tests.support.configs import resolve
from tests.support.training import (
    SMALL,
    Serial,
    concatenate,
    find_largest_difference,
    make_batches,
)

pytestmark = pytest.mark.usefixtures("large_weights")

STEPS, TOLERANCE, RANGE = 20, 1e-5, 1.0
LM = dataclasses.replace(SMALL, model="lm")
# Its embedding is larger than a server's share.
LARGE = dataclasses.replace(LM, tgt_vocab_size=100, embedding_dim=18)
REWRITTEN = "dense"  # the variant whose step TensorFlow rewrites, as it does for users
VARIANTS = {  # network, steps, which of the four towers, options
    "split": (LARGE, STEPS, slice(0, 4), {"partition_large_variables": True}),
    "dense": (
        LM,
        STEPS,
        slice(1, 3),
        {"sparse_gradients": "densify", "max_gradient_norm": 0.05},
    ),
}


@pytest.fixture(scope="module")
def driven():
    """Return the results of two workers with two devices and two servers."""
    with served.servers("grpc_cluster", worker=2, ps=2) as (addresses, processes):
        result = forked.call(_drive, addresses)
        result["processes"] = {task: process.pid for task, process in processes.items()}
    return result


def _drive(addresses):
    import tensorflow as tf

    from rnn_scaling.inspection import placement
    from rnn_scaling.models import workload
    from rnn_scaling.training import benchmark
    from rnn_scaling.training.engines import grpc_cluster
    from rnn_scaling.training.replica import sum_bytes_by_device
    from tests.support.training import train

    forked.build_as_written()
    engine = grpc_cluster.start(served.request(addresses, "worker", 0, 2))
    one_each = dataclasses.replace(engine, devices=engine.devices[1:3])
    inputs = {
        "variable_update": "distributed_parameter_server",
        "num_workers": 2,
        "trace_batches": 1,
    }
    synthetic = resolve({**inputs, **vars(LM), "batch_size": 2})
    step = benchmark.build(synthetic, one_each)
    step()
    partitions = [
        each for graphs in step.function_graphs for each in graphs.partition_graphs
    ]
    drawn = [
        op
        for op in step.graph().get_operations()
        if op.type.startswith("StatelessRandomUniformInt")
    ]
    result = {
        "engine": dataclasses.asdict(engine),
        "pids": _pids((*engine.devices, *engine.servers)),
        "drawn_on": sorted({op.device for op in drawn}),
        "copies": {
            (each["from"], each["to"]): each
            for each in placement.list_copies(partitions, step.graph())
        },
    }
    workload.INITIAL_RANGE = RANGE
    for name, (model, steps, towers, options) in VARIANTS.items():
        tf.config.optimizer.set_experimental_options(
            {"disable_meta_optimizer": name != REWRITTEN}
        )
        part = dataclasses.replace(engine, devices=engine.devices[towers])
        batches = make_batches(steps, len(part.devices), model)
        trained = train(part.devices, batches, model, engine=part, **inputs, **options)
        result[name] = {
            "replicas": trained["replicas"],
            "losses": trained["losses"],
            "bytes": sum_bytes_by_device(trained["update"].list_variables()),
        }
    return result


def _pids(devices):
    """Return the process number that each device's process reads itself."""
    import tensorflow as tf

    @tf.function(autograph=False)
    def read():
        files = []
        for device in devices:
            with tf.device(device):
                files.append(tf.io.read_file("/proc/self/stat"))
        return files

    return [int(file.numpy().split()[0]) for file in read()]


def _train_serially(model, steps, num_towers, **options):
    plain, losses = Serial(model, **options), []
    for towers in make_batches(steps, num_towers, model):
        loss, gradients = plain.gradient(concatenate(towers))
        plain.apply(gradients)
        losses.append(loss)
    return plain.weights, losses


@pytest.mark.parametrize("name", VARIANTS)
def test_towers_of_all_workers_train_as_one_on_the_global_batch(name, driven):
    model, steps, towers, options = VARIANTS[name]
    clipped = {
        key: value for key, value in options.items() if key == "max_gradient_norm"
    }
    weights, losses = _train_serially(
        model, steps, towers.stop - towers.start, **clipped
    )
    [replica] = driven[name]["replicas"]
    assert find_largest_difference(replica, weights) < TOLERANCE
    np.testing.assert_allclose(driven[name]["losses"], losses, rtol=1e-5)


def test_variables_lie_on_the_servers_balanced_by_bytes_and_split_where_told(driven):
    for name in VARIANTS:
        placed = driven[name]["bytes"]
        assert sorted(placed) == [
            f"/job:ps/replica:0/task:{server}/device:CPU:0" for server in range(2)
        ]
    assert max(driven["split"]["bytes"].values()) < 1.1 * min(
        driven["split"]["bytes"].values()
    )


def test_each_device_is_a_process_of_its_own_task(driven):
    processes = driven["processes"]
    first, second, third, fourth, *servers = driven["pids"]
    assert first == second not in processes.values()
    assert third == fourth == processes["worker", 1]
    assert servers == [processes["ps", 0], processes["ps", 1]]


def test_words_are_drawn_where_they_are_used_and_variables_go_straight_to_the_workers(
    driven,
):
    assert driven["drawn_on"] == list(driven["engine"]["devices"][1:3])
    tasks = {
        pair: re.findall(r"/job:(\w+)/replica:0/task:(\d)", " ".join(pair))
        for pair in driven["copies"]
    }
    between = {}
    for pair, copied in driven["copies"].items():
        between.setdefault(tuple("".join(task) for task in tasks[pair]), 0)
        between[tuple("".join(task) for task in tasks[pair])] += copied["bytes"]
    for worker in ("worker0", "worker1"):
        for server in ("ps0", "ps1"):
            assert between[server, worker] > 500 and between[worker, server] > 500
    assert between.get(("worker0", "worker1"), 0) < 200
    assert between.get(("worker1", "worker0"), 0) < 200


GROUPS, NUM_BATCHES = 20, 200
PATIENCE_S = 120.0  # for a worker that is late with its first step


@pytest.fixture(scope="module")
def coordinated():
    """Return the results of a coordinator with two workers and two servers.

    One worker is killed after GROUPS groups of steps.
    """
    with served.servers("coordinator", coordinator=1, worker=2, ps=2) as (
        addresses,
        processes,
    ):
        pids = {task: process.pid for task, process in processes.items()}
        return forked.call(_coordinate, addresses, pids["worker", 1]) | {
            "processes": pids
        }


@pytest.fixture(scope="module")
def coordinated_alone():
    """Return the results of a coordinator with one worker and one server."""
    with served.servers("coordinator", coordinator=1, worker=1, ps=1) as (addresses, _):
        return forked.call(_coordinate, addresses, None)


def _coordinate(addresses, victim):
    import os
    import signal
    import time

    from rnn_scaling.models import workload
    from rnn_scaling.training.engines import coordinator
    from rnn_scaling.training.scheduled_step import ScheduledStep
    from tests.support.training import FixedSource, build_workload, replicas

    engine = coordinator.start(served.request(addresses, "coordinator", 0, 1))
    workload.INITIAL_RANGE = RANGE
    update, config = _update(engine, LM, num_workers=len(addresses["worker"]))
    source = FixedSource(make_batches(NUM_BATCHES, 1, LM), engine.devices)
    step = ScheduledStep(build_workload(LM), source, update, engine, config)
    losses = [step().loss for _ in range(GROUPS)]
    deadline = time.monotonic() + PATIENCE_S
    while (
        victim
        and not _have_taken_turns(step.finished_steps)
        and time.monotonic() < deadline
    ):
        step()
    if victim:
        os.kill(victim, signal.SIGKILL)
        losses += [step().loss for _ in range(GROUPS)]
    surplus = step.end()
    return {
        "done": step.finished_steps,
        "losses": losses,
        "surplus": surplus,
        "replicas": replicas(update),
        "ran_on": _list_places(engine),
    }


def _have_taken_turns(done):
    """Return whether both workers ran steps, some fresh and some stale."""
    staleness = [step.staleness for step in done]
    return {step.worker for step in done} == {0, 1} and 0 == min(staleness) < max(
        staleness
    )


def _update(engine, model, **options):
    from rnn_scaling.training import benchmark
    from tests.support.training import build_workload

    given = {
        "variable_update": "async_parameter_server",
        "optimizer": "sgd",
        "learning_rate": 0.5,
    }
    resolved = resolve({**given, **vars(model), **options})
    return benchmark.build_update(resolved, engine, build_workload(model)), resolved


def _list_places(engine):
    # Operators have no device, or are on the host of the worker that runs the step.
    import tensorflow as tf

    @tf.function(autograph=False)
    def read():
        with tf.device("CPU:0"):
            host = tf.io.read_file("/proc/self/stat")
        return tf.io.read_file("/proc/self/stat"), host

    schedule = tf.distribute.coordinator.ClusterCoordinator(engine.strategy).schedule
    ran = [schedule(read).fetch() for _ in range(4)]
    return {int(text.split()[0]) for each in ran for text in each}


def test_one_worker_alone_trains_as_serial_and_is_never_stale(coordinated_alone):
    done = coordinated_alone["done"]
    weights, losses = _train_serially(LM, len(done), 1)
    assert [step.number for step in done] == list(range(len(done)))
    assert len(done) >= GROUPS
    assert (
        find_largest_difference(coordinated_alone["replicas"][0], weights) < TOLERANCE
    )
    np.testing.assert_allclose(coordinated_alone["losses"], losses[:GROUPS], rtol=1e-5)
    assert {step.staleness for step in done} == {0}
    assert coordinated_alone["surplus"] == 0


def test_each_step_is_done_once_also_when_a_worker_dies(coordinated):
    done = coordinated["done"]
    assert sorted(step.number for step in done) == list(range(len(done)))
    assert len(done) >= 4 * GROUPS
    assert coordinated["surplus"] in (
        0,
        1,
    )  # 1: the killed worker had counted a step that another ran again
    batches = make_batches(NUM_BATCHES, 1, LM)
    for step in done:
        [batch] = batches[step.number % NUM_BATCHES]
        assert step.items == batch.target_length.sum()


def test_workers_take_turns_and_after_a_death_the_other_goes_on(coordinated):
    done, others = coordinated["done"], coordinated["processes"]
    assert {step.worker for step in done} == {0, 1}
    assert {step.worker for step in done[-GROUPS:]} == {0}
    assert coordinated["ran_on"] == {others["worker", 0]}


def test_staleness_counts_the_updates_of_others_since_a_step_began(coordinated):
    staleness = [step.staleness for step in coordinated["done"]]
    assert 0 == min(staleness) < max(staleness) < len(staleness)
    assert set(staleness[-GROUPS:]) == {0}
