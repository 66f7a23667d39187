"""One run of a sweep, and the interface of the trainers that make runs.

`suite_trainer` and `program_trainer` implement `Trainer`; `conduct` calls it.
"""

import abc
import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar

from rnn_scaling.records.parts import RunError
from rnn_scaling.records.record import RunRecord
from rnn_scaling.sweeps.command_lines import CommandLine
from rnn_scaling.sweeps.estimate import Estimator, Identity, Limit
from rnn_scaling.system.processes.process import OnLine, ProcessOutcome


@dataclasses.dataclass(frozen=True)
class AnyRun(abc.ABC):
    """One run of one configuration."""

    name: str
    repeat: int = dataclasses.field(default=1, kw_only=True)

    @property
    def label(self) -> str:
        """The name of the run and of its file, which also ends with ".json".

        The first repeat has the plain name, so that more repeats rename nothing.
        """
        if self.repeat == 1:
            return self.name
        return f"{self.name}.r{self.repeat}"

    @property
    @abc.abstractmethod
    def options(self) -> dict[str, Any]:
        """The options by name, with the values that the record holds."""

    @property
    @abc.abstractmethod
    def unit(self) -> str:
        """The unit of its items, in the plural."""

    @abc.abstractmethod
    def identify(self, config: Mapping[str, Any]) -> Identity:
        """Return the options of a record that distinguish runs of this kind."""

    @property
    def identity(self) -> Identity:
        """The options that the record of this run must have."""
        return self.identify(self.options)


R = TypeVar("R", bound=AnyRun)


class Trainer(abc.ABC, Generic[R]):
    """Starts the processes of a sweep's runs and judges their results."""

    # Sentences that a reader of the results needs.
    notes: Sequence[str] = ()

    @abc.abstractmethod
    def build_command(self, run: R, result_file: Path) -> CommandLine:
        """Return the command line of a run."""

    @abc.abstractmethod
    def run(
        self,
        run: R,
        result_file: Path,
        limit: Limit,
        on_line: OnLine,
        following: tuple[R, Path] | None = None,
    ) -> ProcessOutcome:
        """Make a run.

        Args:
          run: The run.
          result_file: The file of its record.
          limit: The time limit of the run.
          on_line: Called with each line of output, and with None if only time has
            passed.
          following: The next run and its file; its process may start now.
        """

    def close(self) -> None:  # noqa: B027
        """End a process that has started early and whose run is not made."""

    @abc.abstractmethod
    def judge(
        self,
        run: R,
        result_file: Path,
        written: RunRecord | None,
        outcome: ProcessOutcome,
    ) -> RunRecord | None:
        """Return the result of a run.

        Args:
          run: The run.
          result_file: The file of its record.
          written: The record in this file; None if it cannot be read.
          outcome: How the processes of the run ended.

        Returns:
          The record, or None; then `explain` has the reason.
        """

    @abc.abstractmethod
    def explain(self, run: R, outcome: ProcessOutcome, limit: Limit) -> RunError:
        """Return the error of a run without a result."""

    @abc.abstractmethod
    def make_estimator(self) -> Estimator:
        """Return an estimator of durations that has not learned from any run."""

    @abc.abstractmethod
    def list_warnings(self, runs: Sequence[R], dry_run: bool) -> list[str]:
        """Return the warnings to print before these runs start."""
