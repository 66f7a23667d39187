"""Save the record of a run, which two threads may end.

The working thread of `training.run` saves the finished record, while the main thread
may have to save that the run failed or was interrupted. A user who has seen a result
must find it in the record, and a user who has seen a failure must find the failure.
"""

import threading

from rnn_scaling.analysis.statements import Statement
from rnn_scaling.records.record import RunRecord
from rnn_scaling.system import entry
from rnn_scaling.training.observers import Observer, OutputError


class RecordKeeper:
    """Saves records through the observers and decides which one is kept.

    `Run` makes one and calls it from both threads. A lock guards the attributes and all
    writing of records.

    Attributes:
      is_finished: Whether the record of the finished run is saved. No failure replaces
        it.
    """

    def __init__(self, observer: Observer) -> None:
        self._observer = observer
        self._lock = threading.Lock()
        self._record: RunRecord | None = None
        # Whether the run was recorded as failed or interrupted. It cannot finish then.
        self._ended_early = False
        self.is_finished = False

    @property
    def record(self) -> RunRecord:
        """The latest record, even if it could not be saved."""
        assert self._record is not None
        return self._record

    def save_first(self, record: RunRecord) -> None:
        """Save the record that is kept if the process is killed.

        Raises:
          OutputError: If an output cannot be written.
        """
        self._record = record
        self._observer.save(record)

    def save_finished(self, record: RunRecord) -> None:
        """Save the record of a run whose batches have all been measured.

        From now on, no failure and no interruption replaces it. If the run has already
        been recorded as ended early, that record stays, because the end was reported.
        """
        with self._lock:
            if not self._ended_early:
                is_saved = self._save(record)
                # If a later addition cannot be saved, the first record is still there.
                self.is_finished = self.is_finished or is_saved

    def save_unless_finished(self, record: RunRecord) -> None:
        """Save the record of a run that ended early, unless it is recorded already."""
        with self._lock:
            if not self.is_finished and not self._ended_early:
                self._ended_early = True
                self._save(record)

    def _save(self, record: RunRecord) -> bool:
        """Let the observers save a record; report an error of one of them.

        The caller must hold the lock.
        """
        self._record = record
        try:
            self._observer.save(record)
        except OutputError as e:
            if self.is_finished:
                values = {"text": str(e), "content": e.content}
                self._observer.notice(Statement("warn-older-output", values=values))
            else:
                entry.fail(e.message_of_new_output)
            return False
        return True
