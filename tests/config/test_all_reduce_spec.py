"""The grammar, its errors, and what runs on which devices."""

from __future__ import annotations

import random
import subprocess
import sys

import pytest

from rnn_scaling.config import all_reduce_spec, registry
from rnn_scaling.config.all_reduce_spec import SpecSegment
from rnn_scaling.config.registry import ALL_REDUCES


@pytest.mark.parametrize(
    ("text", "segments"),
    [
        ("nccl", (SpecSegment("nccl", 1, None),)),
        ("xring#2", (SpecSegment("xring", 2, None),)),
        ("pscpu:32k:xring", (SpecSegment("pscpu", 1, 32768), SpecSegment("xring", 1, None))),
        ("pscpu#2:1K:rechd:3M:nccl", (
            SpecSegment("pscpu", 2, 1024), SpecSegment("rechd", 1, 3 << 20), SpecSegment("nccl"),
        )),
        ("psgpu:7:nccl:1G:xring:2T:collective", (
            SpecSegment("psgpu", 1, 7), SpecSegment("nccl", 1, 1 << 30),
            SpecSegment("xring", 1, 2 << 40), SpecSegment("collective"),
        )),
        ("auto", (SpecSegment("auto", 1, None),)),
    ],
)  # fmt: skip
def test_parse(text, segments):
    assert all_reduce_spec.parse(text) == segments


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ("part 1", "empty", "write alg")),
        ("pscpu:", ("part 2", "empty")),
        (":nccl", ("part 1", "empty")),
        ("pscpu::nccl", ("part 2", "empty")),
        ("pscpu:32k", ("part 2", "no algorithm after it")),
        ("pscpu:32k:xring:1M", ("part 4", "no algorithm after it")),
        ("xrign", ("part 1", "did you mean xring")),
        ("NCCL", ("part 1", "did you mean nccl")),
        ("pscpu:32k:heirarchical", ("part 3", "did you mean hierarchical")),
        ("zzz", ("part 1", "names no algorithm", "use one of nccl")),
        ("32k:pscpu:nccl", ("part 2", "'pscpu'", "is no limit")),
        ("pscpu:32k:64k:1M:nccl", ("part 3", "limit where an algorithm belongs")),
        ("xring#", ("part 1", "shards", "xring#2")),
        ("xring#0", ("part 1", ">= 1")),
        ("xring#-1", ("part 1", ">= 1")),
        ("xring#x", ("part 1", "whole number")),
        ("xring#1#2", ("part 1", "whole number")),
        ("xring#²", ("part 1", "whole number")),
        ("pscpu:0:nccl", ("part 2", ">= 1")),
        ("pscpu:-5:nccl", ("part 2", "is no limit")),
        ("pscpu:1.5k:nccl", ("part 2", "is no limit")),
        ("pscpu:32m:nccl", ("part 2", "k, K, M, G or T")),
        ("pscpu:32kB:nccl", ("part 2", "is no limit")),
        ("pscpu:k:nccl", ("part 2", "is no limit")),
        ("pscpu:2k:xring:2048:nccl", ("part 4", "not above", "increasing")),
        ("pscpu:1M:xring:1k:nccl", ("part 4", "not above", "increasing")),
        (" nccl", ("part 1", "space")),
        ("pscpu: 32k:nccl", ("part 2", "space")),
        ("nccl\n", ("part 1", "control character")),
        ("auto:32k:nccl", ("part 1", "alone")),
        ("pscpu:32k:auto", ("part 3", "alone")),
        ("auto#2", ("part 1", "auto")),
    ],
)
def test_malformed_specs_name_the_part_the_rule_and_the_remedy(text, words):
    with pytest.raises(ValueError) as error:
        all_reduce_spec.parse(text)
    message = str(error.value)
    assert message.startswith("--all_reduce_spec=")
    assert "\n" not in message and "; " in message
    for word in words:
        assert word in message


@pytest.mark.parametrize("seed", range(50))
def test_format_then_parse_is_the_identity(seed):
    rng = random.Random(seed)
    sizes = [
        1,
        7,
        1023,
        1024,
        1025,
        3 << 20,
        5 << 30,
        (5 << 30) + 1024,
        1 << 40,
        1 << 52,
    ]
    limits = sorted(rng.sample(sizes, rng.randint(0, 5)))
    segments = tuple(
        SpecSegment(rng.choice(list(ALL_REDUCES)), rng.choice([1, 1, 2, 8]), limit)
        for limit in [*limits, None]
    )
    text = all_reduce_spec.format(segments)
    assert all_reduce_spec.parse(text) == segments
    assert all_reduce_spec.format(all_reduce_spec.parse(text)) == text


