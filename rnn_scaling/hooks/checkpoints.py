"""Checkpoints of a watched script go to a folder of the run, not to the user's files.

The hooks call `redirect` before the script starts. Needs only torch.
"""

import hashlib
import os
from typing import Any

import torch

# Optimizer states in checkpoints that the script has loaded.
num_loaded_states = 0


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
        global num_loaded_states
        if isinstance(f, (str, os.PathLike)) and os.path.exists(copy_of(f)):
            f = copy_of(f)
        content = load(f, *args, **options)
        num_loaded_states += _has_optimizer_state(content)
        return content

    torch.save = save_copy
    torch.load = load_copy


def _has_optimizer_state(content: Any) -> bool:
    """Return whether a checkpoint contains a nonempty state of an optimizer."""
    if not isinstance(content, dict):
        return False
    if "param_groups" in content:
        return bool(content.get("state"))
    return any(_has_optimizer_state(part) for part in content.values())
