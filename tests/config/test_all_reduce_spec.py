"""The grammar, its errors, and what runs on which devices."""

import random

import pytest

from rnn_scaling.config import all_reduce_spec, registry
from rnn_scaling.config.all_reduce_spec import SpecSegment
from rnn_scaling.config.registry import ALL_REDUCES


def test_parse():
    segments = (
        SpecSegment("psgpu", 2, 7),
        SpecSegment("nccl", 1, 1 << 30),
        SpecSegment("xring", 1, 2 << 40),
        SpecSegment("collective"),
    )
    text = "psgpu#2:7:nccl:1G:xring:2T:collective"
    assert all_reduce_spec.parse(text) == segments
    assert all_reduce_spec.parse("auto") == (SpecSegment("auto", 1, None),)


# A spec, the number of its wrong part, and words of the error.
MALFORMED = """
| 1 | empty
pscpu::nccl | 2 | empty
pscpu:32k:xring:1M | 4 | no algorithm after it
pscpu:32k:heirarchical | 3 | did you mean hierarchical
zzz | 1 | use one of nccl
pscpu:-5:nccl | 2 | is not a limit
pscpu:32k:64k:1M:nccl | 3 | limit where an algorithm belongs
xring#0 | 1 | >= 1
xring#² | 1 | whole number
pscpu:0:nccl | 2 | >= 1
pscpu:32m:nccl | 2 | k, K, M, G or T
pscpu:2k:xring:2048:nccl | 4 | increasing
nccl\t | 1 | control character
pscpu:32k:auto | 3 | no other algorithm
auto#2 | 1 | auto
"""


@pytest.mark.parametrize("line", MALFORMED.strip().splitlines())
def test_malformed_specs_name_the_part_the_rule_and_the_remedy(line):
    text, part, words = (cell.strip(" ") for cell in line.split("|"))
    with pytest.raises(ValueError) as error:
        all_reduce_spec.parse(text)
    message = str(error.value)
    assert message.startswith("--all_reduce_spec=")
    assert "\n" not in message and "; " in message
    assert f"part {part}" in message and words in message


@pytest.mark.parametrize("seed", range(5))
def test_format_then_parse_is_the_identity(seed):
    rng = random.Random(seed)
    sizes = [1, 1023, 1024, 3 << 20, (5 << 30) + 1024, 1 << 40]
    limits = sorted(rng.sample(sizes, rng.randint(0, 5)))
    segments = tuple(
        SpecSegment(rng.choice(list(ALL_REDUCES)), rng.choice([1, 1, 2, 8]), limit)
        for limit in [*limits, None]
    )
    text = all_reduce_spec.format(segments)
    assert all_reduce_spec.parse(text) == segments
    assert all_reduce_spec.format(all_reduce_spec.parse(text)) == text


@pytest.mark.parametrize(
    "text, shortest",
    [
        ("pscpu#1:2048:xring#2:2049:nccl#1", "pscpu:2k:xring#2:2049:nccl"),
        ("pscpu:1024K:nccl", "pscpu:1M:nccl"),
    ],
)
def test_format_takes_the_largest_unit(text, shortest):
    assert all_reduce_spec.format(all_reduce_spec.parse(text)) == shortest


def test_limits_are_inclusive():
    segments = all_reduce_spec.parse("pscpu:1k:xring:2k:nccl")
    sizes = (0, 1024, 1025, 2048, 2049, 1 << 60)
    names = [all_reduce_spec.select(segments, size).algorithm for size in sizes]
    assert names == ["pscpu", "pscpu", "xring", "xring", "nccl", "nccl"]


def test_auto_depends_on_the_devices():
    assert all_reduce_spec.resolve_auto(4, "gpu", 4) == "nccl"
    assert all_reduce_spec.resolve_auto(4, "gpu", 1) == "psgpu"
    assert all_reduce_spec.resolve_auto(1, "gpu", 1) == "psgpu"
    assert all_reduce_spec.resolve_auto(4, "cpu", 1) == "pscpu"


# A spec, the devices, and the starts of its problems.
PROBLEMS = """
nccl | 2 cpu 1 | nccl needs --device=gpu, got cpu
nccl | 2 gpu 1 | nccl needs a GPU for each tower, got 2 towers on 1
nccl | 2 gpu 2 |
rechd | 3 cpu 1 | rechd needs a power of two as --num_devices, got 3
hierarchical | 3 cpu 1 | hierarchical needs an even --num_devices, got 3
collective#2 | 2 cpu 1 | collective has no shards, got #2
xring#3 | 2 cpu 1 | xring needs shards <= --num_devices, got #3 for 2
xring#2:1k:pscpu#9 | 2 cpu 1 |
nccl#2:1k:rechd | 3 cpu 1 | nccl needs --device=gpu + nccl has no shards + rechd needs
rechd:1k:xring:2k:rechd | 3 cpu 1 | rechd needs a power of two
auto | 3 cpu 1 |
"""


@pytest.mark.parametrize("line", PROBLEMS.strip().splitlines())
def test_problems(line):
    text, devices, starts = (cell.strip() for cell in line.split("|"))
    count, device_type, physical = devices.split()
    lines = all_reduce_spec.find_conflicts(
        all_reduce_spec.parse(text), device_type, int(count), int(physical)
    )
    prefix = f"--all_reduce_spec={text}: "
    expected = [prefix + start for start in starts.split(" + ") if start]
    assert len(lines) == len(expected)
    for problem, start in zip(lines, expected, strict=True):
        assert problem.startswith(start)


def test_the_row_of_an_algorithm_decides_what_it_supports(monkeypatch):
    row = registry.AllReduce(
        "none",
        has_shards=True,
        needs_gpus=True,
        device_counts=registry.DeviceCountRule(lambda n: n % 2, "an odd", "even ones"),
    )
    monkeypatch.setitem(ALL_REDUCES, "odd", row)
    first, second = all_reduce_spec.find_conflicts(
        all_reduce_spec.parse("odd#3"), "cpu", 2, 1
    )
    assert "odd needs --device=gpu, got" in first
    assert second.startswith("--all_reduce_spec=odd#3: odd")