def test_format_takes_the_largest_unit():
    assert all_reduce_spec.format(
        all_reduce_spec.parse("pscpu#1:2048:xring#2:2049:nccl#1")
    ) == ("pscpu:2k:xring#2:2049:nccl")
    assert (
        all_reduce_spec.format(all_reduce_spec.parse("pscpu:1024K:nccl"))
        == "pscpu:1M:nccl"
    )


def test_limits_are_inclusive():
    segments = all_reduce_spec.parse("pscpu:1k:xring:2k:nccl")
    sizes = {
        0: "pscpu",
        1024: "pscpu",
        1025: "xring",
        2048: "xring",
        2049: "nccl",
        1 << 60: "nccl",
    }
    assert {
        size: all_reduce_spec.select(segments, size).algorithm for size in sizes
    } == sizes


def test_auto_is_what_the_devices_allow():
    assert all_reduce_spec.resolve_auto(4, "gpu", 4) == "nccl"
    assert all_reduce_spec.resolve_auto(4, "gpu", 1) == "psgpu"
    assert all_reduce_spec.resolve_auto(1, "gpu", 1) == "psgpu"
    assert all_reduce_spec.resolve_auto(4, "cpu", 1) == "pscpu"


@pytest.mark.parametrize("num_devices", range(1, 9))
@pytest.mark.parametrize(
    ("device_type", "num_physical"), [("cpu", 1), ("gpu", 1), ("gpu", 8)]
)
def test_auto_has_no_problems(num_devices, device_type, num_physical):
    text = all_reduce_spec.resolve_auto(num_devices, device_type, num_physical)
    segments = all_reduce_spec.parse(text)
    assert (
        all_reduce_spec.problems(segments, device_type, num_devices, num_physical) == []
    )


@pytest.mark.parametrize(
    ("text", "device_type", "num_devices", "num_physical", "expected"),
    [
        (
            "nccl",
            "cpu",
            2,
            1,
            ["nccl needs --device=gpu, got cpu; use auto, pscpu or collective"],
        ),
        ("psgpu#2", "cpu", 2, 1, ["psgpu needs --device=gpu, got cpu; use pscpu"]),
        (
            "nccl",
            "gpu",
            2,
            1,
            ["nccl needs a GPU for each tower, got 2 towers on 1; use"],
        ),
        ("nccl", "gpu", 2, 2, []),
        ("nccl", "gpu", 1, 1, []),
        (
            "rechd",
            "cpu",
            3,
            1,
            ["rechd needs a power of two as --num_devices, got 3; use xring"],
        ),
        ("rechd", "cpu", 4, 1, []),
        ("rechd", "cpu", 1, 1, []),
        (
            "hierarchical",
            "cpu",
            3,
            1,
            ["hierarchical needs an even --num_devices, got 3; use xring"],
        ),
        ("hierarchical", "cpu", 6, 1, []),
        ("hierarchical", "cpu", 1, 1, []),
        (
            "collective#2",
            "cpu",
            2,
            1,
            ["collective has no shards, got #2; use collective alone or one of"],
        ),
        (
            "xring#3",
            "cpu",
            2,
            1,
            ["xring needs shards <= --num_devices, got #3 for 2; use xring#2"],
        ),
        ("xring#2:1k:pscpu#9", "cpu", 2, 1, []),
        (
            "nccl#2:1k:rechd",
            "cpu",
            3,
            1,
            ["nccl needs --device=gpu", "nccl has no shards", "rechd needs"],
        ),
        ("rechd:1k:xring:2k:rechd", "cpu", 3, 1, ["rechd needs a power of two"]),
        ("auto", "cpu", 3, 1, []),
    ],
)
def test_problems(text, device_type, num_devices, num_physical, expected):
    found = all_reduce_spec.problems(
        all_reduce_spec.parse(text), device_type, num_devices, num_physical
    )
    assert len(found) == len(expected)
    for line, words in zip(found, expected, strict=True):
        assert line.startswith(f"--all_reduce_spec={text}: ") and words in line


def test_reading_a_spec_never_loads_tensorflow():
    code = (
        "import sys; from rnn_scaling.config import all_reduce_spec; all_reduce_spec.parse('xring#2:1k:nccl'); "
        "sys.exit('tensorflow' in sys.modules)"
    )
    assert (
        subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode
        == 0
    )


def test_what_an_algorithm_can_do_stands_in_its_row(monkeypatch):
    row = registry.AllReduce(
        "none",
        has_shards=True,
        needs_gpus=True,
        ranks=("an odd", "even numbers", lambda n: n % 2),
    )
    monkeypatch.setitem(ALL_REDUCES, "odd", row)
    first, second = all_reduce_spec.problems(
        all_reduce_spec.parse("odd#3"), "cpu", 2, 1
    )
    assert "odd needs --device=gpu, got" in first
    assert second.startswith("--all_reduce_spec=odd#3: odd")
