"""How the output of a trainer that writes no record is read: --log_format, and what a log can tell. Pure."""

import dataclasses
import re
from collections.abc import Sequence
from typing import NamedTuple

from rnn_scaling.config import registry
from rnn_scaling.importers import printed_numbers
from rnn_scaling.importers.rank_tags import Ranks
from rnn_scaling.records.parts import LogFinding, PrintedOutput

AUTO, REGEX, WALL = "auto", "regex:", "wall"
GROUPS = ("rate", "items", "seconds", "ms", "step", "total", "loss")
ARRIVAL, PROCESS = "arrival", "process"  # our clocks


class NoMatch(ValueError):
    """No line of a log matches a pattern."""


@dataclasses.dataclass(frozen=True)
class LogReading:
    format: str
    rate: float  # items/s after the warm-up
    unit: str = ""  # "" where it is not told
    # Of each batch, or stretch of batches, from the first, as items and loss; empty where only the rate is told.
    seconds: tuple[float, ...] = ()
    items: tuple[int | float, ...] = ()
    loss: tuple[float | None, ...] = ()
    warmup: int = 0  # how many of these no rate counts
    devices: int | None = None  # None where they are not told
    batch_size: int | None = None  # of a device; None where it is not told
    # By what share of itself the rate may be off for the digits that were printed, or by the clock.
    rounding: float = 0.0
    # "" where the program printed its rate or seconds, else ours: ARRIVAL of its lines, or its whole PROCESS.
    clock: str = ""
    # What was seen of the lines that a pattern reads; None for other formats.
    output: PrintedOutput | None = None
    notes: tuple[str, ...] = ()  # what the numbers mean, a sentence each
    findings: tuple[LogFinding, ...] = ()  # what else the rate may be


class Timing(NamedTuple):
    arrivals: Sequence[
        float
    ] = ()  # when each line of the log came, in seconds, empty: not known
    seconds: float = 0.0  # of the whole run
    launch_s: float = 0.0  # how many of these a program that does nothing takes


@dataclasses.dataclass(frozen=True)
class Terms:
    formats: str = AUTO  # the value of --log_format
    # Matches of a pattern at the start that no rate counts; None: those of the start-up.
    warmup: int | None = None
    items_per_step: float | None = None  # where a log tells steps alone, else None
    num_devices: int = 1  # of the run, of which no rank is more
    items: float | None = None  # of the whole run, with WALL
    unit: str = ""  # the value of --unit; "" if it is not set
    timing: Timing = Timing()  # by the sweep
    # Which ranks count if several print; None: as the format does.
    ranks: Ranks | None = None


class Seen(NamedTuple):
    """How far a run is. total: steps, None: not known; rate: items/s, None: not known."""

    step: int
    total: int | None
    rate: float | None


def names() -> list[str]:
    """The formats of logs that tell the rate of a training run."""
    return [name for name, row in registry.IMPORTERS.items() if row.tells_rates]


def checked(text: str) -> str:
    """The value of --log_format with the formats' whole names. Raises ValueError, saying what the text must be."""
    formats, pattern = split(text)
    whole = [_whole(name) for name in formats]
    if WALL in whole and (len(whole) > 1 or pattern):
        raise ValueError(f"{WALL} alone: it reads no output")
    if pattern:
        _check(pattern)
        whole.append(REGEX + pattern)
    return ",".join(whole)


def split(text: str) -> tuple[list[str], str]:
    """(the formats, the regular expression): the latter is the last of the list, since it may hold commas."""
    before, is_there, pattern = text.partition(REGEX)
    formats = [name for name in before.split(",") if name]
    return formats, pattern if is_there else ""


def _whole(name: str) -> str:
    """A format by its name or a beginning of it."""
    known = [AUTO, *names(), WALL]
    meant = [choice for choice in known if choice == name] or [
        choice for choice in known if choice.startswith(name)
    ]
    if len(meant) != 1:
        raise ValueError(
            f"of {', '.join(known)} or {REGEX}PATTERN, the pattern being the last"
        )
    return meant[0]


def _check(pattern: str) -> None:
    try:
        groups = printed_numbers.compiled(pattern).groupindex.keys()
    except re.error as e:
        raise ValueError(
            f"a regular expression behind {REGEX}, and it is not: {e}"
        ) from None
    if unknown := groups - set(GROUPS):
        raise ValueError(
            f"of the groups {', '.join(GROUPS)}, and has {', '.join(sorted(unknown))}"
        )
    if "items" in groups and not groups & {"seconds", "ms"}:
        raise ValueError(
            "a pattern with (?P<seconds>...) or (?P<ms>...) next to (?P<items>...)"
        )


def lacks_items(text: str) -> bool:
    """Whether what a --log_format reads tells steps or seconds alone, so that items have to be told."""
    formats, pattern = split(text)
    groups = printed_numbers.compiled(pattern).groupindex.keys()
    has_bar = any(
        name in registry.IMPORTERS and registry.IMPORTERS[name].counts_steps
        for name in formats
    )
    return has_bar or (bool(pattern) and "rate" not in groups and "items" not in groups)
