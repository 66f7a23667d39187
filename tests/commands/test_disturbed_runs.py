"""Runs disturbed by other processes: every command counts and names the same runs."""

import csv
import json
import os

import numpy as np
import pytest

from benchmarks import load_windows
from rnn_scaling.analysis import confidence
from rnn_scaling.commands import compare, history, report
from rnn_scaling.records import history as histories
from rnn_scaling.records import record
from tests.support.compared import run
from tests.support.loaded_runs import make_run_beside_load
from tests.support.scaling_runs import skip_pictures

MODES = ("independent", "replicated")


def make_loaded_run(rate, share=0.0, *, devices=1, cores=16, mode=MODES[0]):
    """Return a run at `rate` words/s while others used this share of its cores."""
    return run(
        rate,
        environment={"load": {"others": share, "steal": 0.0, "seconds": 2.0}},
        resolved={"cpu_affinity": [*range(cores)]},
        num_devices=devices,
        variable_update=mode,
    )


def write(folder, runs, name="x"):
    """Write the runs as repeats 1, 2 and so on, all with one configuration."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, each in enumerate(runs, 1):
        record.write(each, folder / f"{name}.r{number}.json")
    return folder


def run_report(folder):
    """Return the report's statements by kind, and its rows by (mode, devices)."""
    with skip_pictures():
        assert report.main([str(folder)]) == os.EX_OK
    made = json.loads((folder / "report.json").read_text())
    statements = {each["kind"]: each for each in made["statements"]}
    rows = {}
    for series in made["series"]:
        for row in series["rows"]:
            rows[row["options"]["variable_update"], row["num_devices"]] = row
    return statements, rows


def run_compare(capsys, *words):
    """Return the exit status of `compare`, its only result and statements by kind."""
    capsys.readouterr()
    status = compare.main(["--format=json", *map(str, words)])
    made = json.loads(capsys.readouterr().out)
    [result] = made["results"]
    return status, result, {each["kind"]: each["values"] for each in made["statements"]}


def test_a_disturbed_pair_does_not_count_and_is_named(tmp_path, capsys):
    before = [1000, 1004, 997, 1002, 999, 1001]
    after = [1001, 1002, 999, 1003, 700, 1000]
    write(tmp_path / "a", [make_loaded_run(rate, cores=2) for rate in before])
    shares = [0.0] * 4 + [0.35, 0.0]
    runs = [make_loaded_run(rate, share, cores=2) for rate, share in zip(after, shares)]
    write(tmp_path / "b", runs)
    words = (tmp_path / "a", tmp_path / "b", "--paired")
    status, result, statements = run_compare(capsys, *words)
    assert status == os.EX_OK
    assert result["runs"] == [5, 5]
    assert result["disturbed"] == [[], ["x.r5.json"]]
    assert statements["disturbed-pairs"]["files"] == ["after x.r5.json"]
    ratio = result["comparison"]["ratio"]
    assert ratio["low"] > 0.96 and ratio["high"] < 1.04


def test_quiet_runs_are_the_answer(tmp_path):
    for devices, runs in {
        1: [(1000, 0.0), (1001, 0.0), (999, 0.0), (1002, 0.0)],
        2: [(1800, 0.4), (2000, 0.4), (1900, 0.0), (1902, 0.0)],
    }.items():
        made = [
            make_loaded_run(rate, share, devices=devices, cores=2)
            for rate, share in runs
        ]
        write(tmp_path, made, f"on{devices}")
    statements, rows = run_report(tmp_path)
    two = rows[MODES[0], 2]
    assert two["speedup"]["value"] == pytest.approx(1.9, abs=0.005)
    assert two["speedup"]["high"] - two["speedup"]["low"] < 0.02
    assert two["runs_ok"] == 4
    assert two["runs_disturbed"] == 2
    lines = csv.DictReader((tmp_path / "table.csv").read_text().splitlines())
    assert [line["runs_disturbed"] for line in lines] == ["0", "2"]
    said = statements["disturbed-left-out"]["values"]
    assert said["files"] == ["on2.r1.json", "on2.r2.json"]
    assert said["runs"] == 8
    assert said["share"] == 0.4


def test_leaving_out_disturbed_batches_finds_more():
    """Repeat `benchmarks.load_windows --parts=selection` in short."""
    random = np.random.default_rng(1)
    found = {rule: [] for rule in load_windows.RULES}
    covers = []
    for _ in range(100):
        made = []
        for rate in load_windows.run_rates(random, 12):
            made.append(load_windows.simulate_run(random, rate, load_windows.Visitor()))
        pairs = list(zip(made[::2], made[1::2]))
        for rule, lows in found.items():
            rates = np.array(load_windows.list_counted_rates(pairs, rule))
            interval = confidence.compute_paired_ratio(rates[:, 0], rates[:, 1])
            lows.append(1.05 * interval.low > 1)
        covers.append(interval.low <= 1 <= interval.high)
    assert np.mean(found["all runs"]) < 0.3
    assert np.mean(found["quiet runs"]) < 0.3
    assert np.mean(found["quiet batches"]) > 0.8
    assert 0.88 < np.mean(covers) < 0.99


