"""python -m rnn_scaling COMMAND, and the console script rnn-scaling: a table of doors."""

import importlib
import sys
from collections.abc import Mapping, Sequence

from rnn_scaling import entry

HELP_WORDS, VERSION_WORDS = ("--help", "-h", "help"), ("--version", "version")


@entry.command
def main(words: Sequence[str]) -> int:
    """Runs the command that the first word names; returns its exit status."""
    from rnn_scaling.commands.table import (
        COMMANDS,
    )  # here: Ctrl-C is answered from here on

    name = words[0] if words else ""
    if name in HELP_WORDS:
        raise entry.Answer(_page(COMMANDS))
    if name in VERSION_WORDS:
        raise entry.Answer(f"rnn_scaling {entry.VERSION}")
    if name in COMMANDS:
        return importlib.import_module(COMMANDS[name][0]).main(words[1:])
    if not name:
        print(_page(COMMANDS))
        return entry.EXIT_USAGE
    import difflib

    close = difflib.get_close_matches(name, COMMANDS, n=1)
    raise entry.Refusal(
        f"{name} is not a command; {f'did you mean {close[0]}?' if close else '--help lists them'}"
    )


def _page(commands: Mapping[str, tuple[str, str]]) -> str:
    width, program = max(map(len, commands)) + 2, entry.program()
    lines = [f"  {command:{width}}{text}" for command, (_, text) in commands.items()]
    head = f"{program} COMMAND [--name=value ...]\n\n{program} COMMAND --help explains a command."
    return "\n".join([head, "", *lines])


def console(started_as: str = "rnn-scaling") -> None:
    """What the console script rnn-scaling calls; `started_as` is how the user typed it, unless start.py has said."""
    entry.call_program(started_as)
    entry.leave(main, at_once=sys.argv[1:2] in (["train"], ["decode"]))


if __name__ == "__main__":
    console("python -m rnn_scaling")
