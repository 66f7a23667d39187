"""Counts of runs as tables and statements, and the command inspect."""

import dataclasses
import json
import re
import sys
from unittest import mock

import pytest

from rnn_scaling.analysis.steps import counts, growth
from rnn_scaling.commands import inspect
from rnn_scaling.records import record
from rnn_scaling.reports import counts_report
from rnn_scaling.reports.sections import format_markdown
from rnn_scaling.system.processes import process
from tests.support import fake_tracer
from tests.support.fake_tracer import record_of
from tests.support.python import python
from tests.support.records import change_record, read_fields

TRACER = (sys.executable, "-m", "tests.support.fake_tracer")
ENCODERS = ("cudnn_lstm", "dynamic_rnn")
BOTH = [
    {"encoder_type": encoder, "num_devices": n} for encoder in ENCODERS for n in (1, 2)
]


def runs(*given, **common):
    """Records by name."""
    return {f"run{i}": record_of({**common, **each}) for i, each in enumerate(given)}


def format_found(found, is_full=False):
    return format_markdown(counts_report.make_sections(found, is_full))


def kinds(found):
    return [statement.kind for statement in counts_report.state_agreement(found)]


def test_the_tables_are_exact(is_golden):
    """A run on a GPU has kernels of both sides, and a missing run is n/a."""
    given = runs(*BOTH[:3])
    split = {"host": 187, "device": 1094, "copies": 5, "dispatched": 300}
    trace = read_fields(given["run0"])["trace"]
    trace["kernels"] |= {"steps": [split, split], "by_type": {"LoopCond": 1281}}
    given["run0"] = change_record(given["run0"], trace=trace)
    text = format_found(counts.inspect(given), is_full=True)
    assert is_golden("inspect.md", text)


def test_statements_have_the_counts():
    one, two = counts.inspect(runs(BOTH[0], BOTH[2])).groups[0].counts
    assert counts.count_loops(two) == 8
    assert counts.count_iterations(two) == 120
    # 4 or 8 loops with 60 or 120 iterations of 35 kernels, and 3 sends.
    assert one.kernels == 2115
    assert two.kernels == 4227
    found = {}
    for made in counts.compare_encoders(one, two):
        found[made.kind, made.subject] = made.values
    ratio = found["kernels-ratio", "dynamic_rnn"]["kernel_ratio"]
    assert ratio == pytest.approx(2, abs=0.005)
    assert found["encoder-kernel", "cudnn_lstm"] == {"kernel": "ABlock"}
    # Merge, Switch and NextIteration; LoopCond; Enter and Exit.
    control = 120 * 28 + 128 + 16
    loops = found["loops", "dynamic_rnn"]
    names = ("loops", "iterations", "carried", "control")
    assert [loops[name] for name in names] == [8, 120, 8.0, control]
    parts = counts.sum_families(two.kernels_by_type)
    assert list(parts.values()) == [control, 600, 120 + 3]
    assert sum(parts.values()) == two.kernels
    only = {"MatMul": 3}
    flat = dataclasses.replace(
        one, operators_by_type=only, kernels_by_type=only, host=3
    )
    assert "no-loops" in [made.kind for made in counts.compare_encoders(flat, two)]


def test_a_difference_between_runs_is_named_and_not_averaged():
    given = runs(BOTH[0])
    given["again"] = record_of(BOTH[0], Merge=601)
    found = counts.inspect(given)
    steps, host, by_type, by_phase = found.differences
    [change] = steps.values["changes"]
    assert change.values == {"name": "host", "count": 2116, "expected": 2115}
    assert host.values["name"] == "host" and host.values["difference"] == 1
    for table, name in ((by_type, "Merge"), (by_phase, "forward")):
        [change] = table.values["changes"]
        assert change.values == {"name": name, "difference": 1}
    assert kinds(found) == ["counts-differ"] * 4
    assert "host: 2,115 in run0, 2,116 in again (+1)" in format_found(found)


def test_onednn_is_named_if_counts_depend_on_it():
    given = runs({"num_devices": 1}, {"num_devices": 1})
    for name, run in given.items():
        given[name] = change_record(run, resolved={"onednn": False})
    assert "onednn-off" in kinds(counts.inspect(given))
    given["run1"] = change_record(given["run1"], resolved={"onednn": True})
    [difference] = counts.inspect(given).differences
    assert difference.values["old"] == "off"
    assert difference.values["new"] == "on"


def test_batches_of_text_may_differ_from_step_to_step():
    given = runs({"data_source": "text", "num_devices": 1})
    trace = read_fields(given["run0"])["trace"]
    trace["kernels"]["steps"][0]["host"] += 1
    given["run0"] = change_record(given["run0"], trace=trace)
    found = counts.inspect(given)
    assert not found.differences
    [difference] = found.varying
    assert difference.kind == "step-differs" and difference.values["step"] == 2
    assert kinds(found) == ["counts-vary", "counts-of-last-step"]


