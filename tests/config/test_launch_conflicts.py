"""A run needs the number of processes that follows from its options."""

import dataclasses

import pytest

from rnn_scaling.cluster.launch import Launch
from rnn_scaling.commands.train import check_start
from rnn_scaling.config import conflicts, flags
from rnn_scaling.config import run_config as configs
from tests.support.configs import resolve

COLLECTIVE = "--variable_update=collective_all_reduce"
SERVED = "--variable_update=distributed_parameter_server"
ASYNC = "--variable_update=async_parameter_server"


def parse_words(words):
    return flags.parse(words.split(), configs.OPTIONS)


def resolve_config(user_options):
    return resolve(user_options)


def find_start_errors(words, size=None, num_ps=None):
    """Return the errors of a run.

    Args:
      words: The options of the run.
      size: Number of processes that a launcher started; None without a launcher.
      num_ps: Parameter servers of the launcher.
    """
    user_options = parse_words(words)
    if size is None:
        return [*check_start(resolve_config(user_options), None)]
    launch = Launch(0, size, "mpirun", "127.0.0.1:20000", "127.0.0.1", 0, size)
    launch = dataclasses.replace(launch, num_ps=num_ps)
    user_options = configs.add_launcher_size(user_options, size, num_ps)
    return [*check_start(resolve_config(user_options), launch)]


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
def test_the_right_number_of_processes_is_accepted(words, size, num_ps):
    assert find_start_errors(words, size, num_ps) == []


@pytest.mark.parametrize(
    "words, size, num_ps, part",
    [
        (f"{COLLECTIVE} --num_workers=3", 4, None, "mpirun started 4; start 3"),
        (f"{COLLECTIVE} --num_workers=3", None, None, "mpirun -np 3"),
        ("--variable_update=replicated", 4, None, "runs in one process"),
        (f"{ASYNC} --num_workers=3 --num_ps=1", 4, None, "need 5 processes (one of"),
        (COLLECTIVE, 4, 1, "must be 0, but is 1 in mpirun;"),
        (f"{SERVED} --num_ps=1", 4, 2, "must be 1, but is 2 in mpirun;"),
        (SERVED, 4, 0, "must be 1, but is 0 in mpirun;"),
    ],
)
def test_other_numbers_are_refused_with_the_remedy(words, size, num_ps, part):
    [line] = find_start_errors(words, size, num_ps)
    assert line.startswith("--") and part in line


def find_conflicts(words):
    user_options = parse_words(f"{words} --num_workers=2")
    return conflicts.find_problems(
        resolve_config(user_options), user_options, num_gpus=0
    )


@pytest.mark.parametrize(
    "words, line",
    [
        (f"{COLLECTIVE} --variable_consistency=relaxed", "--variable_consistency="),
        (f"{COLLECTIVE} --until_steady", "--until_steady=true would let each of"),
        (f"{COLLECTIVE} --stop_at_loss=1.5", "--stop_at_loss=1.5 would let each of"),
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
def test_options_that_workers_do_not_support_are_refused(words, line):
    lines = find_conflicts(words)
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
def test_options_that_workers_support_are_accepted(words):
    assert find_conflicts(words) == []
