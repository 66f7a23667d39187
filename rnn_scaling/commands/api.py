"""What `import rnn_scaling` offers to programs in Python: the commands as functions."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from rnn_scaling.analysis.comparison.judgement import Report
    from rnn_scaling.analysis.folder_rows import Rows
    from rnn_scaling.config.flags import FlagErrors as FlagErrors
    from rnn_scaling.records.record import RunRecord
    from rnn_scaling.sweeps.invocations import RunFailed as RunFailed
    from rnn_scaling.training.recorder import Recorder as Recorder


def run(*, timeout_s: float = 0.0, launch: str = "", **options: Any) -> RunRecord:
    """One run of the trainer, in a process of its own, or several with num_workers; as often as one likes.

    Args:
      timeout_s: wall limit in seconds; 0: none.
      launch: a launcher with its flags ("srun -K") that starts the processes; without one they run on this machine.
      **options: the trainer's flags by name (`num_devices=2`, `variable_update="replicated"`); what is not given has
        the default of the command line.

    Returns:
      The run's record, as `--result_file` would have kept it.

    Raises:
      FlagErrors: naming every unknown option, wrong value and conflict, before anything starts.
      RunFailed: if the run fails; its `records` hold what had been measured.
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
    """Every combination of some options' values, each run a process; runs whose records are in `out` are not repeated.

    Args:
      timeout_s: wall limit of a run in seconds; 0: none; None: ten times what runs take, five minutes at least.
      launch: as in `run`.
      trainer: a command of your own in place of this suite's trainer, with places as `--trainer` has them
        (docs/any_trainer.md); `log_format`, `unit` and the like are among `options` then.
      axes: values, or lists of values, of options of that command: `{"hidden": [256, 512]}` for `{hidden}`.
      **options: the trainer's flags by name; a list or tuple is a list of values (`num_devices=[1, 2]`). What is not
        given has the sweep's defaults: both encoders, three update modes, 1 to N devices.

    Returns:
      The rows of the folder, as `load(out)`.

    Raises:
      FlagErrors: naming every unknown option, wrong value and conflict, before anything starts.
      RunFailed: if a run failed or the folder cannot be used; the others' records are in `out`.
    """
    from rnn_scaling.sweeps import invocations

    given = {
        **options,
        "run_timeout": timeout_s,
        "launch": launch or None,
        "trainer": trainer or None,
    }
    invocations.run_sweep(out, given, repeats=repeats, axes=axes)
    return load(out)


def load(folder: str | Path) -> Rows:
    """The run records of a folder as rows: a sequence, with `to_records()` and, where pandas is, `to_pandas()`.

    A notebook shows the rows as a table.

    Raises:
      OSError: if the folder cannot be read.
      ValueError: if it has no run records; the message names subfolders that have some.
    """
    from rnn_scaling.analysis import folder_rows

    return folder_rows.load(folder)


def compare(
    before: str | Path,
    after: str | Path,
    *,
    metric: str = "items_per_second",
    max_regression: float = 0.05,
    paired: bool = False,
    force_incomparable: Collection[str] = (),
    across: str = "",
) -> Report:
    """Whether the runs of one folder, or one record, are slower than those of another.

    Args:
      metric: one of the command's `--metric`; speedup and efficiency need runs on one device too.
      max_regression: the largest slow-down that passes, as a share from 0 to below 1.
      paired: compare pair by pair: runs with the same repeat number ran one after the other, as the command `ab` makes
        them.
      force_incomparable: differences to ignore, such as "cpu_model"; "all" ignores every difference.
      across: "machine": the sides are two machines; `machine_ratios` shows which is faster.

    Returns:
      What the command `compare` prints: `results` has a verdict and an interval for each configuration, `exit_status`
      is 0 where a slow-down beyond the limit is excluded, 1 where there is one, 2 where it cannot be judged.

    Raises:
      ValueError: if there is nothing to compare, or no such metric or share.
    """
    from rnn_scaling.analysis.comparison import judgement

    names = (
        [force_incomparable]
        if isinstance(force_incomparable, str)
        else force_incomparable
    )
    accepted = frozenset(judgement.plain_name(name) for name in names)
    question = judgement.Question(metric, paired, max_regression, accepted, across)
    return judgement.judge(*judgement.read(Path(before), Path(after)), question)