def test_a_trace_without_kernels_of_loops_is_found():
    found = counts.inspect({"light": record_of(BOTH[0], LoopCond=0)})
    missing = {made.kind: made.values for made in found.differences}
    assert missing["loop-kernels-missing"]["loops"] == 4


def test_runs_without_counts_are_left_out_by_name():
    given = runs(*BOTH[:2])
    given["run0"] = dataclasses.replace(given["run0"], trace=None, graph=None)
    given["run1"] = dataclasses.replace(given["run1"], status="failed")
    left_out = [made.kind for made in counts.inspect(given).left_out]
    assert left_out == ["run-without-trace", "run-not-ok"]


def test_groups_depend_on_the_computation_but_not_on_the_measurement():
    measured = [{"num_batches": 3}]
    measured.append({"num_batches": 7, "inter_op_parallelism_threads": 9})
    found = counts.inspect(runs(*measured, encoder_type="cudnn_lstm"))
    [group] = found.groups
    assert [each.runs for each in group.counts] == [2] and not found.differences
    assert "counts-repeat" in kinds(found)
    modes = [{"variable_update": "replicated"}]
    modes.append({"variable_update": "independent", "num_units": 9})
    titles = [group.title for group in counts.inspect(runs(*modes)).groups]
    assert titles == ["replicated, num_units=256", "independent, num_units=9"]


LENGTHS = [{"encoder_type": "dynamic_rnn", "src_max_len": n} for n in (10, 20, 40)]


def test_growth_is_a_line_that_must_be_exact():
    found = growth.fit_lines(counts.inspect(runs(*LENGTHS)).groups)
    whole = next(line for line in found if line.phase == "all")
    assert (whole.lengths, whole.is_exact) == ((10, 20, 40), True)
    assert counts_report.format_formula(whole) == "2,127 + 70 T"
    bent = dataclasses.replace(whole, values=(*whole.values[:2], whole.values[2] + 1))
    assert not bent.is_exact
    assert dataclasses.replace(whole, values=(5, 5, 5)).slope == 0
    assert not growth.fit_lines(counts.inspect(runs(*BOTH)).groups)
    two = format_found(counts.inspect(runs(*LENGTHS[:2])))
    assert "2,127 + 70 T (only two lengths)" in two


def go(tmp_path, *words):
    with mock.patch.object(process, "subprocess", fake_tracer.forks()):
        return inspect.main([f"--out={tmp_path}/out", *words], trainer=TRACER)


def test_the_command_runs_counts_and_writes(tmp_path, capsys):
    words = ["--encoder_type=cudnn_lstm,dynamic_rnn", "--num_devices=1", "--repeats=2"]
    assert go(tmp_path, *words) == 0
    out = capsys.readouterr().out
    assert "2,115 [2,115 / 0]" in out and "4 runs" in out
    held = record.read(tmp_path / "out/dynamic_rnn-replicated-1.r2.json").config
    assert held["trace_batches"] == 2
    assert held["num_batches"] == 3
    assert (tmp_path / "out/inspect.md").read_text().count("\n## ") == 4
    data = json.loads((tmp_path / "out/inspect.json").read_text())
    assert data["schema"] == "rnn_scaling.inspect/1"
    counted = data["groups"][0]["counts"]
    assert [each["kernels"] for each in counted] == [2115, 4227]
    assert counted[0]["runs"] == 2
    assert go(tmp_path, *words) == 0
    assert "nothing left to run" in capsys.readouterr().err


def test_a_failed_run_and_differing_counts_end_with_1(tmp_path, capsys):
    failing = (sys.executable, "-c", "import sys; sys.exit('error: no such luck')")
    words = [f"--out={tmp_path}/a", "--num_devices=1"]
    assert inspect.main(words, trainer=failing) == 1
    assert "no such luck" in capsys.readouterr().err
    words = ["--num_devices=1", "--encoder_type=cudnn_lstm"]
    assert go(tmp_path, *words) == 0
    path = tmp_path / "out/cudnn_lstm-replicated-1.json"
    held = record.read(path)
    other = record_of(held.config, Merge=1)
    record.write(dataclasses.replace(other, options=held.options), path)
    assert go(tmp_path, *words) == 1


def test_every_bad_flag_is_named_at_once_without_tensorflow():
    words = ["--trace_batches=0", "--out=", "--repeats=x"]
    words += ["--num_devises=1", "--result_file=y", "--num_units=z"]
    code = (
        "import sys; from rnn_scaling.commands import inspect; "
        f"status = inspect.main({words}); "
        "assert not {'tensorflow', 'numpy', 'matplotlib'} & set(sys.modules); "
        "sys.exit(status)"
    )
    done = python(code)
    assert done.returncode == 2
    assert not done.stdout
    flags = {re.match(r"error: (--\w+)", line)[1] for line in done.stderr.splitlines()}
    expected = {word.partition("=")[0] for word in words}
    assert flags == expected, done.stderr
