"""Reports on traced runs: parts of a step, counts of operators and kernels, stragglers."""

import json

import pytest

from rnn_scaling.analysis.steps import dispatch_threads
from rnn_scaling.analysis.steps import parts as step_parts
from rnn_scaling.commands import report
from rnn_scaling.records import record
from rnn_scaling.records.step_parts import LETTERS, PARTS
from rnn_scaling.reports import wording
from tests.support.records import change_record, read_fields
from tests.support.scaling_runs import skip_pictures
from tests.support.traced_runs import make_traced_run, step

THREE = (step(0.9), step(1.0), step(1.1))


def test_the_report_shows_where_a_step_goes(tmp_path):
    two = [step(0.8), step(1.2)]
    for k, run in enumerate(
        (
            make_traced_run(*THREE),
            make_traced_run(*two, loss=2.0),
            make_traced_run(loss=3.0),
        )
    ):
        record.write(run, tmp_path / f"{k}.json")
    with skip_pictures():
        assert report.main([str(tmp_path)]) == 0
    page = (tmp_path / "report.html").read_text()
    assert page.count('id="parts-0-t"') == 1 and page.count('id="step-0-t"') == 1
    assert "#010203" not in page  # the figure has only colours of the page
    assert "exchange, exposed" in (tmp_path / "table.md").read_text()
    [row] = json.loads((tmp_path / "report.json").read_text())["series"][0]["rows"]
    assert row["step"]["steps"] == 5
    assert row["step"]["step_s"]["mean"] == pytest.approx(0.1)
    assert row["step"]["straggler"]["tower"] == 1


def test_the_report_counts_operators_and_kernels(tmp_path):
    fused, loops = (
        make_traced_run(*THREE, encoder_type=name, decoder_type=name)
        for name in ("cudnn_lstm", "dynamic_rnn")
    )
    record.write(fused, tmp_path / "fused.json")
    fields = read_fields(loops)["trace"]
    fields["kernels"]["by_type"] = {"MatMul": 4188}
    fields["kernels"]["steps"] = [
        {"host": 4188, "device": 0, "copies": 0, "dispatched": 0}
    ] * 2
    record.write(change_record(loops, trace=fields), tmp_path / "loops.json")
    with skip_pictures():
        assert report.main([str(tmp_path)]) == 0
    assert "<td>1,047 [1,047 / 0]</td>" in (tmp_path / "report.html").read_text()
    [group] = json.loads((tmp_path / "report.json").read_text())["counts"]["groups"]
    assert [
        (each["encoder"], each["operators"], each["kernels"])
        for each in group["counts"]
    ] == [("cudnn_lstm", 720, 1047), ("dynamic_rnn", 720, 4188)]


@pytest.mark.parametrize(
    "config", [{"variable_update": "independent"}, {"variable_consistency": "relaxed"}]
)
def test_towers_without_an_exchange_in_the_step_do_not_wait(config):
    tower, why = step_parts.split_steps([make_traced_run(*THREE, **config)]).straggler
    assert tower is None and why.kind == "straggler-no-exchange"


def test_clusters_of_xla_have_no_tower_and_it_is_said():
    parts = step_parts.split_steps([make_traced_run(*THREE, xla=True)])
    kinds = [statement.kind for statement in step_parts.make_statements(parts)]
    assert parts.concurrency is None
    assert kinds[1:3] == ["concurrency-unknown-clusters", "straggler-clusters"]
    assert kinds[-1] == "xla-clusters"
    [alone] = dispatch_threads.make_probes([make_traced_run(*THREE, xla=True)], {2: 3})
    assert alone.settings[0].concurrency is None
    [alone] = dispatch_threads.make_probes([make_traced_run(*THREE)], {2: 3})
    assert alone.settings[0].concurrency > 1


def test_every_part_has_a_meaning_and_a_letter_of_its_own():
    assert {f"part-{part}" for part in PARTS} <= wording.list_all_templates().keys()
    assert len(set(LETTERS)) == len(PARTS) == len(LETTERS)
