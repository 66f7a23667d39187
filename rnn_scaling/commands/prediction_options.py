"""The flags of `predict`: the question, known facts, and assumptions of a simulation.

Several modules of `predict` read these flags, so they have a separate module.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

from rnn_scaling.config import flags
from rnn_scaling.config.flags import option
from rnn_scaling.system import entry

if TYPE_CHECKING:  # Help and wrong flags do not wait for numpy.
    from rnn_scaling.analysis.prediction.curves import Link

BITS = 8  # bits of a byte
_MAX_DEVICES = 1_000_000
_FACTOR_WORDS = {"half": 0.5, "quarter": 0.25, "none": 0.0}
_MAX_FACTOR = 1e6
_MAX_AMOUNT = 1e9  # Gbit/s, microseconds, milliseconds or MB
_STANDARD = "true"  # the value of a bare --what_if
# The smallest value of each change.
_MIN_AMOUNTS = {
    "batch_size": 1 / _MAX_FACTOR,
    "compute": 1 / _MAX_FACTOR,
    "exchange": 0.0,
    "jitter": 0.0,
    "link_gbit": 1e-6,
    "latency_us": 0.0,
}
_LINK_CHANGES = ("link_gbit", "latency_us")


def _parse_device_counts(text: str) -> tuple[int, ...]:
    """Parse "8,64" as (8, 64), in rising order.

    Raises:
      ValueError: If a number is wrong. The message completes "must be", like every
        message of a flag's parser.
    """
    counts = set()
    for word in text.split(","):
        digits = word.strip()
        is_short = digits.isdecimal() and len(digits) <= len(str(_MAX_DEVICES))
        if not is_short or not 1 <= int(digits) <= _MAX_DEVICES:
            raise ValueError(
                f"whole numbers from 1 to {_MAX_DEVICES}, separated by commas, such as "
                "8,64,512"
            )
        counts.add(int(digits))
    return tuple(sorted(counts))


def parse_changes(text: str) -> tuple[tuple[str, float], ...]:
    """Parse "batch_size=2x,exchange=half" as pairs of name and number.

    A bare --what_if has no pairs, because it asks for the standard changes.
    """
    amounts: dict[str, float] = {}
    for part in text.split(",") if text != _STANDARD else ():
        name, _, value = part.strip().partition("=")
        if name not in _MIN_AMOUNTS or name in amounts:
            names = ", ".join(_MIN_AMOUNTS)
            raise ValueError(
                f"NAME=VALUE,... with each name at most once; the names are {names}"
            )
        amounts[name] = _parse_amount(name, value)
    if "latency_us" in amounts and "link_gbit" not in amounts:
        raise ValueError(
            "given together with the rate of the link: link_gbit=...,latency_us=..."
        )
    return tuple(amounts.items())


def _parse_amount(name: str, text: str) -> float:
    """Parse the value of a change: "2x", "half", "0.5", or the number of a link."""
    is_link = name in _LINK_CHANGES
    word = text.strip().lower()
    try:
        if word in _FACTOR_WORDS and not is_link:
            amount = _FACTOR_WORDS[word]
        else:
            amount = float(word if is_link else word.removesuffix("x"))
    except ValueError:
        amount = -1.0
    minimum = _MIN_AMOUNTS[name]
    maximum = _MAX_AMOUNT if is_link else _MAX_FACTOR
    if minimum <= amount <= maximum:
        return amount
    rule = "a number" if is_link else "a factor such as 2x, 0.5 or half"
    if not minimum:
        rule += ", or 0" if is_link else ", or none"
    raise ValueError(f"a list in which {name} is {rule}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class PredictionOptions:
    """Predict."""

    sources: tuple[Path, ...] = flags.declare_positional(
        "folder of run records, or a file with tables; with --track_record, any "
        "folders (default then: results)",
        shown="SOURCE",
        is_list=True,
        default=(),
    )
    num_devices: tuple[int, ...] = option(
        (),
        "numbers of devices to predict (default: twice the largest measured "
        "number; with --what_if, the largest measured number)",
        parse=_parse_device_counts,
        shown="N,...",
    )
    series: str = option(
        "", "predict only series whose names contain this text (default: all)"
    )
    what_if: tuple[tuple[str, float], ...] | None = option(
        None,
        "show the effect of changes. batch_size, compute, exchange and jitter take a "
        "factor (2x, half, none); link_gbit and latency_us describe a new link. "
        "Without a value: no exchange, no jitter, and twice the batch size, device "
        "speed or link speed (default: not shown)",
        parse=parse_changes,
        shown="CHANGE=VALUE,...",
        bare=True,
    )
    simulate: bool = option(
        False,
        "simulate every step of every device, instead of predicting from the "
        "measured rates",
        bare=True,
    )
    track_record: bool = option(
        False,
        "print how often the predictions in these folders and their "
        "subfolders were right",
    )
    links: Path | None = option(
        None,
        "file links.json of ./run.sh links, which has the speed of the links "
        "inside a machine (default: none)",
        shown="FILE",
    )
    link_gbit: float | None = option(
        None,
        "speed of the links between devices or between machines, in Gbit/s "
        "(default: unknown)",
        minimum=1e-6,
        maximum=_MAX_AMOUNT,
    )
    latency_us: float | None = option(
        None,
        "latency of a message on those links, in microseconds (default: 0)",
        minimum=0,
        maximum=_MAX_AMOUNT,
    )
    devices_per_machine: int | None = option(
        None,
        "number of devices in a machine, which share its cores and memory "
        "(default: unknown)",
        minimum=1,
        maximum=_MAX_DEVICES,
    )
    items: float | None = option(
        None,
        "number of items to train on, such as 1e9 words; the hours and the "
        "cost are then shown (default: not shown)",
        minimum=1,
        maximum=1e30,
    )
    machines: Path | None = option(
        None, "file of prices (default: machines.toml, if it exists)", shown="FILE"
    )
    machine: str = option(
        "",
        "name of the machine in --machines (default: the machine of the runs)",
        shown="NAME",
    )
    max_global_batch: int | None = option(
        None,
        "maximum number of samples per step on all devices; device counts that need "
        "more are left out (default: no limit)",
        minimum=1,
    )
    far: bool = option(
        False,
        "also predict more than 8 times the largest measured number of "
        "devices; about half of these intervals miss the rate",
    )
    output: Path | None = option(
        None,
        "folder for the result as JSON, HTML and PNG (default: no files)",
        shown="DIR",
    )
    format: str = option(
        "text",
        "output format: text for reading, json for programs",
        choices=("text", "json"),
    )

    @property
    def source(self) -> Path:
        """The folder or file of a question about one."""
        return self.sources[0]

    @property
    def stated_link(self) -> Link | None:
        """The link that the user states, or None.

        Raises:
          Refusal: For a latency without a rate.
        """
        if self.link_gbit is not None:
            return make_link(self.link_gbit, self.latency_us or 0.0)
        if self.latency_us is not None:
            raise entry.Refusal(
                "--latency_us needs the rate of the same link; add --link_gbit=..."
            )
        return None


def make_link(gbit: float, latency_us: float) -> Link:
    """Return a link of this rate and latency."""
    from rnn_scaling.analysis.prediction.curves import Link

    return Link(1e-6 * latency_us, 1e9 * gbit / BITS)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SimulationOptions:
    """Simulation: the assumptions of --simulate."""

    steps: int = option(
        1000, "number of simulated steps per run", minimum=20, maximum=1_000_000
    )
    seed: int = option(1, "seed of the random numbers", minimum=0, maximum=2**32)
    step_ms: float | None = option(
        None,
        "step time of one device in ms, instead of a folder (default: as recorded)",
        minimum=1e-6,
        maximum=_MAX_AMOUNT,
    )
    exchange_mb: float | None = option(
        None,
        "MB of gradients that devices sum per step (default: as recorded)",
        minimum=0,
        maximum=_MAX_AMOUNT,
    )
    algorithm: str = option(
        "",
        "algorithm by which gradients are exchanged (default: as recorded, else ring)",
        choices=("ring", "tree", "hierarchical", "parameter_server", "none"),
    )
    servers: int | None = option(
        None,
        "number of parameter servers on separate nodes (default: as recorded, "
        "else one of the devices is the server)",
        minimum=1,
        maximum=_MAX_DEVICES,
    )
    exchange_every: int = option(
        1,
        "number of steps between two exchanges; more than 1 is local SGD",
        minimum=1,
        maximum=1_000_000,
    )
    fabric_gbit: float | None = option(
        None,
        "speed of a machine's link to the other machines, in Gbit/s; "
        "--link_gbit then applies to links inside a machine (default: none)",
        minimum=1e-6,
        maximum=_MAX_AMOUNT,
    )
    jitter: float | None = option(
        None,
        "standard deviation of step times as a share of their mean (default: "
        "from the measured step times)",
        parse=flags.share,
        shown="SHARE",
    )
    stragglers: float = option(
        0.0,
        "share of the devices that compute more slowly",
        parse=flags.share,
        shown="SHARE",
    )
    straggler_factor: float = option(
        1.5,
        "how many times as long slow devices compute, such as 1.5",
        minimum=1,
        maximum=1e6,
    )
    link_failures: float = option(
        0.0,
        "share of the links that fail per exchange",
        parse=flags.share,
        shown="SHARE",
    )
    failure_s: float = option(
        1.0, "time that a failed link is down, in seconds", minimum=0, maximum=1e6
    )
