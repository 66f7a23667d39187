"""Find links between GPUs that are slower than others, in matrices of imported logs.

It reads the `LinkMatrix` tables of `records.importers.matrices`.
"""

import statistics
from collections.abc import Container, Iterator, Mapping, Sequence
from typing import NamedTuple

from rnn_scaling.analysis.statements import Statement, state
from rnn_scaling.records.importers.matrices import Link, LinkMatrix
from rnn_scaling.records.importers.reading import Reading

# A link is slow if its rate is below this share of its other direction or other links.
_SLOW_SHARE = 0.8
_MAX_SLOW_LINKS = 0.1  # largest share of slow links; two links may always be slow
# Two matrices are two measurements of a few copies. A copy from peer to peer is slow if
# its speed is below this share of the speed through the host's memory.
_SLOW_SHARE_OF_STAGED = 0.9


class SlowLinks(NamedTuple):
    """A group of links that are slow in the same way.

    Attributes:
      kind: End of the kind of a `Statement`, "import-<kind>".
      devices: The devices of the links, as text.
    """

    kind: str
    devices: str
    rate: float
    usual_rate: float


def state_slow_links(reading: Reading) -> list[Statement]:
    """Return the slow links of a log, and the peer-to-peer copies that are slow."""
    matrices = [table for table in reading.tables if isinstance(table, LinkMatrix)]
    results = list(_state_slow_peer_copies(matrices, reading.source))
    for matrix in matrices:
        if matrix.is_connectivity:
            continue
        rates = matrix.cells()
        if matrix.is_time:
            rates = {pair: 1 / value for pair, value in rates.items()}
        for slow in find_slow_links(rates):
            values = {
                "links": slow.devices,
                "slow": 1 / slow.rate if matrix.is_time else slow.rate,
                "usual": 1 / slow.usual_rate if matrix.is_time else slow.usual_rate,
            }
            results.append(_state_matrix(slow.kind, reading.source, matrix, values))
    return results


def _state_matrix(
    kind: str, source: str, matrix: LinkMatrix, values: Mapping[str, object]
) -> Statement:
    unit = "us" if matrix.is_time else "GB/s"
    return state(
        f"import-{kind}",
        f"{source}:{matrix.line}",
        title=matrix.title,
        **values,
        unit=unit,
    )


def _state_slow_peer_copies(
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
            values = _compare_copies(disabled[matrix.kind], matrix, no_access)
            if values:
                yield _state_matrix("p2p-slower", source, matrix, values)


def _compare_copies(
    staged: LinkMatrix, direct: LinkMatrix, no_access: Container[Link]
) -> dict[str, float]:
    """Return values of a statement about peer-to-peer copies that are slower than staged.

    Args:
      staged: Numbers through the host's memory.
      direct: Numbers with peer-to-peer enabled.
      no_access: Pairs that copy through the host's memory in both.

    Returns:
      An empty dictionary if no copy is slower.
    """
    direct_cells = direct.cells()
    staged_cells = staged.cells()
    speeds = {}
    for pair, value in direct_cells.items():
        if pair in staged_cells and pair not in no_access:
            speed = value / staged_cells[pair]
            speeds[pair] = 1 / speed if direct.is_time else speed
    slower = [pair for pair in speeds if speeds[pair] < _SLOW_SHARE_OF_STAGED]
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


def find_slow_links(rates: Mapping[Link, float]) -> list[SlowLinks]:
    """Return each group of slow links.

    Machines have links of several kinds (NVLink, PCIe, another socket): one is slow if
    its other direction is faster, or if few links are slower than all others.
    """
    one_way_links = _find_one_way_links(rates)
    if one_way_links:
        return one_way_links
    slowest = _list_slowest_links(rates)
    faster = rates.keys() - set(slowest)
    if not faster:
        return []
    slow_rate = statistics.median(rates[link] for link in slowest)
    usual_rate = statistics.median(rates[link] for link in faster)
    if slow_rate >= _SLOW_SHARE * usual_rate:
        return []
    num_devices = len(set().union(*rates))
    slow_device = _find_slow_device(slowest, num_devices)
    if slow_device is not None:
        return [SlowLinks("slow-device", str(slow_device), slow_rate, usual_rate)]
    if len(slowest) > max(2, _MAX_SLOW_LINKS * len(rates)):
        return []
    pairs = dict.fromkeys((min(link), max(link)) for link in slowest)
    names = ", ".join(f"{a} and {b}" for a, b in pairs)
    return [SlowLinks("slow-links", names, slow_rate, usual_rate)]


def _find_one_way_links(rates: Mapping[Link, float]) -> list[SlowLinks]:
    """Return each link whose other direction is faster."""
    one_way_links = []
    for (a, b), rate in rates.items():
        opposite = rates.get((b, a), rate)
        if rate < _SLOW_SHARE * opposite:
            link = SlowLinks("one-way-link", f"{a} to {b}", rate, opposite)
            one_way_links.append(link)
    return one_way_links


def _list_slowest_links(rates: Mapping[Link, float]) -> list[Link]:
    """Return the links below the first large step between sorted rates."""
    ordered = sorted(rates, key=lambda link: rates[link])
    slowest = ordered[:1]
    for link in ordered[1:]:
        if rates[slowest[-1]] < _SLOW_SHARE * rates[link]:
            break
        slowest.append(link)
    return slowest


def _find_slow_device(slow: Sequence[Link], num_devices: int) -> int | None:
    """Return the device of which all links are slow, and no other link is."""
    shared_devices = set.intersection(*(set(link) for link in slow))
    has_all_links = len(slow) == 2 * (num_devices - 1)
    if len(shared_devices) == 1 and has_all_links and num_devices > 2:
        return shared_devices.pop()
    return None
