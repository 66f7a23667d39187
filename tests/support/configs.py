"""The configurations of runs on a machine without GPUs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rnn_scaling.config import run_config
from rnn_scaling.config.run_config import RunConfig


def resolve(options: Mapping[str, Any] = {}, num_cores: int = 4) -> RunConfig:  # noqa: B006
    """Return the configuration of a run with these options."""
    return run_config.resolve(options, num_gpus=0, num_cores=num_cores)
