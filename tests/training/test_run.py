"""The cause of a run's end, tested without training."""

import errno
import os
import threading
import time
from unittest import mock

import numpy as np
import pytest

from rnn_scaling.cluster import connections
from rnn_scaling.cluster.failure import Failure, FailureKind
from rnn_scaling.cluster.launch import Launch
from rnn_scaling.cluster.rank_info import RankInfo
from rnn_scaling.commands.run_files import Notices
from rnn_scaling.records.decoding import encode
from rnn_scaling.system.machine import load
from rnn_scaling.system.machine.load import LoadMeter
from rnn_scaling.system.processes import early_start
from rnn_scaling.training import benchmark, machine_watch
from rnn_scaling.training import run as runs
from rnn_scaling.training.cluster import Cluster, SingleProcess
from rnn_scaling.training.observers import Observer, Observers, OutputError
from rnn_scaling.training.run_errors import describe_error
from rnn_scaling.training.state import RunState
from tests.support.configs import resolve
from tests.support.records import make_record
from tests.support.training import FAKE_BATCHES, run_fake_batches


class Others(SingleProcess):
    """The other ranks of a run, of which one may have failed."""

    def __init__(self, failure=None):
        self.failure = failure
        self.aborted = []

    def wait_for_failure(self):
        return self.failure is not None

    def abort(self, message, kind=FailureKind.ERROR):
        self.aborted.append((kind, message))


LOST = Failure(
    FailureKind.LOST, 1, "rank 1 (host b, process 7) ended: killed or crashed"
)


def run_of(monkeypatch, others, measure=lambda self: None, observer=None, **options):
    """Return a run whose second thread calls `measure` instead of training."""
    monkeypatch.setattr(runs.signal, "signal", lambda *_: None)
    monkeypatch.setattr(runs, "prepare_process", lambda *_: [])
    monkeypatch.setattr(runs, "NativeLog", lambda: None)
    monkeypatch.setattr(runs.Run, "measure", measure)
    config = resolve(options)
    observers = Observers([observer or Observer(), Notices()])
    run = runs.Run(config, None, observers, 0.0)
    run._cluster = others
    return run


def test_the_rank_that_failed_is_named_if_the_launcher_then_ends_the_others(
    monkeypatch, capsys
):
    run = run_of(monkeypatch, Others(LOST), measure=lambda self: wait_for_ever())
    run._interruption._handle(runs.signal.SIGTERM, None)
    result = run.run()
    assert (result.failure, result.exit_status) == (LOST, 1)
    assert capsys.readouterr().err == f"error: {LOST.message}\n"


def test_a_rank_that_is_lost_just_before_the_end_is_reported(monkeypatch, capsys):
    others = Others()
    run = run_of(monkeypatch, others)
    lost = "rank 1 (host b, process 7) has ended: killed or crashed"
    others.cut_off_lost_ranks = lambda: [lost] if run._finished.is_set() else []
    run.run()
    assert capsys.readouterr().err.startswith(f"warning: {lost};")


def wait_for_ever():
    """Keep a thread busy like a step that cannot be interrupted."""
    threading.Event().wait()


def trains(monkeypatch):
    """Let a run succeed without training; its step is a mock."""
    monkeypatch.setattr(benchmark, "run", lambda *_: mock.Mock())
    monkeypatch.setattr(runs.Run, "_make_record", lambda self, *_: make_record())


class FailingTrace(Observer):
    def inspect(self):
        raise RuntimeError("Collective ops is aborted by: Socket closed")


@pytest.mark.parametrize("has_failed", [True, False])
def test_a_trace_that_ends_with_another_rank_blames_nobody_else(
    has_failed, monkeypatch, capsys
):
    others = Others()
    measure = runs.Run.measure
    run = run_of(monkeypatch, others, measure, FailingTrace(), trace_batches=2)
    trains(monkeypatch)
    monkeypatch.setattr(others, "wait_for_failure", lambda: has_failed)
    run.measure()
    line = "--trace_batches=2: Collective ops is aborted by: Socket closed"
    assert others.aborted == ([] if has_failed else [(FailureKind.TRACE, line)])
    missing = run._keeper.record.missing_output
    assert missing.startswith("--trace_batches=2: ") and (missing == line) != has_failed
    assert capsys.readouterr().err.startswith("" if has_failed else f"warning: {line};")


class FailingOutputs(Observer):
    """Outputs on a disk that becomes full at some event."""

    def __init__(self, fails):
        self._fails = fails
        self._is_full = False
        self.saved = []

    def save(self, record):
        if self._is_full:
            raise OutputError("--result_file=run.json", "No space left", "record")
        self.saved.append(record)

    def inspect(self):
        if self._fails == "trace":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._is_full = self._fails == "record with the trace"

    def conclude(self, record):
        if self._fails == "logs":
            raise OutputError("--log_dir=logs", "No space left", "folder")


