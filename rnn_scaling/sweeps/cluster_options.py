"""The flags of a run of several ranks on this machine.

`local-cluster` and `verify` share these flags.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from rnn_scaling.config import conflicts, flags, registry
from rnn_scaling.config.flags import option
from rnn_scaling.config.run_config import OPTIONS, RunConfig
from rnn_scaling.config.spelling import spell
from rnn_scaling.sweeps.command_lines import format_flags

DEFAULT_MODE = "collective_all_reduce"
DEFAULT_WORKERS = 2


@dataclasses.dataclass(frozen=True)
class ProcessCounts:
    """Processes."""

    workers: int | None = option(
        None,
        f"number of worker processes (default: --num_workers, else {DEFAULT_WORKERS})",
        minimum=1,
        maximum=1_024,
    )
    ps: int | None = option(
        None,
        "number of parameter servers, in modes that have them (default: "
        "--num_ps, else 1)",
        minimum=1,
        maximum=1_024,
    )


def split_at_dashes(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the command's own flags, and the flags of the trainer behind "--"."""
    end = list(words).index("--") if "--" in words else len(words)
    return list(words[:end]), list(words[end + 1 :])


def read_command_line(
    words: Sequence[str], groups: Sequence[type]
) -> tuple[list[Any], list[str], RunConfig]:
    """Read a command line.

    Args:
      words: The command line.
      groups: The command's own options, of which ProcessCounts is the first group.

    Returns:
      The command's own options, the trainer's flags of every rank, and the
      configuration of the run.

    Raises:
      FlagErrors: If anything is wrong; it names everything.
    """
    own_words, trainer_words = split_at_dashes(words)
    fields = flags.collect_fields(groups)
    values, mistakes = flags.parse_with_errors(own_words, {**OPTIONS, **fields})
    for name in [name for name in values if name not in fields]:
        flag = spell(name, values.pop(name))
        mistakes.append(f"{flag} is a flag of the trainer; put it after --")
    # Mistakes in flags of the command and of the trainer are reported together.
    options = [group() for group in groups]
    try:
        options = flags.build(groups, values, mistakes)
        mistakes = []
    except flags.FlagErrors as e:
        mistakes = e.lines
    rank_flags, config = check_trainer_flags(
        trainer_words, dataclasses.asdict(options[0]), mistakes
    )
    if error := conflicts.keeps_trace(config):
        raise flags.FlagErrors([error])
    return options, rank_flags, config


def check_trainer_flags(
    words: Sequence[str], counts: Mapping[str, int | None], earlier: Sequence[str] = ()
) -> tuple[list[str], RunConfig]:
    """Check the flags of the trainer.

    Args:
      words: The flags of the trainer.
      counts: The command's --workers and --ps, or None.
      earlier: Mistakes that were found earlier.

    Returns:
      The flags of every rank, and the configuration of the run.

    Raises:
      FlagErrors: For `earlier` and every mistake.
    """
    mistakes = list(earlier)
    values, _ = flags.parse_with_errors(
        words, OPTIONS
    )  # `conflicts.check_command_line` reports mistakes
    mode = values.get("variable_update", DEFAULT_MODE)
    defaults: dict[str, Any] = {"variable_update": mode}
    if (
        mode in registry.VARIABLE_UPDATES
        and not registry.find_mode(mode).is_distributed
    ):
        modes = registry.join_with_or(registry.list_distributed_modes())
        mistakes.append(
            f"--variable_update={mode} runs in one process; use {modes}, or the "
            "command train"
        )
    else:
        defaults["num_workers"] = DEFAULT_WORKERS
        for name, count in counts.items():
            if count is None:
                continue
            trainer_name = f"num_{name}"
            defaults[trainer_name] = count
            if values.get(trainer_name, count) != count:
                other_flag = spell(trainer_name, values[trainer_name])
                mistakes.append(
                    f"{spell(name, count)} and {other_flag} contradict each other; "
                    "leave one out"
                )
    values, config = conflicts.check_command_line(words, mistakes, defaults)
    return format_flags(values), config
