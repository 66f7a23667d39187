"""python -m rnn_scaling trace-db FILE.sqlite: summarizes a Nsight Systems or nvprof database."""

from __future__ import annotations

from collections.abc import Sequence

from rnn_scaling import entry
from rnn_scaling.inspection.trace_databases import looking
from rnn_scaling.inspection.trace_databases.database import TraceDbError
from rnn_scaling.settings import flags

USAGE = """\
Summarizes a trace database: time by kernel, by copy kind and by API call, launches a second, busy and idle time of each
device, copies hidden behind kernels and exposed, gaps with what stands before and after, streams, NVTX ranges. Reads
Nsight Systems' SQLite export (nsys export --type=sqlite REPORT) and the databases of nvprof -o. FILE is never changed.

    nsys export --type=sqlite report1.nsys-rep;  ./run.sh trace-db report1.sqlite
    ./run.sh trace-db report1.sqlite --from=2.0 --to=2.5

TIME is in seconds after the trace's first event, 1.25, or in nanoseconds of the database's own clock, 1250000000ns.
The summary goes to stdout; what could not be used goes to stderr as "error: FILE: reason", the rest is still reported.
FILE is read in pieces, so that --max_file_mb does not bound it. docs/trace-db.md says what every number means.

Exit status: 0 everything was read, 1 something could not be used, 2 wrong use, 130 interrupted."""


@entry.command
def main(words: Sequence[str]) -> int:
    """Prints the summary and returns the exit status."""
    options = flags.read(words, USAGE, looking.TraceDbOptions, "trace-db")
    try:
        text, problems = looking.look(options)
    except looking.WindowError as e:
        return entry.fail(str(e), status=entry.EXIT_USAGE)
    except TraceDbError as e:
        return entry.fail(str(e))
    except OSError as e:
        return entry.fail(f"{e.filename or options.file}: {e.strerror or e}")
    print(text, end="", flush=True)
    return entry.fail(*(f"{options.file}: {problem}" for problem in problems)) if problems else 0
