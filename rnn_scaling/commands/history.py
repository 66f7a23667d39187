"""python -m rnn_scaling history add|import|show|check: results per commit.

It only reads flags and prints: `analysis.history` reads and judges entries, and
`reports.history` shows them. `sweep` calls `add` for --history.
"""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rnn_scaling.config import flags
from rnn_scaling.config.flags import option
from rnn_scaling.system import entry
from rnn_scaling.system.files import terminal
from rnn_scaling.system.machine import commits, load

if TYPE_CHECKING:
    from rnn_scaling.analysis.history.curves import Timeline
    from rnn_scaling.analysis.rows import Row
    from rnn_scaling.analysis.statements import Statement
    from rnn_scaling.records.folder import Folder as RunFolder
    from rnn_scaling.records.history import Entry

FOLDER = Path("history")
USAGE = """\
Keeps results per commit, date and machine in a folder that git can track, and shows
where the rate changed.

    ./run.sh history add results/mine --label="new loop"
    ./run.sh history import results          adds all subfolders
    ./run.sh history show                    prints a table and writes files
    ./run.sh history check --max_regression=5%

--history=DIR names the folder of the history for all of them (default: history). `add`
writes one small file for each commit and machine, and skips runs that the history
already has. Files are never changed. `./run.sh sweep --history=DIR` adds its results
after the report. `show` and `check` list configurations by machine, then by network,
update mode and devices. docs/history.md explains the search for change points and its
error rates.

Exit status: 0 success; 1 a file cannot be written; 2 nothing to add or to show, or
wrong use. For `check`: 0 a slow-down beyond the limit is excluded everywhere; 1 a
configuration is slower by more than the limit; 2 cannot judge, or wrong use."""


@dataclasses.dataclass(frozen=True)
class AddOptions:
    """Add and import."""

    results: tuple[Path, ...] = flags.declare_positional(
        "folder of run records", shown="RESULTS", is_list=True
    )
    history: Path = option(FOLDER, "folder of the history", shown="DIR")
    label: str = option(
        "", "note that is stored in the entries and shown in the history"
    )
    commit: str = option(
        "",
        "commit that was measured, if the records contain none: a hash, a branch or "
        "HEAD",
    )


@dataclasses.dataclass(frozen=True)
class ShowOptions:
    """Show."""

    folder: Path | None = flags.declare_positional(
        "same as --history", "[DIR]", default=None
    )
    history: Path = option(FOLDER, "folder of the history", shown="DIR")
    output: Path | None = option(
        None, "folder for the files (default: DIR)", shown="DIR"
    )
    commit_url: str = option(
        "",
        "URL to which the hash of a commit is appended (default: from the git remote)",
    )


@dataclasses.dataclass(frozen=True)
class CheckOptions:
    """Check."""

    folder: Path | None = flags.declare_positional(
        "same as --history", "[DIR]", default=None
    )
    history: Path = option(FOLDER, "folder of the history", shown="DIR")
    max_regression: float = flags.max_regression("largest slow-down with exit status 0")
    format: str = option(
        "text",
        "output format: text for the terminal, markdown for a job summary, or json",
        choices=("text", "markdown", "json"),
    )


GROUPS = {
    "add": AddOptions,
    "import": AddOptions,
    "show": ShowOptions,
    "check": CheckOptions,
}


@entry.command
def main(words: Sequence[str]) -> int:
    """Run the command; return its exit status."""
    flags.answer(
        words[:1],
        USAGE,
        [AddOptions, ShowOptions, CheckOptions],
        f"history {'|'.join(GROUPS)}",
    )
    name = words[0] if words else ""
    if name not in GROUPS:
        raise entry.Refusal(
            f"expected history {'|'.join(GROUPS)}, got {name or 'nothing'}; see "
            "history --help"
        )
    options = flags.read(words[1:], USAGE, GROUPS[name], f"history {name}")
    if name == "show":
        return _show(options)
    if name == "check":
        return _check(options)
    entry.require_folders(options.results)
    folders = options.results
    if name == "import":
        folders = []
        for folder in options.results:
            folders += [Path(path) for path, _, _ in sorted(os.walk(folder))]
    return add(folders, options.history, options.label, options.commit)


def add(
    results: Sequence[Path], folder: Path, label: str = "", commit: str = ""
) -> int:
    """Add the runs of these folders to a history; return the exit status."""
    from rnn_scaling.analysis.history import entries
    from rnn_scaling.records import folder as folders
    from rnn_scaling.records import history
    from rnn_scaling.reports.wording import write_sentence

    named_commit = commits.resolve(commit) if commit else None
    if commit and not named_commit:
        raise entry.Refusal(
            f"--commit={commit} is not a commit of the repository in this folder; give "
            "a hash or HEAD"
        )
    contents = [folders.read(place) for place in results]
    candidates = []
    for content in contents:
        entry.warn(*(f"{line}; left out" for line in content.not_used))
        candidates.extend(
            entries.build_entries(
                [run.record for run in content.runs], label, named_commit
            )
        )
    if not candidates:
        places = ", ".join(map(str, results[:5]))
        raise entry.Refusal(
            f"found no successful run in {places}; history import also reads subfolders"
        )
    seen_runs = history.read(folder).seen if folder.is_dir() else set()
    statements = []
    for candidate in candidates:
        statements += _add_entry(candidate, seen_runs, folder)
    rows = entries.make_rows_of_entries(contents, named_commit)
    statements += _state_disturbances(rows, contents)
    print("\n".join(map(write_sentence, statements)))
    return entry.EXIT_OK


