"""The time budget of a sweep: its duration, and the measured batches per run.

Source of the numbers of batches: the runs of docs/results/default, cut to fewer
batches. With ten warm-up batches, the error of one run's efficiency is 0.6 points after
20 measured batches and 1.1 points after 5; with two warm-up batches it is 8 points. So
the measured batches can be few, and the warm-up batches cannot.

`sweep` chooses its budget once, before the first round.
"""

import dataclasses
import math
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rnn_scaling.config import flags
from rnn_scaling.config.conditions import END_OPTIONS
from rnn_scaling.records.record import RunRecord
from rnn_scaling.sweeps.conduct import Conductor
from rnn_scaling.sweeps.folder import Job
from rnn_scaling.sweeps.plan import plan
from rnn_scaling.sweeps.sweep_rounds import split_into_stages

DEFAULT_MINUTES = 3.0
# Numbers of measured batches to choose from, and the seconds that they should take.
MEASURED_BATCHES = (10, 20, 50, 100, 200)
_MEASURED_S = 3.0
# The run that shows how long a batch takes. Reports do not read subfolders.
CALIBRATION_FOLDER = "calibration"
_CALIBRATION = {"num_warmup_batches": [2], "num_batches": [3]}


@dataclasses.dataclass(frozen=True)
class Budget:
    """The time that a sweep may take."""

    minutes: float = math.inf

    @property
    def is_limited(self) -> bool:
        return self.minutes < math.inf

    def continue_words(
        self, words: Sequence[str], num_batches: int | None
    ) -> list[str]:
        """Return the words of a command that makes all runs, without a budget.

        Args:
          words: The words of this command.
          num_batches: The chosen number of measured batches; None if the user's words
            determine it.
        """
        kept_words = [word for word in words if not word.startswith("--minutes=")]
        if num_batches:
            kept_words.append(f"--num_batches={num_batches}")
        # The last value of a flag counts.
        return ["sweep", *kept_words, "--minutes=0"]


def choose_budget(minutes: float | None, repeats: int, is_default: bool) -> Budget:
    """Return the budget of a sweep.

    Args:
      minutes: The value of --minutes; None if the user did not give it.
      repeats: The value of --repeats; 0 if the precision decides.
      is_default: Whether the user gave no flag of the trainer.

    Raises:
      FlagErrors: If both --minutes and --repeats are given.
    """
    if minutes and repeats:
        raise flags.FlagErrors(
            [
                f"--minutes={minutes:g} and --repeats={repeats} contradict each other: "
                "with --repeats, every configuration runs exactly that often; leave "
                "one out"
            ]
        )
    if minutes is None:
        minutes = DEFAULT_MINUTES if is_default and not repeats else 0.0
    return Budget(minutes or math.inf)


def calibrate(
    lists: Mapping[str, list[Any]],
    conductor: Conductor,
    out: Path,
    machine: Mapping[str, int],
) -> int | None:
    """Choose the number of measured batches by one short run.

    Args:
      lists: The values of the trainer's flags.
      conductor: Makes the run.
      out: The folder of the run.
      machine: The numbers of GPUs and of cores, for `plan`.

    Returns:
      None if the run was interrupted or could not be made.
    """
    runs = plan({**lists, **_CALIBRATION}, **machine)
    run = split_into_stages(runs)[0][0]
    print("a short run shows how long a batch takes", file=sys.stderr)
    if not conductor.run([Job(run, out)]):
        return None
    return choose_num_batches(conductor.records[run.label])


def has_fixed_length(lists: Mapping[str, Sequence[Any]]) -> bool:
    """Return whether the user's flags determine the number of batches per run."""
    return not lists.keys().isdisjoint({"num_batches", *END_OPTIONS})


def choose_num_batches(calibration: RunRecord) -> int:
    """Return the number of measured batches per run, from the record of a short run."""
    num_measured = calibration.batches.measured
    if calibration.status != "ok" or not num_measured:
        return MEASURED_BATCHES[0]
    batch_s = statistics.median(calibration.batches.seconds[-num_measured:])
    for num_batches in MEASURED_BATCHES:
        if num_batches * batch_s >= _MEASURED_S:
            return num_batches
    return MEASURED_BATCHES[-1]
