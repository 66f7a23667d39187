"""nccl-tests' numbers, from its text or its JSON: the table, and the check of the bandwidths."""

import dataclasses
import re
from typing import Any

from rnn_scaling.audit.numbers import Printed
from rnn_scaling.files.markdown import Table
from rnn_scaling.importers.common import Problems, not_negative

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
    time: Printed
    algbw: Printed
    busbw: Printed
    wrong: int | None
    is_cpu_time: bool = False

    def row(self) -> tuple:
        what = (self.operation or None, self.ranks, self.size, self.count, self.type, self.redop, self.root)
        return (*what, self.place, self.time.value, self.algbw.value, self.busbw.value, self.wrong)


def whole(size: Any) -> int:
    return int(not_negative(size, "a size"))


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


def check(row: Measurement, problems: Problems) -> None:
    """Notes wrong results, and bandwidths that do not follow from size, time and ranks within rounding."""
    place = f"{row.operation or 'operation'} of {row.size} B, {row.place}"
    if row.wrong:
        problems.add(row.line, f"{place}: {row.wrong} wrong values; do not trust the operation", "wrong")
    if row.operation not in OTHER_ALGBW and not row.is_cpu_time and row.time.low > 0:
        low, high = row.size / row.time.high / 1e3, row.size / row.time.low / 1e3
        if not row.algbw.low <= high or not low <= row.algbw.high:
            text = f"{place}: algbw {row.algbw.text} is not size / time = {row.size / row.time.value / 1e3:.4g} GB/s"
            problems.add(row.line, text, "algbw")
    expected = factor(row.operation, row.ranks) if row.ranks else None
    if expected is None:
        return
    if row.busbw.low > row.algbw.high * expected or row.busbw.high < row.algbw.low * expected:
        text = f"{place}: busbw {row.busbw.text} is not algbw {row.algbw.text} * {expected:.4g} ({row.ranks} ranks)"
        if row.busbw.text == row.algbw.text and expected != 1:
            text += "; nccl-tests before June 2020 had the factor in algbw already"
        problems.add(row.line, text, "busbw")


def table(measurements: list[Measurement]) -> Table:
    return Table("Collective operations (nccl-tests)", COLUMNS, tuple(measured.row() for measured in measurements))
