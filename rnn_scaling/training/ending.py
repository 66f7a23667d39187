"""After which batch a run ends, and why: batches, passes over the data, a known rate, or a target."""

import math
from collections.abc import Callable, Iterator
from fractions import Fraction

from rnn_scaling.analysis.learning import ACCURACY, LOSS, WINDOW_BATCHES, Target
from rnn_scaling.analysis.statements import Statement
from rnn_scaling.analysis.steady_state import UntilKnown
from rnn_scaling.config.conditions import is_read
from rnn_scaling.config.registry import TEXT_FILES
from rnn_scaling.config.run_config import RunConfig
from rnn_scaling.config.spelling import spell
from rnn_scaling.data import corpus, image_files
from rnn_scaling.training.checkpoint_folder import CheckpointError, max_batches
from rnn_scaling.training.state import RunState


class Ending:
    """Decides before each batch whether the run ends.

    Attributes:
      max_batches: Batches of the run at most, with the warm-up.
    """

    def __init__(self, config: RunConfig, state: RunState) -> None:
        """CheckpointError: more epochs were trained before than the run has, which is not known before it."""
        self._measure, self._state = config.measure, state
        self._known = UntilKnown(config.measure.target_ci)
        targets = {
            "stop_at_loss": Target(LOSS, self._measure.stop_at_loss),
            "stop_at_accuracy": Target(ACCURACY, self._measure.stop_at_accuracy),
        }
        self._targets = {
            name: target for name, target in targets.items() if target.value
        }
        self._limit = "max_batches" if self._measure.until_steady else "num_batches"
        self.max_batches = max_batches(self._measure)
        if self._measure.num_epochs:
            self._limit = "num_epochs"
            self.max_batches = _batches_of_epochs(config)
        if (done := len(state.timer.step_s)) > self.max_batches:
            raise CheckpointError(
                f"--checkpoint_dir={config.output.checkpoint_dir} holds batch {done}, and "
                f"{spell(self._limit, getattr(self._measure, self._limit))} ends with batch {self.max_batches}; "
                "raise it, or give another folder"
            )

    def reason(self, resume: Callable[[], None]) -> str:
        """The option that ends the run now; empty: it goes on. `resume` ends a look at the times."""
        measure, timer, done = (
            self._measure,
            self._state.timer,
            len(self._state.timer.step_s),
        )
        for name, target in self._targets.items():
            if done > measure.num_warmup_batches and self._is_reached(target):
                return name
        if done >= self.max_batches:
            return self._limit
        if (
            measure.until_steady
            and done >= measure.num_warmup_batches + measure.num_batches
            and self._known.due(done)
        ):
            if self._known.reached(timer.step_s, timer.step_items):
                return "until_steady"
            resume()
        return ""

    def before(self) -> Iterator[Statement]:
        """Yield a warning if no batch is left to train."""
        done = len(self._state.timer.step_s)
        if done == self.max_batches:
            yield Statement("warn-nothing-trained", values={"batch": done})

    def after(self, reason: str) -> Iterator[Statement]:
        """Yield for each target whether it ended the run."""
        for name, target in self._targets.items():
            kind = "run-target-reached" if name == reason else "run-target-missed"
            batches = len(self._state.timer.step_s)
            values = {"option": name, "value": target.value, "batches": batches}
            yield Statement(kind, values=values)

    def _is_reached(self, target: Target) -> bool:
        """Whether the mean over a window met the target, and has done so since for as many batches."""
        sums, counts = self._state.recent_sums(target.kind, 2 * WINDOW_BATCHES)
        if len(counts) < 2 * WINDOW_BATCHES:
            return False
        windows = [
            slice(start, start + WINDOW_BATCHES) for start in range(WINDOW_BATCHES + 1)
        ]
        return all(
            target.is_met(math.fsum(sums[window]) / sum(counts[window]))
            for window in windows
        )


def _batches_of_epochs(config: RunConfig) -> int:
    """Batches, the last one full, of --num_epochs passes over the files; DataError if they end within the warm-up."""
    measure, data = config.measure, config.data
    if is_read(config, "data_dir"):
        samples = image_files.count(image_files.files(data))
    else:
        texts = [
            name
            for name in TEXT_FILES
            if name.endswith("_file_name") and is_read(config, name)
        ]
        samples = corpus.count_pairs({name: getattr(data, name) for name in texts})
    together = (
        sum(config.tower_batch_sizes()) * config.training.gradient_accumulation_steps
    )
    # As written: 1.1 times 50,000 is a little more than 55,000 in floating point, and would be a batch more.
    batches = math.ceil(Fraction(str(measure.num_epochs)) * samples / together)
    if batches <= measure.num_warmup_batches:
        raise corpus.DataError(
            f"--num_epochs={measure.num_epochs:g} of {samples:,} samples are {batches} batches of {together}, "
            f"all in --num_warmup_batches={measure.num_warmup_batches}; raise the one or lower the other"
        )
    return batches
