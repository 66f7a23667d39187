"""python -m rnn_scaling report DIR: the run records of a folder -> tables, CSV, JSON, pictures and one HTML page."""

import dataclasses
import errno
from collections.abc import Sequence
from pathlib import Path

from rnn_scaling.config import flags, registry
from rnn_scaling.config.flags import option
from rnn_scaling.system import entry

_FILES = "\n".join(
    f"    {report.file:17} {report.help}" for report in registry.REPORTS.values()
)
USAGE = f"""\
Shows how far the runs of a folder scale and what the losses are. Reads the run records (*.json) in DIR, prints a table
and the answer, and writes these files to DIR or to --output:

{_FILES}
    words_per_second.svg, speedup.svg, efficiency.svg
                      (where a folder has both, strong scaling has files of its own: speedup_strong.svg ...)

    ./run.sh report results/default
    ./run.sh report results/default --output=/tmp/report
    ./run.sh report results/copy --target_accuracy=0.9
    ./run.sh report results/machine_a results/machine_b --machines=machines.toml --output=results/machines

With a target, or with runs that used --accuracy, it also shows how long learning takes, and draws
accuracy_over_items.svg, accuracy_over_seconds.svg and the same for the loss.

With several folders it compares the machines with that of the first folder, as compare --across=machine does. Prices
in machines.toml (docs/machines.md) add costs, and --output then writes machines.png and machines.html: cost over speed.

Subfolders are not read. Invalid records are named and left out. Files of these names from other programs are
overwritten only with --force.

Exit status: 0 success, 1 nothing to report or a file cannot be written, 2 wrong usage."""


@dataclasses.dataclass(frozen=True)
class ReportOptions:
    """Report."""

    folders: tuple[Path, ...] = flags.positional(
        "folder of run records; several folders: one per machine", "DIR", several=True
    )
    output: Path | None = option(
        None, "folder for the files (default: DIR)", shown="DIR"
    )
    target_accuracy: float | None = option(
        None,
        "show when runs reach this share of right predictions (default: found from runs with --accuracy)",
        minimum=1e-6,
        maximum=1.0,
    )
    target_loss: float | None = option(
        None, "show when runs reach this loss", minimum=1e-9
    )
    machines: Path | None = option(
        None, "file of prices (default: machines.toml, if it exists)", shown="FILE"
    )
    machine: str = option(
        "", "a name in --machines for all folders, or one per folder", shown="NAME,..."
    )
    full: bool = option(
        False, "print all tables, remarks and the runs that would complete the analysis"
    )
    force: bool = option(False, "overwrite files of the same names from other programs")


@entry.command
def main(words: Sequence[str]) -> int:
    """Run the command; return its exit status."""
    options = flags.read(words, USAGE, ReportOptions, "report")
    if missing := [
        f"{folder}: no such folder" for folder in options.folders if not folder.is_dir()
    ]:
        raise entry.Refusal(*missing)
    first = options.folders[0]
    if options.target_accuracy is not None and options.target_loss is not None:
        raise entry.Refusal(
            "--target_accuracy and --target_loss are two targets; give one of them"
        )
    if len(options.folders) > 1:
        machine_options = {
            "output": options.output,
            "machines": options.machines,
            "machine": options.machine,
        }
        if options != ReportOptions(
            options.folders,
            **machine_options,
            force=options.force and options.output is not None,
        ):
            raise entry.Refusal(
                "several folders allow only --machines, --machine, and --output with "
                f"--force, got {len(options.folders)}; omit other options, or name one "
                "folder"
            )
        return _compare_machines(options)
    from rnn_scaling.analysis import prices
    from rnn_scaling.analysis.learning import ACCURACY, LOSS, Target
    from rnn_scaling.reports import report_files

    target = None
    if options.target_accuracy is not None:
        target = Target(ACCURACY, options.target_accuracy)
    if options.target_loss is not None:
        target = Target(LOSS, options.target_loss)

    try:
        [listed] = prices.read(options.machines, options.machine)
        report_files.report(
            first, options.output or first, options.force, target, options.full, listed
        )
    except OSError as e:
        # stdout is closed or full; errors of files are reported where they are written.
        if e.errno in (errno.EPIPE, errno.ENOSPC):
            raise
        return entry.fail(f"{first}: {e.strerror or e}")
    return entry.EXIT_OK


def _compare_machines(options: ReportOptions) -> int:
    """Compare the machines of several folders; return the exit status."""
    from rnn_scaling.analysis import prices
    from rnn_scaling.analysis.comparison import judgement
    from rnn_scaling.reports import comparison

    first, *other_folders = options.folders
    listed = prices.read(options.machines, options.machine, len(options.folders))
    reports = []
    for folder, machine_prices in zip(other_folders, listed[1:]):
        question = judgement.Question(
            across=judgement.MACHINE, prices=(listed[0], machine_prices)
        )
        reports.append(comparison.read_and_judge(first, folder, question))
    return comparison.print_machines(reports, options.output, options.force)
