"""What `--help` prints: a first screen of the trainer, the flags of a group, one flag, or every flag of a command."""

import dataclasses
import difflib
import textwrap
from collections.abc import Sequence
from typing import Any

from rnn_scaling.system import entry

WIDTH = 80
PLACEHOLDERS = {
    "bool": "true|false",
    "int": "N",
    "float": "X",
    "str": "TEXT",
    "Path": "FILE",
}
FEW_GROUPS = 4  # a command with more has a first screen
COMMON = {
    "model": "network: nmt, transformer, lm, resnet50, vgg16 ...",
    "encoder_type": "kernel: cudnn_lstm (fused) or dynamic_rnn (a loop)",
    "variable_update": "independent, parameter_server, replicated ...",
    "num_devices": "towers, one on each device; 0: all GPUs or cores",
    "device": "auto, cpu or gpu",
    "batch_size": "samples of each tower in a step",
    "num_batches": "batches to measure after the warm-up",
    "data_source": "synthetic batches, or text and images from files",
    "preset": "small, or the sizes of published networks",
    "result_file": "where the run record is written, as JSON",
}
"""The flags of the first screen, each with half a line."""

Field = Any  # dataclasses.Field with the metadata of `models.config.option`


@dataclasses.dataclass(frozen=True)
class Page:
    command: str  # as the user types it
    usage: str  # what it does, examples and exit statuses; commands in it are written `./run.sh NAME`
    groups: dict[str, type]  # option dataclasses by the name that `--help=NAME` takes
    notes: Sequence[str]  # lines below all flags

    def text(self, topic: str) -> str:
        """The help on a topic: "" is the first screen, else "all", a group or a flag; a Refusal names the nearest."""
        flags = {
            field.name.rstrip("_"): field
            for group in self.groups.values()
            for field in dataclasses.fields(group)
        }
        if topic == "all" or (not topic and len(self.groups) < FEW_GROUPS):
            every_group = [
                line for name in self.groups for line in (*self._group(name), "")
            ]
            return "\n".join([*self._head(), *every_group, *self.notes])
        if not topic:
            return "\n".join([*self._head(), *self._first_screen()])
        if topic in self.groups:
            return "\n".join(self._group(topic))
        name = topic.lstrip("-")
        if name in flags:
            return "\n".join(self._lines(flags[name]))
        close = difflib.get_close_matches(name, [*self.groups, *flags, "all"], n=3)
        hint = (
            f"did you mean {' or '.join(close)}?"
            if close
            else f"groups: {', '.join(self.groups)}"
        )
        raise entry.Refusal(f"--help={topic}: there is no such group or flag; {hint}")

    def _head(self) -> list[str]:
        fields = [
            field
            for group in self.groups.values()
            for field in dataclasses.fields(group)
        ]
        is_single = (
            "|" not in self.command
        )  # subcommands such as add|import have different arguments
        words = [
            shape(field)
            for field in fields
            if is_single and field.metadata.get("positional")
        ]
        usage = self.usage.replace("./run.sh", entry.program()).rstrip()
        return [
            " ".join([entry.program(), self.command, *words, "[--name=value ...]"]),
            "",
            *wrapped(usage),
            "",
        ]

    def _first_screen(self) -> list[str]:
        lines = ["Flags that most runs need:"]
        lines += [f"  --{name:17}{text}" for name, text in COMMON.items()]
        lines += ["", "All flags, by group (--help=GROUP):"]
        width = max(len(name) for name in self.groups) + 1
        for name, group in self.groups.items():
            about = title(group).partition(": ")[2] or title(group)
            lines.append(f"  {name:{max(width, 19)}}{about.rstrip('.')}")
        return [*lines, "", "--help=all prints every flag, --help=FLAG explains one."]

    def _group(self, name: str) -> list[str]:
        group = self.groups[name]
        return [
            title(group),
            *(
                line
                for field in dataclasses.fields(group)
                for line in self._lines(field)
            ),
        ]

    def _lines(self, field: Field) -> list[str]:
        """The flag with its values, its meaning and its default."""
        rules = field.metadata
        body = field.metadata["help"]
        if rules.get("positional"):
            head = f"  {shape(field)}"
        else:
            choices = (
                rules["shown"]
                or "|".join(rules["choices"])
                or PLACEHOLDERS[kind_of(field)]
            )
            head = f"  --{field.name.rstrip('_')}={choices}"
            if len(head) > WIDTH:
                head = f"{head.partition('=')[0]}=NAME"
                unnamed = [choice for choice in rules["choices"] if choice not in body]
                body += f"; one of {', '.join(rules['choices'])}" if unnamed else ""
            body += (
                "" if "default: " in body else f" (default: {_shown(field.default)})"
            )
        return [
            head,
            *textwrap.wrap(
                body, WIDTH, initial_indent=" " * 6, subsequent_indent=" " * 6
            ),
        ]


def kind_of(field: Field) -> str:
    """The option's type, the first of a union: "int", "float", "bool", "str" or "Path"."""
    kind = (
        field.type.__name__
        if isinstance(field.type, type)
        else str(field.type).split("|")[0].strip()
    )
    return kind.rpartition(".")[2]


def shape(field: Field) -> str:
    """How a word without dashes stands in the usage: "FILE", or "DIR [DIR ...]"."""
    shown = field.metadata["shown"]
    if not field.metadata["several"]:
        return shown
    return f"[{shown} ...]" if field.default == () else f"{shown} [{shown} ...]"


def wrapped(text: str) -> list[str]:
    """The text's paragraphs at 80 columns; lines that begin with a space are examples, and stay as they are."""
    lines: list[str] = []
    paragraph: list[str] = []
    for line in [*text.splitlines(), ""]:
        if line and not line.startswith(" "):
            paragraph.append(line)
            continue
        lines += [
            *textwrap.wrap(" ".join(paragraph), WIDTH, break_on_hyphens=False),
            line,
        ]
        paragraph = []
    return lines[:-1]


def title(group: type) -> str:
    return (group.__doc__ or group.__name__).strip()


def _shown(default: Any) -> str:
    if default is None:
        return "none, or set by other flags"
    if isinstance(default, bool):
        return str(default).lower()
    if isinstance(default, float):
        return f"{default:g}"
    return str(default) or "none"