def _state_disturbances(
    rows: Sequence[Row], contents: Sequence[RunFolder]
) -> list[Statement]:
    """Return statements about runs and batches that other programs slowed.

    Args:
      rows: The added configurations.
      contents: The folders of the runs, for the names of their files.
    """
    from rnn_scaling.analysis import disturbance
    from rnn_scaling.analysis.statements import state

    disturbed: set[int] = set()
    slowed: set[int] = set()
    for row in rows:
        disturbed.update(map(id, row.disturbed_runs))
        slowed.update(map(id, filter(disturbance.is_disturbed, row.counted_runs)))
    threshold = load.NOTICEABLE_LOAD
    statements = []
    for kind, ids in (("history-disturbed", disturbed), ("history-slowed", slowed)):
        files = []
        for content in contents:
            files += [run.name for run in content.runs if id(run.record) in ids]
        if files:
            statements.append(state(kind, files=files, threshold=threshold))
    if batches := disturbance.count_batches_left_out(
        [row.counted_runs for row in rows]
    ):
        statements.append(
            state("history-disturbed-batches", **batches, threshold=threshold)
        )
    return statements


def _add_entry(candidate: Entry, seen_runs: set[Any], folder: Path) -> list[Statement]:
    """Write the runs of an entry that the history does not have, and report them.

    Args:
      candidate: The entry with all runs.
      seen_runs: The runs that the history has; the runs of the entry are added.
      folder: The folder of the history.
    """
    from rnn_scaling.analysis.statements import Statement
    from rnn_scaling.records import history

    # None if the history has all runs.
    new_entry = history.remove_seen_runs(candidate, seen_runs)
    try:
        path = history.write(new_entry, folder) if new_entry else folder
    except OSError as e:
        raise entry.Refusal(
            f"{folder}: {e.strerror or e}", status=entry.EXIT_FAILED
        ) from None
    configurations = (new_entry or candidate).configurations
    num_runs = sum(len(configuration.rates) for configuration in configurations)
    values = {"runs": num_runs, "path": str(path), "commit": candidate.name}
    kind = "history-added" if new_entry else "history-known"
    statements = [Statement(kind, values=values)]
    if new_entry and not new_entry.commit:
        statements.append(Statement("history-no-commit"))
    return statements


def _show(options: ShowOptions) -> int:
    """Print a history, or write its files."""
    from rnn_scaling.reports import history as report
    from rnn_scaling.reports import report_files
    from rnn_scaling.reports.page import history as page

    address = options.commit_url or commits.find_commit_page()
    if options.commit_url and not address.startswith(("http://", "https://")):
        raise entry.Refusal(
            f"--commit_url={address} must begin with http:// or https://, such as "
            "https://host/name/commit/"
        )
    folder = _choose_folder(options)
    timeline = _read_timeline(folder)
    target = options.output or folder
    place = folder.resolve()
    # The project that the history belongs to.
    name = place.parent.name if place.name == FOLDER.name else place.name
    files = {"csv": report.to_csv, "json": report.to_json, "png": page.to_png}
    renders = {
        f"history.{kind}": functools.partial(render, timeline)
        for kind, render in files.items()
    }
    renders["history.html"] = functools.partial(page.render, timeline, name, address)
    report_files.write_files(renders, target, force=False)
    terminal.print_fitted(
        f"{report.format_text(timeline)}\n{target / 'history.html'} has the curves.\n"
    )
    return entry.EXIT_OK


def _check(options: CheckOptions) -> int:
    from rnn_scaling.analysis.history import curves
    from rnn_scaling.reports import comparison

    folder = _choose_folder(options)
    report = curves.check(str(folder), _read_timeline(folder), options.max_regression)
    text = f"{comparison.RENDER[options.format](report)}\n"
    if options.format == "text":
        terminal.print_fitted(text)
    else:
        print(text, end="")
    return report.exit_status


def _choose_folder(options: ShowOptions | CheckOptions) -> Path:
    """Return the folder of the history: --history, or a word without a flag."""
    if options.folder is None:
        return options.history
    if options.history not in (FOLDER, options.folder):
        raise entry.Refusal(
            f"--history={options.history} and {options.folder} name two histories; "
            "leave out one of them"
        )
    return options.folder


def _read_timeline(folder: Path) -> Timeline:
    from rnn_scaling.analysis.history import curves
    from rnn_scaling.records import history

    remedy = (
        f"{entry.get_program_name()} history add RESULTS --history={folder} adds one"
    )
    if not folder.is_dir():
        raise entry.Refusal(f"{folder} does not exist; {remedy}")
    stored = history.read(folder)
    entry.warn(*(f"{line}; left out" for line in stored.left_out))
    if not stored.entries:
        adjective = "valid " if stored.left_out else ""
        raise entry.Refusal(f"{folder} contains no {adjective}history entry; {remedy}")
    return curves.build_timeline(stored.entries)
