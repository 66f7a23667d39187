"""Checkpoints of a watched script go to a folder of the run, not to the user's files.

The hooks call `redirect` before the script starts, and `observer` asks whether a loaded
state was lost. Needs only torch.
"""

import hashlib
import math
import os
from typing import Any

import torch

Shapes = list[tuple[int, ...]]
# The sorted shapes in each nonempty optimizer state of loaded checkpoints.
_loaded_states: list[Shapes] = []
# The last epochs of schedules in loaded checkpoints.
_loaded_epochs: list[int] = []


def redirect(folder: str) -> None:
    """Let `torch.save` write into a folder, and `torch.load` prefer its files."""
    save = torch.save
    load = torch.load

    def copy_of(path: Any) -> str:
        name = hashlib.blake2b(os.path.abspath(path).encode(), digest_size=8)
        return f"{folder}/saved-{name.hexdigest()}"

    def save_copy(content: Any, f: Any, *args: Any, **options: Any) -> None:
        if isinstance(f, (str, os.PathLike)):
            f = copy_of(f)
        save(content, f, *args, **options)

    def load_copy(f: Any, *args: Any, **options: Any) -> Any:
        if isinstance(f, (str, os.PathLike)) and os.path.exists(copy_of(f)):
            f = copy_of(f)
        content = load(f, *args, **options)
        _note_states(content)
        return content

    torch.save = save_copy
    torch.load = load_copy


def lost_state(optimizer: Any, schedule: Any) -> str | None:
    """Return what a loaded checkpoint has and the script has not restored.

    The first step after a checkpoint was loaded asks. The state of another model, which
    is a start for this one, does not fit the optimizer.

    Args:
      optimizer: The optimizer that is about to step.
      schedule: The newest schedule of learning rates; None if there is none.

    Returns:
      "optimizer", "schedule", or None if nothing is lost.
    """
    shapes: Shapes = []
    for group in optimizer.param_groups:
        shapes += [tuple(parameter.shape) for parameter in group["params"]]
    own_shapes = sorted(shapes)
    fits = own_shapes in _loaded_states
    if fits:
        _loaded_states.remove(own_shapes)
    if not optimizer.state:
        return "optimizer" if fits else None
    epochs = _loaded_epochs.copy()
    _loaded_epochs.clear()
    if fits and epochs and schedule is not None:
        return "schedule" if schedule.last_epoch < max(epochs) else None
    return None


def _note_states(content: Any) -> None:
    """Note the states of optimizers and schedules in a part of a checkpoint."""
    if not isinstance(content, dict):
        return
    if "param_groups" in content:
        if content.get("state"):
            _loaded_states.append(_shapes(content["state"]))
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
