"""The interface of a run's observers: progress, checkpoints, files, inspection.

Commands create the observers; `benchmark` and `run` send them the events. An observer
may read the run, but must not change it. A new output of a run is a new observer.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rnn_scaling.analysis.statements import Statement
    from rnn_scaling.config.run_config import RunConfig
    from rnn_scaling.records.record import RunRecord
    from rnn_scaling.training.state import RunState


class OutputError(Exception):
    """An output of the run cannot be written.

    Attributes:
      flag: The flag that asks for the output, with its value.
      reason: Why it cannot be written, without the flag.
      content: The kind of output, such as "record"; "folder" for several files.
    """

    def __init__(self, flag: str, reason: str, content: str) -> None:
        super().__init__(f"{flag}: {reason}")
        self.flag = flag
        self.reason = reason
        self.content = content

    @property
    def message_of_new_output(self) -> str:
        """The error if nothing was written to this output before."""
        if self.content == "folder":
            return f"{self}; name another folder"
        return f"{self}; the {self.content} was not written"


@dataclasses.dataclass(frozen=True)
class RunView:
    """The parts of a run that its observers may read.

    Attributes:
      config: The options.
      state: The facts of the run so far.
      step: The `TrainStep` that runs; any object in tests.
      engine: The devices and processes, or None in tests.
      max_batches: Batches of the run at most, with the warm-up; 0 if unknown.
      rank: This process's number among the processes of the run.
    """

    config: RunConfig
    state: RunState
    step: Any
    engine: Any
    max_batches: int
    rank: int


@dataclasses.dataclass(frozen=True)
class Batch:
    """One batch that has ended on all devices of this process.

    Attributes:
      number: The number of the batch, from 0, with the warm-up.
      seconds: Wall time of the batch.
      items: Items of all towers of this process.
      loss: Mean training loss of the batch.
      result: The `StepResult` of the batch.
    """

    number: int
    seconds: float
    items: int
    loss: float
    result: Any


class Observer:
    """Follows a run. A subclass overrides the events that it needs.

    The working thread of the run (`training.run`) sends all events but `save` and
    `notice`, which also come from the main thread; `save` never comes from both at
    once.

    The order is: `begin`, `end_batch` for each batch, `end_measuring`, `end`, `finish`.
    After an error or an interruption only `end` follows. `save` may come at any time.
    """

    def notice(self, statement: Statement) -> None:
        """A person should know this about the run; it may come at any time.

        A statement whose kind begins with `warn-` is a warning.
        """

    def begin(self, run: RunView) -> None:
        """The step is built, and all ranks are about to run the first batch."""

    def end_batch(self, batch: Batch) -> bool:
        """A batch has ended.

        Returns:
          Whether this call took time that must not count for the next batch.
        """
        return False

    def end_measuring(self) -> None:
        """All batches have ended, on all ranks."""

    def end(self) -> None:
        """The batches are over, for whatever reason."""

    def finish(self) -> None:
        """The last step has ended, and the run succeeded."""

    def save(self, record: RunRecord) -> None:
        """Keep the record, which replaces the one before.

        Raises:
          OutputError: If it cannot be written.
        """

    def inspect(self) -> None:
        """Look inside the step. The record is saved, and any error may be raised."""

    def conclude(self, record: RunRecord) -> None:
        """Finish the outputs after the record is complete.

        Raises:
          OutputError: If another output than the record cannot be written.
        """


class Observers(Observer):
    """Several observers as one; each event reaches them in their order."""

    def __init__(self, observers: Sequence[Observer]) -> None:
        self._observers = tuple(observers)

    def notice(self, statement: Statement) -> None:
        for observer in self._observers:
            observer.notice(statement)

    def begin(self, run: RunView) -> None:
        for observer in self._observers:
            observer.begin(run)

    def end_batch(self, batch: Batch) -> bool:
        took_time = [observer.end_batch(batch) for observer in self._observers]
        return any(took_time)

    def end_measuring(self) -> None:
        for observer in self._observers:
            observer.end_measuring()

    def end(self) -> None:
        for observer in self._observers:
            observer.end()

    def finish(self) -> None:
        for observer in self._observers:
            observer.finish()

    def save(self, record: RunRecord) -> None:
        for observer in self._observers:
            observer.save(record)

    def inspect(self) -> None:
        for observer in self._observers:
            observer.inspect()

    def conclude(self, record: RunRecord) -> None:
        for observer in self._observers:
            observer.conclude(record)
