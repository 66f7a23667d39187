"""Write the files of a run and print its notices, as observers of the run.

`train` and `verify` give them to `training.run`. They are here because `training` must
not import `reports`. `training.observers` defines the order of the calls.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from rnn_scaling.analysis.statements import Statement
from rnn_scaling.config.run_options import OutputOptions
from rnn_scaling.records import record as records
from rnn_scaling.reports import mlperf_log
from rnn_scaling.reports.wording import write_sentence
from rnn_scaling.system import entry
from rnn_scaling.system.files.output_files import RECORD_IN_LOG_DIR, write_text
from rnn_scaling.training.observers import Batch, Observer, OutputError, RunView

if TYPE_CHECKING:
    from rnn_scaling.records.record import RunRecord
    from rnn_scaling.reports.tensorboard.event_files import Scalars

# One block of a disk: less than any event file needs.
_PROBE_BYTES = 4096


class RecordFiles(Observer):
    """Writes --result_file and --mlperf_log whenever the record changes."""

    def __init__(self, output: OutputOptions) -> None:
        self._output = output

    def save(self, record: RunRecord) -> None:
        output = self._output
        if output.result_file:
            try:
                records.write(record, output.result_file)
            except OSError as e:
                flag = f"--result_file={output.result_file}"
                raise OutputError(flag, e.strerror or str(e), "record") from e
        if output.mlperf_log:
            try:
                write_text(mlperf_log.format_log(record), output.mlperf_log)
            except OSError as e:
                flag = f"--mlperf_log={output.mlperf_log}"
                raise OutputError(flag, e.strerror or str(e), "log") from e


class Notices(Observer):
    """Prints warnings and notes about a run on stderr."""

    def notice(self, statement: Statement) -> None:
        is_warning = statement.kind.startswith("warn-")
        report = entry.warn if is_warning else entry.note
        report(write_sentence(statement))


class EventFiles(Observer):
    """Writes the files of TensorBoard, and the record in the same folder.

    Scalars of each batch are written every few seconds, and the graph at the end.
    """

    def __init__(self, log_dir: str) -> None:
        self._log_dir = log_dir
        self._flag = f"--log_dir={log_dir}"
        self._is_writable = False
        self._run: RunView | None = None
        self._scalars: Scalars | None = None
        self._record: RunRecord | None = None

    def save(self, record: RunRecord) -> None:
        self._record = record
        if self._is_writable:
            return
        try:
            os.makedirs(self._log_dir, exist_ok=True)
            # A full disk may still take an empty file.
            with tempfile.TemporaryFile(dir=self._log_dir) as probe:
                probe.write(bytes(_PROBE_BYTES))
        except OSError as e:
            raise OutputError(self._flag, e.strerror or str(e), "folder") from e
        self._is_writable = True

    def begin(self, run: RunView) -> None:
        from rnn_scaling.reports.tensorboard import event_files  # loads TensorFlow

        self._run = run
        self._scalars = event_files.Scalars(
            self._log_dir, run.state.unit, num_written=len(run.state.timer.step_s)
        )

    def end_batch(self, batch: Batch) -> bool:
        assert self._scalars is not None
        is_due = self._scalars.is_due()
        if is_due:
            self._write_scalars()
        return is_due

    def end(self) -> None:
        if self._scalars is not None:
            self._write_scalars()
            self._scalars.close()

    def inspect(self) -> None:
        # The record is kept if the trace is interrupted or fails.
        self._write_record()

    def conclude(self, record: RunRecord) -> None:
        from rnn_scaling.reports.tensorboard import event_files  # loads TensorFlow

        assert self._run is not None
        self._record = record
        try:
            self._write_record()
            event_files.write_run(self._log_dir, self._run.step.graph(), record)
        except Exception as e:
            raise OutputError(self._flag, entry.find_first_line(e), "folder") from e

    def _write_record(self) -> None:
        assert self._record is not None
        records.write(self._record, Path(self._log_dir) / RECORD_IN_LOG_DIR)

    def _write_scalars(self) -> None:
        assert self._run is not None
        assert self._scalars is not None
        state = self._run.state
        timer = state.timer
        self._scalars.write(
            timer.step_s, timer.step_items, timer.step_loss, state.compute_accuracies()
        )
