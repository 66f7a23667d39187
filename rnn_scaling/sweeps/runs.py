"""What a sweep needs of a run, and of the program that makes it: this suite's trainer or a command of the user's."""

import abc
import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar

from rnn_scaling.records.parts import RunError
from rnn_scaling.records.record import RunRecord
from rnn_scaling.sweeps.estimate import Estimator, Identity, Limit
from rnn_scaling.system.processes.process import Ended, OnLine


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
        """Unit of its items, in the plural."""

    @abc.abstractmethod
    def identity_of(self, config: Mapping[str, Any]) -> Identity:
        """The options of a record that distinguish such runs."""

    @property
    def identity(self) -> Identity:
        """What the `config` of its record must say."""
        return self.identity_of(self.options)


R = TypeVar("R", bound=AnyRun)


class Trainer(abc.ABC, Generic[R]):
    """Starts the processes of a sweep's runs and judges what they leave."""

    notes: Sequence[
        str
    ] = ()  # what a reader of the results should know, a sentence each

    @abc.abstractmethod
    def run(
        self,
        run: R,
        result_file: Path,
        limit: Limit,
        on_line: OnLine,
        following: tuple[R, Path] | None = None,
    ) -> Ended:
        """Makes a run; errors as in `process.run_together`. following: the next run; its process may start now."""

    def close(self) -> None:  # noqa: B027
        """Ends a process that has started and whose run is not made."""

    @abc.abstractmethod
    def shown(self, run: R, result_file: Path) -> str:
        """The command that a person would type for a run."""

    @abc.abstractmethod
    def result(
        self, run: R, result_file: Path, written: RunRecord | None, ended: Ended
    ) -> RunRecord | None:
        """The result of a run that wrote a record, or none that can be read; None: `reason` gives why."""

    @abc.abstractmethod
    def reason(self, run: R, ended: Ended, limit: Limit) -> RunError:
        """Why a run has no result."""

    @abc.abstractmethod
    def estimator(self) -> Estimator:
        """Estimates how long runs take, before any has ended."""

    @abc.abstractmethod
    def warnings(self, runs: Sequence[R], dry_run: bool) -> list[str]:
        """Warnings before the runs start."""
