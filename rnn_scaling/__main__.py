"""python -m rnn_scaling COMMAND, and the console script rnn-scaling: a table of doors."""

from __future__ import annotations

import difflib
import importlib
import sys

from rnn_scaling import entry

COMMANDS = {
    "train": ("rnn_scaling.train", "one run"),
    "sweep": ("rnn_scaling.commands.sweep", "many runs: any flag of the trainer takes a list"),
    "report": ("rnn_scaling.commands.report", "tables, CSV, JSON, pictures and one HTML page of a folder of records"),
    "ab": ("rnn_scaling.commands.ab", "two settings in turns, and whether they differ"),
    "compare": ("rnn_scaling.commands.compare", "is B slower than A? a verdict and exit status for a CI job"),
    "audit": ("rnn_scaling.commands.audit", "numbers in tables of scaling results that cannot be"),
    "import_log": ("rnn_scaling.commands.import_log", "other tools' logs as the same tables"),
    "inspect": ("rnn_scaling.commands.inspect", "operators and kernels of a step, counted; why encoders differ"),
    "threads": ("rnn_scaling.commands.threads", "from how many threads on does dispatch not bound the devices"),
    "links": ("rnn_scaling.commands.links", "bandwidth and latency of memory, copies and all-reduces"),
    "phases": ("rnn_scaling.commands.phases", "where each tower's step goes, from a traced run"),
    "trace-db": ("rnn_scaling.commands.trace_db", "an Nsight Systems or nvprof database in numbers, and a cut"),
    "tensorboard": ("rnn_scaling.commands.tensorboard", "shows a log folder: graph, trace, report"),
}
HELP_WORDS = ("--help", "-h", "help")


def main() -> int:
    """Runs the command that the first word names; returns its exit status."""
    name, words = sys.argv[1] if len(sys.argv) > 1 else "", sys.argv[2:]
    if name in HELP_WORDS or not name:
        width = max(map(len, COMMANDS)) + 2
        print("rnn-scaling COMMAND [--flags ...]    (rnn-scaling COMMAND --help teaches each)\n")
        print("\n".join(f"  {command:{width}}{text}" for command, (_, text) in COMMANDS.items()))
        return 0 if name else entry.EXIT_USAGE
    if name not in COMMANDS:
        close = difflib.get_close_matches(name, COMMANDS, n=1)
        hint = f"did you mean {close[0]}?" if close else "--help lists them"
        print(f"error: {name} is not a command; {hint}", file=sys.stderr)
        return entry.EXIT_USAGE
    sys.argv = [f"rnn-scaling {name}", *words]
    return importlib.import_module(COMMANDS[name][0]).main(words)


def console() -> None:
    """What the console script rnn-scaling calls."""
    entry.leave(main, at_once=sys.argv[1:2] == ["train"])


if __name__ == "__main__":
    console()
