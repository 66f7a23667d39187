"""python -m rnn_scaling import_log FILE...: logs of other benchmarks -> one table of rates."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rnn_scaling.config import flags, registry
from rnn_scaling.config.flags import option
from rnn_scaling.importers.rank_tags import Ranks
from rnn_scaling.system import entry

if TYPE_CHECKING:
    from rnn_scaling.importers.common import ImportedLog

USAGE = """\
Reads the output of other benchmarks, detects each file's format, and prints the rates as one table, with speedup and
efficiency if a run on one device is among them. Bandwidths, topology and timelines follow if a format has them.

    ./run.sh import_log logs/horovod_*.txt --audit
    mpirun ... | tee run.log;  ./run.sh import_log run.log --output=csv
    nvidia-smi topo -m > topo.txt;  ./run.sh import_log topo.txt

Tables go to stdout. A line that cannot be used is reported on stderr as "error: FILE:LINE: reason", and the other lines
are still printed. If several ranks print a rate, a sentence names the rate that is used; --ranks chooses.
docs/importers.md lists for each format the lines that are read and the meaning of every number.

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
    ranks: str | None = option(
        None,
        "which rate counts if several ranks print one: the first rank's, or their sum "
        "(default: first for progress bars, sum for gnmt)",
        choices=tuple(choice.value for choice in Ranks),
    )
    audit: bool = option(
        False, "also audit the rates of all files and print the findings"
    )


@entry.command
def main(words: Sequence[str]) -> int:
    options = flags.read(words, USAGE, ImportOptions, "import_log")
    from rnn_scaling.importers import any_format, rendering

    ranks = Ranks(options.ranks) if options.ranks else None
    logs, errors = any_format.read_all(options.files, options.format, ranks)
    logs = [_with_findings(log) for log in logs]
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


def _with_findings(log: "ImportedLog") -> "ImportedLog":
    """Add the sentences about what else the rate of a log may be to its remarks."""
    if not log.findings:
        return log
    from rnn_scaling.reports import log_findings, wording

    unit = log.rows[0].rate_unit.removesuffix("/s")
    statements = log_findings.of_log(log.source, log.findings, unit)
    sentences = [wording.sentence(statement) for statement in statements]
    return dataclasses.replace(log, remarks=(*log.remarks, *sentences))
