"""python -m rnn_scaling ab: two sets of flags, run in turns, and whether their speeds differ."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rnn_scaling import entry
from rnn_scaling.settings import flags
from rnn_scaling.sweeps import pairs
from rnn_scaling.sweeps.conduct import TRAINER, conduct

USAGE = """\
Which of two settings is faster, and is the difference real? Runs both in turns (A B B A A B B A ...), so that a machine
that slows down or speeds up does so for both, then compares them pair by pair. The last line is the answer: "A is
1.27 ± 0.03 times as fast as B", or that they cannot be told apart.

    ./run.sh ab --a="--variable_update=replicated" --b="--variable_update=parameter_server" --num_devices=2
    ./run.sh ab --a="" --b="--xla=true" --repeats=10 --out=results/xla

Flags outside the quotation marks go to both. The records are in DIR/a and DIR/b, those of one pair under the same
number. Stopped and started again with the same command it goes on; failed runs, limits and --force are as in
./run.sh sweep.

Exit status: that of ./run.sh compare DIR/a DIR/b: 0 no regression, 1 b is slower by more than the
limit, 2 cannot judge; 2 also when the flags conflict or the folder cannot be used, 130 interrupted."""


@entry.command
def main(words: Sequence[str], trainer: Sequence[str] = TRAINER) -> int:
    """Runs both sides and compares them; returns the exit status.

    Args:
      words: the command line.
      trainer: the command that runs one configuration.
    """
    flags.answer(words, USAGE, pairs.GROUPS, "ab")
    own, how, sides = pairs.split_sides(words)
    a, b = pairs.runs(sides)
    out = Path(own.out)
    jobs = pairs.counterbalanced(a, b, own.repeats, out)
    done = conduct(jobs, out, how, again=["ab", *words], trainer=trainer)
    if done.exit_status is not None:
        # 1 would say that b is slower
        return entry.EXIT_USAGE if done.exit_status == entry.EXIT_FAILED else done.exit_status
    done.print_failures()
    from rnn_scaling.analysis.comparison.judgement import Question  # loads numpy, which a wrong flag need not wait for
    from rnn_scaling.reports import comparison, faster

    question = Question(paired=True, max_regression=own.max_regression)
    words_of = faster.Sides(*(getattr(own, side) or "only the common flags" for side in "ab"))
    return comparison.compare(out / "a", out / "b", question, closing=lambda report: faster.sentence(report, words_of))