def with_windows(rate, disturbed=(), **config):
    """Return a run of 20 batches in ten windows, of which some are disturbed."""
    shares = [0.5 if window in disturbed else 0.0 for window in range(10)]
    return make_run_beside_load(run(rate, **config), shares)


def test_a_report_uses_the_quiet_batches_and_counts_the_others_once(tmp_path):
    for devices, rate in ((1, 1000), (2, 1900)):
        runs = [with_windows(rate, (1, 2, 5), num_devices=devices)]
        runs.append(with_windows(rate, num_devices=devices))
        write(tmp_path, runs, f"on{devices}")
    statements, rows = run_report(tmp_path)
    two = rows[MODES[0], 2]
    assert two["speedup"]["value"] == pytest.approx(1.9)
    assert two["words_per_second"]["value"] == pytest.approx(1900)
    assert "disturbed-left-out" not in statements
    values = statements["batches-left-out"]["values"]
    assert values["batches"] == 12
    assert values["measured"] == 40
    assert values["runs"] == 2


def test_a_comparison_uses_the_quiet_batches(tmp_path, capsys):
    for side, disturbed in (("before", ()), ("after", (0, 1, 2, 3, 4))):
        runs = [with_windows(rate, disturbed) for rate in (1000, 1002, 998)]
        write(tmp_path / side, runs)
    status, result, statements = run_compare(
        capsys, tmp_path / "before", tmp_path / "after"
    )
    assert status == os.EX_OK
    assert result["comparison"]["ratio"]["value"] == pytest.approx(1.0)
    values = statements["disturbed-batches"]
    assert values["batches"] == 30
    assert values["measured"] == 60
    assert values["runs"] == 3
    assert "disturbed-runs" not in statements


@pytest.mark.parametrize("paired", [True, False])
def test_all_batches_are_compared_if_the_other_side_is_disturbed(
    tmp_path, capsys, paired
):
    """Both sides lost half of their time to the same load."""
    write(tmp_path / "before", [with_windows(1000, range(6)) for _ in range(3)])
    write(tmp_path / "after", [with_windows(1000, range(7)) for _ in range(3)])
    words = ["--paired"] if paired else []
    _, result, statements = run_compare(
        capsys, tmp_path / "before", tmp_path / "after", *words
    )
    assert result["before"]["value"] == pytest.approx(1000 / 1.6)
    assert result["after"]["value"] == pytest.approx(1000 / 1.7)
    ratio = result["comparison"]["ratio"]["value"]
    assert ratio == pytest.approx(1.6 / 1.7)
    [change] = [each for each in result["step_times"] if each["percentile"] == 50]
    assert change["ratio"]["value"] == pytest.approx(1.0)
    assert "disturbed-batches" not in statements


@pytest.mark.parametrize("words", [(), ("--paired",)])
def test_a_comparison_hides_the_speedups_that_a_report_hides(words, tmp_path, capsys):
    for side, share in {"before": 0.0, "after": 0.5}.items():
        write(tmp_path / side, [make_loaded_run(1000 + k) for k in range(3)], "one")
        two = [make_loaded_run(1900 + k, share, devices=2) for k in range(3)]
        write(tmp_path / side, two, "two")
    paths = (str(tmp_path / "before"), str(tmp_path / "after"))
    options = ("--force_incomparable=all", *words)
    for metric in ("speedup", "efficiency"):
        words = (*paths, *options, f"--metric={metric}")
        status, result, _ = run_compare(capsys, *words)
        assert result["before"]["value"] > 0.9 and result["after"] is None
        assert (status, result["gate"]) == (os.EX_OK, "ok")
    assert compare.main([*paths, *options, "--metric=speedup"]) == 0
    assert "hides 1 speedup" in capsys.readouterr().out


def test_a_history_keeps_the_rate_of_the_quiet_batches(tmp_path, capsys):
    write(tmp_path / "runs", [with_windows(1000, (3, 4)), with_windows(1001)])
    kept = tmp_path / "history"
    assert history.main(["add", f"{tmp_path}/runs", f"--history={kept}"]) == 0
    [entry] = histories.read(kept).entries
    assert [round(rate) for rate in entry.configurations[0].rates] == [1000, 1001]
    assert "4 batches of 20 in 1 run" in capsys.readouterr().out


def test_a_history_names_disturbed_runs_that_count(tmp_path, capsys):
    folder = write(
        tmp_path / "runs",
        [make_loaded_run(500, 0.5, cores=2), make_loaded_run(1000, cores=2)],
    )
    kept = tmp_path / "history"
    assert history.main(["add", f"{folder}", f"--history={kept}"]) == 0
    assert "x.r1.json" in capsys.readouterr().out
    write(folder, [make_loaded_run(1001, cores=2), make_loaded_run(1000, cores=2)])
    assert history.main(["add", f"{folder}", f"--history={tmp_path}/other"]) == 0
    assert "x.r1.json" not in capsys.readouterr().out
