"""The failure of a run as data: ranks send it to each other and accept nothing else."""

import pytest

from rnn_scaling.cluster import wire
from rnn_scaling.cluster.failure import Failure, FailureKind
from tests.cluster.ranks import join_connections


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"kind": "lost", "rank": 1},
        {"kind": "lost", "rank": "1", "message": "killed"},
        {"kind": "lost", "rank": 1, "message": 5},
        {"kind": "no such kind", "rank": 1, "message": "killed"},
        None,
    ],
)
def test_anything_else_is_refused(fields):
    with pytest.raises(wire.InvalidMessage):
        wire.decode_failure({"kind": "failed", "failure": fields})


def test_a_failure_belongs_to_the_rank_that_sends_it():
    connections = join_connections(3)
    forged = Failure(FailureKind.INTERRUPTED, 2, "rank 2 ended: interrupted")
    connections[1]._send(wire.encode("abort", failure=forged.to_json()))
    for connection in connections:
        connection.failed.wait()
    assert {connection.failure.rank for connection in connections} == {1}
