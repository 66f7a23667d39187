"""Logs of communication and hardware: their tables, checks and problems."""

import pytest

from rnn_scaling.records.importers import collectives, nccl_tests
from tests.support import log_samples
from tests.support.log_samples import parse

# The format, a part of its sample, what replaces it, and the fault with its line.
FAULTS = [
    ("nccl_tests", "24.00", "25.00", 15, "busbw 25.00 is not algbw 16.00 * 1.5 ("),
    ("nccl_tests", "16.00   24", "32.00   48", 15, "algbw 32.00 is not size / time"),
    ("nccl_tests", "values : 0 OK", "values : 3 FAILED", 16, "3 out of bounds values"),
    ("nccl_tests", "65.54", "nan", 15, "expected a time in us of 0 or more, got 'nan'"),
    ("nccl_tests", "# Avg bus bandwidth    : 12.1825", "#", 15, "cut short"),
    ("nccl_tests_json", '"bus_bw":5.0', '"bus_bw":6.0', 1, "busbw 6 is not algbw 10"),
    ("nccl_tests_json", '"nwrong":0.0', '"nwrong":7.0', 1, "7 wrong values"),
    ("nccl_tests_json", '"time":80.0', '"time":"nan"', 1, "0 or more, got 'nan'"),
    ("nccl_tests_json", '"errors":[]', '"errors":["no cuda"]', 1, "no cuda"),
    ("horovod_timeline", '{"ph', '{"ph": "E", "ts": 2, "pid": 9},\n{"ph', 6, "ends"),
    ("horovod_timeline", '{"ph', '17,\n{"ph', 6, "expected an event with 'ph', got"),
    ("bandwidth_test", "739.6", "nan", 16, "expected a bandwidth in GB/s above 0"),
    ("bandwidth_test", "Bandwidth, 1", "Bandwidth, 0", 10, "number of devices above 0"),
    ("bandwidth_test", "= PASS", "= FAIL", 18, "the test says Result = FAIL"),
    ("p2p_bandwidth_latency", "114.41", "nan", 16, "row 0: expected a number above 0"),
    ("p2p_bandwidth_latency", "     1   5.27 120.02 \n", "", 15, "1 of 2 rows; the"),
    ("nvidia_smi_topo", "PHB\t X ", "PHB\tPIX", 1, "GPU2-GPU2 is PIX"),
]


@pytest.mark.parametrize("name, old, new, line, reason", FAULTS)
def test_a_fault_is_named_with_its_line(name, old, new, line, reason):
    assert old in log_samples.ALL[name]
    problems = parse(name, log_samples.ALL[name].replace(old, new, 1)).problems
    assert (line, True) in [(each.line, reason in each.reason) for each in problems]


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
    assert collectives.compute_busbw_factor(
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


def test_nccl_tests_json_never_shows_the_environment():
    log = parse("nccl_tests_json", log_samples.NCCL_TESTS_JSON)
    assert "hunter2" not in repr(log)


def test_nccl_tests_json_cut_short_keeps_whole_results():
    cut = log_samples.NCCL_TESTS_JSON[
        : log_samples.NCCL_TESTS_JSON.index('"size":1600000')
    ]
    log = parse("nccl_tests_json", cut)
    assert len(log.tables[0].rows) == 2
    [problem] = log.problems
    assert "ends within" in problem.reason


@pytest.mark.parametrize(
    "ngpus, ranks, number",
    [(4, [0], 4), (2, [0, 2], 4), (1, [0, 1, 2], 3), (2, [0, 1], 2)],
)
def test_nccl_tests_json_ranks(ngpus, ranks, number):
    """Some releases list the first GPU of each process only."""
    config = {
        "nthreads": 1,
        "ngpus": ngpus,
        "devices": [{"rank": rank, "group": 0} for rank in ranks],
    }
    assert nccl_tests.count_ranks(config) == number


@pytest.mark.parametrize("end", ["]", "", ",\n"])
def test_horovod_timeline_without_its_bracket_is_whole(end):
    text = log_samples.HOROVOD_TIMELINE.rstrip("]\n") + end
    log = parse("horovod_timeline", text)
    assert log.tables == parse("horovod_timeline", log_samples.HOROVOD_TIMELINE).tables
    assert not log.problems
    assert any("bracket is missing" in note for note in log.notes) == ("]" not in end)


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
    assert any("2**20" in note for note in log.notes)
    assert any("several devices" in note for note in log.notes)


def test_topo_of_the_spreadsheet_kind_with_spaces():
    text = "GPU0    GPU1    CPU Affinity\nGPU0     X     SOC    0-11\nGPU1    SOC     X     0-11"
    log = parse("nvidia_smi_topo", text)
    assert log.tables[0].rows == (
        ("GPU0", "X", "SOC", "0-11"),
        ("GPU1", "SOC", "X", "0-11"),
    )
    assert any("SOC" in note and "SYS" in note for note in log.notes)
