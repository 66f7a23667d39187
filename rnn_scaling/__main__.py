"""python -m rnn_scaling COMMAND, and the console script rnn-scaling: a table of doors."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence

from rnn_scaling import entry

COMMANDS = {
    "train": ("rnn_scaling.train", "one run"),
    "local-cluster": ("rnn_scaling.commands.local_cluster", "one run of several processes on this machine"),
    "sweep": ("rnn_scaling.commands.sweep", "many runs: any flag of the trainer takes a list"),
    "verify": ("rnn_scaling.commands.verify", "does a mode train what serial training does? a certificate"),
    "report": ("rnn_scaling.commands.report", "tables, CSV, JSON, pictures and one HTML page of a folder of records"),
    "recommend": ("rnn_scaling.commands.recommend", "which settings to take here, and the largest batch that fits"),
    "ab": ("rnn_scaling.commands.ab", "two settings in turns, and whether they differ"),
    "compare": ("rnn_scaling.commands.compare", "is B slower than A? a verdict and exit status for a CI job"),
    "audit": ("rnn_scaling.commands.audit", "numbers in tables of scaling results that cannot be"),
    "import_log": ("rnn_scaling.commands.import_log", "other tools' logs as the same tables"),
    "inspect": ("rnn_scaling.commands.inspect", "operators and kernels of a step, counted; why encoders differ"),
    "threads": ("rnn_scaling.commands.threads", "from how many threads on does dispatch not bound the devices"),
    "links": ("rnn_scaling.commands.links", "bandwidth and latency of memory, copies and all-reduces"),
    "phases": ("rnn_scaling.commands.phases", "where each tower's step goes, from a traced run"),
    "netlab": ("rnn_scaling.commands.netlab", "one run whose processes stand behind limited network links (root)"),
    "trace-db": ("rnn_scaling.commands.trace_db", "an Nsight Systems or nvprof database in numbers"),
    "tensorboard": ("rnn_scaling.commands.tensorboard", "starts TensorBoard: scalars, graph, trace"),
}
HELP_WORDS, VERSION_WORDS = ("--help", "-h", "help"), ("--version", "version")


@entry.command
def main(words: Sequence[str]) -> int:
    """Runs the command that the first word names; returns its exit status."""
    name = words[0] if words else ""
    if name in HELP_WORDS:
        raise entry.Answer(_page())
    if name in VERSION_WORDS:
        raise entry.Answer(f"rnn_scaling {entry.VERSION}")
    if name in COMMANDS:
        return importlib.import_module(COMMANDS[name][0]).main(words[1:])
    if not name:
        print(_page())
        return entry.EXIT_USAGE
    import difflib

    close = difflib.get_close_matches(name, COMMANDS, n=1)
    raise entry.Refusal(f"{name} is not a command; {f'did you mean {close[0]}?' if close else '--help lists them'}")


def _page() -> str:
    width, program = max(map(len, COMMANDS)) + 2, entry.program()
    lines = [f"  {command:{width}}{text}" for command, (_, text) in COMMANDS.items()]
    head = f"{program} COMMAND [--name=value ...]    ({program} COMMAND --help teaches each)"
    return "\n".join([head, "", *lines])


def console(started_as: str = "rnn-scaling") -> None:
    """What the console script rnn-scaling calls; `started_as` is how the user typed it, unless start.py has said."""
    entry.call_program(started_as)
    entry.leave(main, at_once=sys.argv[1:2] == ["train"])


if __name__ == "__main__":
    console("python -m rnn_scaling")
