"""What a path is that somebody wants to look into: a folder, a record, a trace or a database."""

import enum
from pathlib import Path

from rnn_scaling.inspection.trace_databases.database import MAGIC
from rnn_scaling.system.files import input_files

GZIP = b"\x1f\x8b"  # the first bytes of the Chrome traces that `inspect` writes


class Subject(enum.Enum):
    FOLDER = "folder"  # of records, or a --log_dir
    RECORD = "record"  # JSON; its reader reports a file that is not one
    TRACE = "trace"  # a Chrome trace or the profiler's own file
    DATABASE = "database"  # SQLite, of Nsight Systems or nvprof


def subject_of(path: Path) -> Subject:
    """Return what a path is, by its first bytes and not by its name.

    Raises:
      OSError: If it cannot be read, or is neither a folder nor a regular file.
    """
    if path.is_dir():
        return Subject.FOLDER
    with input_files.open_regular(path, input_files.UNLIMITED) as file:
        head = file.read(len(MAGIC))
    if head == MAGIC:
        return Subject.DATABASE
    is_trace = head.startswith(GZIP) or path.name.endswith(".xplane.pb")
    return Subject.TRACE if is_trace else Subject.RECORD
