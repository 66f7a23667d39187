"""Causes of a program's failure, found in the output of launchers and interpreters."""

import pytest

from rnn_scaling.sweeps.failure import ErrorOutput
from tests.support.paths import ROOT

TRACEBACK = (
    'Traceback (most recent call last):\nFile "a.py", line 1, in <module>\nmain()\n'
)


def summarize_error(text):
    words, lines = (
        ErrorOutput(),
        [line.strip() for line in text.splitlines() if line.strip()],
    )
    for line in lines:
        words.read(line)
    return words.summarize(lines[-200:])


@pytest.mark.parametrize(
    "name, reason",
    [
        ("before", "RuntimeError: no data on rank 1"),
        ("after", "[rank1]: Boom: loss is nan at step 7"),
        ("kill", "Signal 9 (SIGKILL) received by PID 10346"),
    ],
)
def test_under_torchrun_it_is_the_error_of_the_rank_that_failed_first(name, reason):
    assert (
        summarize_error((ROOT / f"tests/golden/logs/torchrun_{name}.log").read_text())
        == reason
    )


def test_without_a_launcher_it_is_the_last_error_and_the_last_lines():
    assert summarize_error(f"step 1\n{TRACEBACK}Boom: no\n") == "Boom: no | main()"
    assert (
        summarize_error(f"{TRACEBACK}KeyboardInterrupt\nbye\n")
        == "KeyboardInterrupt | bye"
    )
    assert (
        summarize_error(
            f"error: first\n{TRACEBACK}a.b.Boom: no\n" + "cleaning up\n" * 300
        )
        == "a.b.Boom: no | cleaning up"
    )
    assert summarize_error("Epoch: 3\n=====\nloss 7\n") == "Epoch: 3 | loss 7"
    assert summarize_error("") == "nothing"
