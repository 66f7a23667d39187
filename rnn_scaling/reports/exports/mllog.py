"""Each run as a log of MLPerf's logging package: ":::MLLOG {json}" lines.

`registry.EXPORTS` names this module; `exported` describes its interface.
"""

from pathlib import Path

from rnn_scaling.reports import mlperf_log
from rnn_scaling.reports.exports.exported import Exported
from rnn_scaling.system.files.output_files import write_text
from rnn_scaling.system.files.terminal import format_count


def write(exported: Exported, destination: str) -> str:
    """Write one log per run to a folder; return a line about them.

    The format counts samples, which records of other programs do not contain.
    """
    folder = Path(destination)
    num_logs = 0
    for run in exported.runs:
        if run.record.options.is_ours:
            write_text(mlperf_log.format_log(run.record), folder / f"{run.name}.log")
            num_logs += 1
    line = f"{folder}: {format_count(num_logs, 'log')}"
    num_others = len(exported.runs) - num_logs
    if num_others:
        line += (
            f"; left out {format_count(num_others, 'run')} of other programs, which "
            "record no number of samples"
        )
    return line
