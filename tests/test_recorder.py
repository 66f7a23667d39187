"""The clock and record of loops that are not ours, and what reads them."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from rnn_scaling import Recorder
from rnn_scaling.analysis import loading, rows
from rnn_scaling.analysis.comparison import matching
from rnn_scaling.audit.tables import records as audited
from rnn_scaling.records import folder, record
from rnn_scaling.reports import answer, summary, table
from tests.support.paths import ROOT


class Clock:
    """Seconds that pass when told."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def recorded(path, num_devices=1, step_s=0.5, **options):
    clock = Clock()
    with Recorder(
        path, unit="tokens", num_devices=num_devices, trainer="mine", options=options, clock=clock
    ) as recorder:
        for _ in range(30):
            clock.now += step_s
            recorder.step(items=100 * num_devices, loss=2.0)
        clock.now += 1000.0  # a validation
        recorder.resume()
        clock.now += step_s
        recorder.step(items=100 * num_devices)
    return record.read(path)


def test_seconds_and_items_cover_the_same_steps(tmp_path):
    run = recorded(tmp_path / "run.json")
    assert run.status == "ok" and run.unit == "tokens"
    assert run.batches.warmup == 10 and run.batches.measured == 21 and set(run.batches.seconds) == {0.5}
    assert run.throughput.items_per_second == 200.0
    assert run.batches.loss[-1] is None and run.batches.loss[0] == 2.0
    assert run.phases.total == 1015.5 and run.phases.measured == 10.5
    assert run.environment.python and run.steady_state


def test_the_file_says_that_the_loop_goes_on_and_what_ended_it(tmp_path):
    path = tmp_path / "run.json"
    with pytest.raises(KeyError), Recorder(path, num_warmup_batches=0) as recorder:
        assert record.read(path).error.type == "Killed"
        recorder.step(items=3)
        raise KeyError("weights")
    run = record.read(path)
    assert (run.status, run.error.type, run.batches.items) == ("failed", "KeyError", (3,))
    with Recorder(path) as recorder:
        recorder.step(items=3)
    assert "1 steps, and the first 10 are warm-up" in record.read(path).error.message


@pytest.mark.parametrize("wrong", [{"options": {"hidden": [1, 2]}}, {"num_devices": 0}, {"options": {"batch_size": 0}}])
def test_options_that_no_record_may_have_are_refused_at_once(tmp_path, wrong):
    with pytest.raises(ValueError, match="expected"):
        Recorder(tmp_path / "run.json", **wrong)
    assert not list(tmp_path.iterdir())


def test_its_records_are_read_as_those_of_a_trainer_that_is_not_ours(tmp_path):
    recorded(tmp_path / "1.json", 1, hidden=64)
    recorded(tmp_path / "2.json", 2, step_s=0.625, hidden=64)
    recorded(tmp_path / "other.json", 2, step_s=0.75, hidden=128)
    of_folder = loading.load(tmp_path)
    one, two, other = sorted(of_folder, key=lambda row: (row.num_devices, row.config["hidden"]))
    assert (two.baseline, other.baseline) == (one, None), "another size is other work"
    assert two.metric(rows.METRICS["speedup"]).value == pytest.approx(1.6)
    told = summary.summarise(folder.read(tmp_path), "mine")
    assert {series.title.split(",")[0] for series in told.series} == {"mine"}
    assert answer.all_missing(told) == [], "none of our commands makes these runs"
    audited_table = audited.table([("1.json", record.read(tmp_path / "1.json"))], "mine")
    assert audited_table.rows[0].series.startswith("mine / ")


def test_a_batch_size_that_was_not_told_is_not_made_up(tmp_path):
    recorded(tmp_path / "1.json", 1)
    recorded(tmp_path / "2.json", 2, step_s=0.625, batch_size=8)
    untold, told = sorted(loading.load(tmp_path), key=lambda row: row.num_devices)
    assert (untold.batch_size, untold.global_batch_size) == (None, None)
    assert (told.batch_size, told.global_batch_size) == (8, 16)
    assert "|             1 |        n/a |" in table.table([untold])


def test_a_comparison_names_it_by_what_is_known(tmp_path):
    recorded(tmp_path / "1.json", 1)
    key = matching._key(record.read(tmp_path / "1.json"))
    (named,) = matching._labels([key])
    (unnamed,) = matching._labels([matching._without(key, {"trainer"})])
    assert named.startswith("mine, 1 device") and unnamed.startswith("1 device"), "and no empty mode"


def test_a_step_of_nothing_is_refused_when_it_is_told(tmp_path):
    recorder = Recorder(tmp_path / "run.json", unit="images", num_warmup_batches=0)
    with pytest.raises(ValueError, match="step 1: expected at least one of the images, got items=0"), recorder:
        recorder.step(items=3)
        recorder.step(items=0)
    assert record.read(tmp_path / "run.json").batches.items == (3,)


def test_it_needs_the_standard_library_alone(tmp_path):
    code = (
        "import sys\n"
        "for name in ('numpy', 'tensorflow', 'absl', 'tqdm', 'jinja2', 'matplotlib', 'scipy', 'ruptures'):\n"
        "    sys.modules[name] = None\n"
        "from rnn_scaling import Recorder\n"
        f"with Recorder({str(tmp_path / 'run.json')!r}, num_warmup_batches=1) as recorder:\n"
        "    recorder.step(items=1)\n"
        "    recorder.step(items=1)\n"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, timeout=60)
    assert json.loads((tmp_path / "run.json").read_text())["status"] == "ok"
