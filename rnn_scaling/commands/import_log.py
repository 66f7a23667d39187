"""python -m rnn_scaling import_log FILE...: logs of other benchmarks as one table.

It only reads flags and prints: `records.importers` reads, and `reports.imports` shows.
"""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from rnn_scaling.config import flags
from rnn_scaling.config.flags import option
from rnn_scaling.records.importers.rank_tags import Ranks
from rnn_scaling.system import entry

USAGE = """\
Reads the output of other benchmarks, detects each file's format, and prints the rates
as one table. The table has speedup and efficiency if it contains a run on one device.
Bandwidths, topology and timelines follow if a format has them.

    ./run.sh import_log logs/horovod_*.txt --audit
    mpirun ... | tee run.log;  ./run.sh import_log run.log --output=csv
    ./run.sh import_log run.log --unit=tokens --num_devices=4 \\
        --format='regex:step (?P<step>{number}): {number} tokens/s' \\
        --records=results/imported
    ./run.sh import_log logs/*.txt --records=results/imported
    ./run.sh report results/imported
    nvidia-smi topo -m > topo.txt;  ./run.sh import_log topo.txt

Tables go to stdout. A line that cannot be used is reported on stderr as "error:
FILE:LINE: reason", and the other lines are still printed. If several ranks print a
rate, a sentence names the rate that is used; --ranks chooses. docs/importers.md lists
for each format the lines that are read and the meaning of every number.

Exit status: 0 everything was read; 1 a line could not be used or the audit found
something; 2 wrong use."""


def _parse_formats(text: str) -> str:
    """Return the value of --format; a ValueError explains the rule."""
    from rnn_scaling.records.importers import importing

    return importing.check_formats(text)


@dataclasses.dataclass(frozen=True)
class ImportOptions:
    """Import."""

    files: tuple[Path, ...] = flags.declare_positional(
        "file with the output of another benchmark", shown="FILE", is_list=True
    )
    format: str = option(
        "auto",
        "formats that are tried for every file (auto: all); the last one may "
        "be regex:PATTERN, as in sweep --log_format",
        parse=_parse_formats,
        shown="FORMAT,...",
        whole=True,
    )
    output: str = option(
        "markdown",
        "output format; csv and json contain every row, markdown the first "
        "100 rows of a table",
        choices=("markdown", "csv", "json"),
    )
    ranks: str | None = option(
        None,
        "which rate counts if several ranks print one: the rate of the first rank, or "
        "their sum (default: first for progress bars, sum for gnmt)",
        choices=tuple(choice.value for choice in Ranks),
    )
    audit: bool = option(
        False, "also audit the rates of all files and print the findings"
    )
    items_per_step: float | None = option(
        None,
        "items per step on all devices, if the log contains only steps or seconds "
        "(default: none; for progress bars, steps are counted)",
        minimum=1e-9,
    )
    log_warmup: int | None = option(
        None,
        "number of matches of the pattern to leave out at the start (default: the "
        "matches of the start-up)",
        minimum=0,
    )
    num_devices: int | None = option(
        None,
        "number of devices of every run, if the log does not name it (default: "
        "unknown)",
        minimum=1,
    )
    batch_size: int | None = option(
        None,
        "samples of each device per step, if the log does not name them "
        "(default: unknown)",
        minimum=1,
    )
    unit: str = option(
        "",
        "the items that the rates of a pattern or progress bar count, in the plural, "
        "such as words (default: as printed, or items)",
    )
    records: Path | None = option(
        None,
        "folder for run records, which report, compare and predict read "
        "(default: no records)",
        shown="DIR",
    )


@entry.command
def main(words: Sequence[str]) -> int:
    """Run the command; return its exit status."""
    options = flags.read(words, USAGE, ImportOptions, "import_log")
    from rnn_scaling.analysis import steady_state
    from rnn_scaling.records.importers import importing
    from rnn_scaling.records.importers.reading import Terms
    from rnn_scaling.reports import imports

    terms = Terms(
        options.format,
        options.log_warmup,
        options.items_per_step,
        options.num_devices,
        options.batch_size,
        unit=options.unit,
        ranks=Ranks(options.ranks) if options.ranks else None,
        find_steady_state=steady_state.analyse,
    )
    readings, errors = importing.read_files(options.files, terms)
    imported = imports.collect(readings, options.audit)
    if readings:
        print(imports.RENDER[options.output](imported), end="", flush=True)
    if options.records is not None:
        errors += imports.write_records(imported, options.records)
    for reading in readings:
        errors += [problem.text(reading.source) for problem in reading.problems]
    entry.fail(*errors)
    has_findings = any(findings for findings, _ in imported.audited or ())
    return entry.EXIT_FAILED if errors or has_findings else entry.EXIT_OK
