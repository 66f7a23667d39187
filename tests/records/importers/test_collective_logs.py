"""Logs of collectives and peer-to-peer copies from old and foreign programs."""

import re

import pytest

from rnn_scaling.analysis import slow_links
from rnn_scaling.records.importers import collectives
from rnn_scaling.records.importers.formats import FORMATS
from tests.support import log_samples
from tests.support.log_samples import parse
from tests.support.paths import GOLDEN

CASES = GOLDEN / "cases"
HEADER = (
    "# size count type redop root time algbw busbw #wrong time algbw busbw #wrong\n"
)


def log_of(operation_factor, ranks, redop="sum", root="-1", rows=((4096, 10.0),)):
    """Return a log of one operation that does not name it."""
    lines = [
        f"# Rank {rank} Pid 1 on a device {rank} [0] GPU\n" for rank in range(ranks)
    ]
    lines.append(HEADER)
    for size, microseconds in rows:
        algbw = size / microseconds / 1e3
        half = f"{microseconds} {algbw:.5f} {algbw * operation_factor:.5f} 0"
        lines.append(f"{size} {size // 4} float {redop} {root} {half} {half}\n")
    lines.append("# Avg bus bandwidth : 1\n")
    return "".join(lines)


def list_slower_copies(text):
    """Return the values of each statement on slow peer-to-peer copies."""
    log = parse("p2p_bandwidth_latency", text)
    statements = slow_links.state_slow_links(log)
    return [each.values for each in statements if each.kind == "import-p2p-slower"]


@pytest.mark.parametrize(
    "cells, redop, root",
    [("sum -1", "sum", "-1"), ("-1", "", "-1"), ("none", "none", ""), ("", "", "")],
)
@pytest.mark.parametrize("places", [1, 2])
def test_blank_cells_in_front_of_the_halves(cells, redop, root, places):
    half = " 12345 6.79 6.79 N/A"  # a time of five digits has no decimal point
    text = f"{HEADER}83886080 20971520 float {cells}{half * places}\n"
    table = parse("nccl_tests", text).tables[0]
    assert len(table.rows) == places
    assert set(table.list_column("Redop")) == {redop}
    assert set(table.list_column("Root")) == {root}
    assert set(table.list_column("Time (us)")) == {12345}
    assert table.list_column("Place")[-1] == "in place"


@pytest.mark.parametrize("values", ["Direct SIMPLE 32", "N/A N/A N/A", ""])
def test_columns_that_rccl_tests_adds_behind_the_halves(values):
    header = HEADER.replace("\n", " algo proto nchannels\n")
    half = " 76.26 13.75 13.75 0"
    text = f"{header}1048576 262144 float sum -1{half * 2} {values}\n"
    assert parse("nccl_tests", text).tables[0].list_column("Wrong") == (0, 0)


def test_errors_of_old_releases_are_not_counts():
    log = parse("nccl_tests", (CASES / "nccl_old_error.txt").read_text())
    [table] = log.tables
    assert table.list_column("Wrong") == (None, None)
    assert table.list_column("Largest error") == (1, 2)
    [problem] = log.problems
    assert "largest error 2" in problem.reason and "FAILED" in problem.reason


@pytest.mark.parametrize("error", ["-nan", "inf"])
def test_an_error_that_is_not_a_number_keeps_its_row(error):
    text = (CASES / "nccl_old_error.txt").read_text().replace("1e+00", error)
    log = parse("nccl_tests", text)
    assert len(log.tables[0].rows) == 2
    assert [problem.line for problem in log.problems] == [7]


@pytest.mark.parametrize(
    "factor, ranks, redop, root, possible",
    [
        (1.75, 8, "sum", "-1", ["all_reduce"]),
        (0.875, 8, "sum", "-1", ["reduce_scatter"]),
        (0.875, 8, "none", "-1", ["all_gather", "alltoall"]),
        (0.875, 8, "none", "3", ["gather", "scatter"]),
        (1.0, 8, "sum", "-1", ["sendrecv"]),
        (1.0, 2, "sum", "-1", ["all_reduce", "sendrecv"]),
        (1.3, 8, "sum", "-1", []),
        # Columns that no program with this factor prints: the factor counts.
        (1.75, 8, "none", "0", ["all_reduce"]),
    ],
)
def test_an_operation_follows_from_the_factor_and_the_columns(
    factor, ranks, redop, root, possible
):
    text = log_of(factor, ranks, redop, root, rows=((4096, 10.0), (1 << 20, 99.5)))
    log = parse("nccl_tests", text)
    assert not log.problems
    in_table = {possible[0]} if len(possible) == 1 else {None}
    assert set(log.tables[0].list_column("Operation")) == in_table
    [note] = [note for note in log.notes if "does not name the operation" in note]
    assert [
        name for name in collectives.OPERATIONS if re.search(rf"\b{name}\b", note)
    ] == [name for name in collectives.OPERATIONS if name in possible]


