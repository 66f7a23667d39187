"""TensorBoard's files of a run: scalars of every batch while it runs; then the graph with its devices, and a page."""

import time
from collections.abc import Callable, Sequence

import tensorflow as tf

from rnn_scaling import entry
from rnn_scaling.analysis.metrics import RATE
from rnn_scaling.records.record import RunRecord
from rnn_scaling.reports.tensorboard import graph_view, run_text

INTERVAL_S = 5.0  # between two times that batches are written


class Scalars:
    """The batches of a run that goes on, written a few seconds' worth at a time, between two steps."""

    def __init__(self, log_dir: str, unit: str, clock: Callable[[], float] = time.monotonic, before: int = 0) -> None:
        """log_dir: folder, made if missing; "": nothing is ever due, and nothing is written.
        clock: returns seconds.
        """
        self._writer = tf.summary.create_file_writer(log_dir) if log_dir else None
        self._rate, self._clock, self._last, self._written = RATE.named_after(unit).name, clock, clock(), before

    def due(self) -> bool:
        """Whether it is time to write; costs less than a microsecond, and is asked after every step."""
        return self._writer is not None and self._clock() - self._last >= INTERVAL_S

    def write(
        self, seconds: Sequence[float], items: Sequence[int], losses: Sequence[float], accuracies: Sequence[float] = ()
    ) -> None:
        """Writes the batches that have not been written; a disk that is full ends the writing, and not the run."""
        if self._writer is None:
            return
        try:
            with self._writer.as_default():
                for step in range(self._written, len(seconds)):
                    values = [("loss", losses[step]), (self._rate, items[step] / seconds[step])]
                    values += [("accuracy", accuracies[step])] if accuracies else []
                    self._batch(step, (*values, ("step_seconds", seconds[step])))
            self._writer.flush()
        except (tf.errors.OpError, OSError) as e:
            entry.warn(f"--log_dir: {entry.first_line(e)}; no further scalars are written")
            self._writer = None
        self._written, self._last = len(seconds), self._clock()

    @staticmethod
    def _batch(step: int, values: Sequence[tuple[str, float]]) -> None:
        summary = tf.compat.v1.Summary()
        for name, value in values:
            summary.value.add(tag=f"batch/{name}", simple_value=value)
        tf.summary.experimental.write_raw_pb(summary.SerializeToString(), step=step)  # one operator for all

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()


def write(log_dir: str, graph: tf.Graph, run: RunRecord) -> None:
    """Writes what is known when a run has ended into an event file of its own."""
    rate = RATE.named_after(run.unit).name
    writer = tf.summary.create_file_writer(log_dir)
    with writer.as_default():
        tf.summary.graph(graph_view.view(graph))
        if run.throughput:
            tf.summary.scalar(f"measured/{rate}", run.throughput.items_per_second, step=0)
        tf.summary.text("run", run_text.markdown(run), step=0)
    writer.close()
