"""Checkpoints of a watched script go to a folder of the run, not to the user's files.

The hooks call `redirect` before the script starts. Needs only torch.
"""

import hashlib
import math
import os
from typing import Any

import torch

Shapes = list[tuple[int, ...]]
# The sorted shapes in each nonempty optimizer state of loaded checkpoints.
loaded_states: list[Shapes] = []
# The last epochs of schedules in loaded checkpoints.
loaded_epochs: list[int] = []


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


def _note_states(content: Any) -> None:
    """Note the states of optimizers and schedules in a part of a checkpoint."""
    if not isinstance(content, dict):
        return
    if "param_groups" in content:
        if content.get("state"):
            loaded_states.append(_shapes(content["state"]))
    elif "last_epoch" in content and "_step_count" in content:
        loaded_epochs.append(content["last_epoch"])
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
