"""nccl-tests' numbers, from its text or its JSON: the table, and the check of the bandwidths."""

import dataclasses
import re

from rnn_scaling.files.markdown import Table
from rnn_scaling.importers.common import Problems
from rnn_scaling.importers.points import Cell

COLUMNS = (
    "Operation", "Ranks", "Size (B)", "Count", "Type", "Redop", "Root", "Place",
    "Time (us)", "algbw (GB/s)", "busbw (GB/s)", "Wrong",
)  # fmt: skip
BUSBW_NOTE = (
    "busbw = algbw * factor makes rank counts comparable: 2(n-1)/n for all_reduce, (n-1)/n for all_gather, "
    "reduce_scatter, alltoall, gather and scatter, 1 for broadcast, reduce and sendrecv."
)
# Operations whose algbw is not size / time (alltoallv: the largest share; hypercube: times n - 1).
OTHER_ALGBW = ("alltoallv", "hypercube")
_NAME = re.compile(
    r"\b(all_?reduce|all_?gather|reduce_?scatter|alltoallv|alltoall|broadcast|reduce|sendrecv|gather|scatter|hypercube)"
    r"_perf"
)


@dataclasses.dataclass(frozen=True)
class Measurement:
    """One operation of one size, out of place or in place; `ranks` None when the log does not say."""

    line: int
    operation: str
    ranks: int | None
    size: int
    count: int
    type: str
    redop: str
    root: str
    place: str
    time: Cell
    algbw: Cell
    busbw: Cell
    wrong: int | None
    is_cpu_time: bool = False

    def row(self) -> tuple:
        what = (self.operation or None, self.ranks, self.size, self.count, self.type, self.redop, self.root)
        return (*what, self.place, self.time.value, self.algbw.value, self.busbw.value, self.wrong)


def notes(average: str = "mean") -> list[str]:
    """What the columns mean; `average` is what was taken of the iterations."""
    time = f"time is the {average} of the iterations of one operation; algbw = size / time, GB/s = 10**9 B/s."
    return [time, BUSBW_NOTE]


def operation_of(text: str) -> str:
    """The operation that a command, path or title names ("build/all_reduce_perf_mpi" -> "all_reduce"); "" for none."""
    match = _NAME.search(text)
    if match is None:
        return ""
    return match[1].replace("allreduce", "all_reduce").replace("allgather", "all_gather")


def factor(operation: str, ranks: int) -> float | None:
    """busbw / algbw of an operation; None for one that is not known.

    Source: NVIDIA/nccl-tests, doc/PERFORMANCE.md, "Summary", and each test's GetBw function.
    """
    share = (ranks - 1) / ranks
    if operation == "all_reduce":
        return 2 * share
    if operation in ("all_gather", "reduce_scatter", "alltoall", "alltoallv", "gather", "scatter"):
        return share
    return 1.0 if operation in ("broadcast", "reduce", "sendrecv", "hypercube") else None


def check(one: Measurement, problems: Problems) -> None:
    """Notes wrong results, and bandwidths that do not follow from size, time and ranks within rounding."""
    place = f"{one.operation or 'operation'} of {one.size} B, {one.place}"
    if one.wrong:
        problems.add(one.line, f"{place}: {one.wrong} wrong values; do not trust the operation", "wrong")
    if one.operation not in OTHER_ALGBW and not one.is_cpu_time and one.time.low > 0:
        low, high = one.size / one.time.high / 1e3, one.size / one.time.low / 1e3
        if not one.algbw.low <= high or not low <= one.algbw.high:
            text = f"{place}: algbw {one.algbw.text} is not size / time = {one.size / one.time.value / 1e3:.4g} GB/s"
            problems.add(one.line, text, "algbw")
    expected = factor(one.operation, one.ranks) if one.ranks else None
    if expected is None:
        return
    if one.busbw.low > one.algbw.high * expected or one.busbw.high < one.algbw.low * expected:
        text = f"{place}: busbw {one.busbw.text} is not algbw {one.algbw.text} * {expected:.4g} ({one.ranks} ranks)"
        if one.busbw.text == one.algbw.text and expected != 1:
            text += "; nccl-tests before June 2020 had the factor in algbw already"
        problems.add(one.line, text, "busbw")


def table(measurements: list[Measurement]) -> Table:
    return Table("Collective operations (nccl-tests)", COLUMNS, tuple(one.row() for one in measurements))
