"""Every command ends as a command should, also when nobody reads what it prints."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from rnn_scaling.__main__ import COMMANDS
from tests.support.paths import ROOT


@pytest.mark.parametrize("name", COMMANDS)
def test_a_reader_that_has_gone_away_is_no_error(name):
    command = [sys.executable, "-m", "rnn_scaling", name, "--help"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 141


@pytest.mark.parametrize("name", COMMANDS)
def test_help_teaches(name):
    done = subprocess.run(
        [sys.executable, "-m", "rnn_scaling", name, "--help"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0 and done.stderr == ""
    assert name in done.stdout.splitlines()[0] and "xit status" in done.stdout


def test_a_terminal_without_a_letter_shows_another():
    code = "from rnn_scaling import entry; entry.leave(lambda: print('1 \\xb1 2') or 0)"
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "1 ? 2\n", "")


def test_every_command_is_one_of_run_sh():
    text = (ROOT / "run.sh").read_text()
    for name in COMMANDS:
        assert f"\n  {name} " in text and f" | {name} | " in text, name
