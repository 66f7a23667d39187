"""The command line of netlab: its own flags, and behind -- those of the trainer."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from rnn_scaling.models.config import option
from rnn_scaling.settings import conflicts, flags
from rnn_scaling.settings.config import RunConfig
from rnn_scaling.sweeps import ranks
from rnn_scaling.sweeps.netlab.link import Link, parse_delay, parse_rate


@dataclasses.dataclass(frozen=True)
class NetlabOptions:
    """Network."""

    workers: int | None = option(
        None,
        f"workers, each in a network namespace of its own (default: what --num_workers says, else "
        f"{ranks.DEFAULT_WORKERS})",
        minimum=1,
        maximum=200,
    )
    ps: int | None = option(
        None,
        "parameter servers, each in a namespace of its own, in modes that have such (default: what --num_ps says, "
        "else 1)",
        minimum=1,
        maximum=40,
    )
    rate: float = option(
        1e9, "of every node's link, in both directions (default: 1gbit)", parse=parse_rate, shown="200mbit"
    )
    delay: float = option(
        0.0,
        "from any node to any other, one way; up to about 200 Mbit/s, and with the package vde2 (default: 0)",
        parse=parse_delay,
        shown="5ms",
    )


@dataclasses.dataclass(frozen=True)
class Wanted:
    """What one command line asks for.

    Attributes:
      link: of each node.
      config: of the run.
      words: flags of the trainer, the same for every rank.
    """

    link: Link
    config: RunConfig
    words: tuple[str, ...]

    @property
    def cores(self) -> int:
        """That the workers keep busy; none on GPUs."""
        devices = self.config.devices
        return self.config.num_towers * devices.cpu_cores_per_device if devices.device == "cpu" else 0


def read(words: Sequence[str], of_trainer: Sequence[str]) -> Wanted:
    """What the command line asks for.

    Raises:
      FlagErrors: naming everything that is wrong.
    """
    own, lines = ranks.own_options(words, NetlabOptions)
    flags_of_all, config = ranks.checked(of_trainer, {"workers": own.workers, "ps": own.ps}, lines)
    if lost := conflicts.keeps_trace(config):
        raise flags.FlagErrors([lost])
    return Wanted(Link(own.rate, own.delay), config, tuple(flags_of_all))
