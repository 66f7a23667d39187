"""The command inspect for traced steps: text, numbers, pictures and unusable files."""

import json
import re

import pytest

from rnn_scaling.analysis.steps import parts as step_parts
from rnn_scaling.commands import inspect
from rnn_scaling.records import record
from tests.support.records import change_record, read_fields
from tests.support.scaling_runs import cluster
from tests.support.traced_runs import make_traced_run, step, trace

THREE = (step(0.9), step(1.0), step(1.1))
TABLES = """\
| Part (ms)              | tower 0                 | tower 1                 | all towers              |
|-----------------------:|------------------------:|------------------------:|------------------------:|
|                forward |   20.00 sd 2.00 (20.0 %) |   25.00 sd 2.50 (25.0 %) |   22.50 sd 2.25 (22.5 %) |
|               backward |   30.00 sd 3.00 (30.0 %) |   45.00 sd 4.50 (45.0 %) |   37.50 sd 3.75 (37.5 %) |
|                 update |   10.00 sd 1.00 (10.0 %) |   15.00 sd 1.50 (15.0 %) |   12.50 sd 1.25 (12.5 %) |
|      exchange, exposed |   25.00 sd 2.50 (25.0 %) |     5.00 sd 0.50 (5.0 %) |   15.00 sd 1.50 (15.0 %) |
| waits for other towers |     5.00 sd 0.50 (5.0 %) |     0.00 sd 0.00 (0.0 %) |     2.50 sd 0.25 (2.5 %) |
|                   idle |   10.00 sd 1.00 (10.0 %) |   10.00 sd 1.00 (10.0 %) |   10.00 sd 1.00 (10.0 %) |
|          sum: the step | 100.00 sd 10.00 (100.0 %) | 100.00 sd 10.00 (100.0 %) | 100.00 sd 10.00 (100.0 %) |
"""


def write(found, path):
    path.parent.mkdir(parents=True, exist_ok=True)
    record.write(found, path)
    return path


@pytest.fixture
def run_file(tmp_path):
    return write(make_traced_run(*THREE), tmp_path / "run.json")


@pytest.fixture
def run(run_command):
    return lambda *words: run_command(inspect, *map(str, words))


def squeeze(text):
    return re.sub(r" +", " ", re.sub(r"-+", "-", text))


def test_the_parts_of_each_tower_and_their_sum(run, run_file):
    status, out, err = run(run_file)
    assert (status, err) == (0, "")
    assert out.startswith(
        f"### {make_traced_run().config['encoder_type']}, replicated, 2 devices ({run_file})\n\n"
    )
    assert squeeze(TABLES) in squeeze(out)
    assert "1 | 35.00 sd 3.50" in squeeze(out)
    assert "| all | 500 | 500 | 47 | 1,047 |" in squeeze(out)


def test_shorter_traced_steps_have_no_cost():
    def kinds(low, high):
        found = step_parts.split_steps([make_traced_run(*THREE)])
        found.__dict__["cost"] = step_parts.Cost(
            1.0, low, high, counted=2.0, start_s=0.1, stop_s=0.1, count=5
        )
        return {statement.kind for statement in step_parts.make_statements(found)}

    assert "tracing-faster" in kinds(0.76, 0.82)
    assert "tracing-no-cost" in kinds(0.9, 1.1)
    assert not kinds(1.1, 1.2) & {"tracing-faster", "tracing-no-cost"}


def test_a_run_of_several_processes_lists_its_ranks(run, tmp_path):
    """Steps are only listed, and drawn, if rank 0 was traced."""
    several = cluster(2, 1900, devices=2, late=1)
    plain = write(several, tmp_path / "plain.json")
    picture = tmp_path / "step.png"
    status, out, err = run(plain, "--step=1", f"--picture={picture}")
    assert (status, err, picture.exists()) == (0, "", False)
    assert "2 workers " in out.splitlines()[0] and f"({plain})" in out.splitlines()[0]
    assert "- Late ranks: 1. " in out and "Part (ms)" not in out
    assert "| 1 (worker) | 3.00 | 1.00 | 1.00 | 5.00 | " in squeeze(out)
    graph = read_fields(make_traced_run(*THREE))["graph"]
    with_trace = change_record(several, graph=graph, trace=trace(*THREE))
    path = write(with_trace, tmp_path / "traced.json")
    [fields] = json.loads(run(path, "--format=json")[1])["runs"]
    assert fields["late"]["ranks"] == [1]
    assert [each["rank"] for each in fields["ranks"]] == [0, 1]
    assert len(fields["towers"]) == 2
    assert fields["phases_s"].keys() >= {"cluster", "first_batch", "measured", "total"}