@pytest.mark.parametrize(
    "fails, flag",
    [
        ("trace", "--trace_batches=2"),
        ("logs", "--log_dir="),
        ("record with the trace", "--result_file="),
        ("nothing", ""),
    ],
)
def test_a_full_disk_after_the_record_leaves_a_good_record_and_a_good_exit_status(
    fails, flag, monkeypatch, capsys
):
    outputs = FailingOutputs(fails)
    measure = runs.Run.measure
    run = run_of(monkeypatch, Others(), measure, outputs, trace_batches=2)
    trains(monkeypatch)
    assert run.run().exit_status == 0
    before, last = outputs.saved[-2:]
    if fails == "nothing":
        assert before.missing_output.startswith("--trace_batches=2: ")
    err = capsys.readouterr().err
    assert last.status == "ok" and last.throughput
    assert ("warning: " in err) == bool(flag) and flag in err
    is_recorded = fails in ("trace", "logs")
    assert (last.missing_output or "").startswith(flag if is_recorded else "")


def test_a_record_that_cannot_be_written_at_first_starts_no_run(monkeypatch):
    outputs = FailingOutputs("")
    outputs._is_full = True
    run = run_of(monkeypatch, Others(), lambda self: pytest.fail("it ran"), outputs)
    with pytest.raises(runs.NotStartedError, match="--result_file=run.json"):
        run.run()


def test_a_rank_whose_trace_fails_ends_the_others_without_an_error(monkeypatch, capsys):
    failure = Failure(FailureKind.TRACE, 1, "rank 1: No space left on device")
    others = Others()

    def measure(self):
        self._keeper.is_finished = True
        others.failure = failure
        self._interruption.happened.wait()  # as a thread that traces

    run = run_of(monkeypatch, others, measure)
    trains(monkeypatch)
    result = run.run()
    assert (result.failure, result.exit_status) == (None, 0)
    assert result.record.missing_output == failure.message
    assert "error:" not in capsys.readouterr().err


@pytest.mark.parametrize("is_recorded", [False, True])
def test_an_interrupted_run_keeps_the_record_that_it_has(is_recorded, monkeypatch):
    outputs = FailingOutputs("")

    def measure(self):
        if is_recorded:
            self._keeper.save_finished(make_record())
        self._interruption._handle(runs.signal.SIGINT, None)
        wait_for_ever()

    others = Others()
    run = run_of(monkeypatch, others, measure, outputs)
    result = run.run()
    assert result.exit_status == 130
    assert result.failure.kind is FailureKind.INTERRUPTED
    assert outputs.saved[-1].status == ("ok" if is_recorded else "interrupted")
    assert others.aborted == [(FailureKind.INTERRUPTED, "interrupted by SIGINT")]


def test_an_interruption_while_the_finished_record_is_saved_does_not_replace_it(
    monkeypatch,
):
    saved_statuses = []
    interruption_is_saved = threading.Event()

    class SlowOutput(Observer):
        def save(self, record):
            if record.status == "interrupted":
                interruption_is_saved.set()
            if record.status == "ok":
                run._interruption._handle(runs.signal.SIGINT, None)
                # The main thread must not save meanwhile, so this wait times out.
                interruption_is_saved.wait(3 * runs.TICK_S)
            saved_statuses.append(record.status)

    def measure(self):
        self._keeper.save_finished(make_record())
        wait_for_ever()

    run = run_of(monkeypatch, Others(), measure, SlowOutput())
    result = run.run()
    assert saved_statuses == ["failed", "ok"]
    assert result.record.status == "ok" and result.is_saved
    assert result.exit_status == 130


def test_a_run_that_was_recorded_as_interrupted_cannot_finish(monkeypatch):
    outputs = FailingOutputs("")
    has_tried_to_finish = threading.Event()

    def measure(self):
        self._interruption._handle(runs.signal.SIGINT, None)
        while outputs.saved[-1].status != "interrupted":
            time.sleep(0.01)
        self._keeper.save_finished(make_record())
        has_tried_to_finish.set()

    run = run_of(monkeypatch, Others(), measure, outputs)
    result = run.run()
    assert has_tried_to_finish.wait(60.0)
    assert outputs.saved[-1].status == result.record.status == "interrupted"


@pytest.mark.parametrize("timeout_s, silence_s", [(60.0, 10.0), (4.0, 4.0)])
def test_a_silent_rank_is_lost_within_the_time_in_which_a_fault_ends_the_run(
    timeout_s, silence_s
):
    assert cluster_of_two(cluster_timeout=timeout_s)._heartbeat_s == silence_s


def cluster_of_two(**options):
    """Return rank 1 of two workers, before it joins."""
    wanted = {"variable_update": "distributed_independent", "num_workers": 2, **options}
    launch = Launch(
        1,
        2,
        "test",
        "127.0.0.1:20000",
        "127.0.0.1",
        1,
        2,
        addresses=("127.0.0.1:1", "127.0.0.1:2"),
    )
    return Cluster(launch, resolve(wanted))


