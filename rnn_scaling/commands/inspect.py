"""python -m rnn_scaling inspect: operators and kernels of a step, counted, side by side, and why they differ."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from rnn_scaling.machine.cores import available_cores
from rnn_scaling.machine.gpus import visible_gpus
from rnn_scaling.records.files import write_text
from rnn_scaling.records.record import RunRecord
from rnn_scaling.settings import flags
from rnn_scaling.settings.config import option
from rnn_scaling.sweeps.conduct import EXIT_FAILED, EXIT_USAGE, TRAINER, ConductOptions, conduct
from rnn_scaling.sweeps.folder import Job
from rnn_scaling.sweeps.plan import identity, interleave, plan
from rnn_scaling.sweeps.traced import split

USAGE = """\
python -m rnn_scaling inspect [--out=DIR] [--repeats=N] [--name=value,value,... ...]    (or ./run.sh inspect)

How many operators has the graph that runs, how many kernels does a step invoke, and why does one encoder take so many
more than another? Runs the trainer for every combination of the values, counts, and compares. What is not given:

    --encoder_type=cudnn_lstm,dynamic_rnn --variable_update=replicated --num_batches=3 --num_warmup_batches=2
    --num_devices=1,2,...,N    N: the GPUs, or as many CPU devices as there are cores; 1,2,4,... above 8
    --preset=seed on GPUs, small on CPUs

    python -m rnn_scaling inspect --encoder_type=cudnn_lstm,dynamic_rnn --num_devices=1,2
    python -m rnn_scaling inspect --num_devices=1 --src_max_len=10,20,30    also how kernels grow with a length
    python -m rnn_scaling inspect --num_devices=1 --repeats=2               do two processes count the same?

Any flag of the trainer takes a list. Counts come from TensorFlow's own graphs and profiler (docs/inspect.md). They are
the same in every run, or the run is named: nothing is averaged. Prints the tables, and what is on each device; --out
gets the records, inspect.md (everything, with the place of each variable) and inspect.json. Every run is a process of
its own; the same command goes on where it stopped, as a sweep.

Exit status: 0 counted, 1 a run failed, counts differ that must not, or the folder cannot be written, 2 the flags
conflict, the folder is in use or holds records of other flags, 130 interrupted."""

DEFAULTS = {"variable_update": ["replicated"], "num_warmup_batches": [2], "num_batches": [3]}


@dataclasses.dataclass(frozen=True)
class InspectOptions:
    """Inspect."""

    out: str = option("results/inspect", "folder of the records, inspect.md and inspect.json")
    repeats: int = option(1, "runs of each combination; more than one shows that counts repeat", minimum=1)
    trace_batches: int = option(2, "batches whose kernels are also timed, for the record", minimum=1)


def main(argv: Sequence[str] | None = None, trainer: Sequence[str] = TRAINER) -> int:
    """Counts and compares; returns the exit status.

    Args:
      argv: the command line; that of the process if None.
      trainer: the command that runs one configuration.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    if flags.wants_help(words):
        print(flags.help_text(USAGE, {"inspect": InspectOptions, "conduct": ConductOptions}))
        return 0
    try:
        (own, how), lists = split(words, (InspectOptions, ConductOptions))
        defaults = {name: values for name, values in DEFAULTS.items() if name not in lists}
        runs = plan({**defaults, **lists}, num_gpus=visible_gpus(), num_cores=len(available_cores()))
    except flags.FlagErrors as e:
        for line in e.lines:
            print(f"error: {line}", file=sys.stderr)
        return EXIT_USAGE
    out = Path(own.out)
    jobs = [Job(run, out, run.label) for run in interleave(runs, own.repeats)]
    done = conduct(jobs, out, how, again=["python", "-m", "rnn_scaling", "inspect", *words], trainer=trainer)
    if done.exit_status is not None:
        return done.exit_status
    failed = done.print_failures()
    return EXIT_FAILED if _tell(out, {job.label: done.records[job.label] for job in jobs}) or failed else 0


def _tell(out: Path, records: Mapping[str, RunRecord]) -> bool:
    """Prints and writes what the records say; returns whether something is wrong."""
    # These load numpy, which a wrong flag need not wait for.
    from rnn_scaling.analysis.steps import counts
    from rnn_scaling.reports import counts_table, placement_table

    found = counts.inspect(records)
    for line in found.left_out:
        print(f"warning: {line}; left out", file=sys.stderr)
    if not found.groups:
        print("error: no run was counted", file=sys.stderr)
        return True
    placed = _one_of_each(records)
    widest = max(placed, key=lambda label: placed[label].config["num_devices"])
    short = f"\n### Placement of {widest}\n\n{placement_table.markdown(placed[widest], variables=False)}"
    print(counts_table.summary(found) + short, end="", flush=True)
    whole = "".join(f"\n## Placement of {label}\n\n{placement_table.markdown(run)}" for label, run in placed.items())
    try:
        write_text(counts_table.markdown(found) + whole, out / "inspect.md")
        write_text(counts_table.to_json(found), out / "inspect.json")
    except OSError as e:
        print(f"error: --out={out}: {e.strerror or e}", file=sys.stderr)
        return True
    print(f"\nwrote {out / 'inspect.md'} and inspect.json", file=sys.stderr)
    return bool(found.differences)


def _one_of_each(records: Mapping[str, RunRecord]) -> dict[str, RunRecord]:
    """The first counted run of each configuration, by its label."""
    first: dict[tuple, str] = {}
    for label, run in records.items():
        if run.graph:
            first.setdefault(identity(run.config), label)
    return {label: records[label] for label in first.values()}
