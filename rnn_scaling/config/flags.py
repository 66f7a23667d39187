"""Options as dataclasses, read from the command line of every command.

One declaration, `option(...)` or `declare_positional(...)`, contains the name of the
flag, its help and its rules. All errors of a command line are reported at once. This
module also answers `--flagfile`, `--help` and `--version`.

Every command reads its flags with `read`. Options are declared where they are used.
"""

import dataclasses
import difflib
import math
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rnn_scaling.config import help_pages
from rnn_scaling.config.help_pages import find_kind
from rnn_scaling.models.config import option
from rnn_scaling.system import entry
from rnn_scaling.system.files import input_files

ALIASES = {"num_gpus": "num_devices"}
_HELP_WORDS = ("--help", "-h", "-?", "-help", "--helpshort")
_VERSION_WORDS = ("--version", "-version")
_FLAGFILE_WORDS = ("--flagfile", "-flagfile")
_TRUE_WORDS = ("true", "t", "1")
_FALSE_WORDS = ("false", "f", "0")
Options = Mapping[str, dataclasses.Field]
Groups = Sequence[type] | Mapping[str, type]


@dataclasses.dataclass(frozen=True)
class FileOptions:
    """Files."""

    max_file_mb: int = option(
        input_files.DEFAULT_MB,
        "size of the largest file that is read, in MB; a JSON file needs ten "
        "times its size in memory",
        minimum=1,
        maximum=1_000_000,
    )


class FlagErrors(entry.Refusal):
    """The errors of a command line; one line each in `lines`."""

    def __init__(self, lines: Sequence[str]) -> None:
        super().__init__(*lines)


def declare_positional(
    help: str, shown: str, is_list: bool = False, default: Any = dataclasses.MISSING
) -> Any:
    """Declare a field for a word without dashes.

    Args:
      help: For `--help`.
      shown: The name of the word in the usage.
      is_list: Whether the field is a tuple of all remaining words.
      default: The value without the word; by default, the word is required.
    """
    metadata: dict[str, Any] = {
        "help": help,
        "shown": shown,
        "positional": True,
        "is_list": is_list,
        "choices": (),
        "minimum": None,
        "maximum": None,
        "parse": None,
    }
    return dataclasses.field(default=default, metadata=metadata)


def collect_fields(groups: Sequence[type]) -> dict[str, dataclasses.Field]:
    """Return every option of the groups by its flag.

    Field names such as from_ end with an underscore because they are Python keywords.
    """
    options = {}
    for group in groups:
        for field in dataclasses.fields(group):
            options[field.name.rstrip("_")] = field
    return options


def _parse_bool(text: str) -> bool:
    if text.lower() not in (*_TRUE_WORDS, *_FALSE_WORDS):
        raise ValueError
    return text.lower() in _TRUE_WORDS


# Kind of an option -> its parser, and the rule for the text.
_PARSERS: dict[str, tuple[Callable[[str], Any], str]] = {
    "bool": (_parse_bool, "true or false"),
    "int": (int, "a whole number"),
    "float": (float, "a number"),
    "str": (str, ""),
    "Path": (Path, ""),
}


def share(text: str) -> float:
    """Return 0.05 for "5%" or "0.05".

    Raises:
      ValueError: If the text is not a share; the message is the rule.
    """
    number = text.strip().removesuffix("%").strip()
    divisor = 100 if text.strip().endswith("%") else 1
    try:
        value = float(number) / divisor
    except ValueError:
        value = math.nan
    if not 0 <= value < 1:
        raise ValueError("a share from 0 to below 1, written as 5% or 0.05")
    return value


def max_regression(help: str) -> Any:
    """Declare an option for the largest accepted slow-down."""
    return option(0.05, f"{help}, such as 5% or 0.05", parse=share, shown="SHARE")


def _parse_option(name: str, field: dataclasses.Field, text: str) -> Any:
    """Return the value of a flag.

    Raises:
      ValueError: If the text is not a value; the message has flag, text and rule.
    """
    kind = find_kind(field)
    parse = field.metadata["parse"]
    if kind == "Path" and not text and not parse:
        raise ValueError(f"--{name}= must not be empty")
    parser, rule = (parse, "") if parse else _PARSERS[kind]
    try:
        return parser(text)
    except ValueError as e:
        raise ValueError(f"--{name}={text} must be {e if parse else rule}") from None


def _parse_values(name: str, field: dataclasses.Field, text: str, lists: bool) -> Any:
    """Return the value of a flag or, with `lists`, the values between its commas."""
    if not lists:
        return _parse_option(name, field, text)
    texts = [text] if field.metadata["whole"] else text.split(",")
    return [_parse_option(name, field, item) for item in texts]


def parse(argv: Sequence[str], options: Options, lists: bool = False) -> dict[str, Any]:
    """Return the values of a command line; see `parse_with_errors`.

    Raises:
      FlagErrors: If anything is wrong; it contains every error.
    """
    values, lines = parse_with_errors(argv, options, lists)
    if lines:
        raise FlagErrors(lines)
    return values


