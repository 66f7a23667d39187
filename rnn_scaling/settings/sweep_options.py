"""The command lines of commands that start many runs: any flag of the trainer takes a list. Pure."""

from collections.abc import Sequence
from typing import Any

from rnn_scaling.settings import config as configs
from rnn_scaling.settings import flags

TRACE = "trace_batches"
RESERVED = ("result_file", "log_dir", "progress")
OF_ONE_RUN = ("checkpoint_dir", "save_every", "mlperf_log")


def split(words: Sequence[str], groups: Sequence[type]) -> tuple[list[Any], dict[str, list[Any]]]:
    """Command line -> (an instance of each option group, values of each trainer flag that was given or has to be).

    Where one of the command's groups has the field `trace_batches`, every run is traced. A FlagErrors names every
    unknown flag, malformed value and contradiction.
    """
    own_fields = flags.fields(groups)
    given, lines = flags.parsed(words, {**configs.OPTIONS, **own_fields}, lists=True)
    lines += [f"--{name} is set by this command; leave it out" for name in RESERVED if name in given]
    # Runs that only read a checkpoint may share one.
    only_reads = any(all(given.get(name, [False])) for name in ("decode", "forward_only"))
    lines += [
        f"--{name} applies to one run, but this command makes several; leave it out"
        for name in OF_ONE_RUN
        if name in given and not (name == "checkpoint_dir" and only_reads)
    ]
    single = {}
    for name in own_fields.keys() & given.keys():
        values = given.pop(name)
        single[name] = values[0]
        if len(values) > 1:
            lines.append(f"--{name}={','.join(map(str, values))} must be one value")
    built = flags.build(groups, single, lines)
    traced = [getattr(group, TRACE) for group in built if hasattr(group, TRACE)]
    return built, {**given, **({TRACE: traced} if traced else {})}