def test_each_table_of_a_log_has_its_own_operation():
    first = log_of(1.75, 8)
    second = log_of(0.875, 8)
    text = first + second[second.index(HEADER) :]
    assert parse("nccl_tests", text).tables[0].list_column("Operation") == (
        *["all_reduce"] * 2,
        *["reduce_scatter"] * 2,
    )


@pytest.mark.parametrize(
    "old, new, counts",
    [
        ("  9.97", "  9.97", [(2, 2)]),
        ("  9.97", " 21.30", [(1, 2)]),  # one direction only
        ("9.97\n     1   9.95", "20.9\n     1  20.8", []),  # the same within noise
        ("Unidirectional P2P=Enabled", "Bidirectional P2P=Enabled", []),
    ],
)
def test_peer_to_peer_is_compared_pair_by_pair(old, new, counts):
    text = (CASES / "p2p_slower.txt").read_text()
    assert old in text
    values = list_slower_copies(text.replace(old, new))
    assert [(each["count"], each["total"]) for each in values] == counts


def test_pairs_without_peer_access_are_left_out():
    head = "P2P Connectivity Matrix\n     D\\D     0     1\n     0 1 0\n     1 1 1\n"
    text = head + (CASES / "p2p_slower.txt").read_text()
    [found] = list_slower_copies(text)
    values = [found[name] for name in ("first", "second", "direct", "staged", "total")]
    assert values == [1, 0, 9.95, 20.91, 1]


def test_latencies_are_compared_by_the_gpus_clock():
    matrix = "   {}     0      1\n     0   4.00  {}\n     1  {}   4.00\n\n"
    text = "P2P=Disabled Latency Matrix (us)\n"
    text += matrix.format("GPU", 12.0, 12.0) + matrix.format("CPU", 3.0, 3.0)
    text += "P2P=Enabled Latency (P2P Writes) Matrix (us)\n"
    text += matrix.format("GPU", 24.0, 24.0) + matrix.format("CPU", 9.0, 9.0)
    [found] = list_slower_copies(text)
    names = ("speed", "direct", "staged", "unit")
    assert [found[name] for name in names] == [0.5, 24, 12, "us"]


def test_rccl_tests_list_of_later_releases_is_the_same():
    lines = log_samples.RCCL_TESTS_JSON.splitlines()
    with_cycle = [line.replace('{"name"', '{"numCycle":1, "name"') for line in lines]
    text = "[\n" + ",\n".join(with_cycle) + "\n]\n"
    assert FORMATS["rccl_tests_json"].detect(text)
    log = parse("rccl_tests_json", text)
    assert log.tables == parse("rccl_tests_json", log_samples.RCCL_TESTS_JSON).tables
    cut = parse("rccl_tests_json", text[: text.rindex('"algBw"')])
    assert len(cut.tables[0].rows) == 3
    assert len(cut.problems) == 1


@pytest.mark.parametrize(
    "old, new, faults",
    [
        ('"busBw":24.062523', '"busBw":30.0', 1),
        ('"wrong":"0"', '"wrong":"5"', 2),
        ('"algBw":13.750013, ', "", 1),
        ('"size":1048576', '"size":-1', 2),
        ('"nodes":1, "ranks":8, "ranksPerNode":8, "gpusPerRank":1', '"gpus":8', 0),
        ('"name":"AllReduce"', '"name":"all_reduce_perf"', 0),
    ],
)
def test_rccl_tests_faults(old, new, faults):
    text = log_samples.RCCL_TESTS_JSON
    assert old in text
    log = parse("rccl_tests_json", text.replace(old, new))
    assert sum(1 + problem.more for problem in log.problems) == faults
    assert set(log.tables[0].list_column("Operation")) == {"all_reduce"}
    assert set(log.tables[0].list_column("Ranks")) == {8}
