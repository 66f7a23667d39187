"""What all tests of commands have in common."""

from __future__ import annotations

import pytest

from rnn_scaling.sweeps import early_checks


@pytest.fixture(autouse=True)
def a_machine_with_room(monkeypatch):
    """Warnings about this machine would differ from one machine to the next."""
    monkeypatch.setattr(early_checks, "check_cores", lambda configs, num_cores: [])
    monkeypatch.setattr(early_checks, "check_load", lambda: [])
