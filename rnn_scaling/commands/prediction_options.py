"""The flags that `predict`, `whatif` and `simulate` share."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

from rnn_scaling import entry
from rnn_scaling.models.config import option

if TYPE_CHECKING:  # help and wrong flags do not wait for it
    from rnn_scaling.analysis.prediction.curves import Link

BITS = 8
LARGEST = 1_000_000  # devices


def device_counts(text: str) -> tuple[int, ...]:
    """ "8,64" -> (8, 64), in rising order; a ValueError says what the text must be."""
    words = [word.strip() for word in text.split(",")]
    if not all(word.isdecimal() and len(word) <= 7 and 1 <= int(word) <= LARGEST for word in words):
        raise ValueError(f"whole numbers from 1 to {LARGEST}, separated by commas, as 8,64,512")
    return tuple(sorted({int(word) for word in words}))


def _checked(text: str) -> str:
    device_counts(text)
    return text


@dataclasses.dataclass(frozen=True, kw_only=True)
class PredictionOptions:
    """Prediction."""

    num_devices: str = option("", "predict for these numbers of devices", parse=_checked, shown="N,...")
    series: str = option("", "only series whose names contain this text (default: all)")
    links: Path | None = option(None, "links.json of ./run.sh links: measured links of one machine", shown="FILE")
    link_gbit: float | None = option(
        None, "rate of the links between devices, or between machines, in Gbit/s", minimum=1e-6, maximum=1e9
    )
    latency_us: float | None = option(
        None, "latency of a message on those links, in microseconds (default: 0)", minimum=0, maximum=1e9
    )
    devices_per_machine: int | None = option(
        None,
        "devices that share a machine's cores and memory; others are reached by links between machines",
        minimum=1,
        maximum=LARGEST,
    )
    output: Path | None = option(None, "folder for the files (default: no files)", shown="DIR")
    format: str = option("text", "what is printed", choices=("text", "json"))

    @property
    def devices(self) -> tuple[int, ...]:
        """The numbers of devices in rising order; empty if the flag is not given."""
        return device_counts(self.num_devices) if self.num_devices else ()

    @property
    def stated_link(self) -> Link | None:
        """The link that the user states. Raises Refusal for a latency without a rate."""
        from rnn_scaling.analysis.prediction.curves import Link

        if self.link_gbit is not None:
            return Link(1e-6 * (self.latency_us or 0.0), 1e9 * self.link_gbit / BITS)
        if self.latency_us is not None:
            raise entry.Refusal("--latency_us needs the rate of the same link; add --link_gbit=...")
        return None
