"""python -m rnn_scaling report DIR: tables, CSV, JSON, pictures and a page of runs.

It only reads flags and prints; `reports.report_files` writes the files.
"""

import dataclasses
import errno
import sys
from collections.abc import Sequence
from pathlib import Path

from rnn_scaling.config import flags, registry
from rnn_scaling.config.flags import option
from rnn_scaling.system import entry

_FILES = "\n".join(
    f"    {report.file:17} {report.help}" for report in registry.REPORTS.values()
)
_EXPORTS = "\n".join(
    f"    {name:10} {export.help}; DESTINATION is a {export.destination}"
    for name, export in registry.EXPORTS.items()
)
USAGE = f"""\
Shows how well the runs of a folder scale and where efficiency is lost. Reads the run
records (*.json) in DIR, prints a table and the answer, and writes these files to DIR or
to --output:

{_FILES}
    words_per_second.svg, speedup.svg, efficiency.svg
        (next to weak scaling, strong scaling has speedup_strong.svg ...)

    ./run.sh report results/default
    ./run.sh report results/default --output=/tmp/report
    ./run.sh report results/copy --target_accuracy=0.9
    ./run.sh report results/machine_a results/machine_b \\
        --machines=machines.toml --output=results/machines

With a target, or with runs that used --accuracy, it also shows how long learning takes.
It then draws accuracy_over_items.svg, accuracy_over_seconds.svg and the same for the
loss.

With several folders it compares the other machines with the first folder's machine,
like compare --across=machine. Prices in machines.toml (docs/compare.md) add costs, and
--output then writes machines.png and machines.html: cost over speed.

--export=FORMAT writes the runs for another tool, to DESTINATION, and no report:

{_EXPORTS}

    ./run.sh report results/default \\
        --export=prometheus /var/lib/node_exporter/scaling.prom
    ./run.sh report results/default --archive=scaling.tar.gz

--archive=FILE bundles records, outputs of failed runs, report and checksums in one
file, so that somebody else can check every number.

Subfolders are not read. Invalid records are named and left out. Files of these names
from other programs are overwritten only with --force.

Exit status: 0 success; 1 nothing to report or a file cannot be written; 2 wrong use."""


@dataclasses.dataclass(frozen=True)
class ReportOptions:
    """Report."""

    # Texts, because a path would lose a slash of an address.
    words: tuple[str, ...] = flags.declare_positional(
        "folder of run records; several folders are compared as machines",
        "DIR",
        is_list=True,
    )
    export: str = option(
        "",
        "write the runs in the format of another tool; the last argument is "
        "the destination",
        choices=("", *registry.EXPORTS),
        shown="FORMAT",
    )
    archive: Path | None = option(
        None,
        "write records, report and checksums to this file, which ends with .tar.gz",
        shown="FILE",
    )
    output: Path | None = option(
        None, "folder for the files (default: DIR)", shown="DIR"
    )
    target_accuracy: float | None = option(
        None,
        "show when runs reach this accuracy, such as 0.9 (default: a level "
        "that runs with --accuracy reached)",
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
        "",
        "name of the machine in --machines, or one name per folder (default: "
        "the machine of the runs)",
        shown="NAME,...",
    )
    full: bool = option(
        False, "print all tables, remarks and the runs that would complete the analysis"
    )
    force: bool = option(
        False, "overwrite files of the same names that other programs wrote"
    )

    @property
    def folders(self) -> tuple[Path, ...]:
        """The folders of run records."""
        return tuple(Path(word) for word in self.words)


@entry.command
def main(words: Sequence[str]) -> int:
    """Run the command; return its exit status."""
    options = flags.read(words, USAGE, ReportOptions, "report")
    if options.export:
        return _export(options)
    entry.require_folders(options.folders)
    if options.target_accuracy is not None and options.target_loss is not None:
        raise entry.Refusal(
            "--target_accuracy and --target_loss are two targets; give one of them"
        )
    if len(options.folders) > 1:
        _refuse_options_of_one_folder(options)
        return _compare_machines(options)
    if options.archive is not None:
        return _write_archive(options, options.archive)
    return _report_folder(options)