def parse_with_errors(
    argv: Sequence[str], options: Options, lists: bool = False
) -> tuple[dict[str, Any], list[str]]:
    """Return the values in a command line, and its errors.

    `--flagfile=FILE` reads more words from a file. Errors are unknown flags, malformed
    values, and unexpected or missing words.

    Args:
      argv: The command line.
      options: The options by flag.
      lists: Whether each flag has a list of values, separated by commas.

    Returns:
      The values by flag, of the flags in the command line; and one line per error.
    """
    # absl loads logging and more, which --help need not wait for.
    from absl import flags as absl_flags

    positionals = {}
    fields = dict(options)
    for name, field in options.items():
        if field.metadata.get("positional"):
            positionals[name] = fields.pop(name)
    targets = {name: name for name in fields}
    for alias, target in ALIASES.items():
        if target in fields:
            targets[alias] = target
    absl_values = _define({name: fields[target] for name, target in targets.items()})
    lines: list[str] = []
    try:
        words = expand_flag_files(argv)
        unparsed = absl_values(["", *words], known_only=True)[1:]
    except absl_flags.Error:  # the last word is a flag without its value
        lines.append(f"{words[-1]} needs a value: {words[-1]}=...")
        unparsed = absl_values(["", *words[:-1]], known_only=True)[1:]
    except ValueError as e:  # a flag file, or --noflag=value
        return {}, [str(e)]
    values: dict[str, Any] = {}
    for name, target in targets.items():
        flag = absl_values[name]
        if not flag.present:
            continue
        try:
            value = _parse_values(name, fields[target], flag.value, lists)
        except ValueError as e:
            lines.append(str(e))
            continue
        if target in values and values[target] != value:
            lines.append(
                f"--{name}={flag.value} and --{target}={absl_values[target].value} "
                "name the same option; give one of them"
            )
        else:
            values[target] = value
    unknown_flags, plain_words = _split(unparsed)
    lines += [_make_unknown_flag_error(word, [*targets]) for word in unknown_flags]
    lines += _assign(plain_words, positionals, values)
    return values, lines


def expand_flag_files(
    words: Sequence[str], open_files: tuple[str, ...] = ()
) -> list[str]:
    """Return a command line in which the words of flag files replace their flags.

    Args:
      words: The command line.
      open_files: The flag files that contain these words.

    Raises:
      ValueError: If a flag file cannot be read or contains itself.
    """
    result: list[str] = []
    remaining = iter(words)
    for word in remaining:
        name, has_value, path = word.partition("=")
        if word == "--":
            result.append(word)
            break
        if name not in _FLAGFILE_WORDS:
            result.append(word)
            continue
        if not has_value:
            path = next(remaining, "")
        if not path:
            raise ValueError(f"{name} needs a value: {name}=...")
        result += _read_flag_file(os.path.expanduser(path), open_files)
    return [*result, *remaining]


def _read_flag_file(path: str, open_files: tuple[str, ...]) -> list[str]:
    """Return the words in a flag file, without empty lines and comments."""
    real_path = os.path.realpath(path)
    if real_path in open_files:
        raise ValueError(
            f"--flagfile={path} contains itself, directly or in another flag file; "
            "take it out of the file"
        )
    try:
        # Bytes that are not UTF-8 are decoded as in the words of a command line.
        text = input_files.read_bytes(path).decode("utf-8-sig", "surrogateescape")
    except OSError as e:
        raise ValueError(f"--flagfile={path}: {e.strerror or e}") from None
    words = []
    for line in text.split("\n"):
        word = line.strip()
        if word and not word.startswith(("#", "//")):
            words.append(word)
    return expand_flag_files(words, (*open_files, real_path))


def answer(argv: Sequence[str], usage: str, groups: Groups, command: str) -> None:
    """Answer --help, --help=TOPIC and --version, if the command line contains one.

    Args:
      argv: The command line.
      usage: The description of the command, with examples and exit statuses. Commands
        are written as `./run.sh NAME`.
      groups: The option dataclasses: by their names for `--help=NAME`, or a sequence
        whose names are the first words of the titles.
      command: The command as the user types it.

    Raises:
      Answer: With the answer.
      Refusal: If there is no such topic.
    """
    topics = []
    for word in argv:
        if word in _HELP_WORDS:
            topics.append("")
        elif word == "--helpfull":
            topics.append("all")
        elif word.startswith("--help="):
            topics.append(word.removeprefix("--help="))
    if topics:
        raise entry.Answer(make_help_page(usage, groups, command).text(topics[0]))
    if any(word in _VERSION_WORDS for word in argv):
        raise entry.Answer(f"rnn_scaling {entry.VERSION}")


def make_help_page(usage: str, groups: Groups, command: str) -> help_pages.Page:
    """Return the help of a command.

    Args:
      usage: The text above the flags.
      groups: Option dataclasses, by title or with their docstrings as titles.
      command: The command as the user types it.
    """
    if not isinstance(groups, Mapping):
        groups = {help_pages.find_title(group): group for group in groups}
    named_groups = {}
    for title, group in groups.items():
        # "Sweep: ..." becomes "sweep".
        name = title.split(":")[0].rstrip(".").lower().replace(" ", "_")
        named_groups[name] = group
    notes = [
        "--flagfile=FILE reads flags from a file; --version prints the version.",
        f"Exit status {entry.EXIT_INTERNAL}: a fault of this program; "
        f"{entry.DEBUG}=1 shows where.",
    ]
    options = collect_fields([*named_groups.values()])
    for alias, target in ALIASES.items():
        if target in options:
            notes.append(f"--{alias} is another name of --{target}.")
    return help_pages.Page(command, usage, named_groups, notes)


