"""What runs of another framework cannot do: they train one network, on constant batches, in one process or several."""

from __future__ import annotations

from collections.abc import Iterator

from rnn_scaling.models.config import ModelConfig
from rnn_scaling.processes import other_python
from rnn_scaling.registry import FRAMEWORKS
from rnn_scaling.settings.config import GROUP_OF, RunConfig
from rnn_scaling.settings.naming import OURS
from rnn_scaling.settings.spelling import spell

# What each option may be where another framework trains, the remedy first.
_ALLOWED = {
    "model": (ModelConfig.model,),
    "unit_type": ("lstm",),
    "share_embedding": (False,),
    "dropout": (0.0,),
    "accuracy": (False,),
    "compute_dtype": ("float32", "bfloat16"),
    "variable_update": ("replicated", "independent"),
    "data_source": ("constant",),
    "max_gradient_norm": (0.0,),
    "lr_scaling": ("none",),
    "until_steady": (False,),
    "trace_batches": (0,),
    "log_dir": ("",),
    "checkpoint_dir": ("",),
}


def problems(config: RunConfig, num_gpus: int) -> Iterator[str]:
    """A line for each conflict."""
    name = config.frameworks.framework
    if name == OURS:
        return
    faults = list(_faults(config, num_gpus))
    yield from faults
    if not faults:  # it starts a program
        row = FRAMEWORKS[name]
        if problem := other_python.problem(name, row.package, row.least):
            yield problem


def _faults(config: RunConfig, num_gpus: int) -> Iterator[str]:
    name = config.frameworks.framework
    for option, allowed in _ALLOWED.items():
        value = getattr(getattr(config, GROUP_OF[option]), option)
        if value not in allowed:
            remedy = f"use {' or '.join(spell(option, each) for each in allowed)}" if allowed[0] else "leave it out"
            yield f"--framework={name} cannot have {spell(option, value)}; {remedy}"
    sizes = config.tower_batch_sizes()
    if FRAMEWORKS[name].has_equal_towers and len(set(sizes)) > 1:
        yield (
            f"--framework={name} cuts --global_batch_size={sum(sizes)} evenly, and --num_devices={len(sizes)} does not "
            f"divide it; use --global_batch_size={len(sizes) * min(sizes) or len(sizes)}"
        )
    if config.devices.device == "gpu" and config.devices.num_devices > num_gpus:
        yield f"--framework={name} needs a GPU for each of --num_devices={config.devices.num_devices}, got {num_gpus}"
