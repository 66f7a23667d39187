"""Compute how long an exchange between n devices takes, as a sum over its messages.

Letters: n devices; S bytes that are summed over all devices; g bytes that each device
sends to every other one.
Assumptions: a device can send and receive at the same time; the devices of a machine
share its link to other machines.

Sources: Thakur, Rabenseifner, Gropp, "Optimization of Collective Communication
Operations in MPICH", IJHPCA 19(1), 2005, doi:10.1177/1094342005051521 (trees,
all-gathers); Patarasuk, Yuan, "Bandwidth optimal all-reduce algorithms for clusters of
workstations", JPDC 69(2), 2009, doi:10.1016/j.jpdc.2008.09.002 (rings); Li et al.,
"Scaling Distributed Machine Learning with the Parameter Server", OSDI 2014 (servers).
"""

import math
from collections.abc import Sequence

from rnn_scaling.analysis.prediction.curves import Link


def exchange_s(
    algorithm: str,
    devices: int,
    summed_bytes: float,
    gathered_bytes: float,
    links: Sequence[Link],
) -> float:
    """Return the seconds of the exchange of one step, without any overlap.

    Args:
      algorithm: One of curves.ALGORITHMS:
        "ring" sends S/n bytes 2(n-1) times over every link, as fast as the slowest one;
        "tree" sums S bytes level by level, and sends the sum back;
        "hierarchical" is a ring inside each group, and a ring between the groups;
        "parameter_server" sums on the first device;
        "none" exchanges nothing.
      devices: The number of devices, n.
      summed_bytes: The size of the summed gradients, S.
      gathered_bytes: The size of the gathered gradients, g. They go around a ring, or
        to the parameter server and back.
      links: The innermost link first; the last one joins any number of devices.
    """
    levels = add_groups_to_links(devices, links)
    if not levels or algorithm == "none":
        return 0.0
    if algorithm == "parameter_server":
        return _compute_parameter_server_s(
            levels, devices, summed_bytes + gathered_bytes
        )
    seconds = 0.0
    if gathered_bytes:
        seconds += (devices - 1) * _compute_slowest_message_s(levels, gathered_bytes)
    if not summed_bytes:
        return seconds
    if algorithm == "ring":
        message_s = _compute_slowest_message_s(levels, summed_bytes / devices)
        return seconds + 2 * (devices - 1) * message_s
    # Each level sums over its groups, and later sends the sums back.
    for link, groups in levels:
        if algorithm == "tree":
            num_messages = math.ceil(math.log2(groups))
            num_bytes = summed_bytes
        else:
            num_messages = groups - 1
            num_bytes = summed_bytes / groups
        seconds += 2 * num_messages * link.message_s(num_bytes)
    return seconds


def _compute_slowest_message_s(
    levels: Sequence[tuple[Link, int]], num_bytes: float
) -> float:
    """Return the seconds of a message over the slowest link."""
    return max(link.message_s(num_bytes) for link, _ in levels)


def add_groups_to_links(devices: int, links: Sequence[Link]) -> list[tuple[Link, int]]:
    """Return the links that n devices use, each with the number of groups that it joins.

    The innermost link is first: for 16 devices in machines of 8, the inner link joins 8
    devices, and the outer one 2 machines.
    """
    levels = []
    groups = devices
    group_size = 1
    for position, link in enumerate(links):
        joined = groups
        is_last = position == len(links) - 1
        if link.devices and not is_last:
            joined = min(groups, max(1, link.devices // group_size))
        if joined > 1:
            levels.append((link, joined))
        groups = math.ceil(groups / joined)
        group_size *= joined
    return levels


def _compute_parameter_server_s(
    levels: Sequence[tuple[Link, int]], devices: int, num_bytes: float
) -> float:
    """Return the seconds in which all devices send to the first one, and it answers.

    All links work at the same time, so the slowest one determines the time.
    """
    longest = 0.0
    group_size = 1
    for link, groups in levels:
        num_joined = min(devices, group_size * groups)
        longest = max(longest, link.message_s((num_joined - group_size) * num_bytes))
        group_size = num_joined
    return 2 * longest
