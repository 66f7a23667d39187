"""Damaged records of traced runs: each fault is named in one line."""

import functools
import json
import operator

import pytest

from rnn_scaling.commands import inspect
from rnn_scaling.records import record
from tests.support.records import read_fields
from tests.support.traced_runs import make_traced_run, step

THREE = (step(0.9), step(1.0), step(1.1))


def run(capsys, path):
    status = inspect.main([str(path)])
    out, err = capsys.readouterr()
    return status, out, err


GONE = object()
TOWER = ("steps", 0, "towers", 0)
# Each row has the field that is changed, its value, and the field that the error names.
BROKEN = [
    (("steps",), [], "steps"),
    (("steps", 1, "towers", 1), GONE, "steps[1].towers"),
    ((*TOWER, "parts", "idle"), 0.109, "steps[0].towers[0].parts"),
    (("steps", 0, "timeline", "towers"), ["z"], "steps[0].timeline"),
    ((*TOWER, "exchange", "busy"), 1e308, "steps[0].towers[0].exchange.busy"),
]


def find_faults(**parts):
    with pytest.raises(record.RecordError) as error:
        record.from_json(json.dumps({**read_fields(make_traced_run()), **parts}))
    return error.value.faults


@pytest.mark.parametrize("keys, value, field", BROKEN)
def test_a_broken_trace_is_named(keys, value, field, tmp_path, capsys):
    fields = read_fields(make_traced_run(*THREE))
    *path, last = keys
    holder = functools.reduce(operator.getitem, path, fields["trace"])
    if value is GONE:
        del holder[last]
    else:
        holder[last] = value
    path = tmp_path / "run.json"
    path.write_text(json.dumps(fields))
    status, out, err = run(capsys, path)
    assert (status, out) == (1, "")
    assert err.startswith(f"error: {path}: trace.{field}")
    assert err.count("\n") == 1


@pytest.mark.parametrize("broken", [3, {"steps": [{"seconds": 1, "towers": [1, 2]}]}])
def test_a_foreign_trace_is_an_error(broken):
    assert any(line.startswith("trace") for line in find_faults(trace=broken))


@pytest.mark.parametrize(
    "broken", [{"python": 3, "partitions": {}}, {"partitions": {"operators": 1}}]
)
def test_a_foreign_graph_is_an_error(broken):
    faults = find_faults(graph=broken)
    assert any(line.startswith("graph.partitions.by_type is") for line in faults)
    assert any(line.startswith("graph.python") for line in faults)
