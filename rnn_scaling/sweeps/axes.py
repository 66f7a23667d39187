"""The options of a user's program that vary in a sweep: --axis:NAME=VALUE,....

Each has a place, {NAME}, in the command. An axis with the name of an option of this
suite means the same in reports, so its values follow the same rule.

Sweeps over a user's program call these functions before a run starts.
"""

import itertools
import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from rnn_scaling.config import flags
from rnn_scaling.config import run_config as configs
from rnn_scaling.config.conditions import FOREIGN_NOT_COMPARED
from rnn_scaling.config.naming import CHOICE_OPTIONS, TRAINER
from rnn_scaling.sweeps.placeholders import REPEAT, RESULT_FILE

AXIS = "--axis:"
# A program also sees these in its cores and GPUs.
DEVICE_OPTIONS = ("device", "cpu_cores_per_device", "num_devices")
_RESERVED_NAMES = (TRAINER, REPEAT, RESULT_FILE, *FOREIGN_NOT_COMPARED)


def split_axes(words: Sequence[str]) -> tuple[dict[str, list[str]], list[str]]:
    """Split a command line into axes and other words.

    Flag files are read. An axis with the name of a device option becomes this option.

    Returns:
      The values of each --axis:NAME, and the other words.

    Raises:
      FlagErrors: If an axis is wrong; it names everything.
    """
    try:
        words = flags.expand_flag_files(words)
    except ValueError as e:
        raise flags.FlagErrors([str(e)]) from None
    names = []
    for word in words:
        if word.startswith("-"):
            names.append(word.partition("=")[0].removeprefix(AXIS).lstrip("-"))
    axes: dict[str, list[str]] = {}
    device_flags = []
    other_words = []
    faults = []
    for word in words:
        if not word.startswith(AXIS):
            other_words.append(word)
            continue
        name, equals, text = word.removeprefix(AXIS).partition("=")
        if name in (*DEVICE_OPTIONS, *flags.ALIASES) and equals:
            device_flags.append(f"--{name}={text}")
            if names.count(name) > 1:
                faults.append(f"{word}: {name} is given twice; give all values at once")
        elif fault := _find_name_fault(name, bool(equals), axes):
            faults.append(f"{word}{fault}")
        else:
            axes[name] = list(dict.fromkeys(text.split(",")))
            value_faults = [_find_fault(name, value) for value in axes[name]]
            # One wrong value is enough to explain the rule.
            faults += [f"{word}: {fault}" for fault in value_faults if fault][:1]
    if faults:
        raise flags.FlagErrors(faults)
    return axes, [*other_words, *device_flags]


def _find_name_fault(name: str, has_values: bool, axes: Collection[str]) -> str:
    """Explain why an axis cannot have this name, or return ""."""
    if not re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII) or not has_values:
        return (
            f" must be {AXIS}NAME=VALUE,..., where NAME has only letters, digits and _"
        )
    if name in _RESERVED_NAMES:
        return f": {name} is reserved; choose another name, such as {AXIS}my_{name}"
    if name in axes:
        return f": {AXIS}{name} is given twice; give all values at once"
    return ""


def _find_fault(name: str, text: str) -> str:
    """Explain how a value breaks the rule of this suite's option, or return ""."""
    if name not in configs.OPTIONS:
        return ""
    try:
        rule = find_broken_rule(name, parse_value(name, text))
        if not rule:
            return ""
        fault = f"{text} must be {rule}"
    except flags.FlagErrors as e:
        fault = e.lines[0].removeprefix(f"--{name}=")
    return f"{fault}, like this suite's --{name}; or rename it to {AXIS}my_{name}"


def parse_value(name: str, text: str) -> Any:
    """Return a value of an axis with the type that records have.

    An option of this suite parses it; any other value is a number if possible.
    """
    if name not in configs.OPTIONS:
        return parse_number(text)
    return flags.parse([f"--{name}={text}"], {name: configs.OPTIONS[name]})[name]


def find_broken_rule(name: str, value: Any) -> str:
    """Return the rule of this suite's option that a value breaks, or an empty text.

    Args:
      name: The name of an option of this suite.
      value: The value, as `parse_value` returns it.
    """
    if name in CHOICE_OPTIONS:
        # Another program may have other choices.
        return ""
    return flags.find_broken_rule(configs.OPTIONS[name], value)


def parse_number(text: str) -> int | float | str:
    """Return a text as a finite number if possible, or else unchanged."""
    for kind in (int, float):
        try:
            value = kind(text)
        except ValueError:
            continue
        if math.isfinite(value):
            return value
    return text


def check_values(axes: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Yield a line for two values that are the same number, such as 1.1 and 1.10."""
    for name, texts in axes.items():
        for first, second in itertools.combinations(texts, 2):
            if parse_number(first) == parse_number(second):
                yield (
                    f"{AXIS}{name}: {first} and {second} are the same number; leave "
                    "one out"
                )
