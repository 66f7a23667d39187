"""Option dataclasses <-> absl flags: the command line, `--flagfile` and `--help`.

Every malformed flag is collected, so that one call names them all.
"""

from __future__ import annotations

import dataclasses
import difflib
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from absl import flags as absl_flags

ALIASES = {"num_gpus": "num_devices"}
HELP_WORDS = ("--help", "-h", "-?", "-help", "--helpfull", "--helpshort")
TRUE_WORDS, FALSE_WORDS = ("true", "t", "1"), ("false", "f", "0")


class FlagErrors(ValueError):
    """Everything that is wrong with a command line; one line each in `lines`."""

    def __init__(self, lines: Sequence[str], given: Mapping[str, Any] | None = None) -> None:
        """Args:
        lines: one for each mistake.
        given: the flags that could be read, so that their conflicts can be named too.
        """
        super().__init__("\n".join(lines))
        self.lines, self.given = list(lines), dict(given or {})


@dataclasses.dataclass(frozen=True)
class _Malformed:
    """Stands for a value that its flag could not parse."""

    line: str


class _Parser(absl_flags.ArgumentParser):
    """Parses one option's text by its declared type; never raises, so that later flags are looked at too."""

    def __init__(self, name: str, kind: str, lists: bool) -> None:
        self._name, self._kind, self._lists = name, kind, lists

    def parse(self, argument: Any) -> Any:
        if not isinstance(argument, str):
            return argument
        try:
            if self._lists:
                return [parse_value(self._name, self._kind, item) for item in argument.split(",")]
            return parse_value(self._name, self._kind, argument)
        except ValueError as e:
            return _Malformed(str(e))

    def flag_type(self) -> str:
        return self._kind


def kind_of(field: dataclasses.Field) -> str:
    """The option's type: "int", "float", "bool" or "str"."""
    return str(field.type).split("|")[0].strip()


def parse_value(name: str, kind: str, text: str) -> Any:
    """Text -> value of an option.

    Raises:
      ValueError: naming the flag, the value and the rule.
    """
    if kind == "bool":
        if text.lower() in TRUE_WORDS:
            return True
        if text.lower() in FALSE_WORDS:
            return False
        raise ValueError(f"--{name}={text} must be true or false")
    if kind == "str":
        return text
    try:
        return int(text) if kind == "int" else float(text)
    except ValueError:
        rule = "a whole number" if kind == "int" else "a number"
        raise ValueError(f"--{name}={text} must be {rule}") from None


def parse(argv: Sequence[str], options: Mapping[str, dataclasses.Field], lists: bool = False) -> dict[str, Any]:
    """Parses a command line.

    Args:
      argv: the words after the program's name; `--flagfile=FILE` reads more of them from a file.
      options: the fields that are flags here.
      lists: every flag takes values separated by commas.

    Returns:
      The values (lists of values) of the flags that were given, by option name.

    Raises:
      FlagErrors: naming every unknown flag, malformed value and stray word.
    """
    values = _define(options, lists)
    try:
        rest = values(["rnn_scaling", *argv], known_only=True)[1:]
    except (absl_flags.Error, OSError) as e:  # a flag without its value, a flagfile that cannot be read
        raise FlagErrors([" ".join(str(e).removeprefix("ERROR:: ").split())]) from None
    given, lines = {}, []
    names = [*options, *(alias for alias, target in ALIASES.items() if target in options)]
    for name in names:
        if not values[name].present:
            continue
        value, target = values[name].value, ALIASES.get(name, name)
        if isinstance(value, _Malformed):
            lines.append(value.line)
        elif target in given and given[target] != value:
            lines.append(f"--{name}={value} and --{target}={given[target]} name the same option; give one of them")
        else:
            given[target] = value
    lines += [_stray(word, names) for word in rest if word != "--"]
    if lines:
        raise FlagErrors(lines, given)
    return given


def wants_help(argv: Sequence[str]) -> bool:
    """True if the command line asks for help."""
    return any(word in HELP_WORDS for word in argv)


def help_text(usage: str, groups: Mapping[str, type]) -> str:
    """The help page: every flag of every group with its values, default and meaning."""
    lines = [usage.rstrip(), ""]
    for group in groups.values():
        lines.append((group.__doc__ or group.__name__).strip())
        for field in dataclasses.fields(group):
            lines += _help_lines(field)
        lines.append("")
    lines.append("--flagfile=FILE reads flags from a file, one a line. --num_gpus is another name of --num_devices.")
    return "\n".join(lines)


def _define(options: Mapping[str, dataclasses.Field], lists: bool) -> absl_flags.FlagValues:
    values = absl_flags.FlagValues()
    for name, field in options.items():
        kind, text = kind_of(field), field.metadata["help"]
        if kind == "bool":
            flag = absl_flags.BooleanFlag(name, field.default, text)
            flag.parser = _Parser(name, kind, lists)
        else:
            flag = absl_flags.Flag(_Parser(name, kind, lists), None, name, field.default, text)
        absl_flags.DEFINE_flag(flag, flag_values=values)
    for alias, target in ALIASES.items():
        if target in options:
            parser = _Parser(alias, kind_of(options[target]), lists)
            absl_flags.DEFINE_flag(absl_flags.Flag(parser, None, alias, None, f"alias of {target}"), flag_values=values)
    # absl knows --flagfile only where it is defined; the file itself is read by FlagValues.
    absl_flags.DEFINE_string("flagfile", "", "read flags from this file", flag_values=values)
    return values


def _stray(word: str, known: Sequence[str]) -> str:
    if not word.startswith("-"):
        return f"unexpected word {word!r}; options are written --name=value"
    name = word.lstrip("-").split("=")[0]
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    hint = f"; did you mean --{close[0]}?" if close else "; --help lists the flags"
    return f"--{name} is not a flag{hint}"


def _help_lines(field: dataclasses.Field) -> list[str]:
    kind, choices = kind_of(field), field.metadata["choices"]
    values = "|".join(choices) if choices else {"bool": "true|false", "int": "N", "float": "X", "str": "TEXT"}[kind]
    head = f"  --{field.name}={values}"
    body = textwrap.wrap(f"{field.metadata['help']} (default: {_shown(field.default)})", width=92)
    return [head, *(f"      {line}" for line in body)]


def _shown(default: Any) -> str:
    if default is None:
        return "set by other flags"
    if isinstance(default, bool):
        return str(default).lower()
    if isinstance(default, float):
        return f"{default:g}"
    return str(default) or "none"