def _refuse_options_of_one_folder(options: ReportOptions) -> None:
    """Refuse options that several folders do not have."""
    allowed_options = ReportOptions(
        options.words,
        output=options.output,
        machines=options.machines,
        machine=options.machine,
        force=options.force and options.output is not None,
    )
    if options != allowed_options:
        raise entry.Refusal(
            f"with {len(options.folders)} folders, only --machines, --machine, "
            "--output and (with --output) --force may be given; leave out other "
            "options, or name one folder"
        )


def _report_folder(options: ReportOptions) -> int:
    """Write the report of one folder; return the exit status."""
    from rnn_scaling.analysis import prices
    from rnn_scaling.analysis.learning import ACCURACY, LOSS, Target
    from rnn_scaling.reports import report_files

    first = options.folders[0]
    target = None
    if options.target_accuracy is not None:
        target = Target(ACCURACY, options.target_accuracy)
    if options.target_loss is not None:
        target = Target(LOSS, options.target_loss)
    try:
        [price_list] = prices.read_price_lists(options.machines, options.machine)
        report_files.report(
            first,
            target=options.output or first,
            force=options.force,
            to_reach=target,
            full=options.full,
            prices=price_list,
        )
    except OSError as e:
        # stdout is closed or full; errors of files are reported where they are written.
        if e.errno in (errno.EPIPE, errno.ENOSPC):
            raise
        return entry.fail(f"{first}: {e.strerror or e}")
    return entry.EXIT_OK


def _export(options: ReportOptions) -> int:
    """Write the runs of a folder for another tool; return the exit status."""
    format_name = options.export
    export = registry.EXPORTS[format_name]
    if len(options.words) != 2:
        raise entry.Refusal(
            f"--export={format_name} needs one folder and its destination: "
            f"report DIR --export={format_name} {export.destination.upper()}"
        )
    if options != ReportOptions(options.words, export=format_name):
        raise entry.Refusal(
            f"--export={format_name} cannot be combined with other options; leave them "
            "out"
        )
    folder = Path(options.words[0])
    destination = options.words[1]
    entry.require_folders([folder])
    from rnn_scaling.analysis import folder_rows
    from rnn_scaling.records import folder as folders
    from rnn_scaling.reports import report_files
    from rnn_scaling.reports.exports.exported import collect

    try:
        files = folders.read(folder)
        entry.warn(*(f"{line}; left out" for line in files.not_used))
        report_files.refuse_without_runs(folder, files)
        exported = collect(folder, files, folder_rows.build(files))
        module = registry.load(registry.EXPORTS, format_name)
        print(module.write(exported, destination))
    except ModuleNotFoundError as e:
        if export.package != e.name:
            raise
        return entry.fail(
            f"--export={format_name} needs the package {export.package}: "
            f"{sys.executable} -m pip install {export.package}"
        )
    except OSError as e:
        return entry.fail(f"{e.filename or folder}: {e.strerror or e}")
    return entry.EXIT_OK


def _write_archive(options: ReportOptions, path: Path) -> int:
    """Bundle a folder in one file; return the exit status."""
    [folder] = options.folders
    if options != ReportOptions(options.words, archive=path):
        raise entry.Refusal(
            "--archive cannot be combined with other options; leave them out"
        )
    if not path.name.endswith((".tar.gz", ".tgz")):
        raise entry.Refusal(f"--archive={path} must end with .tar.gz")
    from rnn_scaling.records import folder as folders
    from rnn_scaling.reports import archive, report_files

    try:
        files = folders.read(folder)
        entry.warn(*(f"{line}; left out" for line in files.not_used))
        report_files.refuse_without_runs(folder, files)
        rendered = report_files.render_all(folder, files)
        print(archive.write(folder, files, rendered, path))
    except OSError as e:
        return entry.fail(f"{e.filename or folder}: {e.strerror or e}")
    return entry.EXIT_OK


def _compare_machines(options: ReportOptions) -> int:
    """Compare the machines of several folders; return the exit status."""
    from rnn_scaling.analysis import prices
    from rnn_scaling.analysis.comparison import judgement
    from rnn_scaling.reports import comparison

    first, *other_folders = options.folders
    price_lists = prices.read_price_lists(
        options.machines, options.machine, len(options.folders)
    )
    reports = []
    for folder, machine_prices in zip(other_folders, price_lists[1:], strict=True):
        question = judgement.Question(
            across=judgement.ACROSS_MACHINES, prices=(price_lists[0], machine_prices)
        )
        reports.append(comparison.read_and_judge(first, folder, question))
    return comparison.print_machines(reports, options.output, options.force)
