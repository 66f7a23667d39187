"""Exports for other tools: each is read back by the rules of its format."""

import csv
import dataclasses
import functools
import hashlib
import json
import re
import statistics
import subprocess
import sys
import tarfile
import types

import pytest

from rnn_scaling.analysis import folder_rows
from rnn_scaling.commands import report
from rnn_scaling.config import registry
from rnn_scaling.records import folder as folders
from rnn_scaling.records.options import Options
from rnn_scaling.reports.exports.exported import collect, list_batch_values
from tests.support.loaded_runs import make_run_beside_load
from tests.support.records import change_record
from tests.support.scaling_runs import make_timed_run, series, write_folder

# Source: Prometheus, "Exposition formats", text format 0.0.4.
SAMPLE = re.compile(r'([a-zA-Z_:][\w:]*)\{((?:\w+="(?:[^"\\\n]|\\.)*",?)+)\} (\S+)')


@pytest.fixture
def folder(tmp_path):
    runs = []
    for num_devices, rate in ((1, 1000.0), (2, 1900.0), (4, 3600.0)):
        for repeat in range(2):
            runs.append(make_timed_run(num_devices, rate, repeat))
    return write_folder(tmp_path / "runs", runs)


def export(folder, name, destination):
    return report.main([str(folder), f"--export={name}", str(destination)])


def read_gauges(text):
    """Return {(name, devices): value}, and check that each name is declared once."""
    declared = set()
    values = {}
    for line in text.splitlines():
        if line.startswith("# TYPE"):
            name = line.split()[2]
            assert name not in declared
            declared.add(name)
        elif not line.startswith("#"):
            name, labels, value = SAMPLE.fullmatch(line).groups()
            assert name in declared
            devices = re.search(r'num_devices="(\d+)"', labels)[1]
            values[name, int(devices)] = float(value)
    return values


def test_labels_of_prometheus_are_escaped(tmp_path):
    folder = write_folder(
        tmp_path / "runs", [make_timed_run(1, 1000.0, trainer='a "b\\c')]
    )
    assert export(folder, "prometheus", tmp_path / "x.prom") == 0
    text = (tmp_path / "x.prom").read_text()
    assert read_gauges(text)
    assert r"\"b\\c" in text


def test_otava_has_a_test_with_its_own_file_for_each_configuration(folder, tmp_path):
    assert export(folder, "otava", tmp_path / "otava") == 0
    config = json.loads((tmp_path / "otava/otava.yaml").read_text())
    assert len(config["tests"]) == 3
    for test in config["tests"].values():
        with open(test["file"], newline="") as file:
            lines = list(csv.DictReader(file))
        assert len(lines) == 2
        for line in lines:
            for metric in test["metrics"].values():
                assert float(line[metric["column"]]) > 0
            assert set(test["attributes"]) < set(line)


def test_extra_p_has_the_seconds_of_each_run_at_each_point(folder, tmp_path):
    assert export(folder, "extra-p", tmp_path / "extra_p") == 0
    lines = (tmp_path / "extra_p/devices-1-2-4.txt").read_text().splitlines()
    assert "POINTS 1 2 4" in lines
    data = [list(map(float, line.split()[1:])) for line in lines if "DATA" in line]
    assert [len(times) for times in data] == [2, 2, 2]
    assert data[0][0] == pytest.approx(1.0, rel=0.01)
    assert data[2][0] == pytest.approx(4000 / 3600, rel=0.01)


def make_run_beside_others(num_batches, repeat):
    """Return a run beside others, which doubled the seconds of the last batches."""
    alone = {"resolved": {"cpu_affinity": [0]}, "phases": {}}
    quiet = change_record(make_timed_run(1, 1000.0, repeat), **alone)
    return make_run_beside_load(quiet, [0.0] * (30 - num_batches) + [0.5] * num_batches)


def read_exported_numbers(folder, tmp_path):
    """Return the rate of the row, the rates of Otava and the step times of Extra-P."""
    for name in ("prometheus", "otava", "extra-p"):
        assert export(folder, name, tmp_path / name) == 0
    gauges = read_gauges((tmp_path / "prometheus").read_text())
    [path] = (tmp_path / "otava").glob("*.csv")
    with path.open(newline="") as file:
        rates = [float(line["items_per_second"]) for line in csv.DictReader(file)]
    lines = (tmp_path / "extra-p/devices-1.txt").read_text().splitlines()
    [step_s] = [line.split()[1:] for line in lines if line.startswith("DATA")]
    return gauges["rnn_scaling_items_per_second", 1], rates, [*map(float, step_s)]


@pytest.mark.parametrize(
    "slow_batches, expected",
    [
        ([10, 0, 0], [995, 1000, 1005]),  # the quiet batches of the first run count
        ([25, 0, 0], [1000, 1005]),  # the first run does not count
        # Disturbed runs must count, and so all batches count in the other runs.
        ([25, 25, 10], [995 * 30 / 55, 1000 * 30 / 55, 1005 * 30 / 40]),
    ],
)
def test_exported_runs_are_those_that_count_with_the_batches_that_count(
    tmp_path, slow_batches, expected
):
    runs = [
        make_run_beside_others(count, repeat)
        for repeat, count in enumerate(slow_batches)
    ]
    folder = write_folder(tmp_path / "runs", runs)
    row_rate, rates, step_s = read_exported_numbers(folder, tmp_path)
    # Batches differ by 0.2 %.
    assert rates == pytest.approx(expected, rel=1e-3)
    assert [1000 / seconds for seconds in step_s] == pytest.approx(expected, rel=1e-3)
    assert row_rate == pytest.approx(statistics.geometric_mean(rates))


