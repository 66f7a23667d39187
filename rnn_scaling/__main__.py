"""python -m rnn_scaling COMMAND, and the console script rnn-scaling."""

import importlib
import sys
from collections.abc import Mapping, Sequence

from rnn_scaling.system import entry

_HELP_WORDS = ("--help", "-h", "help")
_VERSION_WORDS = ("--version", "version")


@entry.command
def main(words: Sequence[str]) -> int:
    """Run the command that the first word names; return its exit status."""
    # Imported here, so that Ctrl-C is answered while the table loads.
    from rnn_scaling.commands import table

    name = words[0] if words else ""
    if name in _HELP_WORDS:
        raise entry.Answer(_format_help(table.GROUPS))
    if name in _VERSION_WORDS:
        raise entry.Answer(f"rnn_scaling {entry.VERSION}")
    if name in table.COMMANDS:
        return importlib.import_module(table.name_module(name)).main(words[1:])
    if not name:
        print(_format_help(table.GROUPS))
        return entry.EXIT_USAGE
    if name in table.RENAMED:
        new_words = table.RENAMED[name]
        command = new_words.split()[0]
        raise entry.Refusal(
            f"{name} is now part of {command}; use {entry.get_program_name()} {new_words}"
        )
    import difflib

    close = difflib.get_close_matches(name, table.COMMANDS, n=1)
    hint = f"did you mean {close[0]}?" if close else "--help lists them"
    raise entry.Refusal(f"{name} is not a command; {hint}")


def _format_help(groups: Mapping[str, Mapping[str, str]]) -> str:
    """Return the help of the program: every command below the title of its group."""
    program = entry.get_program_name()
    lines = [
        f"{program} COMMAND [--name=value ...]",
        "",
        f"{program} COMMAND --help explains a command.",
    ]
    for group, commands in groups.items():
        lines += ["", group]
        lines += [f"  {name:16}{text}" for name, text in commands.items()]
    return "\n".join(lines)


def console(started_as: str = "rnn-scaling") -> None:
    """Run the console script rnn-scaling.

    Args:
      started_as: The name of the program in messages, unless start.py has set another.
    """
    entry.set_program_name(started_as)
    entry.leave(main, at_once=sys.argv[1:2] == ["train"])


if __name__ == "__main__":
    console("python -m rnn_scaling")
