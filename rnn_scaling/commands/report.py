"""python -m rnn_scaling report DIR: the run records of a folder -> tables, CSV, JSON, pictures and one HTML page."""

from __future__ import annotations

import dataclasses
import errno
from collections.abc import Sequence
from pathlib import Path

from rnn_scaling import entry, registry
from rnn_scaling.models.config import option
from rnn_scaling.settings import flags

_FILES = "\n".join(f"    {each.file:17} {each.help}" for each in registry.REPORTS.values())
USAGE = f"""\
How far do the runs of a folder scale, and where does the rest go? Reads its run records (*.json), prints the tables and
writes to DIR, or to --output:

{_FILES}
    words_per_second.svg, speedup.svg, efficiency.svg
                      (beside weak scaling, strong scaling has its own: speedup_strong.svg ...)

    ./run.sh report results/default
    ./run.sh report results/default --output=/tmp/report
    ./run.sh report results/copy --target_accuracy=0.9
    ./run.sh report results/machine_a results/machine_b

With a target, or runs of --accuracy, it also says how long they take to learn, and draws accuracy_over_items.svg,
accuracy_over_seconds.svg and the same of the loss.

Of several folders it says which machine is faster than the first one's, as compare --across=machine does, and writes
no file. Subfolders are other sets of runs: report each of them. A file that is no good record is named and left out.
A file of one of these names that the report did not write is not overwritten without --force.

Exit status: 0 done, 1 nothing to report or nothing could be written, 2 wrong use."""


@dataclasses.dataclass(frozen=True)
class ReportOptions:
    """Report."""

    folders: tuple[Path, ...] = flags.positional(
        "folder of run records, as a sweep writes them; of several, one for each machine", "DIR", several=True
    )
    output: Path | None = option(None, "write here instead (default: the records' folder)", shown="DIR")
    target_accuracy: float | None = option(
        None,
        "share of right predictions: say when it is reached, serial and parallel (found by itself where runs were "
        "trained with --accuracy)",
        minimum=1e-6,
        maximum=1.0,
    )
    target_loss: float | None = option(None, "the same for a loss", minimum=1e-9)
    full: bool = option(False, "print every table and remark, and the runs that would complete the analysis")
    force: bool = option(False, "overwrite files of the same names that the report did not write")


@entry.command
def main(words: Sequence[str]) -> int:
    """Reports one folder; returns the exit status."""
    options = flags.read(words, USAGE, ReportOptions, "report")
    if missing := [f"{each}: no such folder" for each in options.folders if not each.is_dir()]:
        raise entry.Refusal(*missing)
    first, *others = options.folders
    if options.target_accuracy is not None and options.target_loss is not None:
        raise entry.Refusal("--target_accuracy and --target_loss are two targets; give one of them")
    if others:
        if options != ReportOptions(options.folders):
            raise entry.Refusal(f"options need exactly one folder, got {len(options.folders)}; omit them, or name one")
        return _machines(first, others)
    from rnn_scaling.analysis.learning import ACCURACY, LOSS, Target
    from rnn_scaling.reports import report_files

    target = Target(ACCURACY, options.target_accuracy) if options.target_accuracy is not None else None
    if options.target_loss is not None:
        target = Target(LOSS, options.target_loss)

    try:
        report_files.report(first, options.output or first, options.force, target, options.full)
    except OSError as e:
        if e.errno in (errno.EPIPE, errno.ENOSPC):  # of what is printed: the files' own errors are named where they are
            raise
        return entry.fail(f"{first}: {e.strerror or e}")
    return entry.EXIT_OK


def _machines(first: Path, others: Sequence[Path]) -> int:
    from rnn_scaling.analysis.comparison import judgement
    from rnn_scaling.reports import comparison

    question = judgement.Question(across=judgement.MACHINE)
    return max(comparison.compare(first, other, question) for other in others)