def test_lines_of_a_log_are_not_called_steps(tmp_path):
    log = make_timed_run(1, 1000.0, trainer="regex")
    runs = [make_timed_run(2, 1900.0), dataclasses.replace(log, log_format="regex:x")]
    folder = write_folder(tmp_path / "runs", runs)
    assert export(folder, "extra-p", tmp_path / "extra_p") == 0
    [path] = (tmp_path / "extra_p").iterdir()
    assert path.name == "devices-2.txt"
    files = folders.read(folder)
    exported = collect(folder, files, folder_rows.build(files))
    [run] = [run for run in exported.runs if run.record.log_format]
    assert set(list_batch_values(run)[0]) == {"line_seconds", "line_items"}


def test_other_programs_have_no_samples_for_mllog(tmp_path, capsys):
    other = make_timed_run(1, 900.0)
    other = dataclasses.replace(
        other, options=Options({"trainer": "mine", "num_devices": 1})
    )
    runs = [make_timed_run(1, 1000.0), other]
    folder = write_folder(tmp_path / "runs", runs)
    assert export(folder, "mllog", tmp_path / "logs") == 0
    assert [path.name for path in (tmp_path / "logs").iterdir()] == ["0.log"]
    assert "1 run of other programs" in capsys.readouterr().out


class FakeRun:
    """A run of MLflow and of Weights & Biases that keeps what it receives."""

    def __init__(self):
        self.summary = {}
        self.logged = []

    def __enter__(self):
        return self

    def __exit__(self, *error):
        return None

    def log(self, values, step):
        self.logged.append((step, values))


ROUNDED = 6  # digits that a golden file has
LONG_NUMBER = re.compile(r"\d+\.\d{5,}(?:e-?\d+)?")


def read_written_files(folder):
    """Return the names and contents of the files in a folder, or of a file."""
    paths = sorted(folder.iterdir()) if folder.is_dir() else [folder]
    return "".join(f"== {path.name}\n{path.read_text()}" for path in paths)


def make_fake_package(calls):
    """Return a module that records the calls of MLflow or Weights & Biases."""

    class Recording(FakeRun):
        def __exit__(self, *error):
            calls.append(("summary", self.summary))

        def log(self, values, step):
            calls.append(("log", values, step))

    def start(*words, **more):
        calls.append(("start", *words, more))
        return Recording()

    package = types.SimpleNamespace(init=start, start_run=start)
    for name in (
        "set_tracking_uri",
        "set_experiment",
        "log_params",
        "set_tags",
        "log_metrics",
        "log_artifact",
    ):
        setattr(package, name, functools.partial(_record, calls, name))
    return package


def _record(calls, name, *words, **more):
    calls.append((name, *words, *more.values()))


@pytest.mark.parametrize("name", registry.EXPORTS)
def test_an_export_writes_its_golden_file(name, tmp_path, monkeypatch, is_golden):
    runs = [
        make_timed_run(1, 1000.0, batches=12),
        make_timed_run(2, 1900.0, batches=12),
    ]
    folder = write_folder(tmp_path / "runs", runs)
    calls = []
    if name in ("mlflow", "wandb"):
        monkeypatch.setitem(sys.modules, name, make_fake_package(calls))
    destination = tmp_path / "destination"
    assert export(folder, name, destination) == 0
    text = "".join(json.dumps(call, sort_keys=True) + "\n" for call in calls)
    text = (text or read_written_files(destination)).replace(str(tmp_path), "FOLDER")
    text = LONG_NUMBER.sub(lambda match: f"{float(match[0]):.{ROUNDED}g}", text)
    assert is_golden(f"exports/{name}.txt", text)


@pytest.mark.parametrize("name", ["mlflow", "wandb"])
def test_a_missing_package_is_an_error_that_names_it(folder, monkeypatch, capsys, name):
    monkeypatch.setitem(sys.modules, name, None)
    assert export(folder, name, "there") == 1
    assert f"pip install {name}" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        ["--export=otava"],
        ["--export=otava", "b", "--full"],
        ["--export=excel", "b"],
        ["--archive=x.zip"],
    ],
)
def test_wrong_words_are_refused(folder, words):
    assert report.main([str(folder), *words]) == 2


def test_a_folder_without_runs_has_nothing_to_export(tmp_path, capsys):
    for words in (["--export=otava", str(tmp_path / "o")], ["--archive=a.tar.gz"]):
        assert report.main([str(tmp_path), *words]) == 1
        assert "no run records" in capsys.readouterr().err


def test_an_archive_has_all_files_with_their_checksums(tmp_path):
    folder = write_folder(tmp_path / "runs", series())
    (folder / "2.stderr.txt").write_text("why it failed")
    path = tmp_path / "mine.tar.gz"
    for _ in range(2):
        before = path.read_bytes() if path.exists() else None
        assert report.main([str(folder), f"--archive={path}"]) == 0
        assert before in (None, path.read_bytes())
    with tarfile.open(path) as archive:
        contents = {}
        for member in archive:
            contents[member.name] = archive.extractfile(member).read()
    for line in contents.pop("mine/SHA256SUMS").decode().splitlines():
        digest, name = line.split("  ")
        assert hashlib.sha256(contents.pop(f"mine/{name}")).hexdigest() == digest
    assert not contents
    subprocess.run(["tar", "-xzf", str(path), "-C", str(tmp_path)], check=True)
    assert report.main([str(tmp_path / "mine/records")]) == 0
    new = json.loads((tmp_path / "mine/records/report.json").read_text())
    old = json.loads((tmp_path / "mine/report/report.json").read_text())
    assert new["series"] == old["series"]
