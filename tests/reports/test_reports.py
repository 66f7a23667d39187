"""Records -> rows -> table and plot; baselines; exact text."""

from __future__ import annotations

import csv
import errno
import html
import json
import re
import subprocess
import sys
import tempfile

import pytest

from rnn_scaling.analysis import rows
from rnn_scaling.analysis.confidence import over_processes
from rnn_scaling.analysis.metrics import EFFICIENCY, SPEEDUP
from rnn_scaling.commands import report
from rnn_scaling.records import folder, record
from rnn_scaling.records.own_files import EDGE, REPORT_SCHEMA, is_own
from rnn_scaling.reports import answer, csv_table, json_report, summary, table
from rnn_scaling.reports.page import document
from rnn_scaling.reports.pictures import plot
from tests.support.paths import GOLDEN
from tests.support.records import changed as altered
from tests.support.records import make_record


def run(num_devices, rate, status="ok", seconds=2.0, **config):
    words = max(1, round(rate * seconds))
    return make_record(
        status,
        config={"device": "cpu", "num_devices": num_devices, **config},
        seconds=[9.0, seconds / 2, seconds / 2],
        items=[1, words / 2, words / 2],
        warmup=1,
    )


def series():
    return [
        run(1, 1000.0),
        run(2, 1900.0),
        run(4, 3000.0, "failed"),
        run(1, 500.0, variable_update="replicated"),
        run(2, 770.0, variable_update="replicated"),
        run(2, 780.0, variable_update="replicated"),
    ]


def value(row, metric):
    interval = row.metric(metric)
    return None if interval is None else interval.value


def test_speedup_and_efficiency_are_ratios_to_the_same_run_on_one_device():
    table = rows.with_baselines(series())
    both = pytest.approx((770 * 780) ** 0.5 / 500)  # repeats are one row, at their geometric mean
    assert [value(row, SPEEDUP) for row in table] == [1.0, pytest.approx(1.9), None, 1.0, both]
    assert [value(row, EFFICIENCY) for row in table][:2] == [1.0, pytest.approx(0.95)]
    assert [len(row.records) for row in table] == [1, 1, 1, 1, 2]


def test_without_a_baseline_there_is_no_speedup():
    (row,) = rows.with_baselines([run(2, 1900.0)])
    assert row.metric(SPEEDUP) is None and row.metric(EFFICIENCY) is None


def test_runs_that_differ_in_more_than_devices_are_not_compared():
    one, two = rows.with_baselines([run(1, 1000.0, batch_size=16), run(2, 1900.0, batch_size=32)])
    assert two.metric(SPEEDUP) is None
    failed_baseline = rows.with_baselines([run(1, 0.0, "failed"), run(2, 1900.0)])[1]
    assert failed_baseline.metric(SPEEDUP) is None


def test_options_that_a_mode_does_not_read_do_not_part_its_runs():
    one, two = rows.with_baselines([run(1, 1000.0, all_reduce_spec="xring"), run(2, 1900.0)])
    assert value(two, SPEEDUP) == pytest.approx(1.9)


def test_weak_and_strong_scaling_are_never_one_series():
    weak = [run(1, 1000.0, batch_size=64), run(2, 1900.0, batch_size=64)]
    strong = [run(1, 1000.0, batch_size=64, global_batch_size=64), run(2, 1500.0, batch_size=32, global_batch_size=64)]
    table = rows.with_baselines([*weak, *strong])
    assert [value(row, SPEEDUP) for row in table] == [1.0, pytest.approx(1.9), 1.0, pytest.approx(1.5)]
    assert rows.titles(rows.by_series(table)) == [
        "cudnn_lstm, independent",
        "cudnn_lstm, independent, strong scaling, 64 sentence pairs a step",
    ]


def test_a_record_that_is_older_than_an_option_has_its_default():
    old = run(1, 1000.0)
    del old.config["global_batch_size"]
    assert len(rows.with_baselines([old, run(1, 1100.0)])) == 1


def of(records):
    runs = [folder.RunFile(f"{i}.json", each) for i, each in enumerate(records)]
    return summary.summarise(folder.Folder(tuple(runs), ()), "results")


GOLDENS = {"table.md": table.render, "table.csv": csv_table.render, "report.json": json_report.render}


