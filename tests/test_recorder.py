"""The clock and record of loops that are not ours, and what reads them."""

import json
import math
import subprocess
import sys

import numpy as np
import pytest

from rnn_scaling import Recorder
from rnn_scaling.analysis import folder_rows, rows, stalls
from rnn_scaling.records import folder, record
from rnn_scaling.reports import cluster, conclusions, table
from rnn_scaling.reports.summary import summarise
from rnn_scaling.sweeps import failure
from rnn_scaling.system.files.terminal import RESULT_VARIABLE
from rnn_scaling.system.machine import load
from rnn_scaling.training import progress
from rnn_scaling.training.machine_watch import MachineWatch
from tests.support.paths import ROOT


class Clock:
    """A clock that the test sets."""

    def __init__(self, now=100.0):
        self.now = now

    def __call__(self):
        return self.now


def record_run(path, num_devices=1, step_s=0.5, steps=30, **options):
    clock = Clock()
    with Recorder(
        path,
        unit="tokens",
        num_devices=num_devices,
        trainer="mine",
        options=options,
        clock=clock,
    ) as recorder:
        for _ in range(steps):
            clock.now += step_s
            recorder.step(items=100 * num_devices, loss=2.0)
        clock.now += 1000.0  # a validation
        recorder.resume()
        clock.now += step_s
        recorder.step(items=100 * num_devices)
    return record.read(path)


def test_seconds_and_items_cover_the_same_steps(tmp_path):
    run = record_run(tmp_path / "run.json")
    assert run.status == "ok" and run.unit == "tokens"
    assert run.batches.warmup == 10
    assert run.batches.measured == 21
    assert set(run.batches.seconds) == {0.5}
    assert run.throughput.items_per_second == 200.0
    assert run.batches.loss[-1] is None and run.batches.loss[0] == 2.0
    assert run.phases.total == 1015.5 and run.phases.measured == 10.5
    assert run.environment.python and run.steady_state


def test_a_record_has_the_learning_rate_and_gradient_norm_of_each_step(tmp_path):
    path = tmp_path / "run.json"
    clock = Clock()
    with Recorder(path, num_warmup_batches=1, clock=clock) as recorder:
        for step in range(3):
            clock.now += 0.5
            rate = np.float32(0.5) if step else None
            norm = [2.0, math.inf, np.asarray(3)][step]
            recorder.step(items=1, learning_rate=rate, grad_norm=norm)
        for bad in ({"learning_rate": math.nan}, {"grad_norm": -1}):
            clock.now += 0.5
            with pytest.raises(ValueError, match=f"step 3: {min(bad)}="):
                recorder.step(items=1, **bad)
    batches = record.read(path).batches
    assert batches.learning_rate == (None, 0.5, 0.5)
    assert batches.grad_norm == (2.0, None, 3.0)


@pytest.mark.parametrize("warmup", [0, 3])
def test_reading_the_load_of_a_window_is_outside_the_steps(
    tmp_path, monkeypatch, warmup
):
    clock = Clock()

    def sample(cores):
        clock.now += 5.0
        return load.CpuTimes(clock.now, clock.now / 2, 0.0, 0.0)

    monkeypatch.setattr(load, "sample_with_descendants", sample)
    monkeypatch.setattr(load, "choose_window_seconds", lambda *sizes: 0.0)
    monkeypatch.setattr(load, "MAX_COST_SHARE", math.inf)
    path = tmp_path / "run.json"
    with Recorder(path, num_warmup_batches=warmup, clock=clock) as recorder:
        for _ in range(warmup + 4):
            clock.now += 0.5
            recorder.step(items=1)
    run = record.read(path)
    assert set(run.batches.seconds) == {0.5}
    windows = run.environment.load.windows
    assert windows.batches == (1, 1, 1, 1)
    assert set(windows.seconds) == {5.5}
    assert windows.others[0] == pytest.approx(0.5 / len(run.resolved.cpu_affinity))


