"""What all tests of commands have in common."""

from __future__ import annotations

import pytest

from rnn_scaling.sweeps import forewarning


@pytest.fixture(autouse=True)
def a_machine_with_room(monkeypatch):
    """Sweeps warn of what this machine lacks and of what else runs on it, which tests of other things do not ask."""
    monkeypatch.setattr(forewarning, "before", lambda configs, dry_run, elsewhere: [])
