"""Option dataclasses <-> absl flags: the command line of every command, `--flagfile`, `--help` and `--version`.

One declaration, `option(...)` or `positional(...)`, is the flag, its help and its rules. Every mistake is collected, so
that one call names them all.
"""

import dataclasses
import difflib
import math
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rnn_scaling.config import help_pages
from rnn_scaling.config.help_pages import kind_of
from rnn_scaling.models.config import option
from rnn_scaling.system import entry
from rnn_scaling.system.files import input_files

ALIASES = {"num_gpus": "num_devices"}
HELP_WORDS = ("--help", "-h", "-?", "-help", "--helpshort")
VERSION_WORDS = ("--version", "-version")
FLAGFILE_WORDS = ("--flagfile", "-flagfile")
TRUE_WORDS = ("true", "t", "1")
FALSE_WORDS = ("false", "f", "0")
Options = Mapping[str, dataclasses.Field]


@dataclasses.dataclass(frozen=True)
class FileOptions:
    """Files."""

    max_file_mb: int = option(
        input_files.DEFAULT_MB,
        "the largest file that is read, in MB; JSON takes ten times its size in memory",
        minimum=1,
        maximum=1_000_000,
    )


class FlagErrors(entry.Refusal):
    """Everything that is wrong with a command line; one line each in `lines`."""

    def __init__(self, lines: Sequence[str]) -> None:
        super().__init__(*lines)


def positional(
    help: str, shown: str, several: bool = False, default: Any = dataclasses.MISSING
) -> Any:
    """Declares one field that a word without dashes fills; `several`: all words that are left, as a tuple."""
    rules: dict[str, Any] = {
        "choices": (),
        "minimum": None,
        "maximum": None,
        "parse": None,
    }
    rules |= {"help": help, "shown": shown, "positional": True, "several": several}
    return dataclasses.field(default=default, metadata=rules)


def fields(groups: Sequence[type]) -> dict[str, dataclasses.Field]:
    """Every option of the groups by flag; the underscore of from_ only keeps it from being a keyword of Python."""
    return {
        field.name.rstrip("_"): field
        for group in groups
        for field in dataclasses.fields(group)
    }


def _is_true(text: str) -> bool:
    if text.lower() not in (*TRUE_WORDS, *FALSE_WORDS):
        raise ValueError
    return text.lower() in TRUE_WORDS


# Kind of an option -> what makes a value of a text, and the rule for the text.
_PARSERS: dict[str, tuple[Callable[[str], Any], str]] = {
    "bool": (_is_true, "true or false"),
    "int": (int, "a whole number"),
    "float": (float, "a number"),
    "str": (str, ""),
    "Path": (Path, ""),
}


def share(text: str) -> float:
    """ "5%" or "0.05" -> 0.05; a ValueError says what the text must be."""
    number = text.strip().removesuffix("%").strip()
    percent = text.strip().endswith("%")
    try:
        value = float(number) / (100 if percent else 1)
    except ValueError:
        value = math.nan
    if not 0 <= value < 1:
        raise ValueError("a share from 0 to below 1, written as 5% or 0.05")
    return value


def max_regression(help: str) -> Any:
    return option(0.05, f"{help}, as 5% or 0.05", parse=share, shown="SHARE")


def _parse_option(name: str, field: dataclasses.Field, text: str) -> Any:
    """Text -> value; a ValueError names the flag, the text and the rule."""
    kind = kind_of(field)
    parse = field.metadata["parse"]
    if kind == "Path" and not text and not parse:
        raise ValueError(f"--{name}= must not be empty")
    parser, rule = (parse, "") if parse else _PARSERS[kind]
    try:
        return parser(text)
    except ValueError as e:
        raise ValueError(f"--{name}={text} must be {e if parse else rule}") from None


def _parse_values(name: str, field: dataclasses.Field, text: str, lists: bool) -> Any:
    """Text -> value or, with `lists`, values separated by commas; errors as in `_parse_option`."""
    if not lists:
        return _parse_option(name, field, text)
    return [
        _parse_option(name, field, part)
        for part in ([text] if field.metadata["whole"] else text.split(","))
    ]


def parse(argv: Sequence[str], options: Options, lists: bool = False) -> dict[str, Any]:
    """The values of `parsed`; a FlagErrors names everything that is wrong."""
    given, lines = parsed(argv, options, lists)
    if lines:
        raise FlagErrors(lines)
    return given


