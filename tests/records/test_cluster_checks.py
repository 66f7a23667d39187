"""A record of several processes is consistent, or its faults are listed with paths."""

import json

import pytest

from rnn_scaling.records import record
from tests.support.records import change_record, read_fields
from tests.support.scaling_runs import cluster

# Path of a changed value, the new value, and the start of the fault.
FAULTS = [
    ("workers.ranks.2.rank", 1, "workers.ranks[2].rank is 1 a second time; "),
    ("workers.ranks.0.rank", 9, "workers.ranks are in the order [9, 1, 2]; "),
    ("workers.ranks.0.role", "chief", "workers.ranks[0].role is 'chief'; "),
    ("workers.ranks.1.items", [1000] * 11, "workers.ranks[1].items has length 11; "),
    ("workers.ranks.1.ready", [0.1] * 11, "workers.ranks[1].ready has length 11; "),
    ("workers.ranks.0.phases.total", 99.0, "workers.ranks[0].phases sum to "),
    ("workers.ranks.1.seconds.10", 9.0, "batches.seconds[10] is "),
    (
        "workers.ranks.1.items.3",
        1001,
        "batches.items[3] is 3000, but the ranks give 3001",
    ),
    (
        "batches.tower_positions.4",
        [1000, 1000, 1001],
        "batches.tower_positions[4] is [1000, 1000, 1001], but the ranks give ",
    ),
    ("workers.window_seconds", 99.0, "workers.window_seconds is 99, but "),
    ("workers.staleness", {"many": 1}, "workers.staleness.many "),
    ("config.num_workers", 4, "batches.tower_items[0] is [1000, 1000, 1000]; "),
]


def change(fields, path, value):
    """Set the value at a path such as "batches.seconds.3"."""
    *parents, name = path.split(".")
    for parent in parents:
        fields = fields[int(parent) if parent.isdigit() else parent]
    fields[int(name) if name.isdigit() else name] = value


def test_a_record_of_several_processes_survives_json(tmp_path):
    original = cluster(3, 3000, batches=12, devices=2, late=1)
    record.write(original, tmp_path / "run.json")
    assert record.read(tmp_path / "run.json") == original


@pytest.mark.parametrize("path, value, fault", FAULTS)
def test_an_inconsistency_is_a_fault(path, value, fault):
    fields = read_fields(cluster(3, 3000, batches=12))
    change(fields, path, value)
    with pytest.raises(record.RecordError) as refused:
        record.from_json(json.dumps(fields))
    assert fault in str(refused.value)


def test_a_run_that_failed_or_lost_workers_keeps_its_measurements():
    failed = read_fields(change_record(cluster(3, 3000, batches=12), throughput={}))
    failed["status"] = "failed"
    failed["error"] = {"type": "ClusterError", "message": "rank 2 on c is silent"}
    failed["workers"]["ranks"][2]["seconds"] = []
    assert record.from_json(json.dumps(failed)).workers.ranks[2].seconds == ()
    lost = read_fields(cluster(3, 3000, batches=12))
    lost["workers"]["lost"] = [{"rank": 3, "error": "killed by signal 9"}]
    lost["config"]["num_workers"] = 4
    [rank] = record.from_json(json.dumps(lost)).workers.lost
    assert rank.error == "killed by signal 9"
