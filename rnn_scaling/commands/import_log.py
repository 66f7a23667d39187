"""python -m rnn_scaling import_log FILE...: logs of other benchmarks -> one table of rates."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from rnn_scaling import entry, registry
from rnn_scaling.models.config import option
from rnn_scaling.settings import flags

USAGE = """\
Reads the output of other benchmarks, detects each file's format, and prints the rates as one table, with speedup and
efficiency if a run on one device is among them. Bandwidths, topology and timelines follow if a format has them.

    ./run.sh import_log logs/horovod_*.txt --audit
    mpirun ... | tee run.log;  ./run.sh import_log run.log --output=csv
    nvidia-smi topo -m > topo.txt;  ./run.sh import_log topo.txt

Tables go to stdout. A line that cannot be used is reported on stderr as "error: FILE:LINE: reason", and the other lines
are still printed. docs/importers.md lists for each format the lines that are read and the meaning of every number.

Exit status: 0 everything was read, 1 a line could not be used or the audit found something, 2 wrong use."""


@dataclasses.dataclass(frozen=True)
class ImportOptions:
    """Import."""

    files: tuple[Path, ...] = flags.positional(
        "output of another benchmark", shown="FILE", several=True
    )
    format: str = option(
        "auto",
        "format of every file (auto: detect it)",
        choices=("auto", *registry.IMPORTERS),
    )
    output: str = option(
        "markdown",
        "csv and json have every row, markdown the first 100 rows of a table",
        choices=("markdown", "csv", "json"),
    )
    audit: bool = option(
        False, "also audit the rates of all files and print the findings"
    )


@entry.command
def main(words: Sequence[str]) -> int:
    options = flags.read(words, USAGE, ImportOptions, "import_log")
    from rnn_scaling.importers import any_format, rendering

    logs, errors = any_format.read_all(options.files, options.format)
    audited = (
        [rendering.findings(rows) for rows in rendering.by_unit(logs).values()]
        if options.audit
        else None
    )
    if logs:
        print(rendering.RENDER[options.output](logs, audited), end="", flush=True)
    errors += [problem.text(log.source) for log in logs for problem in log.problems]
    entry.fail(*errors)
    return (
        entry.EXIT_FAILED
        if errors or any(findings for findings, _ in audited or [])
        else entry.EXIT_OK
    )
