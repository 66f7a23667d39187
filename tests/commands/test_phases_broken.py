"""Traced runs whose records were damaged: each fault is named in a line, and nothing crashes."""

import json

import pytest

from rnn_scaling.commands import phases
from rnn_scaling.records import record
from tests.support.records import fields_of
from tests.support.traced_runs import step, traced

THREE = (step(0.9), step(1.0), step(1.1))


def told(capsys, path):
    status = phases.main([str(path)])
    out, err = capsys.readouterr()
    return status, out, err


BROKEN = {
    "trace.steps lists no step": lambda t: t.update(steps=[]),
    "trace.steps[0].seconds is 0; expected a number above 0": lambda t: t["steps"][0].update(seconds=0),
    "trace.steps[1].towers has 1 entries; expected the 2 towers of the run": lambda t: t["steps"][1]["towers"].pop(),
    "trace.steps[0].towers[1].tower is 0; expected 1": lambda t: t["steps"][0]["towers"][1].update(tower=0),
    "trace.steps[0].towers[0].parts lacks idle": lambda t: t["steps"][0]["towers"][0]["parts"].pop("idle"),
    "trace.steps[0].towers[0].busy is 3; expected": lambda t: t["steps"][0]["towers"][0].update(busy=3),
    "trace.steps[0].towers[0].parts sum to 0.19 s and the step has 0.09 s": lambda t: t["steps"][0]["towers"][0][
        "parts"
    ].update(idle=0.109),
    "trace.steps[0].towers[0].arrival_s is 'x'; expected": lambda t: t["steps"][0]["towers"][0].update(arrival_s="x"),
    "trace.steps[0].concurrency is '2'; expected": lambda t: t["steps"][0].update(concurrency="2"),
    "trace.steps[0].kernels is missing; expected": lambda t: t["steps"][0].update(kernels=None),
    "trace.steps[0].timeline: expected 400 letters": lambda t: t["steps"][0]["timeline"]["towers"].append("z"),
    "trace.cost is missing": lambda t: t.pop("cost"),
    "trace.cost.timed_s[0] is 0.0; expected a number above 0": lambda t: t["cost"].update(timed_s=[0.0]),
    "trace.cost.counted_s is []; expected seconds": lambda t: t["cost"].update(counted_s=[]),
    "trace.steps[1].towers[0].first_s is missing": lambda t: t["steps"][1]["towers"][0].pop("first_s"),
    "trace.steps[1].concurrency is missing": lambda t: t["steps"][1].pop("concurrency"),
    "trace.steps[2].kernels is 1000": lambda t: t["steps"][2].update(kernels=10**400),
    "trace.steps[0].towers[0].exchange.busy is 1e+308": lambda t: t["steps"][0]["towers"][0]["exchange"].update(
        busy=1e308
    ),
    "trace.cost.untraced_s is 1e-320": lambda t: t["cost"].update(untraced_s=1e-320),
    "trace.cost.stop_s is missing; expected seconds": lambda t: t["cost"].update(stop_s=None),
    "trace.items is missing; expected a number": lambda t: t.pop("items"),
    "trace.kernels is []; expected an object": lambda t: t.update(kernels=[]),
    "trace.kernels.steps lists no step": lambda t: t["kernels"].update(steps=[]),
    "trace.kernels.by_type.MatMul is 'many'; expected a number": lambda t: t["kernels"].update(
        by_type={"MatMul": "many"}
    ),
    "trace.kernels.input_pipeline is missing": lambda t: t["kernels"].pop("input_pipeline"),
    "trace.kernels.steps[2].host is missing": lambda t: t["kernels"]["steps"].append({}),
    "trace.kernels.by_phase[4] is 4; expected an object": lambda t: t["kernels"]["by_phase"].append(4),
    "trace.kernels.by_phase[0].tower is []; expected a number or null": lambda t: t["kernels"]["by_phase"][0].update(
        tower=[]
    ),
}


def faults_of(**parts):
    with pytest.raises(record.RecordError) as error:
        record.from_json(json.dumps({**fields_of(traced()), **parts}))
    return error.value.faults


@pytest.mark.parametrize("said", BROKEN)
def test_a_broken_trace_is_named(said, tmp_path, capsys):
    fields = fields_of(traced(*THREE))
    BROKEN[said](fields["trace"])
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


@pytest.mark.parametrize("broken", [[], 3, {"steps": 3}, {"steps": [3]}, {"steps": [{"seconds": 1, "towers": [1, 2]}]}])
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
