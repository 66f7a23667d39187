"""RNN_SCALING_OPERATORS is checked like a flag before a run starts."""

import pytest

from rnn_scaling.config import conflicts
from rnn_scaling.models.extension import switch
from tests.support.configs import resolve

NARROW = ("sse", "avx2", "fma")


def problems(monkeypatch, value, flags=NARROW):
    cpuinfo = f"processor\t: 0\nflags\t\t: {' '.join(flags)}\n" * 2
    monkeypatch.setenv(switch.SWITCH, value)
    monkeypatch.setattr(conflicts, "read_text", lambda path: cpuinfo)
    config = resolve()
    return conflicts.find_problems(config, {}, num_gpus=0)


@pytest.mark.parametrize("value", ["", "off", "avx2"])
def test_instructions_of_the_processor_are_accepted(monkeypatch, value):
    assert problems(monkeypatch, value) == []


def test_an_unknown_value_is_refused_with_the_known_ones(monkeypatch):
    [line] = problems(monkeypatch, "AVX2")
    assert line.startswith(
        "RNN_SCALING_OPERATORS=AVX2 must be off, avx2, avx512, avx512_bf16"
    )


def test_instructions_that_the_processor_lacks_are_named(monkeypatch):
    wide = (*NARROW, *switch.NEEDED["avx512"])
    for value in ("avx512", "avx512_bf16"):
        [line] = problems(monkeypatch, value)
        assert line.startswith(f"RNN_SCALING_OPERATORS={value} needs avx512f, ")
        assert "unset" in line
        assert problems(monkeypatch, value, (*wide, "avx512_bf16")) == []
    assert problems(monkeypatch, "avx512", wide) == []
    assert len(problems(monkeypatch, "avx512_bf16", wide)) == 1
    assert problems(monkeypatch, "avx2", ())
