"""Fixtures of all tests of commands."""

import pytest

from rnn_scaling.reports import report_files
from rnn_scaling.sweeps import early_checks


@pytest.fixture(autouse=True)
def a_machine_with_room(monkeypatch):
    """Disable warnings that depend on this machine."""
    monkeypatch.setattr(early_checks, "check_cores", lambda configs, num_cores: [])
    monkeypatch.setattr(early_checks, "check_load", lambda: [])


@pytest.fixture
def run_command(capsys):
    """Return a function that runs a command.

    It returns the exit status, stdout and stderr.
    """

    def call(command, *words):
        status = command.main([*words])
        printed = capsys.readouterr()
        return status, printed.out, printed.err

    return call


@pytest.fixture
def no_report(monkeypatch):
    """Skip the report, which is tested elsewhere and loads matplotlib."""
    monkeypatch.setattr(report_files, "report", lambda source, target: None)