@pytest.mark.parametrize("name", GOLDENS)
def test_text_is_exact(name):
    assert GOLDENS[name](of(series())).decode() == (GOLDEN / name).read_bytes().decode()


def test_the_plot_is_a_png_and_needs_a_rate():
    assert plot.render(of(series()))[:8] == b"\x89PNG\r\n\x1a\n"
    with pytest.raises(ValueError, match="successful"):
        plot.render(of([run(1, 0.0, "failed")]))


def test_the_json_has_every_number_of_the_table_with_its_kind():
    made = json.loads(json_report.render(of(attributed())))
    assert made["schema"] == "rnn_scaling.report/1"
    (row,) = [r for s in made["series"] if "replicated" in s["title"] for r in s["rows"] if r["num_devices"] == 2]
    assert row["efficiency"]["value"] == pytest.approx(0.7, rel=0.02) and "3 processes" in row["efficiency"]["kind"]
    parts = {part["name"]: part["words_per_second"] for part in row["attribution"]["parts"]}
    total = sum(part["value"] for part in parts.values()) + row["attribution"]["residual"]["value"]
    assert total == pytest.approx(row["attribution"]["loss"]["value"])
    assert [steady["kind"] for steady in row["steady_state"]] == ["cyclic"] * 3
    assert row["speedups"]["steady"] == row["speedup"]
    assert row["speedups"]["same_work"] < row["speedups"]["steady"]["value"]


def timed(num_devices, rate, repeat=0, batches=40, **config):
    """A run of steady batches with phases; repeats differ by half a per cent."""
    words, actual = 1000 * num_devices, rate * (1 + 0.005 * (repeat - 1))
    seconds = [words / actual * (1 + 0.002 * (-1) ** k) for k in range(batches)]
    measured = sum(seconds[10:])
    phases = {"start": 3.0, "build": 1.0, "first_batch": 60.0, "warmup": sum(seconds[1:10]), "measured": measured}
    return make_record(
        config={"device": "cpu", "num_devices": num_devices, **config},
        seconds=seconds,
        items=[words] * batches,
        warmup=10,
        phases={**phases, "teardown": 0.5, "total": sum(phases.values()) + 0.5},
    )


def attributed():
    """Three runs each of independent and replicated on one and two devices; replicated loses 20 + 10 points."""
    rates = {("independent", 1): 100, ("independent", 2): 180, ("replicated", 1): 100, ("replicated", 2): 140}
    return [timed(n, rate, k, variable_update=mode) for (mode, n), rate in rates.items() for k in range(3)]


def sentences(records):
    made = of(records)
    return {each.title.split(", ")[1]: answer.sentence(each) for each in made.series}


def numbers(text):
    return re.findall(r"\d+\.\d+(?: ± \d+\.\d+)?", text)


def test_the_sentence_has_the_numbers_of_the_table_and_they_add_up():
    said = sentences(attributed())["replicated"]
    lines = table.render(of(attributed())).decode().splitlines()
    cells = next(row for row in reversed(lines) if row.startswith("| ") and " 64 |" in row or " 32 |" in row)
    efficiency, speedup, *parts = numbers(said)
    assert said.startswith("cudnn_lstm, replicated scales at") and "on 2 devices" in said
    assert efficiency in cells and speedup in cells and "±" in efficiency
    assert re.search(r"20\.0 ± [\d.]+ points are exchange, 10\.0 ± [\d.]+ points are contention", said)
    lost = sum(float(part.split()[0]) for part in parts)
    assert float(efficiency.split()[0]) + lost == pytest.approx(100, abs=0.2)


def test_the_first_sentence_is_about_the_fastest_series_that_trains_one_model():
    made = of(attributed())
    assert answer.lead(made).startswith("The only series that trains one model: cudnn_lstm, replicated scales at 70.0")
    span = answer.overview(made)
    assert span.startswith("2 series reach between 70.0 ") and "90.0 " in span and span.count("on 2 devices") == 2


def test_a_part_whose_interval_contains_zero_is_not_called_a_loss():
    rates = {("independent", 1): 100, ("independent", 2): 140.2, ("replicated", 1): 100, ("replicated", 2): 140}
    runs = [timed(n, rate, k, variable_update=mode) for (mode, n), rate in rates.items() for k in range(3)]
    said = sentences(runs)["replicated"]
    assert "exchange is not distinguishable from 0" in said and "points are contention" in said