def parsed(
    argv: Sequence[str], options: Options, lists: bool = False
) -> tuple[dict[str, Any], list[str]]:
    """(the values, or lists of values, of the options that a command line gives, by flag; what is wrong with it).

    `--flagfile=FILE` reads more words from a file. Wrong are unknown flags, malformed values, and stray or missing
    words, a line each.
    """
    from absl import (
        flags as absl_flags,
    )  # loads logging and more, which --help need not wait for

    named = {
        name: field
        for name, field in options.items()
        if not field.metadata.get("positional")
    }
    aliases = {alias: target for alias, target in ALIASES.items() if target in named}
    values = _define(
        {**named, **{alias: named[target] for alias, target in aliases.items()}}
    )
    lines: list[str] = []
    try:
        words = expanded(argv)
    except ValueError as e:
        return {}, [str(e)]
    try:
        rest = values(["", *words], known_only=True)[1:]
    except absl_flags.Error:  # the last word is a flag without its value
        lines.append(f"{words[-1]} needs a value: {words[-1]}=...")
        rest = values(["", *words[:-1]], known_only=True)[1:]
    except ValueError as e:  # --noflag=value
        return {}, [str(e)]
    given: dict[str, Any] = {}
    for name in [*named, *aliases]:
        if not values[name].present:
            continue
        target = aliases.get(name, name)
        try:
            value = _parse_values(name, named[target], values[name].value, lists)
        except ValueError as e:
            lines.append(str(e))
            continue
        if target in given and given[target] != value:
            both = (
                f"--{name}={values[name].value} and --{target}={values[target].value}"
            )
            lines.append(f"{both} name the same option; give one of them")
        else:
            given[target] = value
    unknown, plain = _split(rest)
    lines += [_stray(word, [*named, *aliases]) for word in unknown]
    lines += _assign(
        plain,
        {name: field for name, field in options.items() if name not in named},
        given,
    )
    return given, lines


def expanded(words: Sequence[str], within: tuple[str, ...] = ()) -> list[str]:
    """The words with those of flag files in their places; a ValueError names one that is unreadable or names itself."""
    result: list[str] = []
    rest = iter(words)
    for word in rest:
        name, _, path = word.partition("=")
        if word == "--":
            result.append(word)
            break
        if name not in FLAGFILE_WORDS:
            result.append(word)
            continue
        path = path if "=" in word else next(rest, "")
        if not path:
            raise ValueError(f"{name} needs a value: {name}=...")
        result += _read_flag_file(os.path.expanduser(path), within)
    return [*result, *rest]


def _read_flag_file(path: str, within: tuple[str, ...]) -> list[str]:
    if os.path.realpath(path) in within:
        raise ValueError(
            f"--flagfile={path} names itself, directly or by another; take it out of the file"
        )
    try:
        # As the words of a command line are: what is no UTF-8 stays what it is.
        text = input_files.read_bytes(path).decode("utf-8-sig", "surrogateescape")
    except OSError as e:
        raise ValueError(f"--flagfile={path}: {e.strerror or e}") from None
    return expanded(_words_of(text), (*within, os.path.realpath(path)))


def _words_of(text: str) -> list[str]:
    """The lines of a flag file without blanks around them, empty ones and comments."""
    lines = [line.strip() for line in text.split("\n")]
    return [line for line in lines if line and not line.startswith(("#", "//"))]


def answer(
    argv: Sequence[str],
    usage: str,
    groups: Sequence[type] | Mapping[str, type],
    command: str,
) -> None:
    """Answers --help, --help=TOPIC and --version by raising an Answer, or a Refusal if there is no such topic.

    Args:
      usage: what the command does, with examples and exit statuses; commands in it are written `./run.sh NAME`.
      groups: option dataclasses; by the names that `--help=NAME` takes, or named after the first word of their titles.
    """
    topics = [
        "" if word in HELP_WORDS else "all"
        for word in argv
        if word in (*HELP_WORDS, "--helpfull")
    ]
    topics += [
        word.removeprefix("--help=") for word in argv if word.startswith("--help=")
    ]
    if topics:
        raise entry.Answer(help_page(usage, groups, command).text(topics[0]))
    if any(word in VERSION_WORDS for word in argv):
        raise entry.Answer(f"rnn_scaling {entry.VERSION}")


