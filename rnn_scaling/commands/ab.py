"""python -m rnn_scaling ab: compare the speeds of two sets of flags.

This module reads the flags and prints the answer; `sweeps.pairs` plans the runs, and
`analysis.comparison` judges them.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rnn_scaling.config import flags
from rnn_scaling.sweeps import pairs, sweep
from rnn_scaling.sweeps.command_lines import TRAINER
from rnn_scaling.sweeps.conduct import Conductor
from rnn_scaling.sweeps.program_trainer import ProgramTrainer
from rnn_scaling.sweeps.runs import AnyRun, Trainer
from rnn_scaling.sweeps.suite_trainer import SuiteTrainer
from rnn_scaling.system import entry
from rnn_scaling.system.files.terminal import format_count

USAGE = """\
Which of two settings is faster, and is the difference real? Alternates between both (A
B B A B A A B ...), so that drift of the machine affects both. Compares them pair by
pair. Pairs that other processes disturbed are repeated at the end, at most one per two
pairs. The first line is the answer: "B is 1.27 ± 0.03 times as fast as A".

    ./run.sh ab --a="--variable_update=replicated" \\
        --b="--variable_update=parameter_server" --num_devices=2
    ./run.sh ab --a="" --b="--xla=true" --repeats=10 --out=results/xla

    ./run.sh ab --trainer="python my.py --hidden={hidden}" \\
        --a="--axis:hidden=256" --b="--axis:hidden=512"

The last example is a program of your own (docs/any_trainer.md); --trainer may differ
between the sides. Flags outside the quotation marks go to both. The records are in
DIR/a and DIR/b. The same command continues where it stopped; failed runs, limits and
--force work as in ./run.sh sweep.

Exit status: 0 a slow-down of B beyond the limit is excluded; 1 B is slower by more than
the limit (like ./run.sh compare DIR/a DIR/b --paired); 2 unclear, or the flags conflict
or the folder cannot be used; 130 interrupted."""


@entry.command
def main(words: Sequence[str], trainer: Sequence[str] = TRAINER) -> int:
    """Run the command; return its exit status."""
    flags.answer(words, USAGE, pairs.GROUPS, "ab")
    options, conduct_options, sides = pairs.split_sides(words)
    a, b = pairs.plan_runs(sides)
    out = Path(options.out)
    pair_trainer: Trainer[Any] = SuiteTrainer(trainer, conduct_options.launch)
    if sides[0].has_program:
        sweep.require_no_suite_options(conduct_options)
        pair_trainer = ProgramTrainer()
    conductor = Conductor(out, conduct_options, pair_trainer, ["ab", *words])
    if not _run_pairs(conductor, a, b, options.repeats, out):
        status = conductor.outcome.exit_status or entry.EXIT_OK
        # EXIT_FAILED would mean that b is slower.
        return entry.EXIT_USAGE if status == entry.EXIT_FAILED else status
    conductor.note_nothing_to_run()
    conductor.outcome.print_failures()
    entry.note(*pair_trainer.notes)
    return _print_answer(out, options)


def _run_pairs(
    conductor: Conductor, a: AnyRun, b: AnyRun, num_pairs: int, out: Path
) -> bool:
    """Run all pairs, and repeat those that other processes disturbed.

    Args:
      conductor: Starts the runs and has their records.
      a: The run of side A.
      b: The run of side B.
      num_pairs: The number of undisturbed pairs that are wanted.
      out: The folder of the records.

    Returns:
      Whether all runs are complete.
    """
    if not conductor.run(pairs.counterbalance(a, b, num_pairs, out)):
        return False
    further_pairs = pairs.replace_disturbed(
        a, b=b, num_pairs=num_pairs, out=out, records=conductor.records
    )
    if not further_pairs:
        return True
    disturbed_text = format_count(len(further_pairs) // 2, "disturbed pair")
    entry.note(f"repeating {disturbed_text} of runs")
    return conductor.run(further_pairs)


def _print_answer(out: Path, options: pairs.AbOptions) -> int:
    """Print which side is faster, and return the exit status."""
    # These modules load NumPy, so wrong flags are reported before they are imported.
    from rnn_scaling.analysis.comparison.judgement import Question, Report
    from rnn_scaling.reports import comparison, comparison_statements, wording

    question = Question(paired=True, max_regression=options.max_regression)
    no_flags_text = "only the common flags"
    settings = f"A: {options.a or no_flags_text}\nB: {options.b or no_flags_text}"

    def format_answer(report: Report) -> str:
        answers = [
            *comparison_statements.state_sides(report),
            *comparison_statements.state_disturbed_runs(
                report, comparison_statements.A_AND_B
            ),
            *comparison_statements.state_step_times(report),
        ]
        return f"{wording.write_sentences(answers)}\n{settings}"

    return comparison.compare(out / "a", out / "b", question, answer=format_answer)