def test_a_rank_that_failed_is_named(run, tmp_path):
    failed = change_record(cluster(2, 1900), status="failed", throughput={})
    ranks = read_fields(failed)["workers"]["ranks"]
    ranks[1]["error"] = "rank 1 (host host1, process 7) has not answered for 10 s."
    failed = change_record(failed, workers={"ranks": ranks})
    out = run(write(failed, tmp_path / "run.json"))[1]
    assert f"- Failed: {ranks[1]['error']}\n" in out


def test_json_has_the_same_numbers(run, run_file):
    [fields] = json.loads(run(run_file, "--format=json")[1])["runs"]
    assert fields["step_s"] == pytest.approx({"mean": 0.1, "scatter": 0.01})
    for parts in [*(tower["parts"] for tower in fields["towers"]), fields["all"]]:
        assert sum(part["mean"] for part in parts.values()) == pytest.approx(0.1)
    assert fields["towers"][0]["exchange"]["hidden"]["mean"] == pytest.approx(0.01)
    assert fields["straggler"]["tower"] == 1
    assert fields["cost"]["ratio"] == pytest.approx((0.9 * 1.0 * 1.1) ** (1 / 3) / 0.8)


def test_files_are_written(run, run_file, tmp_path):
    assert run(run_file, f"--picture={tmp_path}/a.png")[0] == 0
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    assert run(run_file, f"--picture={tmp_path}/a.SVG")[0] == 0
    svg = (tmp_path / "a.SVG").read_text()
    for name in ("forward", "exchange (", "waits for other towers", "tower 1"):
        assert name in svg
    (tmp_path / "b.png").mkdir()
    status, _, err = run(run_file, f"--picture={tmp_path}/b.png")
    assert status == 1
    assert err.startswith(f"error: {tmp_path}/b.png: ")


def test_a_log_folder_and_a_folder_of_records(run, tmp_path):
    logs = write(make_traced_run(*THREE), tmp_path / "logs/run.json").parent
    # Other files next to a run.json are ignored.
    write(make_traced_run(), logs / "other.json")
    assert run(logs)[0] == 0
    records = tmp_path / "records"
    write(make_traced_run(*THREE), records / "a.json")
    write(make_traced_run(*THREE[:2], num_batches=5), records / "b.json")
    write(make_traced_run(num_batches=6), records / "untraced.json")
    # The command inspect writes this file next to the records.
    (records / "inspect.json").write_text('{\n "schema": "rnn_scaling.inspect/1"}')
    status, out, err = run(records)
    assert (status, err) == (0, "")
    files = re.findall(r"\((.*?\.json)\)", out)
    assert files == [f"{records}/a.json", f"{records}/b.json"]
    assert "use --trace_batches=3" in out


def test_unusable_files_are_named_and_the_others_shown(run, run_file, tmp_path):
    untraced = write(make_traced_run(), tmp_path / "untraced.json")
    (tmp_path / "text.json").write_text("hello")
    (tmp_path / "foreign.json").write_text('{"schema": "other"}')
    (tmp_path / "deep.json").write_text("[" * 100_000)
    (tmp_path / "empty").mkdir()
    write(make_traced_run(), tmp_path / "none/a.json")
    names = ["text.json", "foreign.json", "deep.json", "missing.json", "empty", "none"]
    files = [untraced, *(tmp_path / name for name in names)]
    status, out, err = run(*files, run_file)
    assert status == 1
    assert squeeze(TABLES) in squeeze(out)
    for file, line in zip(files, err.splitlines(), strict=True):
        assert line.startswith("error: ")
        assert str(file) in line
    assert "--trace_batches=5" in err


def test_a_picture_of_an_unknown_kind_is_refused(run):
    status, out, err = run("a", "--picture=x.gif")
    assert (status, out) == (2, "")
    assert err.startswith("error: --picture=x.gif ")


def test_a_step_that_was_not_traced(run, run_file):
    status, out, err = run(run_file, "--step=3")
    assert (status, out) == (1, "")
    assert err.startswith("error: --step=3 ") and "at most 2" in err
    assert str(run_file) in err
