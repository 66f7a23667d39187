"""GPU topology: published matrices of machines, best subsets, statements of reports."""

import itertools
import stat

import pytest

from rnn_scaling.system.machine import gpus, topology
from rnn_scaling.system.machine.topology import Topology
from tests.support.paths import GOLDEN

# Outputs of `nvidia-smi topo -m` that their owners published; the legend as that release of nvidia-smi prints it.
#   7gforce     github.com/rossumai/keras-multi-gpu, blog/docs/hardware.md: six GTX 1070 and a GTX 1080
#   dgx1_p100   University of Sheffield, "Introduction to Deep Learning", lab 05 (its header had lost its tabs)
#   dgx1_v100   Microway, "nvidia-smi: Control Your GPUs", and github.com/microsoft/msccl, tests
#   dgx_a100    an administrator's notes on the DGX A100 of the host ash6-hpccdgx
#   titan_v     notes on NCCL tests of a server with eight TITAN V
#   a6000       notes on NVLink of three RTX A6000, two of them bridged
EXPECTED = GOLDEN / "topo"


def read_golden(name):
    return topology.parse((EXPECTED / f"{name}.txt").read_text())


@pytest.mark.parametrize(
    "name, groups",
    [
        ("7gforce", {"PIX": ((0, 1, 2), (3, 4, 5, 6)), "PHB": (tuple(range(7)),)}),
        ("a6000", {"NV#": ((0, 1), (2,)), "NODE": ((0, 1, 2),)}),
    ],
)
def test_groups_of_real_machines(name, groups):
    result = topology.group_gpus(read_golden(name))
    assert result == groups and list(result) == list(groups)


@pytest.mark.parametrize(
    "name, count, worst, equal, first",
    [
        # The seed measured 0,1 and 4,5 within a group and 0,5 across: the first two are among the nine best pairs.
        ("7gforce", 2, "PIX", 9, (0, 1)),
        ("dgx1_v100", 2, "NV2", 8, (0, 3)),  # two lanes before one
        # One link is NV1, and the other two have two lanes.
        ("dgx1_v100", 3, "NV1", 4, (0, 2, 3)),
        ("a6000", 1, "", 3, (0,)),
    ],
)
def test_best_subsets_of_real_machines(name, count, worst, equal, first):
    best = topology.find_best_subsets(read_golden(name), count)
    assert best.worst == worst
    assert best.count == equal
    assert best.subsets[0] == first
    assert len(best.subsets) == min(equal, topology.MAX_SUBSETS)


def test_more_lanes_win_and_the_worst_link_counts_before_the_sum():
    cells = dict.fromkeys([(0, 1), (0, 2), (1, 2)], "NV4")
    cells |= {(0, 3): "NV12", (1, 3): "SYS", (2, 3): "SYS"}
    result = Topology(tuple(range(4)), _square(4, cells), ("",) * 4, ("",) * 4)
    assert topology.find_best_subsets(result, 2).subsets == ((0, 3),)
    # 0,1,3 has 16 lanes in all, and a SYS.
    assert topology.find_best_subsets(result, 3).subsets == ((0, 1, 2),)


def test_equal_subsets_on_one_numa_node_come_first():
    cells = dict.fromkeys(itertools.combinations(range(4), 2), "NV12")
    result = Topology(
        tuple(range(4)), _square(4, cells), ("",) * 4, ("0", "1", "0", "1")
    )
    assert topology.find_best_subsets(result, 2).subsets[:2] == ((0, 2), (1, 3))


def _square(size, cells):
    return tuple(
        tuple("X" if i == j else cells[min(i, j), max(i, j)] for j in range(size))
        for i in range(size)
    )


def test_above_16_gpus_those_with_consecutive_numbers_are_compared():
    cells = {
        (a, b): "PIX" if a // 4 == b // 4 else "SYS"
        for a, b in itertools.combinations(range(32), 2)
    }
    result = Topology(tuple(range(32)), _square(32, cells), ("",) * 32, ("",) * 32)
    best = topology.find_best_subsets(result, 4)
    assert best.subsets[:2] == ((0, 1, 2, 3), (4, 5, 6, 7))
    assert best.count == 8
    assert best.worst == "PIX"
    assert "consecutive" in topology.format_text(result)


