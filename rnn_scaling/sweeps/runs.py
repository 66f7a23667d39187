"""What a sweep needs of a run and of the program that makes it, whoever's trainer that is.

ours: plan.Run, our_trainer.OurTrainer; a command of the user's own: any_trainer.TheirRun, their_trainer.TheirTrainer
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from rnn_scaling.processes.process import Ended, OnLine
from rnn_scaling.records.parts import RunError
from rnn_scaling.records.record import RunRecord
from rnn_scaling.sweeps.estimate import Estimator, Identity
from rnn_scaling.sweeps.limit import Limit


@dataclasses.dataclass(frozen=True)
class AnyRun(abc.ABC):
    """One run of one configuration, and which repeat it is."""

    name: str
    repeat: int = dataclasses.field(default=1, kw_only=True)

    @property
    def label(self) -> str:
        """Name of the run and of its file without ".json"; the first repeat has the plain name."""
        return self.name if self.repeat == 1 else f"{self.name}.r{self.repeat}"

    @property
    @abc.abstractmethod
    def options(self) -> dict[str, Any]:
        """Option name -> value, as the `config` of its record holds them."""

    @property
    @abc.abstractmethod
    def unit(self) -> str:
        """What it counts, in the plural."""

    @abc.abstractmethod
    def identity_of(self, config: Mapping[str, Any]) -> Identity:
        """What a record says of the options by which such runs are told apart."""

    @property
    def identity(self) -> Identity:
        """What the `config` of its record must say."""
        return self.identity_of(self.options)


class Trainer(Protocol):
    """What makes the runs of a sweep: starts their processes and says what these have left."""

    @abc.abstractmethod
    def run(self, run: AnyRun, result_file: Path, limit: Limit, on_line: OnLine) -> Ended:
        """Makes a run; errors as in `process.run_together`.

        Args:
          on_line: gets each line that it writes, and None while it is silent.
        """

    @abc.abstractmethod
    def shown(self, run: AnyRun, result_file: Path) -> str:
        """The command that a person would type for a run; arguments as in `run`."""

    @abc.abstractmethod
    def result(self, run: AnyRun, result_file: Path, written: RunRecord | None, ended: Ended) -> RunRecord | None:
        """What became of a run; None: it has left no result, and how it ended says why.

        Args:
          written: the record that it wrote there; None: none that can be read.
        """

    @abc.abstractmethod
    def reason(self, run: AnyRun, ended: Ended, limit: Limit) -> RunError:
        """Why a run has no result."""

    @abc.abstractmethod
    def estimator(self) -> Estimator:
        """What is known of how long its runs take, before any has ended."""

    @abc.abstractmethod
    def forewarnings(self, runs: Sequence[AnyRun], dry_run: bool) -> list[str]:
        """What to warn of before runs."""

    def remarks(self, runs: Sequence[AnyRun]) -> list[str]:
        """What a dry run says below its table, a line each."""
        return []

    @property
    def notes(self) -> list[str]:
        """What is to be known of the numbers of the runs that it has made, a sentence each."""
        return []
