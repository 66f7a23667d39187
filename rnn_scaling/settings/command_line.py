"""The trainer's command line, checked before anything is started."""

from collections.abc import Mapping, Sequence
from typing import Any

from rnn_scaling.machine.cores import available_cores
from rnn_scaling.machine.gpus import visible_gpus
from rnn_scaling.settings import config as configs
from rnn_scaling.settings import conflicts, flags
from rnn_scaling.settings.config import RunConfig


def checked(
    words: Sequence[str], lines: Sequence[str] = (), defaults: Mapping[str, Any] | None = None
) -> tuple[dict[str, Any], RunConfig]:
    """The options that were given, and what runs with them; a FlagErrors names everything that is wrong."""
    given, wrong = flags.parsed(words, configs.OPTIONS)
    given = {**(defaults or {}), **given}
    num_gpus = visible_gpus()
    config = configs.resolve(given, num_gpus=num_gpus, num_cores=len(available_cores()))
    if wrong := [*lines, *wrong, *conflicts.problems(config, given, num_gpus=num_gpus)]:
        raise flags.FlagErrors(wrong, given)
    return given, config
