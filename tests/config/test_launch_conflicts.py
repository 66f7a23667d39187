"""As many processes as a run has, and several only where it is of several."""

from __future__ import annotations

import dataclasses

import pytest

from rnn_scaling.cluster.launch import Launch
from rnn_scaling.commands.train import started_otherwise
from rnn_scaling.config import conflicts
from rnn_scaling.config import run_config as configs

COLLECTIVE = {"variable_update": "collective_all_reduce"}
SERVED = {"variable_update": "distributed_parameter_server"}
ASYNC = {"variable_update": "async_parameter_server"}


def launch(size: int) -> Launch:
    return Launch(0, size, "mpirun", "127.0.0.1:20000", "127.0.0.1", 0, size)


def config_of(**options) -> configs.RunConfig:
    return configs.resolve(options, num_gpus=0, num_cores=8)


def started(size: int | None, **options) -> list[str]:
    """What is wrong with options of a run of which so many processes were started; None: one, without a launcher."""
    given = options if size is None else configs.as_started(options, size)
    return [
        *started_otherwise(config_of(**given), None if size is None else launch(size))
    ]


@pytest.mark.parametrize("size", [2, 3, 17])
def test_as_many_workers_as_were_started_where_the_user_does_not_say(size):
    assert configs.as_started(COLLECTIVE, size)["num_workers"] == size
    assert (
        started(size, **COLLECTIVE)
        == []
        == started(size, **COLLECTIVE, num_workers=size)
    )


def test_one_worker_alone_needs_no_launcher():
    assert started(None, **COLLECTIVE) == []
    assert started(None, variable_update="replicated", num_devices=4) == []


def test_other_numbers_are_refused_with_flag_rule_and_remedy():
    (line,) = started(4, **COLLECTIVE, num_workers=3)
    assert line.startswith("--num_workers=3 with")
    assert "mpirun started 4; start 3" in line


def test_several_workers_without_a_launcher_are_refused_with_the_commands_that_start_them():
    (line,) = started(None, **COLLECTIVE, num_workers=3)
    assert "and one was started; use" in line and "mpirun -np 3" in line


def test_a_mode_of_one_process_does_not_run_several_times():
    (line,) = started(4, variable_update="replicated")
    assert line.startswith("--variable_update=replicated runs in")


@pytest.mark.parametrize(
    "options, phrase",
    [
        (
            {**COLLECTIVE, "variable_consistency": "relaxed"},
            "--variable_consistency=relaxed over --num_workers=2 needs --sparse_gradients=densify",
        ),
        (
            {**COLLECTIVE, "until_steady": True},
            "--until_steady=true ends each of --num_workers=2 by its own clock",
        ),
        (
            {**COLLECTIVE, "stop_at_loss": 1.5},
            "--stop_at_loss=1.5 ends each of --num_workers=2 by its own clock or loss",
        ),
        (
            {**COLLECTIVE, "all_reduce_spec": "xring#2"},
            "xring works within one process, but --num_workers=2; use auto",
        ),
        (
            {**COLLECTIVE, "global_batch_size": 3, "num_devices": 2},
            "--num_devices=2 x --num_workers=2: every tower",
        ),
        (
            {"variable_update": "multi_worker_mirrored", "num_devices": 2},
            "--num_devices=2: MultiWorkerMirroredStrategy",
        ),
        (
            {**ASYNC, "num_devices": 3},
            "a step has one tower; use --num_devices=1 --num_workers=6",
        ),
        (
            {**ASYNC, "global_batch_size": 3},
            "--global_batch_size=3 must be a multiple of --num_workers=2",
        ),
        (
            {**ASYNC, "data_source": "host"},
            "--data_source=host: with --variable_update=async_parameter_server a step",
        ),
        (
            {**ASYNC, "trace_batches": 1},
            "trace --variable_update=distributed_parameter_server",
        ),
        (
            {"variable_update": "replicated"},
            "--num_workers=2 would be ignored here; it needs --variable_update=",
        ),
    ],
)
def test_what_several_workers_cannot_is_refused(options, phrase):
    given = {**options, "num_workers": 2}
    lines = conflicts.problems(config_of(**given), given, num_gpus=0)
    assert len(lines) == 1 and phrase in lines[0], lines


@pytest.mark.parametrize(
    "options",
    [
        {
            **COLLECTIVE,
            "num_devices": 2,
            "all_reduce_spec": "collective",
            "gradient_repacking": 2,
        },
        {
            **SERVED,
            "num_devices": 2,
            "data_source": "host",
            "until_steady": True,
            "partition_large_variables": True,
        },
        {**ASYNC, "global_batch_size": 4, "until_steady": True, "num_ps": 3},
    ],
)
def test_what_several_workers_can_is_not(options):
    given = {**options, "num_workers": 2}
    assert conflicts.problems(config_of(**given), given, num_gpus=0) == []


def test_processes_are_counted_with_servers_and_coordinator():
    assert (
        started(4, **SERVED, num_workers=3, num_ps=1)
        == []
        == started(5, **ASYNC, num_workers=3, num_ps=1)
    )
    (line,) = started(4, **ASYNC, num_workers=3, num_ps=1)
    assert "need 5 processes (one of" in line


@pytest.mark.parametrize("mode, num_ps, roles", [
    ("distributed_parameter_server", 2, ("worker", "worker", "ps", "ps")),
    ("async_parameter_server", 2, ("coordinator", "worker", "ps", "ps")),
])  # fmt: skip
def test_a_launcher_that_names_parameter_servers_has_its_way(mode, num_ps, roles):
    given = configs.as_started({"variable_update": mode}, 4, num_ps)
    assert config_of(**given).roles() == roles
    assert [
        *started_otherwise(
            config_of(**given), dataclasses.replace(launch(4), num_ps=num_ps)
        )
    ] == []


@pytest.mark.parametrize("options, num_ps, line", [
    (COLLECTIVE, 1, "collective_all_reduce needs 0 parameter servers and mpirun has 1;"),
    ({**SERVED, "num_ps": 1}, 2, "distributed_parameter_server needs 1 parameter servers and mpirun has 2;"),
    (SERVED, 0, "distributed_parameter_server needs 1 parameter servers and mpirun has 0;"),
])  # fmt: skip
def test_servers_that_the_launcher_does_not_name_are_refused(options, num_ps, line):
    config = config_of(**configs.as_started(options, 4, num_ps))
    (refusal,) = started_otherwise(
        config, dataclasses.replace(launch(4), num_ps=num_ps)
    )
    assert line in refusal
