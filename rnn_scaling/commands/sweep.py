"""python -m rnn_scaling sweep: every combination of some flags' values, each run a process of its own."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path

from models.kernels import KERNELS
from rnn_scaling import entry, registry
from rnn_scaling.machine.cores import available_cores
from rnn_scaling.machine.gpus import visible_gpus
from rnn_scaling.settings import flags, sweep_options
from rnn_scaling.settings.config import option
from rnn_scaling.sweeps.conduct import TRAINER, ConductOptions, conduct
from rnn_scaling.sweeps.folder import Job
from rnn_scaling.sweeps.plan import interleave, plan

USAGE = f"""\
Runs the trainer for every combination of the values; any of its flags (./run.sh train --help) takes a list. What is
not given:

    --encoder_type={",".join(KERNELS)} --variable_update={",".join(registry.swept(registry.VARIABLE_UPDATES))}
    --num_devices=1,2,...,N    N: the GPUs, or as many CPU devices as there are cores; 1,2,4,... above 8
    --preset=seed on GPUs, small on CPUs                                   (./run.sh sweep alone is this)

A flag that only some of the runs read goes to those. Writes the records to --out, then the report of that folder.

    ./run.sh sweep --num_devices=1,2,4 --repeats=3 --out=results/mine --dry_run    what would run?

Every run is a process of its own. One that crashes, is killed, runs out of memory or takes longer than --run_timeout
is a failed row with its reason; the others go on. Repeats go round (A B C A B C). Ctrl-C, or any other end: the same
command goes on where it stopped. More values or repeats with the same --out add runs; docs/sweeps.md has the rules.

Exit status: 0 all runs done, 1 a run failed or the folder cannot be written, 2 the flags conflict, the folder is in
use or holds records of other flags, 130 interrupted."""


@dataclasses.dataclass(frozen=True)
class SweepOptions:
    """Sweep."""

    out: str = option("results/default", "folder of the records and the report")
    repeats: int = option(1, "runs of each combination", minimum=1)


@entry.command
def main(words: Sequence[str], trainer: Sequence[str] = TRAINER) -> int:
    """Runs a sweep; returns the exit status.

    Args:
      words: the command line.
      trainer: the command that runs one configuration.
    """
    groups = [SweepOptions, ConductOptions]
    flags.answer(words, USAGE, groups, "sweep")
    (own, how), lists = sweep_options.split(words, groups)
    runs = plan(lists, num_gpus=visible_gpus(), num_cores=len(available_cores()))
    out = Path(own.out)
    jobs = [Job(run, out, run.label) for run in interleave(runs, own.repeats)]
    done = conduct(jobs, out, how, again=["sweep", *words], trainer=trainer)
    if done.exit_status is not None:
        return done.exit_status
    try:
        from rnn_scaling.reports import writing  # here: what it loads is needed at the end only

        writing.report(out, out)
    except entry.Refusal as refusal:
        entry.fail(*refusal.lines)
        done.print_failures()
        return entry.EXIT_FAILED
    except KeyboardInterrupt:
        print(f"\ninterrupted; the records are in {out}", file=sys.stderr)
        return entry.EXIT_INTERRUPTED
    return entry.EXIT_FAILED if done.print_failures() else entry.EXIT_OK
