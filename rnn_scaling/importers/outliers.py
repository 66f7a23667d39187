"""Numbers far below their brothers: runs and links that were slow where the others were not. Pure."""

import statistics
from collections.abc import Mapping, Sequence

LEAST = 4  # numbers below which none can stand out
SHARE = 0.8  # of the middle: what runs at more is not called slow
SCATTERS = 5.0  # scatters below the middle, the scatter by the median of the deviations: the slow ones do not widen it
_TO_DEVIATION = (
    1.4826  # of a normal distribution: standard deviation / median of the deviations
)
SLOWER = 0.8  # of the other direction or of the next kind of links, below which a link is called slow
FEW = 0.1  # share of all links, or two, up to which those of one kind stand alone

Link = tuple[int, int]


def middle(values: Sequence[float]) -> float:
    """The median; 0 of nothing."""
    return statistics.median(values) if values else 0.0


def slow(values: Sequence[float]) -> list[int]:
    """Indices of the values, larger being better, below SHARE of the median and SCATTERS scatters; none of too few."""
    if len(values) < LEAST:
        return []
    centre = statistics.median(values)
    scatter = _TO_DEVIATION * statistics.median(abs(value - centre) for value in values)
    limit = min(SHARE * centre, centre - SCATTERS * scatter)
    return [i for i, value in enumerate(values) if value < limit]


def slow_links(rates: Mapping[Link, float]) -> list[tuple[str, float, str, float]]:
    """(which links, their rate, the others in words, the rate of those) of each that stands out.

    `rates` are of the links between different devices, larger is better. Machines have links of several kinds (NVLink,
    PCIe, another socket): one is slow if its other direction is faster, or if it stands alone below links of one kind.
    """
    one_way = [
        (link, rate)
        for link, rate in rates.items()
        if rate < SLOWER * rates.get((link[1], link[0]), rate)
    ]
    if one_way:
        return [
            (f"the link {a} to {b} is", rate, f"{b} to {a}", rates[b, a])
            for (a, b), rate in one_way
        ]
    kinds = _kinds(rates)
    if len(kinds) < 2:
        return []
    slowest, others = kinds[0], [link for kind in kinds[1:] for link in kind]
    slow, usual = (
        statistics.median(rates[link] for link in links) for links in (slowest, others)
    )
    if slow >= SLOWER * usual:
        return []
    shared = set.intersection(*(set(link) for link in slowest))
    devices = {device for link in rates for device in link}
    if len(shared) == 1 and len(slowest) == 2 * (len(devices) - 1) and len(devices) > 2:
        return [(f"all links of device {shared.pop()} are", slow, "the others", usual)]
    if len(slowest) > max(2, FEW * len(rates)):
        return []
    pairs = dict.fromkeys(tuple(sorted(link)) for link in slowest)
    named = ", ".join(f"{a} and {b}" for a, b in pairs)
    subject = (
        f"the links between {named} are"
        if len(pairs) > 1
        else f"the link between {named} is"
    )
    return [(subject, slow, "the others", usual)]


def _kinds(rates: Mapping[Link, float]) -> list[list[Link]]:
    """The links in groups of about one rate, slowest first: a gap of more than SLOWER parts them."""
    ordered = sorted(rates, key=lambda link: rates[link])
    kinds: list[list[Link]] = []
    for link in ordered:
        if kinds and rates[kinds[-1][-1]] >= SLOWER * rates[link]:
            kinds[-1].append(link)
        else:
            kinds.append([link])
    return kinds
