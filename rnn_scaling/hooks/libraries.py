"""Functions of libraries that the hooks replace, once the script has imported them.

Libraries on top of torch have their own loaders, schedulers and clipping. A script
imports them after the hooks, so they are replaced when it creates loaders and
optimizers.

`observer` provides the replacements. Another library is a row of `FUNCTIONS` and a
replacement there.
"""

import sys
from collections.abc import Mapping
from typing import Any

from rnn_scaling.hooks.replacing import Replacement, wrap

# By name: the module, and the path of the function in it.
FUNCTIONS = {
    "read_ahead": ("accelerate.data_loader", "DataLoaderShard.__iter__"),
    "dispatch": ("accelerate.data_loader", "DataLoaderDispatcher.__iter__"),
    "step_by_samples": ("accelerate.scheduler", "AcceleratedScheduler.step"),
    "clip": ("deepspeed.runtime.engine", "clip_grad_norm_"),
}


class Libraries:
    """Replaces functions of libraries that the script imports later."""

    def __init__(self, replacements: Mapping[str, Replacement]) -> None:
        """Store the replacements.

        Args:
          replacements: By name of `FUNCTIONS`; each gets the original function and its
            arguments.
        """
        self._missing = dict(replacements)

    def watch(self) -> None:
        """Replace the functions of the modules that were imported since the last call."""
        for name, replacement in list(self._missing.items()):
            module_name, path = FUNCTIONS[name]
            module = sys.modules.get(module_name)
            if module is None:
                continue
            *owners, function_name = path.split(".")
            owner: Any = module
            for owner_name in owners:
                owner = getattr(owner, owner_name, None)
            original = getattr(owner, function_name, None)
            if original is None:  # another version, or the import has not ended
                continue
            setattr(owner, function_name, wrap(original, replacement))
            del self._missing[name]
