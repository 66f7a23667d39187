"""./run.sh phases: exact text, numbers, pictures, and what cannot be used."""

import errno
import json
import os
import re
import subprocess
import sys

import pytest

from rnn_scaling.analysis.steps import parts as step_parts
from rnn_scaling.commands import inspect as command
from rnn_scaling.commands import inspect_files
from rnn_scaling.inspection import phases
from rnn_scaling.inspection.operators import TracedStep
from rnn_scaling.records import record
from rnn_scaling.records.decoding import build
from rnn_scaling.records.step_parts import TimedStep, Trace
from rnn_scaling.reports.page import drawings
from tests.support.paths import ROOT
from tests.support.records import changed, fields_of
from tests.support.scaling_runs import cluster
from tests.support.traced_runs import step, trace, traced

FULL = os.strerror(errno.ENOSPC)

THREE = (step(0.9), step(1.0), step(1.1))
TIMED = [build(TimedStep, each) for each in THREE]
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
    return write(traced(*THREE), tmp_path / "run.json")


def told(capsys, *words):
    status = command.main([str(word) for word in words])
    out, err = capsys.readouterr()
    return status, out, err


def squeezed(text):
    return re.sub(r" +", " ", re.sub(r"-+", "-", text))


def test_the_parts_of_each_tower_and_their_sum(run_file, capsys):
    status, out, err = told(capsys, run_file)
    assert (status, err) == (0, "")
    assert out.startswith(
        f"### {traced().config['encoder_type']}, replicated, 2 devices ({run_file})\n\n"
    )
    assert squeezed(TABLES) in squeezed(out)
    assert "1 | 35.00 sd 3.50" in squeezed(out)
    assert "| all | 500 | 500 | 47 | 1,047 |" in squeezed(out)


def test_the_notes_say_what_the_numbers_are(run_file, capsys):
    lines = told(capsys, run_file)[1].splitlines()
    notes = [line for line in lines if line.startswith("- ")]
    parts = (
        ["3 traced steps"],
        ["1.71 of 2"],
        ["tower 1", "20.00 (sd 2.00) ms"],
        ["1.25 times", "0.97 to 1.60"],
    )
    for note, words in zip(notes, parts):
        assert all(word in note for word in words), note
    kinds = [
        statement.kind
        for statement in step_parts.statements(step_parts.split_steps([traced(*THREE)]))
    ]
    assert kinds[2:] == [
        "straggler",
        "tracing-ratio-interval",
        "tracing-no-cost",
        "tracing-seconds",
        "coverage",
    ]


def test_traced_steps_that_are_shorter_are_no_cost():
    def kinds(low, high):
        found = step_parts.split_steps([traced(*THREE)])
        found.__dict__["cost"] = step_parts.Cost(
            1.0, low, high, counted=2.0, start_s=0.1, stop_s=0.1, count=5
        )
        return {statement.kind for statement in step_parts.statements(found)}

    assert "tracing-faster" in kinds(0.76, 0.82) and "tracing-no-cost" in kinds(
        0.9, 1.1
    )
    assert not kinds(1.1, 1.2) & {"tracing-faster", "tracing-no-cost"}


def test_a_run_of_several_processes_is_told_by_rank(tmp_path, capsys):
    """Its own steps where rank 0 was traced; without a trace its ranks alone, and no picture of a step."""
    several = cluster(2, 1900, devices=2, late=1)
    write(several, tmp_path / "plain.json")
    write(
        changed(several, graph=fields_of(traced(*THREE))["graph"], trace=trace(*THREE)),
        tmp_path / "traced.json",
    )
    status, out, err = told(
        capsys,
        tmp_path / "plain.json",
        "--step=1",
        f"--picture={tmp_path / 'step.png'}",
    )
    assert (status, err, (tmp_path / "step.png").exists()) == (0, "", False)
    heading = out.splitlines()[0]
    assert heading.startswith("### cudnn_lstm, collective_all_reduce, 2 workers ")
    assert "2 devices" in heading and f"({tmp_path / 'plain.json'})" in heading
    assert "- Late ranks: 1. " in out and "- Common window: from a barrier" in out
    assert (
        "| 1 (worker) | 3.00 | 1.00 | 1.00 | 5.00 | " in squeezed(out)
        and "Part (ms)" not in out
    )
    status, out, err = told(capsys, tmp_path / "traced.json", "--format=json")
    [run] = json.loads(out)["runs"]
    assert (
        run["late"]["ranks"] == [1]
        and [each["rank"] for each in run["ranks"]] == [0, 1]
        and len(run["towers"]) == 2
    )
    assert set(run["phases_s"]) >= {
        "start",
        "cluster",
        "build",
        "first_batch",
        "warmup",
        "measured",
        "total",
    }


