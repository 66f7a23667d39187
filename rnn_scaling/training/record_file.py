"""The file of a record that a Recorder writes: one Recorder at a time has it open."""

import os
import weakref
from pathlib import Path

from rnn_scaling.records import record
from rnn_scaling.records.record import RunRecord
from rnn_scaling.system.files.terminal import RESULT_VARIABLE
from rnn_scaling.system.processes import alive


class RecordFile:
    """Keeps other Recorders away from a file, and writes its complete record once.

    Each Recorder creates it; only the Recorder of rank 0 opens and writes it.

    Attributes:
      path: The path as the program gave it.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._is_written = False

    def require_free(self) -> None:
        """Refuse a file that another Recorder has open.

        Raises:
          ValueError: If one has, in this process or in another one that still runs.
        """
        if os.path.realpath(self.path) in _open_files:
            raise ValueError(
                f"result_file={self.path} is in use by another Recorder of this "
                "process; close() it first, or give each its own file"
            )
        if _is_open_elsewhere(self.path):
            raise ValueError(
                f"result_file={self.path} is in use by the Recorder of another "
                "process; give each its own file, or rank and num_ranks if they train "
                "together"
            )

    def open(self, unfinished: RunRecord) -> None:
        """Write a record that says that the run has not ended, and reserve the file."""
        record.write(unfinished, self.path)
        _open_files[os.path.realpath(self.path)] = self

    def write(self, result: RunRecord) -> bool:
        """Write the complete record and free the file.

        Returns:
          False if an earlier call has written it.
        """
        if self._is_written:
            return False
        record.write(result, self.path)
        self._is_written = True
        _open_files.pop(os.path.realpath(self.path), None)
        return True

    def is_for_sweep(self) -> bool:
        """Return whether a sweep has started this program and reads the record."""
        return os.environ.get(RESULT_VARIABLE) == str(self.path.absolute())


# The files of this process whose record is not complete, by their real path. A Recorder
# that is no longer used frees its file.
_open_files: weakref.WeakValueDictionary[str, RecordFile] = (
    weakref.WeakValueDictionary()
)


def _is_open_elsewhere(path: Path) -> bool:
    try:
        unfinished = record.read(path)
    except (OSError, record.RecordError):  # no record yet, or another file
        return False
    # A sweep's record of the program that it starts has no environment yet.
    if unfinished.environment.started is None or unfinished.error is None:
        return False
    process = unfinished.error.process
    return process != alive.identify_this_process() and alive.is_alive(process)
