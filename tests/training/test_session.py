"""Whose fault the end of a run is, without a run."""

from __future__ import annotations

import dataclasses
import errno
import os
from unittest import mock

import numpy as np
import pytest

from rnn_scaling.cluster.failure import Failure, FailureKind
from rnn_scaling.cluster.launch import Launch
from rnn_scaling.machine.load import LoadMeter
from rnn_scaling.processes import early_start
from rnn_scaling.records import record
from rnn_scaling.reports.tensorboard import event_files
from rnn_scaling.settings import config as configs
from rnn_scaling.training import benchmark, recording
from rnn_scaling.training import session as sessions
from rnn_scaling.training import state as states
from rnn_scaling.training.checkpoints import Saver
from rnn_scaling.training.cluster import Alone, Cluster
from rnn_scaling.training.session import Session
from rnn_scaling.training.state import RunState
from rnn_scaling.training.towers import StepResult, TrainStep
from tests.support.records import make_record


class Others(Alone):
    """Of whom one has failed, or none."""

    def __init__(self, has_failed: bool) -> None:
        self.has_failed, self.told = has_failed, []

    def wait_for_failure(self) -> bool:
        return self.has_failed

    def abort(self, message, kind=FailureKind.ERROR) -> None:
        self.told.append((kind, message))


def _session(monkeypatch, others, work=lambda self: None):
    """A session that runs `work` instead of a benchmark."""
    monkeypatch.setattr(sessions.signal, "signal", lambda *_: None)
    monkeypatch.setattr(sessions, "prepare_process", lambda *_: None)
    monkeypatch.setattr(sessions, "NativeLog", lambda: None)
    monkeypatch.setattr(Session, "_work", work)
    session = Session(
        configs.resolve({}, num_gpus=0, num_cores=1), 0.0, lambda *_: None, None
    )
    session._cluster = others
    return session


def test_the_rank_that_failed_is_named_where_the_launcher_then_ends_the_others(
    monkeypatch, capsys
):
    others = Others(has_failed=True)
    session = _session(monkeypatch, others)
    others.failure = Failure(
        FailureKind.LOST, 1, "rank 1 (host b, process 7) ended: killed or crashed"
    )
    session._on_signal(sessions.signal.SIGTERM, None)
    assert session.run() == 1
    assert capsys.readouterr().err == f"error: {others.failure.message}\n"


def test_a_rank_that_is_lost_just_before_the_end_is_reported(monkeypatch, capsys):
    others = Others(has_failed=False)
    lost = "rank 1 (host b, process 7) has ended: killed or crashed"
    monkeypatch.setattr(
        others, "lost", lambda: [lost] if session._finished.is_set() else []
    )
    session = _session(monkeypatch, others, work=lambda self: self._finished.set())
    session.run()
    assert capsys.readouterr().err.startswith(f"warning: {lost};")


@pytest.mark.parametrize("has_failed", [True, False])
def test_a_trace_that_ends_with_another_rank_blames_nobody_else(has_failed, capsys):
    def look_inside(*_):
        raise RuntimeError("Collective ops is aborted by: Socket closed")

    config = configs.resolve({"trace_batches": 2}, num_gpus=0, num_cores=1)
    session = Session(config, 0.0, look_inside, None)
    session._cluster = others = Others(has_failed)
    result = session._trace(object(), make_record())
    line = "--trace_batches=2: Collective ops is aborted by: Socket closed"
    assert others.told == ([] if has_failed else [(FailureKind.TRACE, line)])
    assert result.missing_output == (None if has_failed else line)
    assert capsys.readouterr().err.startswith("" if has_failed else f"warning: {line};")


@pytest.mark.parametrize("fails", ["trace", "logs", "record with the trace", "none"])
def test_a_full_disk_after_the_record_leaves_a_good_record_and_a_good_exit_status(
    tmp_path, fails, monkeypatch, capsys
):
    """The step is no step: what is written of it is what is looked at."""

    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    path = tmp_path / "run.json"
    monkeypatch.setattr(benchmark, "run", lambda *_: mock.Mock())
    monkeypatch.setattr(
        event_files, "write", full if fails == "logs" else lambda *_: None
    )
    monkeypatch.setattr(Session, "_record", lambda self, status: make_record())
    monkeypatch.setattr(Session, "_tell", lambda *_: None)
    given = {
        "trace_batches": 2,
        "log_dir": str(tmp_path / "logs"),
        "result_file": str(path),
    }

    def look_inside(*_):
        if fails == "trace":
            full()
        if fails == "record with the trace":
            monkeypatch.setattr(os, "fsync", full)

    session = Session(
        configs.resolve(given, num_gpus=0, num_cores=1), 0.0, look_inside, None
    )
    assert session._run_and_report() == 0
    flag = {
        "trace": "--trace_batches=2",
        "logs": "--log_dir=",
        "record with the trace": "--result_file=",
    }.get(fails, "")
    run, err = record.read(path), capsys.readouterr().err
    assert (
        run.status == "ok"
        and run.throughput
        and ("warning: " in err) == bool(flag)
        and flag in err
    )
    assert (run.missing_output or "").startswith(
        flag if fails in ("trace", "logs") else ""
    )