def test_the_file_says_that_the_loop_goes_on_and_what_ended_it(tmp_path):
    path = tmp_path / "run.json"
    with pytest.raises(KeyError), Recorder(path, num_warmup_batches=0) as recorder:
        assert record.read(path).error.type == "Killed"
        recorder.step(items=3)
        raise KeyError("weights")
    run = record.read(path)
    assert (run.status, run.error.type, run.batches.items) == (
        "failed",
        "KeyError",
        (3,),
    )
    with Recorder(path) as recorder:
        recorder.step(items=3)
    assert "num_warmup_batches=" in record.read(path).error.message


@pytest.mark.parametrize(
    "wrong",
    [
        {"options": {"hidden": [1, 2]}},
        {"options": {"batch_size": 0}},
        {"num_devices": 10**400},
        {"unit": "a\n"},
        {"flops_per_item": True},
        {"timeout_s": math.inf},
        {"num_warmup_batches": -1},
        {"started": "now"},
        {"rank": 2, "num_ranks": 2},
        {"rank": 0, "num_ranks": math.nan},
    ],
)
def test_options_that_no_record_may_have_are_refused_at_once(tmp_path, wrong):
    with pytest.raises(ValueError):
        Recorder(tmp_path / "run.json", **wrong)
    assert not list(tmp_path.iterdir())


def test_one_record_has_one_recorder_at_a_time(tmp_path):
    path = tmp_path / "run.json"
    with Recorder(path, num_warmup_batches=0) as first:
        for same in (path, tmp_path / "./run.json"):
            with pytest.raises(ValueError, match="in use"):
                Recorder(same)
        first.step(items=3)
    assert record.read(path).status == "ok"
    with Recorder(path, num_warmup_batches=0) as second:
        second.step(items=4)
    assert record.read(path).batches.items == (4,)


