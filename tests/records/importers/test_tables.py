"""Logs of communication and hardware: their tables, checks and problems."""

from __future__ import annotations

import pytest

from rnn_scaling.records.importers import collectives, nccl_json
from tests.support import log_samples
from tests.support.log_samples import parse


def reasons(name, text):
    return [(problem.line, problem.reason) for problem in parse(name, text).problems]


def test_nccl_tests():
    (table,) = parse("nccl_tests", log_samples.NCCL_TESTS).tables
    assert table.columns == collectives.COLUMNS
    first, *_, last = table.rows
    assert first[:8] == (
        "all_reduce",
        4,
        1024,
        256,
        "float",
        "sum",
        "-1",
        "out of place",
    )
    assert first[8:] == (20.48, 0.05, 0.07, 0)
    assert (last[2], last[7:]) == (1048576, ("in place", 64.0, 16.38, 24.58, None))


@pytest.mark.parametrize(
    ("old", "new", "line", "reason"),
    [
        ("24.00", "25.00", 15, "busbw 25.00 is not algbw 16.00 * 1.5 (4 ranks)"),
        (
            "16.00   24.00",
            "32.00   48.00",
            15,
            "algbw 32.00 is not size / time = 16 GB/s",
        ),
        ("values : 0 OK", "values : 3 FAILED", 16, "3 out of bounds values"),
        (
            "65.54",
            "nan",
            15,
            "expected a time in us of 0 or more, got 'nan'; line left out",
        ),
        ("# Avg bus bandwidth    : 12.1825", "#", 15, "the log is cut short"),
    ],
)
def test_nccl_tests_faults(old, new, line, reason):
    found = reasons("nccl_tests", log_samples.NCCL_TESTS.replace(old, new))
    assert [(at, reason in text) for at, text in found] == [(line, True)], found


@pytest.mark.parametrize(
    "operation",
    ["all_reduce", "all_gather", "reduce_scatter", "alltoall", "broadcast", "reduce"],
)
@pytest.mark.parametrize("ranks", [1, 8])
def test_nccl_factors(operation, ranks):
    """Derive the factors from the number of transfers of a rank's share."""
    sent = {"all_reduce": 2 * (ranks - 1), "broadcast": ranks, "reduce": ranks}.get(
        operation, ranks - 1
    )
    assert collectives.factor(
        collectives.OPERATIONS[operation], ranks
    ) == pytest.approx(sent / ranks)


def test_nccl_tests_of_an_old_release():
    """Read a table without operation, group and root.

    It has an error instead of a count of wrong elements, and the factor is part of
    all_gather's algbw.
    """
    text = """\
# nThread 1 nGpus 2 minBytes 8 maxBytes 8 step: 2(factor) warmup iters: 5 iters: 20 validation: 1
#   Rank  0 Pid   1320 on      node device  0 [0x00] Tesla V100
#   Rank  1 Pid   1320 on      node device  1 [0x00] Tesla V100
#       size         count    type    time   algbw   busbw  error     time   algbw   busbw  error
        1000           250   float   10.00    0.05    0.05  0e+00    10.00    0.05    0.05  5e-07
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 0.05
"""
    log = parse("nccl_tests", text)
    assert log.tables[0].rows[0][:4] == (None, 2, 1000, 250)
    assert any("does not name the operation" in note for note in log.notes)
    log = parse("nccl_tests", "$ mpirun -np 1 ./build/all_gather_perf -g 2\n" + text)
    assert any("before June 2020" in problem.reason for problem in log.problems)


def test_nccl_tests_with_a_time_stamp_and_iterations():
    text = log_samples.NCCL_TESTS
    text = text.replace("#wrong \n", "#wrong timestamp\n")
    text = text.replace("       0\n", "       0  2026-01-02 03:04:05\n").replace(
        "     N/A\n", "   N/A  2026-01-02 03:04:05\n"
    )
    assert (
        parse("nccl_tests", text).tables
        == parse("nccl_tests", log_samples.NCCL_TESTS).tables
    )
    assert not parse("nccl_tests", text).problems


def test_nccl_tests_json():
    (table,) = parse("nccl_tests_json", log_samples.NCCL_TESTS_JSON).tables
    assert [row[2] for row in table.rows] == [800000] * 2 + [1600000] * 2
    assert [row[7:] for row in table.rows] == [
        ("out of place", 80.0, 10.0, 5.0, 0),
        ("in place", 40.0, 20.0, 10.0, None),
        ("out of place", 160.0, 10.0, 5.0, 0),
        ("in place", 80.0, 20.0, 10.0, None),
    ]
    assert {row[:2] for row in table.rows} == {("all_gather", 2)}


def test_nccl_tests_json_never_shows_the_environment():
    log = parse("nccl_tests_json", log_samples.NCCL_TESTS_JSON)
    assert "hunter2" not in repr(log)


