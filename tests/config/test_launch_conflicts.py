"""As many processes as a run has, and several only where it is of several."""

from __future__ import annotations

import dataclasses

import pytest

from rnn_scaling.cluster.launch import Launch
from rnn_scaling.commands.train import check_start
from rnn_scaling.config import conflicts, flags
from rnn_scaling.config import run_config as configs

COLLECTIVE = "--variable_update=collective_all_reduce"
SERVED = "--variable_update=distributed_parameter_server"
ASYNC = "--variable_update=async_parameter_server"


def parsed(words):
    return flags.parse(words.split(), configs.OPTIONS)


def config_of(given):
    return configs.resolve(given, num_gpus=0, num_cores=8)


def started(words, size=None, num_ps=None):
    """What is wrong with options of a run of which so many processes were started.

    size: None for a single process without a launcher. num_ps: servers of the launcher.
    """
    given = parsed(words)
    if size is None:
        return [*check_start(config_of(given), None)]
    launch = Launch(0, size, "mpirun", "127.0.0.1:20000", "127.0.0.1", 0, size)
    launch = dataclasses.replace(launch, num_ps=num_ps)
    given = configs.as_started(given, size, num_ps)
    return [*check_start(config_of(given), launch)]


@pytest.mark.parametrize("size", [2, 17])
def test_as_many_workers_as_were_started_where_the_user_does_not_say(size):
    assert configs.as_started(parsed(COLLECTIVE), size)["num_workers"] == size


@pytest.mark.parametrize(
    "words, size, num_ps",
    [
        (COLLECTIVE, None, None),
        (COLLECTIVE, 3, None),
        (f"{COLLECTIVE} --num_workers=3", 3, None),
        ("--variable_update=replicated --num_devices=4", None, None),
        (f"{SERVED} --num_workers=3 --num_ps=1", 4, None),
        (f"{ASYNC} --num_workers=3 --num_ps=1", 5, None),
        (SERVED, 4, 2),
        (ASYNC, 4, 2),
    ],
)
def test_a_run_may_be_started_so(words, size, num_ps):
    assert started(words, size, num_ps) == []


@pytest.mark.parametrize(
    "words, size, num_ps, part",
    [
        (f"{COLLECTIVE} --num_workers=3", 4, None, "mpirun started 4; start 3"),
        (f"{COLLECTIVE} --num_workers=3", None, None, "mpirun -np 3"),
        ("--variable_update=replicated", 4, None, "runs in one process"),
        (f"{ASYNC} --num_workers=3 --num_ps=1", 4, None, "need 5 processes (one of"),
        (COLLECTIVE, 4, 1, "needs 0 parameter servers and mpirun has 1;"),
        (f"{SERVED} --num_ps=1", 4, 2, "needs 1 parameter servers and mpirun has 2;"),
        (SERVED, 4, 0, "needs 1 parameter servers and mpirun has 0;"),
    ],
)
def test_other_numbers_are_refused_with_flag_rule_and_remedy(words, size, num_ps, part):
    (line,) = started(words, size, num_ps)
    assert line.startswith("--") and part in line


@pytest.mark.parametrize(
    "mode, roles",
    [
        (SERVED, ("worker", "worker", "ps", "ps")),
        (ASYNC, ("coordinator", "worker", "ps", "ps")),
    ],
)
def test_a_launcher_that_names_parameter_servers_has_its_way(mode, roles):
    given = configs.as_started(parsed(mode), 4, 2)
    assert config_of(given).roles() == roles


@pytest.mark.parametrize(
    "words, line",
    [
        (
            f"{COLLECTIVE} --variable_consistency=relaxed",
            "--variable_consistency=relaxed over --num_workers=2 needs",
        ),
        (f"{COLLECTIVE} --until_steady", "--until_steady=true ends each of"),
        (f"{COLLECTIVE} --stop_at_loss=1.5", "--stop_at_loss=1.5 ends each of"),
        (f"{COLLECTIVE} --all_reduce_spec=xring#2", "--all_reduce_spec=xring#2: xring"),
        (
            f"{COLLECTIVE} --global_batch_size=3 --num_devices=2",
            "--global_batch_size=3 must be at least --num_devices=2 x --num_workers=2",
        ),
        (
            "--variable_update=multi_worker_mirrored --num_devices=2",
            "--num_devices=2: MultiWorkerMirroredStrategy",
        ),
        (f"{ASYNC} --num_devices=3", "--num_devices=3: with"),
        (f"{ASYNC} --global_batch_size=3", "--global_batch_size=3 must be a multiple"),
        (f"{ASYNC} --data_source=host", "--data_source=host: with"),
        (f"{ASYNC} --trace_batches=1", "--trace_batches=1: with"),
        ("--variable_update=replicated", "--num_workers=2 would be ignored here;"),
    ],
)
def test_what_several_workers_cannot_is_refused(words, line):
    given = parsed(f"{words} --num_workers=2")
    lines = conflicts.problems(config_of(given), given, num_gpus=0)
    assert len(lines) == 1 and lines[0].startswith(line), lines


@pytest.mark.parametrize(
    "words",
    [
        f"{COLLECTIVE} --num_devices=2 --all_reduce_spec=collective"
        " --gradient_repacking=2",
        f"{SERVED} --num_devices=2 --data_source=host --until_steady"
        " --partition_large_variables",
        f"{ASYNC} --global_batch_size=4 --until_steady --num_ps=3",
    ],
)
def test_what_several_workers_can_is_not(words):
    given = parsed(f"{words} --num_workers=2")
    assert conflicts.problems(config_of(given), given, num_gpus=0) == []