def test_a_rank_whose_trace_fails_ends_the_others_without_an_error(capsys):
    session = Session(
        configs.resolve({"trace_batches": 2}, num_gpus=0, num_cores=1),
        0.0,
        lambda *_: None,
        None,
    )
    session._cluster = others = Others(has_failed=True)
    failure = Failure(FailureKind.TRACE, 1, "rank 1: No space left on device")
    others.failure = failure
    session._is_recorded = True
    session._record = lambda status: make_record()
    assert session._give_up(failure) == 0
    assert "error:" not in capsys.readouterr().err


@pytest.mark.parametrize("timeout_s, silence_s", [(60.0, 10.0), (4.0, 4.0)])
def test_a_silent_rank_is_lost_within_the_time_in_which_a_fault_ends_the_run(
    timeout_s, silence_s
):
    wanted = {
        "variable_update": "distributed_independent",
        "num_workers": 2,
        "cluster_timeout": timeout_s,
    }
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
    assert (
        Cluster(launch, configs.resolve(wanted, num_gpus=0, num_cores=2))._heartbeat_s
        == silence_s
    )


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
        config = configs.resolve(
            {"model": "resnet20", **model}, num_gpus=0, num_cores=1
        )
        several = f"2 root error(s) found.\n  {rule}.\nmore"
        told = [
            sessions.describe(InvalidArgumentError(text), config)
            for text in (f"{rule}.\nmore", several)
        ]
        assert told[0][2] == told[1][2] and (told[0] == told[1] or not told[0][2])
        return told[0]

    _, line, expected = describe(data_format="NCHW")
    assert (
        line.startswith(f"--data_format=NCHW: unsupported here ({rule})")
        and "--data_format=NHWC" in line
    )
    assert expected and not describe(data_format="NHWC")[2]


def test_a_session_before_its_turn_loads_and_writes_nothing(tmp_path, monkeypatch):
    session = _session(
        monkeypatch, Others(has_failed=False), work=lambda self: self._finished.set()
    )
    path = tmp_path / "run.json"
    output = dataclasses.replace(session._config.output, result_file=str(path))
    session._config = dataclasses.replace(session._config, output=output)
    monkeypatch.delenv("TF_NUM_INTEROP_THREADS", raising=False)

    def prepare(*_):
        monkeypatch.setenv("TF_NUM_INTEROP_THREADS", "7")  # which the user has not set

    def wait():
        assert not path.exists() and benchmark

    monkeypatch.setattr(sessions, "prepare_process", prepare)
    monkeypatch.setattr(early_start, "is_early", lambda: True)
    monkeypatch.setattr(early_start, "wait_for_turn", wait)
    session.run()
    result = record.read(path)
    assert (
        result.error.type == "Killed"
        and "TF_NUM_INTEROP_THREADS" not in result.environment.variables
    )


def test_waiting_for_a_turn_and_for_the_next_process_belongs_to_no_phase(monkeypatch):
    now = [0.0]
    state = RunState(configs.resolve({}, num_gpus=0, num_cores=1), clock=lambda: now[0])

    def spend(seconds):
        now[0] += seconds

    for wait in ("wait_for_turn", "wait_for_following"):
        monkeypatch.setattr(early_start, wait, lambda: spend(100.0))
    state.resolved["cpu_affinity"] = [0]
    spend(1.0)
    state.wait_for_turn()
    spend(2.0)
    state.enter("batches")
    state.wait_for_following()
    spend(4.0)
    state.enter("teardown")
    phases = state.record("failed").phases
    assert (phases.start, phases.total) == (3.0, 7.0)


def test_a_run_in_its_turn_measures_when_the_next_process_has_loaded(tf, monkeypatch):
    """What the next one used of the cores until then is no load of the measured batches."""
    config = configs.resolve(
        {"num_batches": 3, "num_warmup_batches": 2, "progress": False},
        num_gpus=0,
        num_cores=1,
    )
    state, events = RunState(config), []

    class Step(TrainStep):
        __init__ = object.__init__

        def __call__(self):
            events.append("batch")
            return StepResult(*np.full([4, 1], 8.0))

    class Meter(LoadMeter):
        def __init__(self, *_):
            events.append("meter")

        read = lambda self: None  # noqa: E731

    for module in (states, recording):
        monkeypatch.setattr(module, "LoadMeter", Meter)
    monkeypatch.setattr(
        early_start, "wait_for_following", lambda: events.append("wait")
    )
    state.resolved["cpu_affinity"] = [0]
    monkeypatch.setattr(early_start, "wait_for_turn", lambda: None)
    state.wait_for_turn()
    benchmark._train(config, Step(), state, Alone(), Saver(config, state, ()))
    assert events == [
        "meter",
        "batch",
        "batch",
        "wait",
        "meter",
        "batch",
        "batch",
        "batch",
    ]
