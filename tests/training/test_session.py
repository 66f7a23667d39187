"""Whose fault the end of a run is, without a run."""

from __future__ import annotations

import pytest

from rnn_scaling.settings import config as configs
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
