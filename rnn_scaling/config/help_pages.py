"""Write the output of `--help`: the first screen, one group, one flag, or all flags.

Only `flags` calls these functions.
"""

import dataclasses
import difflib
import textwrap
from collections.abc import Sequence
from typing import Any

from rnn_scaling.system import entry

_WIDTH = 80
_PLACEHOLDERS = {
    "bool": "true|false",
    "int": "N",
    "float": "X",
    "str": "TEXT",
    "Path": "FILE",
}
# Commands with at least this many groups of flags have a first screen.
_MIN_GROUPS_FOR_FIRST_SCREEN = 4
# The trainer's flags on the first screen. Commands with fewer groups list all flags.
_COMMON = {
    "model": "network: nmt, transformer, lm, resnet50, vgg16 ...",
    "encoder_type": "recurrent layers: cudnn_lstm (fused), dynamic_rnn (a loop)",
    "variable_update": "independent, parameter_server, replicated ...",
    "num_devices": "towers, one on each device; 0: all GPUs or cores",
    "device": "auto, cpu or gpu",
    "batch_size": "samples per tower and step",
    "num_batches": "batches to measure after the warm-up",
    "data_source": "synthetic batches, or text and images from files",
    "preset": "small, large, or the sizes of published networks",
    "result_file": "where the run record is written, as JSON",
}

Field = Any  # dataclasses.Field with the metadata of `models.config.option`


@dataclasses.dataclass(frozen=True)
class Page:
    """The help of a command."""

    command: str  # the command as the user types it
    usage: str  # text whose commands are written as `./run.sh NAME`
    groups: dict[str, type]  # option dataclasses by their names in `--help=NAME`
    notes: Sequence[str]  # lines below all flags

    def text(self, topic: str) -> str:
        """Return the help on a topic.

        Args:
          topic: "" for the first screen, "all", a group or a flag.

        Raises:
          Refusal: If there is no such topic.
        """
        flags = {field.name.rstrip("_"): field for field in self._list_fields()}
        if topic == "all" or (
            not topic and len(self.groups) < _MIN_GROUPS_FOR_FIRST_SCREEN
        ):
            lines = self._list_head_lines()
            for name in self.groups:
                lines += [*self._group(name), ""]
            return "\n".join([*lines, *self.notes])
        if not topic:
            return "\n".join(
                [*self._list_head_lines(), *self._list_first_screen_lines()]
            )
        if topic in self.groups:
            return "\n".join(self._group(topic))
        name = topic.lstrip("-")
        if name in flags:
            return "\n".join(_list_flag_lines(flags[name]))
        similar = difflib.get_close_matches(name, [*self.groups, *flags, "all"], n=3)
        hint = f"groups: {', '.join(self.groups)}"
        if similar:
            hint = f"did you mean {' or '.join(similar)}?"
        raise entry.Refusal(f"--help={topic} is not a group or flag; {hint}")

    def _list_fields(self) -> list[Field]:
        fields: list[Field] = []
        for group in self.groups.values():
            fields += dataclasses.fields(group)
        return fields

    def _list_head_lines(self) -> list[str]:
        words = [entry.get_program_name(), self.command]
        # Subcommands such as add|import have different arguments.
        if "|" not in self.command:
            for field in self._list_fields():
                if field.metadata.get("positional"):
                    words.append(format_positional(field))
        usage = self.usage.replace("./run.sh", entry.get_program_name()).rstrip()
        return [
            " ".join([*words, "[--name=value ...]"]),
            "",
            *_wrap_paragraphs(usage),
            "",
        ]

    def _list_first_screen_lines(self) -> list[str]:
        lines = ["Flags that most runs need:"]
        lines += [f"  --{name:17}{text}" for name, text in _COMMON.items()]
        lines += ["", "All flags, by group (--help=GROUP):"]
        width = max(19, *(len(name) + 1 for name in self.groups))
        for name, group in self.groups.items():
            summary = find_title(group).partition(": ")[2] or find_title(group)
            lines.append(f"  {name:{width}}{summary.rstrip('.')}")
        return [*lines, "", "--help=all prints every flag, --help=FLAG explains one."]

    def _group(self, name: str) -> list[str]:
        group = self.groups[name]
        lines = [find_title(group)]
        for field in dataclasses.fields(group):
            lines += _list_flag_lines(field)
        return lines


def _list_flag_lines(field: Field) -> list[str]:
    """Return a flag with its values, its help and its default."""
    rules = field.metadata
    text = rules["help"]
    if rules.get("positional"):
        head = f"  {format_positional(field)}"
    else:
        choices = rules["choices"]
        values = rules["shown"] or "|".join(choices) or _PLACEHOLDERS[find_kind(field)]
        flag = f"  --{field.name.rstrip('_')}"
        head = f"{flag}={values}"
        if len(head) > _WIDTH:
            head = f"{flag}=NAME"
            if any(choice not in text for choice in choices):
                text += f"; one of {', '.join(choices)}"
        if "default: " not in text:
            text += f" (default: {_format_default(field.default)})"
    indent = " " * 6
    lines = textwrap.wrap(
        text,
        _WIDTH,
        initial_indent=indent,
        subsequent_indent=indent,
        break_on_hyphens=False,
    )
    return [head, *lines]


def find_kind(field: Field) -> str:
    """Return "int", "float", "bool", "str" or "Path"; the first type of a union."""
    kind = str(field.type).split("|")[0].strip()
    if isinstance(field.type, type):
        kind = field.type.__name__
    return kind.rpartition(".")[2]


def format_positional(field: Field) -> str:
    """Format a word without dashes for the usage: "FILE" or "DIR [DIR ...]"."""
    shown_name = field.metadata["shown"]
    if not field.metadata["is_list"]:
        return shown_name
    return (
        f"[{shown_name} ...]"
        if field.default == ()
        else f"{shown_name} [{shown_name} ...]"
    )


def _wrap_paragraphs(text: str) -> list[str]:
    """Return the lines of a text with its paragraphs wrapped to `_WIDTH` columns.

    Lines that begin with a space are examples and stay unchanged.
    """
    lines: list[str] = []
    paragraph: list[str] = []
    for line in [*text.splitlines(), ""]:
        if line and not line.startswith(" "):
            paragraph.append(line)
            continue
        words = " ".join(paragraph)
        lines += textwrap.wrap(words, _WIDTH, break_on_hyphens=False)
        lines.append(line)
        paragraph = []
    return lines[:-1]


def find_title(group: type) -> str:
    """Return the title of a group of options."""
    return (group.__doc__ or group.__name__).strip()


def _format_default(default: Any) -> str:
    if default is None:
        return "none"
    if isinstance(default, bool):
        return str(default).lower()
    if isinstance(default, float):
        return f"{default:g}"
    return str(default) or "none"
