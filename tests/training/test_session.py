"""Whose fault the end of a run is, without a run."""

from __future__ import annotations

import pytest

from rnn_scaling.settings import config as configs
from rnn_scaling.training import session as sessions
from rnn_scaling.training.cluster import Alone
from rnn_scaling.training.session import Session


class Others(Alone):
    """Of whom one has failed, or none."""

    def __init__(self, has_failed: bool) -> None:
        self.has_failed, self.told = has_failed, []

    def wait_for_failure(self) -> bool:
        return self.has_failed

    def abort(self, line: str) -> None:
        self.told.append(line)


def test_the_rank_that_failed_is_named_where_the_launcher_then_ends_the_others(monkeypatch, capsys):
    monkeypatch.setattr(sessions.signal, "signal", lambda *_: None)
    monkeypatch.setattr(sessions, "_prepare_process", lambda *_: None)
    monkeypatch.setattr(sessions, "NativeLog", lambda: None)
    monkeypatch.setattr(Session, "_work", lambda self: None)
    session = Session(configs.resolve({}, num_gpus=0, num_cores=1), 0.0, lambda *_: None, None)
    session._cluster = others = Others(has_failed=True)
    others.failure = "rank 1 (host b, process 7) ended: killed or crashed"
    session._on_signal(sessions.signal.SIGTERM, None)
    assert session.run() == 1
    assert capsys.readouterr().err == f"error: {others.failure}\n"


@pytest.mark.parametrize("has_failed", [True, False])
def test_a_trace_that_ends_with_another_rank_blames_nobody_else(has_failed, capsys):
    def look_inside(*_):
        raise RuntimeError("Collective ops is aborted by: Socket closed")

    config = configs.resolve({"trace_batches": 2}, num_gpus=0, num_cores=1)
    session = Session(config, 0.0, look_inside, None)
    session._cluster = others = Others(has_failed)
    assert session._trace(object(), None) == (False, None)
    line = "--trace_batches=2: Collective ops is aborted by: Socket closed"
    assert others.told == ([] if has_failed else [line])
    assert capsys.readouterr().err == ("" if has_failed else f"error: {line}\n")
