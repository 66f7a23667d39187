"""Functions of libraries are replaced once the script has imported them."""

from __future__ import annotations

import sys
import types

import pytest

from rnn_scaling.hooks import libraries


class Schedule:
    def step(self, count):
        return count


def replace_result(original, *args):
    return 10 * original(*args)


@pytest.fixture
def module(monkeypatch):
    functions = {"step": ("a_library", "Schedule.step"), "clip": ("a_library", "clip")}
    monkeypatch.setattr(libraries, "FUNCTIONS", functions)
    module = types.ModuleType("a_library")
    module.Schedule = type("Schedule", (Schedule,), dict(vars(Schedule)))
    module.clip = abs
    return module


def test_a_function_is_replaced_once_when_its_module_is_imported(module, monkeypatch):
    watched = libraries.Libraries({"step": replace_result, "clip": replace_result})
    watched.watch()
    assert module.clip(-3) == 3
    monkeypatch.setitem(sys.modules, "a_library", module)
    watched.watch()
    watched.watch()
    assert module.clip(-3) == 30
    assert module.Schedule().step(2) == 20


def test_a_version_without_the_function_stays_as_it_is(module, monkeypatch):
    del module.Schedule
    monkeypatch.setitem(sys.modules, "a_library", module)
    watched = libraries.Libraries({"step": replace_result, "clip": replace_result})
    watched.watch()
    assert module.clip(-3) == 30
