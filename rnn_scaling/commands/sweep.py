"""python -m rnn_scaling sweep: every combination of some flags' values, each run a process of its own."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rnn_scaling.machine.cores import available_cores
from rnn_scaling.machine.gpus import visible_gpus
from rnn_scaling.settings import config as configs
from rnn_scaling.settings import flags, sweep_options
from rnn_scaling.settings.config import option
from rnn_scaling.sweeps.conduct import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_USAGE, TRAINER, ConductOptions, conduct
from rnn_scaling.sweeps.folder import Job
from rnn_scaling.sweeps.plan import interleave, plan

USAGE = """\
python -m rnn_scaling sweep [--out=DIR] [--repeats=N] [--name=value,value,... ...]    (or ./run.sh sweep)

Runs the trainer for every combination of the values; any flag of the trainer takes a list. What is not given:

    --encoder_type=cudnn_lstm,dynamic_rnn --variable_update=independent,parameter_server,replicated
    --num_devices=1,2,...,N    N: the GPUs, or as many CPU devices as there are cores; 1,2,4,... above 8
    --preset=seed on GPUs, small on CPUs                                   (./run.sh alone is this)

A flag that only some of the runs read goes to those. Writes the records to --out, then the report of that folder.

    python -m rnn_scaling sweep --num_devices=1,2,4 --repeats=3 --out=results/mine --dry_run    what would run?

Every run is a process of its own. One that crashes, is killed, runs out of memory or takes longer than --run_timeout
is a failed row with its reason; the others go on. Repeats go round (A B C A B C). Ctrl-C, or any other end: the same
command goes on where it stopped. More values or repeats with the same --out add runs; docs/sweeps.md has the rules.

Exit status: 0 all runs done, 1 a run failed or the folder cannot be written, 2 the flags conflict, the folder is in
use or holds records of other flags, 130 interrupted."""

RESERVED = ("result_file", "log_dir", "progress")


@dataclasses.dataclass(frozen=True)
class SweepOptions:
    """Sweep."""

    out: str = option("results/default", "folder of the records and the report")
    repeats: int = option(1, "runs of each combination", minimum=1)


def main(argv: Sequence[str] | None = None, trainer: Sequence[str] = TRAINER) -> int:
    """Runs a sweep; returns the exit status.

    Args:
      argv: the command line; that of the process if None.
      trainer: the command that runs one configuration.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    if flags.wants_help(words):
        print(flags.help_text(USAGE, {"sweep": SweepOptions, "conduct": ConductOptions}))
        return 0
    try:
        own, how, lists = split_lists(words)
        runs = plan(lists, num_gpus=visible_gpus(), num_cores=len(available_cores()))
    except flags.FlagErrors as e:
        for line in e.lines:
            print(f"error: {line}", file=sys.stderr)
        return EXIT_USAGE
    out = Path(own.out)
    jobs = [Job(run, out, run.label) for run in interleave(runs, own.repeats)]
    again = ["python", "-m", "rnn_scaling", "sweep", *words]
    done = conduct(jobs, out, how, again=again, trainer=trainer)
    if done.exit_status is not None:
        return done.exit_status
    from rnn_scaling.commands import report  # here: what it loads is needed at the end only

    try:
        status = report.main([str(out)])
    except KeyboardInterrupt:
        print(f"\ninterrupted; the records are in {out}", file=sys.stderr)
        return EXIT_INTERRUPTED
    return EXIT_FAILED if done.print_failures() else status


def split_lists(words: Sequence[str]) -> tuple[SweepOptions, ConductOptions, dict[str, list[Any]]]:
    """Command line -> (the sweep's options, values of each trainer flag that was given).

    Raises:
      FlagErrors: naming every unknown flag and malformed value.
    """
    groups = (SweepOptions, ConductOptions)
    lists = flags.parse(words, {**sweep_options.fields(groups), **configs.OPTIONS}, lists=True)
    lines = [f"--{name} is set by the sweep; leave it out" for name in RESERVED if name in lists]
    single = {}
    for name in sweep_options.fields(groups).keys() & lists.keys():
        values = lists.pop(name)
        single[name] = values[0]
        if len(values) > 1:
            lines.append(f"--{name}={','.join(map(str, values))} must be one value")
    own, how = sweep_options.build(groups, single, lines)
    return own, how, lists
