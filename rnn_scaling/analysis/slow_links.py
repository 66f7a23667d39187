"""Find links between GPUs that are slower than others, in matrices of imported logs."""

import statistics
from collections.abc import Container, Iterator, Mapping, Sequence

from rnn_scaling.analysis.statements import Statement
from rnn_scaling.records.importers.matrices import Link, LinkMatrix
from rnn_scaling.records.importers.reading import Reading

_SLOWER = 0.8  # a link below this share of its other direction or other links is slow
_MAX_SLOW_LINKS = 0.1  # largest share of slow links; two links may always be slow
# Two matrices are two measurements of a few copies; closer rates are not a difference.
_SLOWER_THAN_STAGING = 0.9


def slow_link_statements(reading: Reading) -> list[Statement]:
    """Return the slow links of a log, and the peer-to-peer copies that are slow."""
    matrices = [table for table in reading.tables if isinstance(table, LinkMatrix)]
    results = list(_slow_peer_copy_statements(matrices, reading.source))
    for matrix in matrices:
        if matrix.is_connectivity:
            continue
        rates = matrix.cells()
        if matrix.is_time:
            rates = {pair: 1 / value for pair, value in rates.items()}
        for kind, links, slow_rate, usual_rate in slow_links(rates):
            values = {
                "links": links,
                "slow": 1 / slow_rate if matrix.is_time else slow_rate,
                "usual": 1 / usual_rate if matrix.is_time else usual_rate,
            }
            results.append(_matrix_statement(kind, reading.source, matrix, values))
    return results


def _matrix_statement(
    kind: str, source: str, matrix: LinkMatrix, values: Mapping[str, object]
) -> Statement:
    unit = "us" if matrix.is_time else "GB/s"
    statement_values = {"title": matrix.title, **values, "unit": unit}
    return Statement(f"import-{kind}", f"{source}:{matrix.line}", statement_values)


def _slow_peer_copy_statements(
    matrices: Sequence[LinkMatrix], source: str
) -> Iterator[Statement]:
    """Yield a statement per pair of matrices in which peer-to-peer copies are slower."""
    no_access: set[Link] = set()
    disabled: dict[str, LinkMatrix] = {}
    for matrix in matrices:
        if matrix.is_connectivity:
            no_access = {pair for pair, value in matrix.cells().items() if not value}
        elif "P2P=Disabled" in matrix.title:
            disabled[matrix.kind] = matrix
        elif "CPU time" in matrix.title:
            continue  # The time of a call is not the time of the copy.
        elif "P2P=Enabled" in matrix.title and matrix.kind in disabled:
            values = _compare(disabled[matrix.kind], matrix, no_access)
            if values:
                yield _matrix_statement("p2p-slower", source, matrix, values)


def _compare(
    staged: LinkMatrix, direct: LinkMatrix, no_access: Container[Link]
) -> dict[str, float]:
    """Return numbers about the peer-to-peer copies that are slower than staged ones.

    Args:
      staged: Numbers through the host's memory.
      direct: Numbers with peer-to-peer enabled.
      no_access: Pairs that copy through the host's memory in both.
    """
    direct_cells = direct.cells()
    staged_cells = staged.cells()
    speeds = {}
    for pair, value in direct_cells.items():
        if pair in staged_cells and pair not in no_access:
            speed = value / staged_cells[pair]
            speeds[pair] = 1 / speed if direct.is_time else speed
    slower = [pair for pair in speeds if speeds[pair] < _SLOWER_THAN_STAGING]
    if not slower:
        return {}
    worst = min(slower, key=lambda pair: speeds[pair])
    first, second = worst
    return {
        "count": len(slower),
        "total": len(speeds),
        "speed": statistics.median(speeds[pair] for pair in slower),
        "first": first,
        "second": second,
        "direct": direct_cells[worst],
        "staged": staged_cells[worst],
    }


def slow_links(rates: Mapping[Link, float]) -> list[tuple[str, str, float, float]]:
    """Return kind, devices, rate and usual rate of each group of slow links.

    Machines have links of several kinds (NVLink, PCIe, another socket): one is slow if
    its other direction is faster, or if few links are slower than all others.
    """
    one_way_links = []
    for (a, b), rate in rates.items():
        opposite = rates.get((b, a), rate)
        if rate < _SLOWER * opposite:
            one_way_links.append(("one-way-link", f"{a} to {b}", rate, opposite))
    if one_way_links:
        return one_way_links
    ordered = sorted(rates, key=lambda link: rates[link])
    slowest = ordered[:1]
    for link in ordered[1:]:
        if rates[slowest[-1]] < _SLOWER * rates[link]:
            break
        slowest.append(link)
    faster = ordered[len(slowest) :]
    if not faster:
        return []
    slow_rate = statistics.median(rates[link] for link in slowest)
    usual_rate = statistics.median(rates[link] for link in faster)
    if slow_rate >= _SLOWER * usual_rate:
        return []
    shared_devices = set.intersection(*(set(link) for link in slowest))
    num_devices = len(set().union(*rates))
    if (
        len(shared_devices) == 1
        and len(slowest) == 2 * (num_devices - 1)
        and num_devices > 2
    ):
        return [("slow-device", str(shared_devices.pop()), slow_rate, usual_rate)]
    if len(slowest) > max(2, _MAX_SLOW_LINKS * len(rates)):
        return []
    pairs = dict.fromkeys((min(link), max(link)) for link in slowest)
    names = ", ".join(f"{a} and {b}" for a, b in pairs)
    return [("slow-links", names, slow_rate, usual_rate)]