def test_a_difference_within_the_noise_is_not_called_scaling_loss():
    runs = [timed(n, rate, k) for n, rate in ((1, 100), (2, 199.9)) for k in range(3)]
    assert sentences(runs)["independent"].endswith(": not distinguishable from the ideal.")


def test_runs_that_vary_too_much_are_not_given_an_efficiency_to_quote():
    runs = [timed(1, 100), timed(1, 190), timed(2, 150), timed(2, 320)]
    assert "vary too much to tell" in sentences(runs)["independent"]


def test_what_is_missing_is_said_with_the_command_that_supplies_it():
    (alone,) = of([timed(2, 140, variable_update="replicated")]).series
    assert "how it scales needs its run on 1 device" in answer.sentence(alone)
    assert ["--num_devices=1 " in line for line in answer.missing(alone)] == [True]
    (one,) = of([timed(1, 100)]).series
    assert "on 1 device, and no run on more" in answer.sentence(one)
    assert "--num_devices=2" in answer.missing(one)[0]
    runs = [run for run in attributed() if run.config["variable_update"] == "replicated"]
    (replicated,) = of(runs).series
    assert "points are not split: contention and exchange need runs that are missing" in answer.sentence(replicated)
    assert all("--variable_update=independent" in line for line in answer.missing(replicated))


def test_failed_runs_are_said_and_never_counted():
    runs = [*attributed(), run(4, 1.0, "failed", variable_update="replicated")]
    assert sentences(runs)["replicated"].endswith("; on 4 devices no run succeeded.")
    assert [f.reason for f in of(runs).failures] == ["X: out of memory"]
    assert answer.lead(of([run(1, 0.0, "failed")])).startswith("No run succeeded")


def test_one_run_gives_an_interval_over_its_batches_and_says_so():
    made = of([timed(1, 100), timed(2, 140)])
    assert any("within one process" in kind for kind in answer.kinds(made.series))


def test_load_and_differences_stand_before_the_numbers():
    quiet, busy = ({"load": {"others": share, "steal": 0.0, "seconds": 9.0}} for share in (0.01, 0.4))
    runs = attributed()
    known = [altered(r, environment={**quiet, "cpu": "X"}) for r in runs[:-1]]
    other = altered(runs[-1], environment={**busy, "cpu": "Y"})
    said = " ".join(of([*known, other]).cautions)
    assert "load of other processes" in said and "40.0%" in said
    assert "CPU model (X; Y)" in said
    assert "load" not in " ".join(of(known).cautions)


def test_the_three_speedups_differ_by_what_is_spent_once():
    made = of(attributed())
    found = made.series[0].largest.speedups
    assert found.steady.value == pytest.approx(1.8, rel=1e-3)
    train = (40 * 2000 / (60 + 39 * 2000 / 180)) / (40 * 1000 / (60 + 39 * 10))
    assert found.train.value == pytest.approx(train, rel=1e-3)
    whole = [60 + 4.5 + 39 * 1000 * n / rate for n, rate in ((1, 100), (2, 180))]
    assert found.total.value == pytest.approx(2 * whole[0] / whole[1], rel=1e-3)
    once = 60 + 4.5
    words = 39_000  # the first batch is in what is spent once
    assert found.same_work == pytest.approx((once + words / 100) / (once + words / 180), rel=1e-3)
    assert 1 < found.same_work < found.steady.value


def write_folder(path, records):
    path.mkdir(exist_ok=True)
    for number, result in enumerate(records):
        record.write(result, path / f"{number}.json")
    return path


FILES = {"table.md", "table.csv", "report.json", "report.html", "speedup.png"} | {
    f"{name}.svg" for name in ("words_per_second", "speedup", "efficiency")
}


def test_report_reads_a_folder_and_leaves_out_what_is_no_record(tmp_path, capsys):
    write_folder(tmp_path, series())
    (tmp_path / "notes.json").write_text("{")
    assert report.main([str(tmp_path)]) == 0
    out, err = capsys.readouterr()
    assert "1900.000" in out and "1.90" in out and "2 |" in out
    assert err.startswith(f"warning: {tmp_path}/notes.json: not JSON")
    assert (tmp_path / "table.md").read_text().removesuffix(table.MARK) in out
    assert {path.name for path in tmp_path.iterdir()} - FILES == {*(f"{i}.json" for i in range(6)), "notes.json"}
    assert report.main([str(tmp_path)]) == 0, "its own files do not stand in its way"
    assert "report.json" not in capsys.readouterr().err


