"""Count and trace the operators of a step while a run goes on, as an observer.

`train` adds the observer if the options ask for a trace.
"""

from __future__ import annotations

from rnn_scaling.training.observers import Observer, RunView


class StepInspection(Observer):
    """Fills `graph` and `trace` of the record from the step that has run."""

    def __init__(self) -> None:
        self._run: RunView | None = None

    def begin(self, run: RunView) -> None:
        self._run = run

    def inspect(self) -> None:
        """Count the operators of the step and trace some batches.

        Raises:
          TraceError: If the profiler fails.
        """
        from rnn_scaling.inspection import observe  # loads TensorFlow

        assert self._run is not None
        state = self._run.state
        output = self._run.config.output
        state.graph = observe.describe_graph(self._run.step)
        measured_s = state.timer.step_s[state.timer.warmup_steps :]
        state.trace = observe.trace(
            self._run.step, output.trace_batches, output.log_dir, measured_s
        )
