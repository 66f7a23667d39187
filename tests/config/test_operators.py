"""RNN_SCALING_OPERATORS is checked before a run starts, as flags are."""

from __future__ import annotations

import pytest

from rnn_scaling.config import conflicts
from rnn_scaling.config import run_config as configs
from rnn_scaling.models.extension import switch

NARROW = ("sse", "avx2", "fma")


def problems(monkeypatch, value, flags=NARROW):
    monkeypatch.setenv(switch.SWITCH, value)
    monkeypatch.setattr(
        conflicts,
        "read_text",
        lambda path: f"processor\t: 0\nflags\t\t: {' '.join(flags)}\n" * 2,
    )
    return conflicts.problems(
        configs.resolve({}, num_gpus=0, num_cores=8), {}, num_gpus=0
    )


@pytest.mark.parametrize("value", ["", "off", "avx2"])
def test_what_the_processor_can_do_is_no_problem(monkeypatch, value):
    assert problems(monkeypatch, value) == []


def test_a_value_that_is_none_is_refused_with_all_that_are(monkeypatch):
    (line,) = problems(monkeypatch, "AVX2")
    assert line.startswith(
        "RNN_SCALING_OPERATORS=AVX2 must be off, avx2, avx512, avx512_bf16"
    )


@pytest.mark.parametrize("value", ["avx512", "avx512_bf16"])
def test_instructions_that_the_processor_lacks_are_refused_by_name(monkeypatch, value):
    (line,) = problems(monkeypatch, value)
    assert (
        line.startswith(f"RNN_SCALING_OPERATORS={value} needs avx512f, ")
        and "unset" in line
    )
    wide = (*NARROW, *switch.NEEDED["avx512"])
    assert [*map(bool, [problems(monkeypatch, value, wide)])] == [
        value == "avx512_bf16"
    ]
    assert problems(monkeypatch, value, (*wide, "avx512_bf16")) == []
    assert problems(monkeypatch, "avx2", ()), "nor have others any"
