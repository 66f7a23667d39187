"""Decide when a run ends.

A run ends after a number of batches, after passes over the data, when its rate is known
well enough, or when it has reached a target.

`benchmark.run_batches` is the only caller. To add a reason, add a test to
`StopRule.find_reason` that returns the name of its option; reports print that name.
"""

import math
from collections.abc import Callable, Iterator
from fractions import Fraction

from rnn_scaling.analysis.learning import ACCURACY, LOSS, WINDOW_BATCHES, Target
from rnn_scaling.analysis.statements import Statement
from rnn_scaling.analysis.steady_state import KnownRateRule
from rnn_scaling.config.conditions import is_read
from rnn_scaling.config.registry import TEXT_FILES
from rnn_scaling.config.run_config import RunConfig
from rnn_scaling.config.spelling import spell
from rnn_scaling.data import corpus, image_files
from rnn_scaling.system.files.terminal import format_count
from rnn_scaling.training.checkpoint_folder import CheckpointError, find_max_batches
from rnn_scaling.training.state import RunState


class StopRule:
    """Decide before each batch whether the run ends.

    `benchmark.run_batches` calls `warn_if_nothing_is_left` once, `find_reason` before
    each batch, and `describe_targets` after the last one. The batches are read from the
    run's `RunState`.

    Attributes:
      max_batches: The largest number of batches of the run, with the warm-up.
    """

    def __init__(self, config: RunConfig, state: RunState) -> None:
        """Read the limits and targets of a run.

        Raises:
          CheckpointError: If more batches were trained before than --num_epochs has.
        """
        self._measure = config.measure
        self._state = state
        self._rate_rule = KnownRateRule(config.measure.target_ci)
        targets = {
            "stop_at_loss": Target(LOSS, self._measure.stop_at_loss),
            "stop_at_accuracy": Target(ACCURACY, self._measure.stop_at_accuracy),
        }
        self._targets = {
            name: target for name, target in targets.items() if target.value
        }
        until_steady = self._measure.until_steady
        self._limit_option = "max_batches" if until_steady else "num_batches"
        self.max_batches = find_max_batches(self._measure)
        if self._measure.num_epochs:
            self._limit_option = "num_epochs"
            self.max_batches = _count_batches_of_epochs(config)
        num_done = len(state.timer.step_s)
        if num_done > self.max_batches:
            limit_value = getattr(self._measure, self._limit_option)
            limit = spell(self._limit_option, limit_value)
            raise CheckpointError(
                f"--checkpoint_dir={config.output.checkpoint_dir} contains batch "
                f"{num_done}, but {limit} ends with batch {self.max_batches}; raise "
                f"--{self._limit_option}, or give another --checkpoint_dir"
            )

    def find_reason(self, resume: Callable[[], None]) -> str:
        """Return the option that ends the run now, or "" if the run continues.

        Targets come first: a target is named even if the last batch reaches it.

        Args:
          resume: Restarts the clock of the next batch. It is called after an analysis
            of the times, so that the next batch does not contain the analysis.
        """
        measure = self._measure
        timer = self._state.timer
        num_done = len(timer.step_s)
        for name, target in self._targets.items():
            if num_done > measure.num_warmup_batches and self._is_reached(target):
                return name
        if num_done >= self.max_batches:
            return self._limit_option
        min_batches = measure.num_warmup_batches + measure.num_batches
        may_end_early = measure.until_steady and num_done >= min_batches
        if may_end_early and self._is_rate_known(resume):
            return "until_steady"
        return ""

    def _is_rate_known(self, resume: Callable[[], None]) -> bool:
        """Return whether the rate is known; call `resume` if the times were analysed."""
        timer = self._state.timer
        if not self._rate_rule.is_due(len(timer.step_s)):
            return False
        is_known = self._rate_rule.update(timer.step_s, timer.step_items)
        if not is_known:
            resume()
        return is_known

    def warn_if_nothing_is_left(self) -> Statement | None:
        """Return a warning if no batch is left to train."""
        num_done = len(self._state.timer.step_s)
        if num_done < self.max_batches:
            return None
        return Statement("warn-nothing-trained", values={"batch": num_done})

    def describe_targets(self, reason: str) -> Iterator[Statement]:
        """Yield for each target whether it ended the run.

        Args:
          reason: The result of `find_reason`.
        """
        for name, target in self._targets.items():
            kind = "run-target-reached" if name == reason else "run-target-missed"
            batches = len(self._state.timer.step_s)
            values = {"option": name, "value": target.value, "batches": batches}
            yield Statement(kind, values=values)

    def _is_reached(self, target: Target) -> bool:
        """Return whether the mean of every recent window met the target.

        A window has WINDOW_BATCHES batches; all windows among the last 2 *
        WINDOW_BATCHES batches count.
        """
        sums, counts = self._state.sum_recent(target.kind, 2 * WINDOW_BATCHES)
        if len(counts) < 2 * WINDOW_BATCHES:
            return False
        for start in range(WINDOW_BATCHES + 1):
            window = slice(start, start + WINDOW_BATCHES)
            if not target.is_met(math.fsum(sums[window]) / sum(counts[window])):
                return False
        return True


def _count_batches_of_epochs(config: RunConfig) -> int:
    """Return how many batches make up --num_epochs passes over the files.

    The last batch is full.

    Raises:
      DataError: If the passes end within the warm-up.
    """
    measure = config.measure
    samples = _count_samples_of_epoch(config)
    micro_batches_per_step = config.training.gradient_accumulation_steps
    global_batch = sum(config.tower_batch_sizes()) * micro_batches_per_step
    # The fraction of the flag's text is exact. In floating point, 1.1 * 50,000 is a
    # little more than 55,000, which would be one batch more.
    batches = math.ceil(Fraction(str(measure.num_epochs)) * samples / global_batch)
    if batches <= measure.num_warmup_batches:
        raise corpus.DataError(
            f"--num_epochs={measure.num_epochs:g} with {samples:,} samples "
            f"gives {format_count(batches, 'batch|batches')} of {global_batch} "
            "samples, which are all warm-up "
            f"(--num_warmup_batches={measure.num_warmup_batches}); raise "
            "--num_epochs, or lower --num_warmup_batches"
        )
    return batches


def _count_samples_of_epoch(config: RunConfig) -> int:
    """Return the number of images, or of sentences, in the files that a run reads."""
    data = config.data
    if is_read(config, "data_dir"):
        return image_files.count_images(image_files.list_files(data))
    text_files = {}
    for name in TEXT_FILES:
        # Other files of TEXT_FILES are vocabularies.
        if name.endswith("_file_name") and is_read(config, name):
            text_files[name] = getattr(data, name)
    return corpus.count_pairs(text_files)