def test_a_recorder_of_another_process_keeps_its_record(tmp_path):
    path = tmp_path / "run.json"
    code = (
        "import sys; from rnn_scaling import Recorder;"
        "recorder = Recorder(sys.argv[1]); print('open', flush=True); input()"
    )
    words = [sys.executable, "-c", code, str(path)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(words, cwd=ROOT, **pipes) as child:
        assert child.stdout.readline() == "open\n"
        before = path.read_bytes()
        with pytest.raises(ValueError, match="another process"):
            Recorder(path)
        assert path.read_bytes() == before
        child.communicate("\n")
    with Recorder(
        path, num_warmup_batches=0
    ) as recorder:  # the first Recorder was killed
        recorder.step(items=3)
    assert record.read(path).status == "ok"


def test_nothing_follows_the_end(tmp_path):
    with Recorder(tmp_path / "run.json", num_warmup_batches=0) as recorder:
        recorder.step(items=3)
    for call in (lambda: recorder.step(items=3), recorder.resume, recorder.start):
        with pytest.raises(RuntimeError, match="after the end"):
            call()
    assert record.read(tmp_path / "run.json").batches.items == (3,)
    assert recorder.close().batches.items == (3,)  # closing twice changes nothing


@pytest.mark.usefixtures("quiet_machine")
def test_its_records_are_read_as_those_of_a_trainer_that_is_not_ours(tmp_path):
    record_run(tmp_path / "1.json", 1, hidden=64)
    record_run(tmp_path / "2.json", 2, step_s=0.625, hidden=64)
    record_run(tmp_path / "other.json", 2, step_s=0.75, hidden=128)
    by_size = {}
    for row in folder_rows.load(tmp_path):
        by_size[row.num_devices, row.options["hidden"]] = row
        assert row.items == "as counted by the program", "with padding or without"
    two = by_size[2, 64]
    assert two.baseline is by_size[1, 64]
    assert by_size[2, 128].baseline is None, "another size is other work"
    assert two.metric(rows.METRICS["speedup"]).value == pytest.approx(1.6)
    told = summarise(folder.read(tmp_path), "mine")
    assert conclusions.list_all_missing_run_commands(told) == []


def test_a_batch_size_that_was_not_told_is_not_made_up(tmp_path):
    record_run(tmp_path / "1.json", 1)
    record_run(tmp_path / "2.json", 2, step_s=0.625, batch_size=8)
    untold, told = sorted(folder_rows.load(tmp_path), key=lambda row: row.num_devices)
    assert untold.batch_size is None
    assert untold.global_batch_size is None
    assert told.batch_size == 8
    assert told.global_batch_size == 16
    assert "|             1 |        n/a |" in table.make_rates_table([untold])


def test_a_step_of_nothing_is_refused_when_it_is_told(tmp_path):
    recorder = Recorder(tmp_path / "run.json", unit="images", num_warmup_batches=0)
    with (
        pytest.raises(ValueError, match="step 1: items=0 must be at least 1"),
        recorder,
    ):
        recorder.step(items=3)
        recorder.step(items=0)
    assert record.read(tmp_path / "run.json").batches.items == (3,)


def test_the_package_without_its_dependencies_suffices(tmp_path):
    code = (
        "import importlib.util, sys\n"
        f"sys.path.insert(0, {str(ROOT)!r})\n"
        "for name in ('numpy', 'tensorflow', 'absl', 'tqdm', 'jinja2', 'matplotlib', 'scipy', 'ruptures'):\n"
        "    assert importlib.util.find_spec(name) is None, name\n"
        "from rnn_scaling import Recorder\n"
        f"with Recorder({str(tmp_path / 'run.json')!r}, num_warmup_batches=1, progress=True) as recorder:\n"
        "    recorder.step(items=1)\n"
        "    recorder.step(items=1)\n"
    )
    subprocess.run(
        [sys.executable, "-I", "-S", "-c", code], cwd=tmp_path, check=True, timeout=60
    )
    run = record.read(tmp_path / "run.json")
    assert run.status == "ok" and run.steady_state is None, (
        "which readers work out for themselves"
    )


def test_numbers_of_frameworks_are_read_as_numbers(tmp_path):
    path = tmp_path / "run.json"
    # The last two have names of this project's options, but the user's values.
    told = {
        "hidden": np.int64(256),
        "dropout": np.asarray(0.5, np.float32),
        "amp": np.bool_(True),
        "framework": "keras on jax",
        "model": "its own",
    }
    with Recorder(path, num_warmup_batches=0, options=told) as recorder:
        recorder.step(items=np.int32(3), loss=np.float32(0.5))
        recorder.step(items=np.asarray(4.0), loss=np.asarray([0.25]))
        for items, loss, rule in (
            (np.ones(2), 1.0, "step 2: items is array"),
            ("5", 1.0, "step 2: items is '5'; expected one number"),
            (None, 1.0, "step 2: items is missing; expected one number"),
            (2.5, 1.0, "step 2: items=2.5 must be a whole number"),
            (5, [1.0, 2.0], "step 2: loss is"),
        ):
            with pytest.raises(ValueError, match=rule) as error:
                recorder.step(items=items, loss=loss)
            assert "\n" not in str(error.value)
    run = record.read(path)
    assert run.batches.items == (3, 4) and run.batches.loss == (0.5, 0.25)
    assert {name: run.config[name] for name in told} == told
    assert type(run.config["hidden"]) is int


def test_the_loss_is_read_before_the_clock(tmp_path):
    clock = Clock()

    class Loss:
        def __float__(self):
            clock.now += 7.0  # the devices finish
            return 2.0

    with Recorder(tmp_path / "run.json", num_warmup_batches=0, clock=clock) as recorder:
        assert recorder.step(items=1, loss=Loss()) == 7.0


WAITED = {
    "alike": [0.1] * 100,
    "a slow first step": [9.0] + [0.1] * 99,
    "a checkpoint now and then": ([0.1] * 24 + [4.0]) * 4,
    "slower by the half": [0.1] * 50 + [0.2] * 50,
}
UNWAITED = {
    "the queue fills": ([0.001] * 20 + [0.1] * 80, 0.0, "fast-start", 20, 0.02),
    "every tenth step waits": (([0.001] * 9 + [1.0]) * 10, 0.0, "few-long", 10, 10.0),
    "the last step waits": ([0.001] * 99 + [9.0], 0.0, "long-last", 1, 9.0),
    "the code after the loop waits": ([0.001] * 100, 9.0, "long-end", 0, 9.0),
}


@pytest.mark.parametrize("step_s", WAITED.values(), ids=WAITED)
def test_steps_that_waited_raise_no_alarm(step_s):
    assert stalls.find_early_steps(step_s, [1] * len(step_s), end_s=0.1) is None


def test_longer_batches_take_longer_and_raise_no_alarm():
    items = ([10] * 9 + [1000]) * 10
    assert stalls.find_early_steps([0.001 * n for n in items], items) is None


@pytest.mark.parametrize(
    "step_s, end_s, kind, steps, seconds", UNWAITED.values(), ids=UNWAITED
)
def test_steps_that_did_not_wait_are_recorded_and_reported(
    tmp_path, capsys, step_s, end_s, kind, steps, seconds
):
    clock = Clock()
    with Recorder(
        tmp_path / "run.json", num_warmup_batches=0, trainer="mine", clock=clock
    ) as recorder:
        for time_s in step_s:
            clock.now += time_s
            recorder.step(items=1)
        clock.now += end_s

    found = record.read(tmp_path / "run.json").batches.early_steps
    assert found.kind == kind
    assert found.steps == steps
    assert found.total_steps == len(step_s)
    assert found.seconds == pytest.approx(seconds)
    [row] = folder_rows.load(tmp_path)
    [remark] = cluster.state_workers(row, "mine")
    assert remark.kind == "steps-not-waited-for"
    assert f"warning: {remark.values['text']} " in capsys.readouterr().err


def test_a_sweep_reports_the_load_instead_of_the_program(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(
        MachineWatch, "describe_disturbance", lambda self, record: "busy"
    )

    def run():
        with Recorder(tmp_path / "run.json", num_warmup_batches=0) as recorder:
            recorder.step(items=1)
        return capsys.readouterr().err

    assert "warning: busy" in run()
    monkeypatch.setenv(RESULT_VARIABLE, str(tmp_path / "run.json"))
    assert "busy" not in run()


def test_the_sentence_of_an_older_record_is_still_reported(tmp_path):
    path = tmp_path / "run.json"
    with Recorder(path, num_warmup_batches=0, trainer="mine") as recorder:
        recorder.step(items=1)
    older = json.loads(path.read_text())
    older["batches"]["unwaited"] = "the last step has 99% of the time"
    path.write_text(json.dumps(older))
    [row] = folder_rows.load(tmp_path)
    assert [remark.values["text"] for remark in cluster.state_workers(row, "mine")] == [
        older["batches"]["unwaited"]
    ]


def test_progress_is_told_where_it_is_asked_for_in_lines_that_a_sweep_reads(
    tmp_path, capsys, monkeypatch
):
    def run(**options):
        clock = Clock()
        with Recorder(
            tmp_path / "run.json",
            unit="tokens",
            num_warmup_batches=1,
            clock=clock,
            **options,
        ) as recorder:
            for _ in range(2):
                clock.now += 0.5
                recorder.step(items=100, loss=2.0)
        lines = capsys.readouterr().err.splitlines()
        return [
            line for line in lines if not line.startswith("warning: ")
        ]  # other processes may have been busy

    assert run() == []
    assert run(progress=True, num_steps=2) == [
        "measuring: 2/2 batches, 200 tokens/s, loss 2, 0 s left"
    ]
    monkeypatch.setenv("RNN_SCALING_PROGRESS", "1")
    monkeypatch.setattr(progress, "PLAIN_INTERVAL_S", -1.0)
    lines = run()
    assert lines == [
        "warm-up: 1 batches, 200 tokens/s, loss 2",
        "measuring: 2 batches, 200 tokens/s, loss 2",
    ]
    assert all(map(failure.PROGRESS.match, lines)) and run(progress=False) == []


def test_a_record_needs_a_learning_rate_per_step(tmp_path):
    path = tmp_path / "run.json"
    record_run(path)
    content = json.loads(path.read_text())
    content["batches"]["learning_rate"] = [0.1]
    path.write_text(json.dumps(content))
    with pytest.raises(record.RecordError, match="batches.learning_rate has length 1"):
        record.read(path)
