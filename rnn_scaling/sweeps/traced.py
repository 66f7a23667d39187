"""The command lines of commands that sweep traced runs. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rnn_scaling.settings import config as configs
from rnn_scaling.settings import flags, sweep_options

TRACE = "trace_batches"
RESERVED = ("result_file", "log_dir", "progress")


def split(words: Sequence[str], groups: Sequence[type]) -> tuple[list[Any], dict[str, list[Any]]]:
    """Command line -> (an instance of each option group, values of each trainer flag that was given or has to be).

    Args:
      words: the command line.
      groups: option dataclasses of the command; one has the field `trace_batches`.

    Raises:
      FlagErrors: naming every unknown flag, malformed value and contradiction.
    """
    own = sweep_options.fields(groups)
    lines: list[str] = []
    try:
        given = flags.parse(words, {**configs.OPTIONS, **own}, lists=True)
    except flags.FlagErrors as e:
        given, lines = e.given, e.lines
    lines += [f"--{name} is set by this command; leave it out" for name in RESERVED if name in given]
    single = {}
    for name in own.keys() & given.keys():
        values = given.pop(name)
        single[name] = values[0]
        if len(values) > 1:
            lines.append(f"--{name}={','.join(map(str, values))} must be one value")
    most = configs.OPTIONS[TRACE].metadata["maximum"]
    if single.get(TRACE, 0) > most:
        lines.append(f"--{TRACE}={single[TRACE]} must be at most {most}")
    built = sweep_options.build(groups, single, lines)
    given[TRACE] = [getattr(group, TRACE) for group in built if hasattr(group, TRACE)]
    return built, given