def test_runs_over_workers_say_what_workers_do_not_shorten(tmp_path, capsys):
    runs = tmp_path / "runs"
    for n in (1, 2, 4):
        write(cluster(n, 950 * n), runs / f"{n}.json")
    out = told(capsys, runs)[1]
    assert "### cudnn_lstm, collective_all_reduce:" in out and " is 6.0 of 21." in out
    [series] = json.loads(told(capsys, runs, "--format=json")[1])["series"]
    assert [each["num_workers"] for each in series["initialisation"]] == [1, 2, 4]


def test_a_rank_that_failed_is_named(tmp_path, capsys):
    failed = changed(cluster(2, 1900), status="failed", throughput={})
    ranks = fields_of(failed)["workers"]["ranks"]
    ranks[1]["error"] = "rank 1 (host host1, process 7) has not answered for 10 s."
    out = told(
        capsys, write(changed(failed, workers={"ranks": ranks}), tmp_path / "run.json")
    )[1]
    assert f"- Failed: {ranks[1]['error']}\n" in out


def test_a_picture_of_some_towers_says_so():
    many = step_parts.StepParts(
        (build(Trace, trace(phases.split(TracedStep(0, 100, []), 17))),),
        synchronous=True,
    )
    _, figures, _ = drawings._steps_of(many, 0, "a run").blocks
    assert "the first 16 of 17 towers" in figures.blocks[1].title
    few = step_parts.StepParts((build(Trace, trace(step())),), synchronous=True)
    _, figures, _ = drawings._steps_of(few, 0, "a run").blocks
    assert figures.blocks[1].title == "a run: traced step 0"


def test_json_has_the_same_numbers(run_file, capsys):
    (run,) = json.loads(told(capsys, run_file, "--format=json")[1])["runs"]
    assert run["step_s"] == {"mean": pytest.approx(0.1), "scatter": pytest.approx(0.01)}
    for tower in [*(tower["parts"] for tower in run["towers"]), run["all"]]:
        assert sum(part["mean"] for part in tower.values()) == pytest.approx(0.1)
    assert run["towers"][0]["exchange"]["hidden"]["mean"] == pytest.approx(0.01)
    assert run["straggler"]["tower"] == 1
    assert run["cost"]["ratio"] == pytest.approx((0.9 * 1.0 * 1.1) ** (1 / 3) / 0.8)


def test_files_are_written(run_file, tmp_path, capsys):
    assert told(capsys, run_file, f"--picture={tmp_path}/a.png")[0] == 0
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    assert told(capsys, run_file, f"--picture={tmp_path}/a.SVG")[0] == 0
    svg = (tmp_path / "a.SVG").read_text()
    assert all(
        name in svg
        for name in (
            "forward",
            "exchange (a tower",
            "waits for other towers",
            "tower 1",
        )
    )
    (tmp_path / "b.png").mkdir()
    error = f"error: {tmp_path}/b.png: it is not a regular file\n"
    assert told(capsys, run_file, f"--picture={tmp_path}/b.png")[::2] == (1, error)


def test_what_cannot_be_written_is_named(run_file, tmp_path, monkeypatch, capsys):
    def full(content, path):
        raise OSError(errno.ENOSPC, FULL)

    words = [sys.executable, "-m", "rnn_scaling", "inspect", run_file]
    for environment in (
        os.environ,
        {},
    ):  # without a locale Python keeps what it could not write, and tries again
        with open("/dev/full", "w") as out:
            done = subprocess.run(
                words,
                cwd=ROOT,
                stdout=out,
                stderr=subprocess.PIPE,
                text=True,
                env=environment,
            )
        assert (done.returncode, done.stderr) == (1, f"error: output: {FULL}\n")
    monkeypatch.setattr(inspect_files, "write_bytes", full)
    err = told(capsys, run_file, f"--picture={tmp_path}/a.png")[2]
    assert err == f"error: {tmp_path}/a.png: {FULL}\n"