def test_lost_ranks_are_counted_without_a_cut_and_cut_off_once(monkeypatch):
    addresses = []
    monkeypatch.setattr(connections, "cut_connections", addresses.append)
    cluster = cluster_of_two()
    cluster._joining.peers = [RankInfo(k, "worker", "a", k, f"a:{k}") for k in range(2)]
    cluster._connection._events.lost = ((0, "rank 0 has ended"),)
    assert cluster.num_lost_ranks == 1
    assert addresses == []
    assert cluster.cut_off_lost_ranks() == ["rank 0 has ended"]
    assert cluster.cut_off_lost_ranks() == []
    assert addresses == ["a:0"]


@pytest.mark.parametrize(
    "rule",
    [
        "MaxPoolingOp only supports NHWC on device type CPU",
        "only supports the NHWC tensor",
    ],
)
def test_an_order_of_axes_without_operators_is_one_line_and_no_fault_of_the_program(
    rule,
):
    class InvalidArgumentError(Exception):
        pass

    def describe(**model):
        config = resolve({"model": "resnet20", **model})
        several = f"2 root error(s) found.\n  {rule}.\nmore"
        told = [
            describe_error(InvalidArgumentError(text), config)
            for text in (f"{rule}.\nmore", several)
        ]
        assert told[0][2] == told[1][2] and (told[0] == told[1] or not told[0][2])
        return told[0]

    _, line, expected = describe(data_format="NCHW")
    assert line.startswith(f"--data_format=NCHW is not supported here ({rule})")
    assert "--data_format=NHWC" in line
    assert expected and not describe(data_format="NHWC")[2]


def test_a_run_before_its_turn_loads_and_saves_nothing(monkeypatch):
    outputs = FailingOutputs("")
    run = run_of(monkeypatch, Others(), observer=outputs)
    monkeypatch.delenv("TF_NUM_INTEROP_THREADS", raising=False)

    def prepare(*_):
        monkeypatch.setenv("TF_NUM_INTEROP_THREADS", "7")  # the user has not set it
        return []

    def wait():
        assert not outputs.saved and benchmark

    monkeypatch.setattr(runs, "prepare_process", prepare)
    monkeypatch.setattr(early_start, "is_early", lambda: True)
    monkeypatch.setattr(early_start, "wait_for_turn", wait)
    result = run.run()
    assert result.record.error.type == "Killed"
    assert "TF_NUM_INTEROP_THREADS" not in result.record.environment.variables


def test_waiting_for_a_turn_and_for_the_next_process_belongs_to_no_phase(monkeypatch):
    now = [0.0]
    state = RunState(resolve(), clock=lambda: now[0])

    def spend(seconds):
        now[0] += seconds

    for wait in ("wait_for_turn", "wait_for_following"):
        monkeypatch.setattr(early_start, wait, lambda: spend(100.0))
    state.resolved["cpu_affinity"] = [0]
    spend(1.0)
    state.wait_for_turn()
    spend(2.0)
    state.phases.enter("batches")
    state.wait_for_following()
    spend(4.0)
    state.phases.enter("teardown")
    phases = state.make_record("failed").phases
    assert phases.start == 3.0
    assert phases.total == 7.0


def test_each_measured_batch_has_a_window_with_its_load(tf, monkeypatch):
    now = [100.0]
    config = resolve(FAKE_BATCHES)
    state = RunState(config, clock=lambda: now[0])

    def take_half_a_second():
        now[0] += 0.5

    def sample(cores):
        now[0] += 5.0
        return load.CpuTimes(now[0], now[0] / 2, now[0] / 8, 0.0)

    monkeypatch.setattr(load, "_sample", sample)
    monkeypatch.setattr(load, "choose_window_seconds", lambda *sizes: 0.0)
    monkeypatch.setattr(load, "MAX_COST_SHARE", np.inf)
    state.resolved["cpu_affinity"] = [0]
    run_fake_batches(take_half_a_second, state)
    made = state.make_record("ok")
    assert made.batches.seconds == (0.5,) * 5
    assert encode(made.environment.load.windows) == {
        "batches": [1, 1, 1],
        "seconds": [5.5, 5.5, 5.5],
        "others": [0.5, 0.5, 0.5],
        "steal": [0.125, 0.125, 0.125],
        "own": [0.0, 0.0, 0.0],
    }
    assert state.collect_details()["load_windows"] == encode(
        made.environment.load.windows
    )


def test_a_run_in_its_turn_measures_when_the_next_process_has_loaded(tf, monkeypatch):
    # The load of the next process before does not count for the measured batches.
    state = RunState(resolve(FAKE_BATCHES))
    events = []

    class Meter(LoadMeter):
        def __init__(self, *_):
            events.append("meter")

        read = lambda self: None  # noqa: E731

    monkeypatch.setattr(machine_watch, "LoadMeter", Meter)
    monkeypatch.setattr(
        early_start, "wait_for_following", lambda: events.append("wait")
    )
    state.resolved["cpu_affinity"] = [0]
    monkeypatch.setattr(early_start, "wait_for_turn", lambda: None)
    state.wait_for_turn()
    run_fake_batches(lambda: events.append("batch"), state)
    measured = ["wait", "meter", *["batch"] * 3]
    assert events == ["meter", "batch", "batch", *measured]
