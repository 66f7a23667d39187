"""A link on paper: what --rate and --delay say, and what tc's token bucket gets for it. Pure."""

from __future__ import annotations

import dataclasses
import re

# Bits a second, powers of 1000 as networks count. tc's "mbps" are megabytes: nobody means them, so they are refused.
RATE_UNITS = {"kbit": 1e3, "mbit": 1e6, "gbit": 1e9}
DELAY_UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0}
RATE_RULE = "a number and kbit, mbit or gbit, from 100kbit to 100gbit, such as 200mbit (bits a second)"
DELAY_RULE = "a number and us, ms or s, up to 1s, such as 5ms (one way)"
SLOWEST, FASTEST = 1e5, 1e11  # bits a second
LONGEST_DELAY_S = 1.0
# What may pass at once: at 1 Gbit/s less than 1 MB loses rate to the clock that refills the bucket, and one packet of
# 64 KiB, as TCP hands them to the kernel, must fit.
BURST_S, LEAST_BURST_BYTES = 0.008, 66_000
QUEUE_S = 0.05  # of data that waits before packets are lost: the buffer of a switch


@dataclasses.dataclass(frozen=True)
class Link:
    """Every node's link to the switch, the same in both directions.

    Attributes:
      bits_per_s: that the token bucket lets through, headers of Ethernet included.
      delay_s: one way, between any two nodes.
    """

    bits_per_s: float
    delay_s: float = 0.0

    @property
    def burst_bytes(self) -> int:
        """Size of the bucket."""
        return max(LEAST_BURST_BYTES, round(self.bits_per_s / 8 * BURST_S))

    @property
    def queue_bytes(self) -> int:
        """What waits in front of it at most."""
        return self.burst_bytes + round(self.bits_per_s / 8 * QUEUE_S)


def parse_rate(text: str) -> float:
    """ "200mbit" -> 2e8 bits a second.

    Raises:
      ValueError: saying what the text must be.
    """
    rate = _parse(text, RATE_UNITS, "/s")
    if rate is None or not SLOWEST <= rate <= FASTEST:
        raise ValueError(RATE_RULE)
    return rate


def parse_delay(text: str) -> float:
    """ "5ms" -> 0.005 s; "0" -> 0.

    Raises:
      ValueError: saying what the text must be.
    """
    delay = 0.0 if text.strip() == "0" else _parse(text, DELAY_UNITS)
    if delay is None or delay > LONGEST_DELAY_S:
        raise ValueError(DELAY_RULE)
    return delay


def in_words(bits_per_s: float) -> str:
    """A rate for people.

    >>> in_words(2e8), in_words(9.417e8), in_words(1e9)
    ('200 Mbit/s', '942 Mbit/s', '1000 Mbit/s')
    """
    megabits = bits_per_s / 1e6
    return f"{megabits:.0f} Mbit/s" if megabits >= 100 else f"{megabits:.3g} Mbit/s"


def _parse(text: str, units: dict[str, float], ending: str = "") -> float | None:
    match = re.fullmatch(rf"(\d{{1,12}}(?:\.\d{{1,12}})?) ?({'|'.join(units)})(?:{ending})?", text.strip().lower())
    return float(match[1]) * units[match[2]] if match else None
