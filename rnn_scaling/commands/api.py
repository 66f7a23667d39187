"""Run the commands as functions, for Python programs that import rnn_scaling.

`rnn_scaling/__init__.py` exports these functions. Their arguments and defaults are
public: add arguments at the end, with a default.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from rnn_scaling.analysis.comparison.judgement import Report
    from rnn_scaling.analysis.folder_rows import Rows
    from rnn_scaling.config.flags import FlagErrors as FlagErrors
    from rnn_scaling.records.record import RunRecord
    from rnn_scaling.sweeps.invocations import RunFailed as RunFailed
    from rnn_scaling.training.recorder import Recorder as Recorder


def run(*, timeout_s: float = 0.0, launch: str = "", **options: Any) -> RunRecord:
    """Run the trainer once in another process, or in several with num_workers.

    A program may call this any number of times.

    Args:
      timeout_s: Wall limit in seconds; 0 for no limit.
      launch: A launcher with its flags ("srun -K") that starts the processes; empty if
        they run on this machine.
      **options: The trainer's flags by name (`num_devices=2`,
        `variable_update="replicated"`); other flags have the defaults of the command
        line.

    Returns:
      The record of the run, like the file of `--result_file`.

    Raises:
      FlagErrors: Before anything starts; it names every unknown option, wrong value and
        conflict.
      RunFailed: If the run fails; its `records` contain the measurements so far.
    """
    from rnn_scaling.sweeps import invocations

    return invocations.run(options, timeout_s=timeout_s, launch=launch)


def sweep(
    out: str | Path,
    *,
    repeats: int = 1,
    timeout_s: float | None = None,
    launch: str = "",
    trainer: str = "",
    axes: Mapping[str, Any] | None = None,
    **options: Any,
) -> Rows:
    """Run every combination of the options' values, each run in another process.

    Runs whose records are in `out` are not repeated.

    Args:
      out: The folder of the records.
      repeats: Runs of each combination.
      timeout_s: Wall limit of a run in seconds; 0 for no limit; None for ten times the
        usual duration, at least five minutes.
      launch: The same as in `run`.
      trainer: A command of your own instead of this suite's trainer, with the places of
        `--trainer` (docs/any_trainer.md); `options` then include `log_format` and
        `unit`.
      axes: Values, or lists of values, of options of that command:
        `{"hidden": [256, 512]}` for `{hidden}`.
      **options: The trainer's flags by name; a list or tuple is a list of values
        (`num_devices=[1, 2]`). Other flags have the defaults of the sweep: both
        encoders, three update modes, 1 to N devices.

    Returns:
      The rows of the folder, like `load(out)`.

    Raises:
      FlagErrors: Before anything starts; it names every unknown option, wrong value and
        conflict.
      RunFailed: If a run failed or the folder cannot be used; the records of the other
        runs are in `out`.
    """
    from rnn_scaling.sweeps import invocations

    sweep_options = {
        **options,
        "run_timeout": timeout_s,
        "launch": launch or None,
        "trainer": trainer or None,
    }
    invocations.run_sweep(out, sweep_options, repeats=repeats, axes=axes)
    return load(out)


def load(folder: str | Path) -> Rows:
    """Return the run records of a folder as rows.

    The rows are a sequence with `to_records()` and, if pandas is installed,
    `to_pandas()`. A notebook shows them as a table.

    Raises:
      OSError: If the folder cannot be read.
      ValueError: If it has no run records; the message names subfolders that have some.
    """
    from rnn_scaling.analysis import folder_rows

    return folder_rows.load(folder)


def answer(folder: str | Path) -> str:
    """Return the first sentences of a folder's report, in English.

    Raises:
      OSError: If the folder cannot be read.
    """
    from rnn_scaling.records import folder as folders
    from rnn_scaling.reports import conclusions
    from rnn_scaling.reports.summary import summarise

    summary = summarise(folders.read(Path(folder)), str(folder))
    return conclusions.write_answer(summary)


def compare(
    before: str | Path,
    after: str | Path,
    *,
    metric: str = "items_per_second",
    max_regression: float = 0.05,
    paired: bool = False,
    force_incomparable: Collection[str] = (),
    across: str = "",
    history: Sequence[str | Path] = (),
) -> Report:
    """Judge whether the runs of one folder or record are slower than another's runs.

    Args:
      before: A folder of run records, or one record.
      after: The folder or record that is compared with it.
      metric: A choice of the command's `--metric`; speedup and efficiency also need
        runs on one device.
      max_regression: The largest slow-down that passes, as a share from 0 to below 1.
      paired: Whether to compare pair by pair: runs with the same repeat number ran one
        after the other, like the runs of the command `ab`.
      force_incomparable: Differences to ignore, such as "cpu_model"; "all" ignores
        every difference.
      across: "machine" if the sides are two machines; `machine_ratios` then shows which
        one is faster.
      history: Histories, or folders of run records, of earlier sessions, which show the
        drift between two sessions.

    Returns:
      The report that the command `compare` prints. `results` has a verdict and an
      interval for each configuration. `exit_status` is 0 if a slow-down beyond the
      limit is excluded, 1 if there is one, and 2 if the runs do not show it.

    Raises:
      ValueError: If there is nothing to compare, or the metric or share is unknown.
    """
    from rnn_scaling.analysis.comparison import judgement
    from rnn_scaling.analysis.history import sessions

    names = force_incomparable
    if isinstance(names, str):
        names = [names]
    accepted = frozenset(judgement.normalize_name(name) for name in names)
    past = sessions.read(list(map(Path, history))) if history else None
    question = judgement.Question(
        metric,
        paired=paired,
        max_regression=max_regression,
        accepted=accepted,
        across=across,
        past=past,
    )
    return judgement.judge(*judgement.read(Path(before), Path(after)), question)
