"""Workers with Horovod train like one process and end together.

These tests are skipped if Horovod is not built.
"""

import dataclasses
import importlib.util
import os
import socket
import threading

import numpy as np
import pytest

from tests.support import ranks
from tests.support.forked import TINY
from tests.support.ranks import Ranks
from tests.training.test_cluster import (
    MODEL,
    assert_equal_weights,
    read_record,
    run,
    text,  # noqa: F401 - a fixture
)

HOROVOD = "--variable_update=horovod"
built = pytest.mark.skipif(
    importlib.util.find_spec("horovod") is None,
    reason="no Horovod; ./run.sh setup-horovod builds it",
)


def test_workers_are_numbered_among_those_of_their_host_and_across_hosts(tf):
    from rnn_scaling.training.engines.horovod import make_slot_variables

    def numbers(hosts, rank):
        said = make_slot_variables(hosts, rank)
        assert said["HOROVOD_HOSTNAME"] == hosts[rank]
        names = ("", "LOCAL_", "CROSS_")
        return [
            f"{said[f'HOROVOD_{name}RANK']}/{said[f'HOROVOD_{name}SIZE']}"
            for name in names
        ]

    assert [numbers(["a", "a"], rank) for rank in range(2)] == [
        ["0/2", "0/2", "0/1"],
        ["1/2", "1/2", "0/1"],
    ]
    uneven = ["a", "b", "a"]
    assert [numbers(uneven, rank) for rank in range(3)] == [
        ["0/3", "0/2", "0/2"],
        ["1/3", "0/1", "1/2"],
        ["2/3", "1/2", "0/1"],
    ]


def test_a_worker_waits_for_the_table_by_which_gloo_finds_the_others(tf, monkeypatch):
    """Horovod ends a process that asks for the table before worker 0 serves it."""
    from rnn_scaling.system.machine.gpus import DeviceError
    from rnn_scaling.training.cluster import RankPosition
    from rnn_scaling.training.engines import horovod

    monkeypatch.setattr(os, "environ", {"HOROVOD_GLOO_IFACE": "lo"})
    with socket.socket() as late:
        late.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{late.getsockname()[1]}"
        position = RankPosition(
            "worker", 1, {"worker": (address, "127.0.0.1:1")}, timeout_s=0.3
        )
        with pytest.raises(DeviceError, match=rf"{address} .*--cluster_timeout"):
            horovod._prepare_gloo(position)
        waiting = threading.Thread(
            target=horovod._prepare_gloo,
            args=(dataclasses.replace(position, timeout_s=60.0),),
        )
        waiting.start()
        waiting.join(0.3)
        assert waiting.is_alive()
        late.listen()
        waiting.join(60)
        assert not waiting.is_alive()


# Flags of all workers, towers per worker, and flags of one equal process.
CASES = {
    "weak": (
        ["--batch_size=3"],
        1,
        ["--variable_update=replicated", "--num_devices=2"],
    ),
    "strong with a remainder, two towers a worker": (
        [
            "--global_batch_size=7",
            "--max_gradient_norm=0.5",
            "--sparse_gradients=densify",
        ],
        2,
        ["--variable_update=replicated"],
    ),
}


@built
@pytest.mark.parametrize("case", CASES)
def test_two_workers_train_what_one_process_trains(case, text, tmp_path):  # noqa: F811
    words, towers, words_of_one = CASES[case]
    words = [*MODEL, *text, *words]
    both, one = tmp_path / "both", tmp_path / "one"
    for done in [
        *run(both, 2, *words, HOROVOD, f"--num_devices={towers}"),
        *run(one, 1, *words, *words_of_one),
    ]:
        assert done.returncode == 0, done.stderr
    expected = ranks.weights(one / "weights_0")
    for rank in range(2):
        for tower in range(towers):
            assert_equal_weights(
                ranks.weights(both / f"weights_{rank}", tower), expected
            )
    batches, reference = read_record(both).batches, read_record(one).batches
    np.testing.assert_allclose(batches.loss, reference.loss, rtol=1e-4)
    assert batches.items == reference.items


@built
def test_a_worker_that_is_killed_ends_the_run(tmp_path):
    words = [
        *TINY,
        HOROVOD,
        "--progress=false",
        "--cluster_heartbeat=2",
        f"--result_file={tmp_path}/run.json",
    ]
    with Ranks(words, tmp_path, 2, prepare={1: (ranks.kill_itself, 3)}) as started:
        rank_0, rank_1 = started.end()
    errors = [line for line in rank_0.stderr.splitlines() if line.startswith("error:")]
    assert (rank_0.returncode, rank_1.returncode, len(errors)) == (1, -9, 1), (
        rank_0.stderr
    )
    assert errors[0].startswith("error: rank 1 ")
    assert read_record(tmp_path).status == "failed"
