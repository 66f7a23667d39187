"""Traced runs whose records were damaged: each fault is named in a line, and nothing crashes."""

import functools
import json
import operator

import pytest

from rnn_scaling.commands import inspect
from rnn_scaling.records import record
from tests.support.records import fields_of
from tests.support.traced_runs import step, traced

THREE = (step(0.9), step(1.0), step(1.1))


def told(capsys, path):
    status = inspect.main([str(path)])
    out, err = capsys.readouterr()
    return status, out, err


GONE = object()
BROKEN = [
    (("steps",), [], "trace.steps lists no step"),
    (
        ("steps", 0, "seconds"),
        0,
        "trace.steps[0].seconds is 0; expected a number above 0",
    ),
    (("steps", 1, "towers", 1), GONE, "trace.steps[1].towers has 1 entries"),
    (
        ("steps", 0, "towers", 1, "tower"),
        0,
        "trace.steps[0].towers[1].tower is 0; expected 1",
    ),
    (
        ("steps", 0, "towers", 0, "parts", "idle"),
        GONE,
        "trace.steps[0].towers[0].parts lacks idle",
    ),
    (
        ("steps", 0, "towers", 0, "parts", "idle"),
        0.109,
        "trace.steps[0].towers[0].parts sum to 0.19",
    ),
    (
        ("steps", 0, "towers", 0, "arrival_s"),
        "x",
        "trace.steps[0].towers[0].arrival_s is 'x'; expected",
    ),
    (("steps", 0, "timeline", "towers"), ["z"], "trace.steps[0].timeline: expected"),
    (("cost",), GONE, "trace.cost is missing"),
    (("steps", 2, "kernels"), 10**400, "trace.steps[2].kernels is 1000"),
    (
        ("steps", 0, "towers", 0, "exchange", "busy"),
        1e308,
        "trace.steps[0].towers[0].exchange.busy is 1e+308",
    ),
    (("kernels", "steps"), [{}], "trace.kernels.steps[0].host is missing"),
]


def faults_of(**parts):
    with pytest.raises(record.RecordError) as error:
        record.from_json(json.dumps({**fields_of(traced()), **parts}))
    return error.value.faults


@pytest.mark.parametrize("place, value, said", BROKEN)
def test_a_broken_trace_is_named(place, value, said, tmp_path, capsys):
    fields = fields_of(traced(*THREE))
    *path, last = place
    holder = functools.reduce(operator.getitem, path, fields["trace"])
    if value is GONE:
        del holder[last]
    else:
        holder[last] = value
    path = tmp_path / "run.json"
    path.write_text(json.dumps(fields))
    status, out, err = told(capsys, path)
    assert (status, out) == (1, "")
    assert err.startswith(f"error: {path}: {said}") and err.count("\n") == 1


@pytest.mark.parametrize("name", ["cpu_limit", "memory_bytes", "cpu_mhz"])
def test_a_number_that_no_machine_has_is_named(name, tmp_path, capsys):
    fields = fields_of(traced(*THREE))
    fields["environment"][name] = [10**400, 1] if name == "cpu_mhz" else 10**400
    (tmp_path / "run.json").write_text(json.dumps(fields))
    status, _, err = told(capsys, tmp_path / "run.json")
    assert status == 1 and f"environment.{name}" in err and err.count("\n") == 1


@pytest.mark.parametrize(
    "broken",
    [
        [],
        3,
        {"steps": 3},
        {"steps": [3]},
        {"steps": [{"seconds": 1, "towers": [1, 2]}]},
    ],
)
def test_a_foreign_trace_is_no_crash(broken):
    assert any(line.startswith("trace") for line in faults_of(trace=broken))


@pytest.mark.parametrize(
    "broken",
    [
        {"python": 3, "partitions": {}},
        {"python": {"operators": "1"}, "partitions": {}},
        {"partitions": {"operators": 1}},
    ],
)
def test_a_foreign_graph_is_no_crash(broken):
    faults = faults_of(graph=broken)
    assert any(line.startswith("graph.partitions.by_type is") for line in faults)
    assert any(line.startswith("graph.python") for line in faults)