def test_a_log_folder_and_a_folder_of_records(tmp_path, capsys):
    logs = write(traced(*THREE), tmp_path / "logs" / "run.json").parent
    write(traced(), logs / "other.json")  # beside a run.json nothing else is looked at
    assert told(capsys, logs)[0] == 0
    records = tmp_path / "records"
    write(traced(*THREE), records / "a.json")
    write(traced(*THREE[:2], num_batches=5), records / "b.json")
    write(traced(num_batches=6), records / "untraced.json")
    (records / "inspect.json").write_text(
        '{\n "schema": "rnn_scaling.inspect/1"}'
    )  # written beside the records
    status, out, err = told(capsys, records)
    assert (status, err) == (0, "")
    assert re.findall(r"\((.*?\.json)\)", out) == [
        str(records / "a.json"),
        str(records / "b.json"),
    ]
    assert "use --trace_batches=3" in out


def test_everything_that_cannot_be_used_is_named_and_the_rest_shown(
    run_file, tmp_path, capsys
):
    untraced = write(traced(), tmp_path / "untraced.json")
    (tmp_path / "text.json").write_text("hello")
    (tmp_path / "foreign.json").write_text('{"schema": "other"}')
    (tmp_path / "deep.json").write_text("[" * 100_000)
    (tmp_path / "empty").mkdir()
    write(traced(), tmp_path / "none" / "a.json")
    names = ["text.json", "foreign.json", "deep.json", "missing.json", "empty", "none"]
    status, out, err = told(
        capsys, untraced, *(tmp_path / name for name in names), run_file
    )
    assert status == 1 and squeezed(TABLES) in squeezed(out)
    lines = err.splitlines()
    assert len(lines) == 7 and all(line.startswith("error: ") for line in lines)
    assert (
        lines[0].startswith(f"error: {untraced}: ")
        and "./run.sh train --trace_batches=5" in lines[0]
    )
    for name, line in zip(names, lines[1:]):
        assert str(tmp_path / name) in line
    assert "no traced run" in lines[-1] and "no run records" in lines[-2]


def test_a_step_that_does_not_say_how_many_computed_at_once_is_no_crash(
    tmp_path, capsys
):
    steps_without = [{**each, "concurrency": None} for each in THREE]
    status, out, _ = told(capsys, write(traced(*steps_without), tmp_path / "run.json"))
    assert status == 0 and "(concurrency 0.00)" in out


@pytest.mark.parametrize(
    "words, said",
    [
        (["a", "--step=-1"], "--step=-1 must be at least 0"),
        (
            ["a", "--picture=x.gif"],
            "--picture=x.gif must be a file that ends in .png or .svg",
        ),
        (
            ["a", "--picture=/nowhere/at/all/x.png"],
            "--picture=/nowhere/at/all/x.png must be a file in a folder that is there",
        ),
    ],
)
def test_wrong_use(words, said, capsys):
    status, out, err = told(capsys, *words)
    assert (status, out) == (2, "") and err.startswith(f"error: {said}")


def test_a_step_that_was_not_traced(run_file, capsys):
    assert told(capsys, run_file, "--step=3") == (
        1,
        "",
        f"error: --step=3: {run_file} has the steps 0 to 2\n",
    )


def test_a_folder_of_log_folders_leads_to_them(tmp_path, capsys):
    write(traced(*THREE), tmp_path / "logs" / "a" / "run.json")
    (tmp_path / "logs" / "links").mkdir()
    (tmp_path / "logs" / "links" / "links.json").write_text(
        '{\n "schema": "rnn_scaling.links/1"}'
    )  # no run
    assert (
        f"there are some in {tmp_path}/logs/a: name one"
        in told(capsys, tmp_path / "logs")[2]
    )


def test_the_page_of_the_documentation_shows_what_its_command_prints(
    capsys, monkeypatch
):
    monkeypatch.chdir(ROOT)
    out = told(capsys, "docs/results/phases")[1]
    text = (ROOT / "docs" / "phases.md").read_text()
    table = text[text.index("| Part (ms)") :].split("\n\n")[0]
    section = out[
        out.index("### cudnn_lstm, replicated, 2 devices (docs/results/phases/") :
    ]
    assert section.split("\n\n")[2] == table
