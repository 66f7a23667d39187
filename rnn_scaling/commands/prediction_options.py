"""The flags that `predict`, `whatif` and `simulate` share."""

from __future__ import annotations

import dataclasses
import functools
from pathlib import Path
from typing import TYPE_CHECKING

from rnn_scaling.config import flags
from rnn_scaling.config.flags import option
from rnn_scaling.system import entry

if TYPE_CHECKING:  # help and wrong flags do not wait for it
    from rnn_scaling.analysis.prediction.curves import Link

BITS = 8
LARGEST = 1_000_000  # devices
WORDS = {"half": 0.5, "quarter": 0.25, "none": 0.0}
MOST = 1e6  # times


def device_counts(text: str) -> tuple[int, ...]:
    """ "8,64" -> (8, 64), in rising order; a ValueError says what the text must be."""
    words = [word.strip() for word in text.split(",")]
    if not all(
        word.isdecimal() and len(word) <= 7 and 1 <= int(word) <= LARGEST
        for word in words
    ):
        raise ValueError(
            f"whole numbers from 1 to {LARGEST}, separated by commas, as 8,64,512"
        )
    return tuple(sorted({int(word) for word in words}))


@dataclasses.dataclass(frozen=True, kw_only=True)
class PredictionOptions:
    """Prediction."""

    num_devices: tuple[int, ...] = option(
        (),
        "numbers of devices (default: the largest measured number for whatif, twice as many for predict)",
        parse=device_counts,
        shown="N,...",
    )
    series: str = option("", "only series whose names contain this text (default: all)")
    links: Path | None = option(
        None,
        "links.json of ./run.sh links, for one machine (default: none)",
        shown="FILE",
    )
    link_gbit: float | None = option(
        None,
        "Gbit/s of the links between devices, or machines (default: unknown)",
        minimum=1e-6,
        maximum=1e9,
    )
    latency_us: float | None = option(
        None,
        "latency of a message on those links, in microseconds (default: 0)",
        minimum=0,
        maximum=1e9,
    )
    devices_per_machine: int | None = option(
        None,
        "devices that share the cores and memory of a machine (default: unknown)",
        minimum=1,
        maximum=LARGEST,
    )
    output: Path | None = option(
        None, "folder for the files (default: no files)", shown="DIR"
    )
    format: str = option("text", "what is printed", choices=("text", "json"))

    @property
    def stated_link(self) -> Link | None:
        """The link that the user states. Raises Refusal for a latency without a rate."""
        from rnn_scaling.analysis.prediction.curves import Link

        if self.link_gbit is not None:
            return Link(1e-6 * (self.latency_us or 0.0), 1e9 * self.link_gbit / BITS)
        if self.latency_us is not None:
            raise entry.Refusal(
                "--latency_us needs the rate of the same link; add --link_gbit=..."
            )
        return None


@dataclasses.dataclass(frozen=True, kw_only=True)
class PredictOptions(PredictionOptions):
    """Predict."""

    sources: tuple[Path, ...] = flags.positional(
        "folder of run records, or a file with tables; with --track_record, any folders (default then: results)",
        shown="SOURCE",
        several=True,
        default=(),
    )
    items: float | None = option(
        None,
        "amount of work, such as 1e9 words: adds its time and cost (default: none)",
        minimum=1,
        maximum=1e30,
    )
    machines: Path | None = option(
        None, "file of prices (default: machines.toml, if it exists)", shown="FILE"
    )
    machine: str = option(
        "", "the machine in --machines (default: the machine of the runs)", shown="NAME"
    )
    max_global_batch: int | None = option(
        None,
        "most samples of all devices in a step; more devices are left out (default: no limit)",
        minimum=1,
    )
    far: bool = option(
        False,
        "also predict more than 8 times the largest measured number of devices",
    )
    track_record: bool = option(
        False,
        "print how often predictions in these folders and their subfolders were right",
    )


def factor(text: str, least: float = 0.0) -> float:
    """ "2x", "half" or "0.5" -> the factor; a ValueError says what the text must be."""
    word = text.strip().lower()
    try:
        found = WORDS[word] if word in WORDS else float(word.removesuffix("x"))
    except ValueError:
        found = -1.0
    if not least <= found <= MOST:
        raise ValueError(
            f"a factor such as 2x, 0.5{' or half' if least else ', half or none'}"
        )
    return found


def _factor(help: str, least: float = 0.0) -> float | None:
    return option(
        None, help, parse=functools.partial(factor, least=least), shown="FACTOR"
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class WhatifOptions(PredictionOptions):
    """Whatif."""

    source: Path = flags.positional(
        "folder of run records, or a file with tables", shown="SOURCE"
    )
    batch_size: float | None = _factor(
        "samples of a step, by a factor (default: unchanged)", 1 / MOST
    )
    compute: float | None = _factor(
        "speed of a device, by a factor (default: unchanged)", 1 / MOST
    )
    exchange: float | None = _factor(
        "time of the exchange, by a factor or none (default: unchanged)"
    )
    jitter: float | None = _factor(
        "waiting for the slowest device, by a factor or none (default: unchanged)"
    )
    far: bool = option(
        False,
        "also predict more than 8 times the largest measured number of devices",
    )