def read(argv: Sequence[str], usage: str, group: type, command: str) -> Any:
    """Return the options of a command that reads files and has one group of options.

    Raises:
      Answer: For --help and --version.
      FlagErrors: If anything is wrong.
    """
    groups = [group, FileOptions]
    answer(argv, usage, groups, command)
    options, files = build(groups, *parse_with_errors(argv, collect_fields(groups)))
    input_files.allow(files.max_file_mb)
    return options


def build(
    groups: Sequence[type], values: Mapping[str, Any], errors: Sequence[str] = ()
) -> list[Any]:
    """Return an instance of each group.

    Args:
      groups: The option dataclasses.
      values: Values by flag; other options keep their defaults.
      errors: Errors that were found before.

    Raises:
      FlagErrors: If there are errors, or values that break a rule.
    """
    errors = list(errors)
    by_field = {}
    for name, field in collect_fields(groups).items():
        if name not in values:
            continue
        value = values[name]
        by_field[field.name] = value
        if rule := find_broken_rule(field, value):
            errors.append(f"--{name}={value} must be {rule}")
        elif value == "" and field.default:
            errors.append(f"--{name}= must not be empty")
    if errors:
        raise FlagErrors(errors)
    instances = []
    for group in groups:
        names = {field.name for field in dataclasses.fields(group)}
        arguments = {n: value for n, value in by_field.items() if n in names}
        instances.append(group(**arguments))
    return instances


def find_broken_rule(field: dataclasses.Field, value: Any) -> str:
    """Return the rule of an option that a value breaks, or ""."""
    rules = field.metadata
    if value is None or isinstance(value, bool):
        return ""
    if rules["choices"] and value not in rules["choices"]:
        return f"one of {', '.join(rules['choices'])}"
    if isinstance(value, float) and not math.isfinite(value):
        return "a finite number"
    if rules["minimum"] is not None and value < rules["minimum"]:
        return f"at least {_format_plain_number(rules['minimum'])}"
    if rules["maximum"] is not None and value > rules["maximum"]:
        return f"at most {_format_plain_number(rules['maximum'])}"
    return ""


def _define(options: Options) -> Any:
    """Return absl's flags for the options.

    Their values are texts, so that all of them are read before one is parsed.
    """
    from absl import flags as absl_flags

    values = absl_flags.FlagValues()
    for name, field in options.items():
        flag: Any = absl_flags.Flag(
            absl_flags.ArgumentParser(), None, name, None, field.metadata["help"]
        )
        # A boolean flag may have no value and then is "true".
        flag.boolean = find_kind(field) == "bool" or field.metadata["bare"]
        absl_flags.DEFINE_flag(flag, flag_values=values)
    return values


def _split(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the words that look like flags, and all others.

    No word after -- is a flag.
    """
    end = words.index("--") if "--" in words else len(words)
    unknown_flags: list[str] = []
    plain_words: list[str] = []
    for word in words[:end]:
        is_flag = word.startswith("-") and word != "-"
        (unknown_flags if is_flag else plain_words).append(word)
    return unknown_flags, [*plain_words, *words[end + 1 :]]


def _make_unknown_flag_error(word: str, flags: Sequence[str]) -> str:
    name = word.lstrip("-").split("=")[0]
    similar = difflib.get_close_matches(name, flags, n=1, cutoff=0.6)
    hint = f"did you mean --{similar[0]}?" if similar else "--help lists the flags"
    return f"--{name} is not a flag; {hint}"


def _assign(
    words: Sequence[str], positionals: Options, values: dict[str, Any]
) -> list[str]:
    """Add plain words to the values of a command line, and return errors."""
    if not positionals:
        return [
            f"unexpected word {word!r}; options are written --name=value"
            for word in words
        ]
    has_list = False
    num_required = 0
    for field in positionals.values():
        has_list |= field.metadata["is_list"]
        num_required += field.default is dataclasses.MISSING
    is_too_long = len(words) > len(positionals) and not has_list
    if len(words) < num_required or is_too_long:
        shape = " ".join(
            help_pages.format_positional(field) for field in positionals.values()
        )
        return [
            f"expected {shape}, got {' '.join(words) or 'nothing'}; --help explains"
        ]
    for i, (name, field) in enumerate(positionals.items()):
        if i < len(words):
            is_text = field.type in (str, tuple[str, ...])
            convert: type = str if is_text else Path
            if field.metadata["is_list"]:
                values[name] = tuple(convert(word) for word in words[i:])
            else:
                values[name] = convert(words[i])
    return []


def _format_plain_number(value: float) -> str:
    return str(int(value)) if value == int(value) else str(value)