def test_affinity_columns_with_gaps_and_underlining():
    text = (
        "\t\x1b[4mGPU0\tGPU1\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m\n"
        "GPU0\t X \tNV4\tNODE\t0-3,8\t0\t\tN/A\n"
        "GPU1\tNV4\t X \tPIX\t\t1\t\tN/A\n"  # no CPU of the control group is near GPU 1
        "NIC0\tNODE\tPIX\t X \t\t\t\t\n\nLegend:\n\n  X    = Self\n\nNIC Legend:\n\n  NIC0: mlx5_0\n"
    )
    result = topology.parse(text)
    assert result.cpu_affinity == ("0-3,8", "")
    assert result.numa == ("0", "1")
    assert result.nics == ("NIC0",)
    assert result.nic_links == (("NODE",), ("PIX",))
    none = topology.parse(
        "\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\nGPU0\t X \tSYS\t0-31\t\tN/A\nGPU1\tSYS\t X \t\t\tN/A\n"
    )
    assert none.cpu_affinity == ("0-31", "")
    assert none.numa == ("", "")


@pytest.mark.parametrize(
    "old, new, reason",
    [
        (
            "GPU3    PHB     PHB     PHB      X      PIX     PIX     PIX     0-19\n",
            "",
            "row GPU3 has 0 of 7 cells",
        ),
        ("GPU1    PIX ", "GPU1    PHB ", "GPU0-GPU1 is PIX, but GPU1-GPU0 is PHB"),
        (
            "GPU1    PIX ",
            "GPU1    NVX ",
            "expected X, NV#, PIX, PXB, PHB, NODE or SYS, got 'NVX'",
        ),
        ("        GPU0 ", "  none: ", "expected a header line with GPU0"),
    ],
)
def test_an_incomplete_matrix_is_refused(old, new, reason):
    text = (EXPECTED / "7gforce.txt").read_text()
    assert old in text
    with pytest.raises(topology.TopologyError, match=reason):
        topology.parse(text.replace(old, new, 1))


FOUR = """\
\tGPU0\tGPU1\tGPU2\tGPU3\tCPU Affinity
GPU0\t X \tPIX\tSYS\tSYS\t0-1
GPU1\tPIX\t X \tSYS\tSYS\t0-1
GPU2\tSYS\tSYS\t X \tPHB\t2-3
GPU3\tSYS\tSYS\tPHB\t X \t2-3
"""


@pytest.fixture
def four_gpus(monkeypatch, tmp_path):
    """Yield the file that nvidia-smi prints."""
    program = tmp_path / "nvidia-smi"
    printed = tmp_path / "printed"
    program.write_text(f'#!/bin/sh\n[ "$*" = "topo -m" ] && cat {printed}\n')
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr(gpus, "list_gpu_ids", lambda: ["0", "1", "2", "3"])
    return printed


def test_read_parses_what_nvidia_smi_prints(four_gpus):
    four_gpus.write_text(FOUR)
    assert topology.read() == topology.parse(FOUR)
    four_gpus.write_text("NVIDIA-SMI has failed\n")
    with pytest.raises(topology.TopologyError):
        topology.read()


def test_text_has_the_matrix_the_groups_and_the_best_subsets():
    lines = topology.format_text(read_golden("a6000")).splitlines()
    assert [line.split() for line in lines[2:6]] == [
        ["GPU0", "GPU1", "GPU2", "CPUs", "NUMA", "node"],
        ["GPU0", "X", "NV4", "NODE", "0-31,64-95", "0"],
        ["GPU1", "NV4", "X", "NODE", "0-31,64-95", "0"],
        ["GPU2", "NODE", "NODE", "X", "0-31,64-95", "0"],
    ]
    assert lines[-2:] == [
        "  best 2: 0,1 (NV4)",
        "    CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES=0,1",
    ]
    single = topology.format_text(
        topology.parse("\tGPU0\tCPU Affinity\nGPU0\t X \t0-7\n")
    )
    assert "best" not in single and "GPU0  X     0-7" in single
