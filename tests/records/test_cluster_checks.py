"""A record of several processes holds together, or its faults are named with their places."""

from __future__ import annotations

import json

import pytest

from rnn_scaling.records import record
from tests.support.records import changed, fields_of
from tests.support.scaling_runs import cluster

FAULTS = {
    "workers.ranks[2].rank is 1 again; expected each rank once": lambda f: f["workers"][
        "ranks"
    ][2].update(rank=1),
    "workers.ranks are in the order [1, 0, 2]; expected their numbers to rise": lambda f: (
        f["workers"]["ranks"][0].update(rank=1),
        f["workers"]["ranks"][1].update(rank=0),
    ),
    "workers.ranks[0].role is 'chief'; expected worker, ps, coordinator": lambda f: f[
        "workers"
    ]["ranks"][0].update(role="chief"),
    "workers.ranks[1].items has 11 entries; expected one for each of the run's 12 batches": lambda f: (
        f["workers"]["ranks"][1]["items"].pop()
    ),
    "workers.ranks[1].ready has 11 entries; expected one for each of the run's 12 batches": lambda f: (
        f["workers"]["ranks"][1]["ready"].pop()
    ),
    "workers.ranks[0].phases sum to ": lambda f: f["workers"]["ranks"][0][
        "phases"
    ].update(total=99.0),
    "batches.seconds[10] is ": lambda f: f["workers"]["ranks"][1][
        "seconds"
    ].__setitem__(10, 9.0),
    "batches.items[3] is 3000, and the ranks make it 3001": lambda f: f["workers"][
        "ranks"
    ][1]["items"].__setitem__(3, 1001),
    "batches.tower_positions[4] is [1000, 1000, 1001], and the ranks make it ": lambda f: (
        f["batches"]["tower_positions"].__setitem__(4, [1000, 1000, 1001])
    ),
    "workers.window_seconds is 99, and the measured batches make ": lambda f: f[
        "workers"
    ].update(window_seconds=99.0),
    "workers.staleness.many: expected a number of updates": lambda f: f[
        "workers"
    ].update(staleness={"many": 1}),
    "batches.tower_items[0] is [1000, 1000, 1000]; expected a number for each of the 4 towers": lambda f: (
        f["config"].update(num_workers=4)
    ),
}


def test_a_record_of_several_processes_survives_json(tmp_path):
    original = cluster(3, 3000, batches=12, devices=2, late=1)
    record.write(original, tmp_path / "run.json")
    assert record.read(tmp_path / "run.json") == original


@pytest.mark.parametrize("fault", FAULTS)
def test_what_does_not_hold_together_is_named(fault):
    fields = fields_of(cluster(3, 3000, batches=12))
    FAULTS[fault](fields)
    with pytest.raises(record.RecordError) as refused:
        record.from_json(json.dumps(fields))
    assert fault in str(refused.value)


def test_what_was_measured_of_a_run_that_failed_or_lost_workers_is_kept():
    failed = fields_of(changed(cluster(3, 3000, batches=12), throughput={}))
    failed |= {
        "status": "failed",
        "error": {"type": "ClusterError", "message": "rank 2 on c is silent"},
    }
    failed["workers"]["ranks"][2]["seconds"] = []
    assert record.from_json(json.dumps(failed)).workers.ranks[2].seconds == ()
    lost = fields_of(cluster(3, 3000, batches=12))
    lost["workers"]["lost"] = [{"rank": 3, "error": "killed by signal 9"}]
    lost["config"]["num_workers"] = 4
    assert (
        record.from_json(json.dumps(lost)).workers.lost[0].error == "killed by signal 9"
    )