def test_foreign_files_stay_unless_forced(tmp_path, capsys):
    source, target = write_folder(tmp_path / "runs", series()), tmp_path / "out"
    target.mkdir()
    (target / "table.md").write_text("mine")
    words = [str(source), f"--output={target}"]
    assert report.main(words) == 1
    assert "table.md: not written by the report; --force" in capsys.readouterr().err
    assert [path.name for path in target.iterdir()] == ["table.md"] and (target / "table.md").read_text() == "mine"
    assert report.main([*words, "--force"]) == 0
    assert {path.name for path in target.iterdir()} == FILES
    assert not (source / "table.md").exists()


def changed(**changes):
    """A good record's fields, with some changed: {"batches.words": [...]}."""
    fields = json.loads(timed(2, 140).to_json())
    for name, value in changes.items():
        place = fields
        *path, last = name.split(".")
        for key in path:
            place = place[key]
        place[last] = value
    return fields


@pytest.mark.parametrize(
    "changes,said",
    [
        ({"config.num_devices": 0}, "config.num_devices is 0; expected a whole number of at least 1"),
        ({"config.num_devices": True}, "config.num_devices is True"),
        ({"config.variable_update": None}, "config.variable_update is missing; expected a name"),
        ({"config": []}, "config is []"),
        ({"config.preset": []}, "config.preset is []; expected one value"),
        ({"batches.seconds": [1.0] * 39 + [float("inf")]}, "batches.seconds[39] is inf"),
        ({"batches.seconds": [1.0, float("nan")]}, "batches.seconds[1] is nan; expected a number above 0"),
        ({"batches.seconds": [1.0] * 39 + [float("nan")]}, "batches.seconds[39] is nan"),
        ({"batches.seconds": [1e-300] * 40}, "batches.seconds[0] is 1e-300"),
        ({"batches.items": [10**400] * 40}, "batches.items[0] is 1000"),
        ({"batches.items": [-1] * 40}, "batches.items[0] is -1"),
        ({"batches.items": [1] * 3}, "batches.items has 3 entries and batches.seconds 40"),
        ({"batches": {}}, "batches.seconds is missing"),
        ({"batches.warmup": 40}, "batches.warmup is 40; expected a whole number below the 40 batches"),
        ({"throughput.items_per_second": 0}, "throughput.items_per_second is 0"),
        ({"throughput": []}, "throughput is []; expected an object"),
        ({"throughput": {}}, "throughput is missing; expected items, seconds and items_per_second"),
        ({"phases.start": -1.0}, "phases.start is -1.0; expected seconds"),
        ({"resolved": "no"}, "resolved is 'no'; expected an object"),
        ({"error": "no"}, "error is 'no'; expected an object or null"),
        ({"batches.tower_positions": [[1, "a"]] * 40}, "batches.tower_positions[0][1] is 'a'; expected a number"),
        (
            {"batches.tower_items": [[1]]},
            "batches.tower_items has 1 entries; expected a list for each of the 40 batches",
        ),
        ({"schema": "rnn_scaling.run/2"}, "rnn_scaling.run/2"),
        ({"config.num_units": "many"}, "config.num_units is 'many'; expected a whole number"),
        ({"config.num_units": 0}, "config.num_units is 0; expected at least 1"),
        ({"config.staged_vars": 1}, "config.staged_vars is 1; expected true or false"),
        ({"config.variable_update": "magic"}, "config.variable_update is 'magic'; expected independent, parameter_"),
        ({"throughput.seconds": 1.0}, "throughput.seconds is 1, and its measured batches make 430"),
        ({"throughput.items": 1.0}, "throughput.items is 1, and its measured batches make 60000"),
        (
            {"batches.tower_items": [[2000]] * 40},
            "batches.tower_items[0] is [2000]; expected a number for each of the 2",
        ),
        (
            {"batches.tower_items": [[1000, 999]] * 40},
            "batches.tower_items[0] sum to 1999 and batches.items[0] is 2000",
        ),
    ],
)
def test_bad_records_are_named_and_the_good_ones_reported(changes, said, tmp_path, capsys):
    write_folder(tmp_path, [timed(1, 100)])
    (tmp_path / "bad.json").write_text(json.dumps(changed(**changes)))
    assert report.main([str(tmp_path)]) == 0
    out, err = capsys.readouterr()
    assert err == f"warning: {err.removeprefix('warning: ')}" and err.count("\n") == 1
    assert f"{tmp_path}/bad.json: " in err and said in err
    assert "99.500" in out


