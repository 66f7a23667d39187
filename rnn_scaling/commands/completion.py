"""./run.sh completion bash|zsh: a script that completes commands, flags and their values."""

import contextlib
import importlib
import io
import re
from collections.abc import Sequence

from rnn_scaling import entry
from rnn_scaling.commands.table import COMMANDS
from rnn_scaling.settings import config as configs
from rnn_scaling.settings import flags

USAGE = """\
Prints a script that completes commands, flags and values in bash or zsh.

    source <(./run.sh completion bash)
    ./run.sh completion zsh > ~/.rnn_scaling.zsh; echo "source ~/.rnn_scaling.zsh" >> ~/.zshrc

It completes ./run.sh and the console script rnn-scaling.

Exit status: 0 done, 2 wrong use."""

SHELLS = {
    "bash": "",
    "zsh": "autoload -U +X compinit && compinit\nautoload -U +X bashcompinit && bashcompinit\n",
}
TAKE_TRAINER_FLAGS = (
    "sweep",
    "verify",
    "recommend",
    "ab",
    "local-cluster",
    "inspect",
    "threads",
    "netlab",
)

SCRIPT = """\
_rnn_scaling_flags() {
    case "$1" in
%(flags)s
    esac
}
_rnn_scaling_values() {
    case "$1" in
%(values)s
    esac
}
_rnn_scaling() {
    local current="${COMP_WORDS[COMP_CWORD]}" before="${COMP_WORDS[COMP_CWORD-1]}" flag="" prefix=""
    if [ "$COMP_CWORD" = 1 ]; then
        COMPREPLY=($(compgen -W "%(commands)s" -- "$current"))
        return
    fi
    case "$current" in
        --*=*) flag="${current%%%%=*}" prefix="${current%%%%=*}=" current="${current#*=}" ;;
        =) flag="$before" current="" ;;
        *) if [ "$before" = "=" ]; then flag="${COMP_WORDS[COMP_CWORD-2]}"; fi ;;
    esac
    if [ -n "$flag" ]; then
        COMPREPLY=($(compgen -P "$prefix" -W "$(_rnn_scaling_values "${COMP_WORDS[1]} $flag")" -- "$current"))
    elif [ "${current#-}" != "$current" ]; then
        COMPREPLY=($(compgen -W "$(_rnn_scaling_flags "${COMP_WORDS[1]}")" -- "$current"))
    else
        COMPREPLY=($(compgen -f -- "$current"))
    fi
}
complete -o nospace -F _rnn_scaling run.sh ./run.sh rnn-scaling
"""


@entry.command
def main(words: Sequence[str]) -> int:
    flags.answer(words, USAGE, [], "completion bash|zsh")
    if len(words) != 1 or words[0] not in SHELLS:
        raise entry.Refusal(
            f"completion {' '.join(words)}: expected one shell, {' or '.join(SHELLS)}"
        )
    print(SHELLS[words[0]] + script(), end="")
    return entry.EXIT_OK


def script() -> str:
    by_command = {
        name: _flags(module)
        for name, (module, _) in COMMANDS.items()
        if name != "completion"
    }
    by_command |= {
        name: {**_trainer_flags(), **by_command[name]}
        for name in ("train", *TAKE_TRAINER_FLAGS)
    }
    flags_lines, value_lines = [], []
    for name, values_of in by_command.items():
        flags_lines.append(
            f'        {name}) echo "{" ".join(f"{flag}=" for flag in values_of)}" ;;'
        )
        value_lines += [
            f'        "{name} {flag}") echo "{values}" ;;'
            for flag, values in values_of.items()
            if values
        ]
    names, lines = " ".join(COMMANDS), "\n".join
    return SCRIPT % {
        "commands": names,
        "flags": lines(flags_lines),
        "values": lines(value_lines),
    }


def _trainer_flags() -> dict[str, str]:
    """As `_flags`, of the trainer."""
    fields = configs.OPTIONS.items()
    booleans = "true false"
    return {
        f"--{n}": " ".join(f.metadata["choices"])
        or booleans * (flags.kind_of(f) == "bool")
        for n, f in fields
    }


def _flags(module: str) -> dict[str, str]:
    """Flag -> its values, separated by spaces ("" where it takes any), as the command's help lists them."""
    page = io.StringIO()
    with contextlib.redirect_stdout(page):
        importlib.import_module(module).main(["--help=all"])
    found = re.findall(r"^  (--[\w:]+)=(\S+)", page.getvalue(), re.MULTILINE)
    is_list = re.compile(r"[\w.-]+(\|[\w.-]+)+")
    return {
        flag: values.replace("|", " ") if is_list.fullmatch(values) else ""
        for flag, values in found
    }


if __name__ == "__main__":
    entry.leave(main)
