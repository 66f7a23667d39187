"""python -m rnn_scaling sweep: every combination of some flags' values.

It only reads flags and prints; `sweeps.sweep` makes the runs.
"""

import contextlib
import sys
from collections.abc import Sequence
from pathlib import Path

from rnn_scaling.commands import history
from rnn_scaling.config import flags, registry
from rnn_scaling.config.registry import encoder_table
from rnn_scaling.config.run_config import OPTIONS
from rnn_scaling.sweeps import certifying_runs, sweep
from rnn_scaling.sweeps.command_lines import TRAINER
from rnn_scaling.sweeps.sweep_rounds import (
    MAX_BUDGET_ROUNDS,
    MAX_ROUNDS,
    MIN_ROUNDS,
    PRECISION_GOAL,
)
from rnn_scaling.sweeps.time_budget import DEFAULT_MINUTES
from rnn_scaling.system import entry

_ENCODERS = encoder_table.list_swept_encoders(str(OPTIONS["unit_type"].default))
USAGE = f"""\
Runs the trainer for every combination of the values: any of its flags (./run.sh train
--help) accepts a list. Defaults:

    --encoder_type={",".join(_ENCODERS)}
    --variable_update={",".join(registry.list_swept_modes())}
    --num_devices=1,2,...,N    N: all GPUs, or all CPU cores; 1,2,4,... above 8
    --preset=large on GPUs, small on CPUs

Other defaults depend on these flags:
    --unit_type=gru
        --encoder_type={",".join(encoder_table.list_swept_encoders("gru"))}
    --framework=tensorflow,torch
        --encoder_type={_ENCODERS[0]} --variable_update=independent,replicated
        --data_source=constant
    --num_workers=1,2,4
        --variable_update={",".join(registry.list_swept_modes(distributed=True))}
        --num_devices=1

A flag that only some runs read is passed only to them. The records and the report go to
--out. --dry_run only lists the runs. --launch="srun -K" starts each run with srun -K -n
PROCESSES.

    ./run.sh sweep --num_devices=1,2,4 --repeats=3 --out=results/mine --dry_run

Without flags of the trainer, the sweep takes {DEFAULT_MINUTES:g} minutes. It first runs
{_ENCODERS[0]} with independent and replicated on 1 and N devices, then the other modes,
then the other encoders. It prints a first table after one round, and repeats runs that
other processes disturbed. At the end it prints the command that adds the runs for which
there was no time. --minutes=X sets the time of any sweep, and --minutes=0 removes the
limit.

Every run is a process. A run that crashes, is killed, runs out of memory or exceeds
--run_timeout becomes a failed row with its reason; the others continue. There
are {MIN_ROUNDS} rounds with every run, in a random order and then in reverse. More
rounds follow, up to {MAX_ROUNDS} ({MAX_BUDGET_ROUNDS} with a time limit), until each
efficiency is known to ±{PRECISION_GOAL} points (without a baseline, each rate to
±{PRECISION_GOAL} %); --repeats=N makes exactly N rounds. After Ctrl-C the same command
continues. More values or repeats with the same --out add runs (docs/sweeps.md).
--certify first compares each configuration with serial training (./run.sh verify
--help) and marks a mode whose updates are wrong.

A trainer of your own, in any framework (docs/any_trainer.md): --trainer="COMMAND" with
{{num_devices}} and other values in braces. Its numbers come from the record of a
Recorder at {{result_file}}, or from its output.

    ./run.sh sweep --num_devices=1,2 \\
        --trainer="torchrun --nproc-per-node={{num_devices}} my.py {{result_file}}"
    ./run.sh sweep --trainer="python my.py --hidden={{hidden}}" --num_devices=1 \\
        --axis:hidden=256,512 \\
        --log_format="regex:words/s: {{number}}" --unit=words

Exit status: 0 all runs done; 1 a run failed, the updates of a mode are wrong, or the
folder cannot be written; 2 the flags conflict, the folder is in use or contains records
of other flags; 130 interrupted."""


@entry.command
def main(
    words: Sequence[str],
    trainer: Sequence[str] = TRAINER,
    verifier: Sequence[str] = certifying_runs.VERIFIER,
) -> int:
    """Run the command; return its exit status."""
    flags.answer(words, USAGE, sweep.GROUPS, "sweep")
    result = sweep.run_sweep(words, trainer, verifier, _show_first_round)
    if result.exit_status is not None:
        return result.exit_status
    # The progress lines end here; the answer follows.
    print(file=sys.stderr, flush=True)
    status = _report(result)
    for remark in result.remarks:
        print(remark, file=sys.stderr)
    return status


def _show_first_round(folder: Path) -> None:
    """Print the table of the first round on stderr; it may fail without harm."""
    from rnn_scaling.reports import report_files

    with contextlib.suppress(entry.Refusal):
        report_files.print_table(folder, sys.stderr)
    print("one run each: no intervals yet", file=sys.stderr)


def _report(result: sweep.SweepResult) -> int:
    """Write the report and print what failed; return the exit status."""
    from rnn_scaling.reports import report_files

    try:
        result.attach_certificates()
        report_files.report(result.out, result.out)
        if result.history:
            history.add([result.out], result.history)
    except entry.Refusal as refusal:
        entry.fail(*refusal.lines)
        result.print_failures()
        return entry.EXIT_FAILED
    except KeyboardInterrupt:
        print(f"\ninterrupted; the records are in {result.out}", file=sys.stderr)
        return entry.EXIT_INTERRUPTED
    return entry.EXIT_FAILED if result.print_failures() else entry.EXIT_OK