@pytest.mark.parametrize("junk", [None, 3, "x", [], [None], {"a": [1]}, True])
def test_an_odd_environment_does_not_stop_the_report(junk, tmp_path, capsys):
    names = ("gpus", "gpus_after", "load", "packages", "commit", "variables", "memory_bytes", "cpu")
    odd = changed(environment=dict.fromkeys(names, junk))
    odd["resolved"] = dict.fromkeys(("cpu_affinity", "encoder_kernel", "device_type"), junk)
    write_folder(tmp_path, [timed(1, 100)])
    (tmp_path / "odd.json").write_text(json.dumps(odd))
    assert report.main([str(tmp_path)]) == 0
    assert "odd.json: " in capsys.readouterr().err


def test_a_file_nested_without_end_is_left_out(tmp_path, capsys):
    write_folder(tmp_path, [timed(1, 100)])
    (tmp_path / "deep.json").write_text("[" * 100_000)
    assert report.main([str(tmp_path)]) == 0
    assert "deep.json: " in capsys.readouterr().err


@pytest.mark.parametrize("words,status", [([], 2), (["--x"], 2), (["no/such/folder"], 2), (["EMPTY"], 1)])
def test_report_says_what_is_missing(words, status, tmp_path, capsys):
    assert report.main([str(tmp_path) if word == "EMPTY" else word for word in words]) == status
    assert capsys.readouterr().err.startswith("error: ")


def test_a_folder_of_folders_is_not_read_as_one(tmp_path, capsys):
    for side in ("a", "b"):
        write_folder(tmp_path / side, [timed(1, 100)])
    assert report.main([str(tmp_path)]) == 1
    assert f"there are some in {tmp_path}/a, {tmp_path}/b" in capsys.readouterr().err


@pytest.mark.parametrize(
    "redirection, status, said",
    [(">/dev/full", 1, "error: output: No space left on device\n"), ("| head -c 0", 141, "")],
)
def test_an_output_that_takes_nothing_is_not_the_folder(redirection, status, said, tmp_path):
    record.write(run(1, 500.0), tmp_path / "a.json")
    line = f"{sys.executable} -m rnn_scaling report {tmp_path} {redirection}; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", line], cwd=GOLDEN.parent.parent, stderr=subprocess.PIPE, text=True)
    assert (done.returncode, done.stderr) == (status, said)


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path, capsys):
    source = write_folder(tmp_path / "runs", [timed(1, 100)])
    (tmp_path / "file").write_text("")
    assert report.main([str(source), f"--output={tmp_path}/file/out"]) == 1
    err = capsys.readouterr().err
    assert err.startswith("error: ") and err.count("\n") == 1


def test_the_page_is_one_file_with_every_number_and_escapes_names(tmp_path):
    hostile = timed(2, 140, 0, variable_update="replicated", all_reduce_spec="<script>alert(1)</script>")
    made = of([*attributed(), hostile, run(4, 1.0, "failed", variable_update="replicated")])
    text = document.render(made).decode()
    assert "<script>alert" not in text and "&lt;script&gt;alert" in text
    assert not re.search(r"(?:src|href)=[\"'](?!#|data:,)", text)
    assert not re.search(r"url\((?!#)", text)
    plain = html.unescape(text).replace("\u00a0", " ")
    for each in made.series:
        assert answer.sentence(each) in plain
        for row in table.grid([r.row for r in each.rows])[1]:
            assert all(cell in plain for cell in row)
    assert "X: out of memory" in plain and "rnn_scaling.report/1" in text[:EDGE]


def test_every_id_on_the_page_is_unique_and_every_reference_has_one():
    text = document.render(of(attributed())).decode()
    ids = re.findall(r' id="([^"]+)"', text)
    assert len(ids) == len(set(ids))
    used = re.findall(r'href="#([^"]+)"', text) + re.findall(r"url\(#([^)]+)\)", text)
    used += [name for names in re.findall(r'aria-labelledby="([^"]+)"', text) for name in names.split()]
    assert used and set(used) <= set(ids)