def test_nccl_tests_json_cut_short_keeps_whole_results():
    cut = log_samples.NCCL_TESTS_JSON[
        : log_samples.NCCL_TESTS_JSON.index('"size":1600000')
    ]
    log = parse("nccl_tests_json", cut)
    assert len(log.tables[0].rows) == 2
    (problem,) = log.problems
    assert "ends within" in problem.reason


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ('"bus_bw":5.0', '"bus_bw":6.0', "busbw 6 is not algbw 10 * 0.5 (2 ranks)"),
        ('"nwrong":0.0', '"nwrong":7.0', "7 wrong values"),
        (
            '"time":80.0',
            '"time":"nan"',
            "expected a time in us of 0 or more, got 'nan'; left out",
        ),
        ('"errors":[]', '"errors":["unhandled cuda error"]', "unhandled cuda error"),
    ],
)
def test_nccl_tests_json_faults(old, new, reason):
    found = [
        text
        for _, text in reasons(
            "nccl_tests_json", log_samples.NCCL_TESTS_JSON.replace(old, new)
        )
    ]
    assert found and all(reason in text for text in found), found


@pytest.mark.parametrize(
    ("ngpus", "ranks", "number"),
    [(4, [0], 4), (2, [0, 2], 4), (1, [0, 1, 2], 3), (2, [0, 1], 2)],
)
def test_nccl_tests_json_ranks(ngpus, ranks, number):
    """Some releases list the first GPU of each process only."""
    config = {
        "nthreads": 1,
        "ngpus": ngpus,
        "devices": [{"rank": rank, "group": 0} for rank in ranks],
    }
    assert nccl_json.num_ranks(config) == number


def test_horovod_timeline():
    activities, tensors, ranks = parse(
        "horovod_timeline", log_samples.HOROVOD_TIMELINE
    ).tables
    assert activities.title == "Activities in 0.100 ms"
    assert {row[0]: row[1:] for row in activities.rows} == {
        # count, sum over tensors ms, mean us, longest us, wall ms, share of the 100 us
        "ALLREDUCE": (2, 0.12, 60.0, 60.0, 0.06, 0.6),
        "NCCL_ALLREDUCE": (2, 0.08, 40.0, 40.0, 0.04, 0.4),
        "NEGOTIATE_ALLREDUCE": (1, 0.03, 30.0, 30.0, 0.03, 0.3),
        "QUEUE": (1, 0.01, 10.0, 10.0, 0.01, 0.1),
    }
    assert tensors.columns[:3] == ("Tensor", "Operations", "NEGOTIATE_ALLREDUCE (ms)")
    assert tensors.rows == (
        ("dense/kernel", 1, 0.03, 0.06, 0.01, 0.04),
        ("dense/bias", 1, None, 0.06, None, 0.04),
    )
    assert ranks.rows == ((0, 1, 0, None), (1, 1, 1, 20.0))


@pytest.mark.parametrize("end", ["]", "", ",\n"])
def test_horovod_timeline_without_its_bracket_is_whole(end):
    text = log_samples.HOROVOD_TIMELINE.rstrip("]\n") + end
    log = parse("horovod_timeline", text)
    assert (
        log.tables == parse("horovod_timeline", log_samples.HOROVOD_TIMELINE).tables
        and not log.problems
    )
    assert any("bracket is missing" in note for note in log.notes) == ("]" not in end)


@pytest.mark.parametrize(
    ("event", "reason"),
    [
        ('{"ph": "E", "ts": 20, "pid": 9}', "an activity ends without"),
        (
            '{"ph": "B", "name": "A", "ts": -1, "pid": 1}',
            "expected 'ts' in microseconds of 0 or more, got -1",
        ),
        ("17", "expected an event with 'ph', got '17'"),
    ],
)
def test_horovod_timeline_bad_events(event, reason):
    lines = log_samples.HOROVOD_TIMELINE.splitlines(keepends=True)
    lines.insert(3, event + ",\n")
    (problem,) = parse("horovod_timeline", "".join(lines)).problems
    assert problem.line == 4 and reason in problem.reason


def test_bandwidth_test():
    (table,) = parse("bandwidth_test", log_samples.BANDWIDTH_TEST).tables
    assert len(table.columns) == 7
    assert table.rows == (
        ("0: NVIDIA V100", "Host to Device", "pinned", 32000000, 12.3, "GB/s", 1),
        ("0: NVIDIA V100", "Device to Device", "pinned", 1024, 0.5, "GB/s", 1),
        ("0: NVIDIA V100", "Device to Device", "pinned", 32000000, 739.6, "GB/s", 1),
    )


def test_bandwidth_test_of_several_devices_write_combined_and_in_the_old_unit():
    heading, pinned = (
        " Host to Device Bandwidth, 2 Device(s)\n",
        " PINNED Memory Transfers, Write-Combined",
    )
    log = parse(
        "bandwidth_test",
        f"{heading}{pinned}   Transfer Size (Bytes)\tBandwidth(MB/s)\n   33554432\t763.5\n",
    )
    assert log.tables[0].rows == (
        (None, "Host to Device", "pinned", 33554432, 763.5, "MB/s", 2),
    )
    assert any("2**20" in note for note in log.notes) and any(
        "several devices" in note for note in log.notes
    )


