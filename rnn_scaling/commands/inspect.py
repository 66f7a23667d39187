"""python -m rnn_scaling inspect [SOURCE]: operators, kernels and parts of a step.

It only reads flags and chooses the kind of source; `inspect_files` answers for files,
and otherwise `sweeps` runs the steps to inspect.
"""

import dataclasses
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from rnn_scaling.commands import inspect_files
from rnn_scaling.commands.inspect_files import ReadingOptions
from rnn_scaling.config import flags
from rnn_scaling.config.flags import option
from rnn_scaling.config.registry import encoder_table
from rnn_scaling.config.run_config import OPTIONS
from rnn_scaling.sweeps.command_lines import TRAINER
from rnn_scaling.sweeps.conduct import ConductOptions, Conductor
from rnn_scaling.sweeps.plan import plan, split
from rnn_scaling.sweeps.suite_trainer import SuiteTrainer
from rnn_scaling.system import entry
from rnn_scaling.system.files import input_files
from rnn_scaling.system.machine.gpus import describe_machine_size

USAGE = f"""\
How many operators does the graph have, how many kernels does a step run, and where does
its time go? Without SOURCE, runs the trainer for every combination of the values,
counts, and compares. Defaults:

    --encoder_type={",".join(encoder_table.list_encoders("lstm"))}    or the encoders of --unit_type
    --variable_update=replicated
    --num_batches=3 --num_warmup_batches=2
    --num_devices=1,2,...,N    N: all GPUs, or all CPU cores; 1,2,4,... above 8
    --preset=large on GPUs, small on CPUs

    ./run.sh inspect --encoder_type=cudnn_lstm,dynamic_rnn --num_devices=1,2
    ./run.sh inspect --num_devices=1 --src_max_len=10,20,30  growth with length

Any flag of the trainer (./run.sh train --help) accepts a list. Counts come from
TensorFlow's own graphs and profiler (docs/inspect.md). They must be the same in every
run of a configuration; runs that differ are named. Prints the tables and the operators
of each device. The records, inspect.md (everything, with the place of each variable)
and inspect.json are written to --out. Every run is a process. The same command
continues where it stopped.

With SOURCE, it reads earlier measurements:

    ./run.sh inspect run.json    a record of a run with --trace_batches=5
    ./run.sh inspect logs/a      a --log_dir, or a folder of records
    ./run.sh inspect run.json --picture=step.png > step.md
    ./run.sh inspect report1.sqlite --from=2.0 --to=2.5
    ./run.sh inspect traces/     traces of the PyTorch profiler, one per rank

For a traced run it shows the parts of each tower's step: forward, backward, update,
exposed exchange, waiting and idle. It also shows the tower that finishes last, kernels
by phase and the cost of tracing. The seconds of the whole run are shown by rank if
there are several. LOG_DIR/trace.json.gz has every event: open it at ui.perfetto.dev.
docs/inspect.md explains every part.

SOURCE may be a database of Nsight Systems (nsys export --type=sqlite REPORT) or of
nvprof (-o). Then it shows time by kernel and by copy kind, busy and idle time of each
device, hidden and exposed communication, and gaps. TIME is in seconds after the first
event, 1.25, or in nanoseconds of the database's own clock, 1250000000ns.
docs/inspect.md explains every number.

SOURCE may be traces of the PyTorch profiler (export_chrome_trace), one per rank: a
folder or the files. Then it shows compute, copies, exposed transfer, waiting for the
last rank and host time of each rank's steps. It names the ranks that the others wait
for. `torchrun -m rnn_scaling.hooks.trace my.py` makes them (docs/inspect.md).

Exit status: 0 counted or shown; 1 a run failed, counts differ between repeats, a SOURCE
could not be used, or a file cannot be written; 2 the flags conflict, the folder is in
use or contains records of other flags; 130 interrupted."""

_MAX_TRACED = OPTIONS["trace_batches"].metadata["maximum"]
_DEFAULTS: dict[str, list[Any]] = {
    "variable_update": ["replicated"],
    "num_warmup_batches": [2],
    "num_batches": [3],
}


@dataclasses.dataclass(frozen=True)
class InspectOptions:
    """Inspect."""

    out: str = option(
        "results/inspect", "folder of the records, inspect.md and inspect.json"
    )
    repeats: int = option(
        1,
        "runs per combination; 2 or more show whether every run has the same counts",
        minimum=1,
    )
    trace_batches: int = option(
        2,
        "number of batches whose kernels are also timed; the record contains the times",
        minimum=1,
        maximum=_MAX_TRACED,
    )


@entry.command
def main(words: Sequence[str], trainer: Sequence[str] = TRAINER) -> int:
    """Run the command; return its exit status."""
    groups = [InspectOptions, ConductOptions]
    flags.answer(words, USAGE, [*groups, ReadingOptions], "inspect")
    own_fields = flags.collect_fields([*groups, ReadingOptions])
    values, _ = flags.parse_with_errors(words, {**OPTIONS, **own_fields}, lists=True)
    if "sources" in values:
        return _read(words, values)
    mistakes = [
        f"--{name} needs a SOURCE to read; name a record, a folder or a database"
        for name in flags.collect_fields([ReadingOptions])
        if name in values
    ]
    if mistakes:
        raise flags.FlagErrors(mistakes)
    (options, conduct_options), lists = split(words, groups)
    runs = plan({**_DEFAULTS, **lists}, **describe_machine_size())
    out = Path(options.out)
    suite_trainer = SuiteTrainer(trainer, conduct_options.launch)
    conductor = Conductor(out, conduct_options, suite_trainer, ["inspect", *words])
    outcome = conductor.run_repeats(runs, options.repeats)
    if outcome.exit_status is not None:
        return outcome.exit_status
    # Imported here, because it loads numpy, which a wrong flag need not wait for.
    from rnn_scaling.reports import counts_report

    has_failures = outcome.print_failures()
    is_complete = counts_report.report(out, outcome.records)
    if has_failures or not is_complete:
        return entry.EXIT_FAILED
    return entry.EXIT_OK


def _read(words: Sequence[str], user_flags: Collection[str]) -> int:
    """Show the sources of the command line; return the exit status.

    Args:
      words: The command line.
      user_flags: The flags of this command or the trainer in it.
    """
    groups = [ReadingOptions, flags.FileOptions]
    fields = flags.collect_fields(groups)
    strays = [name for name in user_flags if name not in fields]
    if strays:
        raise flags.FlagErrors(
            [
                f"--{name} applies to new runs, but SOURCE is only read; leave it out"
                for name in strays
            ]
        )
    values, lines = flags.parse_with_errors(words, fields)
    options, files = flags.build(groups, values, lines)
    input_files.allow(files.max_file_mb)
    return inspect_files.answer(options, set(values))
