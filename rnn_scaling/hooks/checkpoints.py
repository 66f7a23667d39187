"""Checkpoints of a watched script go to a folder of the run, not to the user's files.

The hooks call `redirect` before the script starts, and `observer` asks whether a loaded
state was lost. Needs only torch.
"""

import dataclasses
import hashlib
import math
import os
from collections.abc import Mapping
from typing import Any

import torch

Shapes = list[tuple[int, ...]]
# The first rate of a schedule, if it is known, and the rate of a step.
_RATES = ("initial_lr", "lr")
_MAX_RATE_RATIO = 1.5  # between two steps of a schedule


@dataclasses.dataclass(frozen=True)
class _LoadedState:
    """A nonempty optimizer state of a loaded checkpoint.

    Attributes:
      shapes: The sorted shapes of the parameters.
      groups: The groups of parameters with their options.
    """

    shapes: Shapes
    groups: list[dict[str, Any]]


_loaded_states: list[_LoadedState] = []
# The last epochs of schedules in loaded checkpoints.
_loaded_epochs: list[int] = []


def redirect(folder: str) -> None:
    """Let `torch.save` write into a folder, and `torch.load` prefer its files."""
    save = torch.save
    load = torch.load

    def copy_path(path: Any) -> str:
        name = hashlib.blake2b(os.path.abspath(path).encode(), digest_size=8)
        return f"{folder}/saved-{name.hexdigest()}"

    def save_copy(content: Any, f: Any, *args: Any, **options: Any) -> None:
        if isinstance(f, (str, os.PathLike)):
            f = copy_path(f)
        save(content, f, *args, **options)

    def load_copy(f: Any, *args: Any, **options: Any) -> Any:
        if isinstance(f, (str, os.PathLike)) and os.path.exists(copy_path(f)):
            f = copy_path(f)
        content = load(f, *args, **options)
        _note_states(content)
        return content

    torch.save = save_copy
    torch.load = load_copy


def lost_state(optimizer: Any, schedule: Any) -> str | None:
    """Return what a loaded checkpoint has and the script has not restored.

    The first step after a checkpoint was loaded asks. A checkpoint may also be the
    start of another training, with another model or a new optimizer.

    Args:
      optimizer: The optimizer that is about to step.
      schedule: The newest schedule of learning rates; None if there is none.

    Returns:
      "optimizer", "schedule", or None if nothing is lost.
    """
    shapes: Shapes = []
    for group in optimizer.param_groups:
        shapes += [tuple(parameter.shape) for parameter in group["params"]]
    fitting = [state for state in _loaded_states if state.shapes == sorted(shapes)]
    if not fitting:
        return None
    groups = fitting[0].groups
    _loaded_states.remove(fitting[0])
    if not optimizer.state:
        continues = schedule is not None and schedule.last_epoch > 0
        continues |= _have_equal_options(groups, optimizer.param_groups)
        return "optimizer" if continues else None
    epochs = _loaded_epochs.copy()
    _loaded_epochs.clear()
    if schedule is None:
        return None
    is_lost = _begins_again(schedule, groups)
    if epochs:
        is_lost = schedule.last_epoch < max(epochs)
    return "schedule" if is_lost else None


def _begins_again(schedule: Any, groups: list[dict[str, Any]]) -> bool:
    """Return whether a schedule begins again that has changed the rates of a state."""
    first_rates = [group.get("initial_lr") for group in groups]
    if schedule.last_epoch > 0 or first_rates != getattr(schedule, "base_lrs", None):
        return False
    return bool([group["lr"] for group in groups] != schedule.get_last_lr())


def _have_equal_options(
    groups: list[dict[str, Any]], other_groups: list[dict[str, Any]]
) -> bool:
    """Return whether two optimizers have equal groups, apart from their schedules."""
    if len(groups) != len(other_groups):
        return False
    for group, other in zip(groups, other_groups):
        if len(group["params"]) != len(other["params"]):
            return False
        # Versions of torch have different options.
        names = group.keys() & other.keys() - {"params", *_RATES}
        if any(group[name] != other[name] for name in names):
            return False
        if not any(_are_near_rates(group, other, name) for name in _RATES):
            return False
    return True


def _are_near_rates(
    group: Mapping[str, Any], other: Mapping[str, Any], name: str
) -> bool:
    """Return whether both groups have a learning rate of the same schedule."""
    if name not in group or name not in other:
        return False
    ratio = float(other[name]) / max(float(group[name]), 1e-30)
    return 1 / _MAX_RATE_RATIO < ratio < _MAX_RATE_RATIO


def _note_states(content: Any) -> None:
    """Note the states of optimizers and schedules in a part of a checkpoint."""
    if not isinstance(content, dict):
        return
    if "param_groups" in content:
        if content.get("state"):
            shapes = _shapes(content["state"])
            groups = content["param_groups"]
            _loaded_states.append(_LoadedState(shapes, groups))
    elif "last_epoch" in content and "_step_count" in content:
        _loaded_epochs.append(content["last_epoch"])
    else:
        for part in content.values():
            _note_states(part)


def _shapes(states: dict[Any, Any]) -> Shapes:
    """Return the sorted shape of the largest tensor in the state of each parameter."""
    shapes = []
    for state in states.values():
        tensors = [value for value in state.values() if hasattr(value, "numel")]
        all_shapes = [tuple(value.shape) for value in tensors]
        shapes.append(max(all_shapes, key=_size, default=()))
    return sorted(shapes)


def _size(shape: tuple[int, ...]) -> tuple[int, int]:
    return math.prod(shape), len(shape)