def help_page(
    usage: str, groups: Sequence[type] | Mapping[str, type], command: str
) -> help_pages.Page:
    """The help of a command; arguments as in `answer`."""
    titles = (
        groups
        if isinstance(groups, Mapping)
        else {help_pages.title(group): group for group in groups}
    )
    # "sweep" of a group titled "Sweep: ...".
    named = {
        title.split(":")[0].rstrip(".").lower().replace(" ", "_"): group
        for title, group in titles.items()
    }
    notes = [
        "--flagfile=FILE reads flags from a file; --version prints the version.",
        f"Exit status {entry.EXIT_INTERNAL}: a fault of this program; {entry.DEBUG}=1 shows where.",
        *(
            f"--{alias} is --{target}."
            for alias, target in ALIASES.items()
            if target in fields([*named.values()])
        ),
    ]
    return help_pages.Page(command, usage, named, notes)


def read(argv: Sequence[str], usage: str, group: type, command: str) -> Any:
    """The options of a command that reads files, an instance of its only group; raises Answer or FlagErrors."""
    groups = [group, FileOptions]
    answer(argv, usage, groups, command)
    options, files = build(groups, *parsed(argv, fields(groups)))
    input_files.allow(files.max_file_mb)
    return options


def build(
    groups: Sequence[type], given: Mapping[str, Any], lines: Sequence[str] = ()
) -> list[Any]:
    """An instance of each group with the given values; a FlagErrors names all against their rules, after `lines`."""
    options = fields(groups)
    lines = list(lines)
    for name, value in given.items():
        if name in options and (rule := broken_rule(options[name], value)):
            lines.append(f"--{name}={value} must be {rule}")
        elif name in options and value == "" and options[name].default:
            lines.append(f"--{name}= must not be empty")
    if lines:
        raise FlagErrors(lines)
    by_field = {
        options[name].name: value for name, value in given.items() if name in options
    }
    return [
        group(
            **{
                f.name: by_field[f.name]
                for f in dataclasses.fields(group)
                if f.name in by_field
            }
        )
        for group in groups
    ]


def broken_rule(field: dataclasses.Field, value: Any) -> str:
    """What a value of this option must be; empty if it is."""
    rules = field.metadata
    if value is None or isinstance(value, bool):
        return ""
    if rules["choices"] and value not in rules["choices"]:
        return f"one of {', '.join(rules['choices'])}"
    if isinstance(value, float) and not math.isfinite(value):
        return "a finite number"
    if rules["minimum"] is not None and value < rules["minimum"]:
        return f"at least {_plain_number(rules['minimum'])}"
    if rules["maximum"] is not None and value > rules["maximum"]:
        return f"at most {_plain_number(rules['maximum'])}"
    return ""


def _define(options: Options) -> Any:
    """absl's flags of these options, each with its text: all of them are read before any is judged."""
    from absl import flags as absl_flags

    values = absl_flags.FlagValues()
    for name, field in options.items():
        flag: Any = absl_flags.Flag(
            absl_flags.ArgumentParser(), None, name, None, field.metadata["help"]
        )
        # Without a value such a flag is "true".
        flag.boolean = kind_of(field) == "bool" or field.metadata["bare"]
        absl_flags.DEFINE_flag(flag, flag_values=values)
    return values


def _split(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """(what looks like a flag, the others); after -- nothing is a flag."""
    end = words.index("--") if "--" in words else len(words)
    unknown = [word for word in words[:end] if word.startswith("-") and word != "-"]
    return unknown, [word for word in words[:end] if word not in unknown] + list(
        words[end + 1 :]
    )


def _stray(word: str, known: Sequence[str]) -> str:
    name = word.lstrip("-").split("=")[0]
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    hint = f"; did you mean --{close[0]}?" if close else "; --help lists the flags"
    return f"--{name} is not a flag{hint}"


def _assign(words: Sequence[str], wanted: Options, given: dict[str, Any]) -> list[str]:
    """Puts plain words into `given` by the name of their positional; returns what is wrong."""
    if not wanted:
        return [
            f"unexpected word {word!r}; options are written --name=value"
            for word in words
        ]
    several = any(field.metadata["several"] for field in wanted.values())
    needed = sum(field.default is dataclasses.MISSING for field in wanted.values())
    if len(words) < needed or (len(words) > len(wanted) and not several):
        shape = " ".join(help_pages.shape(field) for field in wanted.values())
        return [
            f"expected {shape}, got {' '.join(words) or 'nothing'}; --help explains"
        ]
    rest = [Path(word) for word in words]
    for name, field in list(wanted.items())[: len(rest)]:
        given[name] = tuple(rest) if field.metadata["several"] else rest.pop(0)
    return []


def _plain_number(value: float) -> str:
    return str(int(value)) if value == int(value) else str(value)