@pytest.mark.parametrize(
    ("old", "new", "line", "reason"),
    [
        ("739.6", "nan", 16, "expected a bandwidth in GB/s above 0, got 'nan'"),
        (
            "Host to Device Bandwidth, 1",
            "Host to Device Bandwidth, 0",
            10,
            "expected a number of devices above 0",
        ),
        ("Result = PASS", "Result = FAIL", 18, "the test says Result = FAIL"),
    ],
)
def test_bandwidth_test_faults(old, new, line, reason):
    (found,) = reasons("bandwidth_test", log_samples.BANDWIDTH_TEST.replace(old, new))
    assert found[0] == line and reason in found[1]


def test_p2p():
    gpus, connected, bandwidth, gpu_latency, cpu_latency = parse(
        "p2p_bandwidth_latency", log_samples.P2P
    ).tables
    assert gpus.rows == ((0, "Tesla M60", "0:5:0"), (1, "Tesla M60", "0:6:0"))
    assert connected.rows == ((0, 1, 0), (1, 0, 1))
    assert bandwidth.title == "Unidirectional P2P=Disabled Bandwidth Matrix (GB/s)"
    assert bandwidth.columns == ("From \\ to", "0", "1") and bandwidth.rows == (
        (0, 114.41, 5.26),
        (1, 5.27, 120.02),
    )
    assert gpu_latency.title == "P2P=Enabled Latency (P2P Writes) Matrix (us), GPU time"
    assert gpu_latency.rows == ((0, 4.44, 23.37), (1, 19.97, 4.16))
    assert cpu_latency.title.endswith("CPU time") and cpu_latency.rows == (
        (0, 3.5, 8.25),
        (1, 8.75, 3.25),
    )


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("114.41", "nan", "row 0: expected a number above 0, got 'nan'; left out"),
        ("     1   5.27 120.02 \n", "", "1 of 2 rows; the file is cut short"),
    ],
)
def test_p2p_faults(old, new, reason):
    found = [
        text
        for _, text in reasons(
            "p2p_bandwidth_latency", log_samples.P2P.replace(old, new)
        )
    ]
    assert reason in found[-1] or reason in found[0], found
    assert all("Unidirectional P2P=Disabled Bandwidth Matrix" in text for text in found)


def test_topo():
    matrix, groups = parse("nvidia_smi_topo", log_samples.TOPO).tables
    names = ("GPU0", "GPU1", "GPU2", "GPU3", "NIC0")
    assert matrix.columns == (
        "Device",
        *names,
        "CPU Affinity",
        "NUMA Affinity",
        "GPU NUMA ID",
    )
    assert matrix.rows[0] == (
        "GPU0",
        "X",
        "NV2",
        "PIX",
        "SYS",
        "PHB",
        "0-15,32-47",
        "0",
        "N/A",
    )
    assert matrix.rows[4] == ("NIC0", "PHB", "PHB", "PHB", "SYS", "X", None, None, None)
    assert groups.rows == (
        ("NV#", "{0, 1} {2} {3}"),
        ("PIX", "{0, 1, 2} {3}"),
        ("PHB", "{0, 1, 2} {3}"),
        ("SYS", "{0, 1, 2, 3}"),
    )


def test_topo_of_the_spreadsheet_kind_with_spaces():
    text = "GPU0    GPU1    CPU Affinity\nGPU0     X     SOC    0-11\nGPU1    SOC     X     0-11"
    log = parse("nvidia_smi_topo", text)
    assert log.tables[0].rows == (
        ("GPU0", "X", "SOC", "0-11"),
        ("GPU1", "SOC", "X", "0-11"),
    )
    assert any("SOC" in note and "SYS" in note for note in log.notes)


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        (
            "GPU1\tNV2\t X \tPHB",
            "GPU1\tNV4\t X \tPHB",
            "GPU0-GPU1 is NV2, but GPU1-GPU0 is NV4",
        ),
        (
            "GPU3\tSYS\tSYS\tSYS\t X \tSYS\t16-31,48-63\t1\t\tN/A\n",
            "",
            "row GPU3 has 0 of 5 cells",
        ),
        (
            "GPU2\tPIX\tPHB\t X ",
            "GPU2\tPIX\tPHB\tPIX",
            "GPU2-GPU2 is PIX",
        ),
        (
            "GPU1\tNV2",
            "GPU1\t?",
            "expected X, NV#, PIX, PXB, PHB, NODE or SYS, got '?'",
        ),
    ],
)
def test_topo_faults(old, new, reason):
    assert any(
        reason in text
        for _, text in reasons("nvidia_smi_topo", log_samples.TOPO.replace(old, new))
    )