def test_more_series_than_are_drawn_are_still_in_the_tables():
    runs = [timed(n, 100 * n, batch_size=size) for size in range(1, 31) for n in (1, 2)]
    text = document.render(of(runs)).decode()
    assert text.count('role="img"') == 3 + 24 + 24 and text.count('<h3 id="series-') == 30
    assert "the tables have 18 more" in text


def test_reading_a_report_never_loads_tensorflow(tmp_path):
    record.write(run(1, 10.0), tmp_path / "1.json")
    code = (
        "import sys; from rnn_scaling import train; from rnn_scaling.commands import report, sweep; "
        f"status = report.main([{str(tmp_path)!r}]); "
        "sys.exit(status or int('tensorflow' in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], stdout=subprocess.DEVNULL).returncode == 0


def test_help_loads_no_plotting():
    code = (
        "import sys; from rnn_scaling.commands import report; report.main(['--help']); "
        "sys.exit(bool({'matplotlib', 'jinja2', 'tensorflow'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], stdout=subprocess.DEVNULL).returncode == 0


def test_seconds_times_rate_are_the_words_of_a_run():
    made = of([timed(2, rate) for rate in (90, 110, 170)])
    ((row,),) = [each.rows for each in made.series]
    assert summary.seconds(row.row) * row.row.rate.value == pytest.approx(30 * 2000)
    header, line = csv_table.render(made).decode().splitlines()
    cells = dict(zip(header.split(","), next(csv.reader([line]))))
    assert float(cells["seconds"]) * float(cells["words_per_second"]) == pytest.approx(30 * 2000)


def test_repeats_of_one_row_show_their_interval_and_a_single_run_keeps_the_seeds_form():
    repeats = table.render(of([timed(2, 140, k) for k in range(3)])).decode()
    assert "± words/s: 95 % CI over 3 processes." in repeats and re.search(r"139\.\d+ ± 1\.\d+ \|", repeats)
    alone = table.render(of([timed(2, 140)])).decode()
    assert "±" not in alone and "Efficiency" not in alone


def test_every_kind_of_interval_is_said_with_its_columns():
    text = table.render(of([timed(1, 100), *(timed(2, 180, k) for k in range(3))])).decode()
    assert "± words/s: 95 % CI over 3 processes." in text
    assert "± words/s: 95 % CI over batches within one process" in text
    assert "± speedup, efficiency: 95 % CI over 1 and 3 processes" in text


@pytest.mark.parametrize(
    "rates,text", [((100, 101, 102), "101.0 ± 2.5"), ((100, 130), "110 [20, 600]"), ((1.0, 1.3), "1.1 [0.2, 6.0]")]
)
def test_an_interval_that_lies_unevenly_is_given_by_its_ends(rates, text):
    assert table.plus_minus(over_processes(rates), 1) == text


def test_one_run_is_never_a_firm_statement():
    one = answer.lead(of([timed(1, 100), timed(2, 140)]))
    assert "(one run each: cannot be told from the difference between two processes)" in one and "scales at" not in one
    mixed = answer.lead(of([timed(1, 100), *(timed(2, 140, k) for k in range(3))]))
    assert "(one run on 1 device: cannot be told" in mixed
    assert "cannot be told" not in answer.lead(of(attributed()))


def weak_and_strong():
    return [*attributed(), *(timed(n, 90 * n, k, global_batch_size=64) for n in (1, 2) for k in range(3))]


def test_weak_and_strong_scaling_have_an_answer_and_pictures_of_their_own(tmp_path):
    made = of(weak_and_strong())
    said = answer.lead(made)
    assert said.startswith("Weak scaling: The only series that trains one model: cudnn_lstm, replicated")
    assert "Strong scaling: cudnn_lstm, independent, strong" in said
    assert answer.overview(made).startswith("Weak scaling: 2 series reach") and "strong" not in answer.overview(made)
    text = document.render(made).decode()
    assert text.count('id="fig-speedup-t"') == text.count('id="fig-speedup-1-t"') == 1
    assert text.count("<h3>Strong scaling</h3>") == 1
    assert report.main([str(write_folder(tmp_path, weak_and_strong()))]) == 0
    assert "replicated" not in (tmp_path / "speedup_strong.svg").read_text()
    assert "strong" not in (tmp_path / "speedup.svg").read_text()


def test_the_fastest_is_chosen_where_all_were_measured():
    rates = {("replicated", 1): 100, ("replicated", 2): 150, ("replicated", 4): 280}
    rates |= {("mirrored", 1): 100, ("mirrored", 2): 190}
    said = answer.lead(of([timed(n, r, k, variable_update=mode) for (mode, n), r in rates.items() for k in range(3)]))
    assert said.startswith("The fastest series on 2 devices, the most that all have: cudnn_lstm, mirrored")


def test_load_of_all_runs_is_said_of_all_runs():
    load = {"load": {"others": 0.4, "steal": 0.0, "seconds": 9.0}}
    (line,) = [c for c in of([altered(r, environment=load) for r in attributed()]).cautions if "Load" in c]
    assert line.startswith("Load of other processes (all runs: 40.0%") and "0 runs" not in line


def test_parts_of_every_number_of_devices_and_a_rest_of_nothing_are_shown():
    runs = [timed(n, r, k) for n, r in ((1, 100), (2, 180), (4, 300)) for k in range(3)]
    text = table.render(of(runs)).decode().split("Points of efficiency lost")[1]
    assert re.search(r"\|\s+2 \| 10\.0 ± .*\|\s+0 \|", text) and re.search(r"\|\s+4 \| 25\.0 ± .*\|\s+0 \|", text)
    assert "not split 0: every run that the parts need is there." in text
    assert "On every number of devices" in document.render(of(runs)).decode()


def test_the_terminal_names_the_missing_runs_and_what_its_intervals_are(tmp_path, capsys):
    runs = [timed(n, 100, k, variable_update="replicated", seed=s) for n in (1, 2) for s in range(4) for k in range(2)]
    assert report.main([str(write_folder(tmp_path, runs))]) == 0
    out = capsys.readouterr().out.split("Runs that would say more:\n")
    assert "± is half of the interval: " in out[0].split("report.html")[0].splitlines()[-2] + out[0]
    lines = out[1].splitlines()
    assert [line.startswith("  ./run.sh sweep ") for line in lines[:4]] == [True] * 3 + [False]
    assert re.fullmatch(r"and \d+ more in report.html", lines[3])


def test_strong_scaling_made_by_hand_is_pointed_to_its_option():
    runs = [timed(n, 100 * n, batch_size=64 // n) for n in (1, 2, 4)]
    (line,) = of(runs).hand_made
    assert "--batch_size=16 on 4 devices" in line and "--global_batch_size=64" in line and line in of(runs).cautions
    assert not of([*runs, timed(1, 100, batch_size=32)]).hand_made, "a sweep over batch sizes is no such thing"
    assert not of(runs[1:2]).hand_made


def test_a_copy_of_a_record_is_left_out(tmp_path, capsys):
    write_folder(tmp_path, attributed())
    (tmp_path / "copy.json").write_bytes((tmp_path / "0.json").read_bytes())
    assert len(folder.read(tmp_path).runs) == len(attributed())
    assert "copy.json: a copy of 0.json" in folder.read(tmp_path).left_out[0]


@pytest.mark.parametrize("name,text", [("table.md", f"about {REPORT_SCHEMA}\n"), ("table.csv", REPORT_SCHEMA + ",1\n")])
def test_a_text_about_reports_is_not_the_reports_own(name, text, tmp_path):
    (tmp_path / name).write_text(text)
    assert not is_own(tmp_path / name)


def test_a_folder_that_takes_no_file_is_named_with_the_way_out(tmp_path, capsys, monkeypatch):
    def read_only(*_, **__):
        raise OSError(errno.EROFS, "Read-only file system", str(tmp_path / "tmpabc"))

    monkeypatch.setattr(tempfile, "TemporaryFile", read_only)
    assert report.main([str(write_folder(tmp_path, [timed(1, 100)]))]) == 1
    said = f"error: {tmp_path}: cannot be written (Read-only file system); --output=DIR writes elsewhere\n"
    assert capsys.readouterr().err == said


def test_a_file_that_cannot_be_read_is_said_without_numbers(tmp_path, capsys):
    write_folder(tmp_path, [timed(1, 100)])
    (tmp_path / "odd.json").mkdir()
    assert folder.read(tmp_path).left_out == (f"{tmp_path}/odd.json: Is a directory",)
