"""The modules of a watched script: names, layers, buffers and modes.

`observer` creates a `Model`. Needs only torch.
"""

import gc
import os
import sys
from collections.abc import Mapping
from typing import Any

import torch

from rnn_scaling.hooks.parameters import Parameters
from rnn_scaling.hooks.sketches import digest, sketch

# Functions of these packages do not belong to a script.
_PACKAGES = tuple(os.path.dirname(path) + os.sep for path in (__file__, torch.__file__))
_WRAPPERS = ("module.", "_orig_mod.", "_fsdp_wrapped_module.")


class Model:
    """Finds the modules that a script trains when training begins."""

    def __init__(self) -> None:
        # By name of a buffer: its module, which may replace the tensor, and its key.
        self._buffers: dict[str, tuple[torch.nn.Module, str]] = {}
        # Modules without children, by name.
        self._modules: dict[str, torch.nn.Module] = {}

    def find(self, parameters: Parameters) -> dict[str, Any]:
        """Find all modules; return the fields of the first line about them."""
        roots = _find_root_modules()
        names: dict[str, str] = {}
        frozen: dict[str, list[str]] = {}
        layers: dict[str, int] = {}
        for root in roots:
            is_trained = False
            for name, parameter in root.named_parameters():
                key = parameters.find_key(parameter)
                if key is not None:
                    is_trained = True
                    names[key] = _shorten(name)
                elif not parameter.requires_grad:
                    same_name = frozen.setdefault(_shorten(name), [])
                    same_name.append(digest(parameter))
            for path, module in root.named_modules():
                name = type(module).__name__
                layers[name] = layers.get(name, 0) + 1
                for key in module._buffers:
                    full_name = _shorten(f"{path}.{key}".lstrip("."))
                    self._buffers[full_name] = (module, key)
                if is_trained and not any(module.children()):
                    self._modules[_shorten(path) or name] = module
        variables = _name_by_variables(parameters, names)
        return {
            "broadcasts_buffers": any(
                getattr(root, "broadcast_buffers", False) for root in roots
            ),
            "names": {**names, **variables},
            "layers": layers,
            "frozen": frozen,
            "has_shards": any(
                hasattr(each, "full_tensor") for each in parameters.by_key.values()
            ),
            "buffers": self.describe_buffers(),
        }

    def _current_buffers(self) -> dict[str, torch.Tensor]:
        buffers = {}
        for name, (module, key) in self._buffers.items():
            buffer = module._buffers.get(key)
            if buffer is not None and buffer.is_floating_point():
                buffers[name] = buffer
        return buffers

    def describe_buffers(self) -> dict[str, Any]:
        return describe_tensors(self._current_buffers())

    def digest_buffers(self) -> dict[str, str]:
        buffers = self._current_buffers()
        return {name: digest(buffer) for name, buffer in buffers.items()}

    def list_eval_modules(self) -> list[str]:
        """Return the names of the modules that are not in training."""
        return [name for name, module in self._modules.items() if not module.training]


def describe_tensors(tensors: Mapping[str, torch.Tensor]) -> dict[str, Any]:
    """Return the digest and the sketch of each tensor."""
    return {
        name: {"digest": digest(value), "sketch": sketch(value)}
        for name, value in tensors.items()
    }


def _find_root_modules() -> list[torch.nn.Module]:
    """Return the modules that no other module contains."""
    modules = [o for o in gc.get_objects() if issubclass(type(o), torch.nn.Module)]
    inner: set[int] = set()
    for module in modules:
        inner.update(id(child) for child in module.children())
    return [module for module in modules if id(module) not in inner]


def _name_by_variables(
    parameters: Parameters, names: Mapping[str, str]
) -> dict[str, str]:
    """Return the names of the script's variables for parameters of no module.

    Args:
      parameters: The parameters of all optimizers.
      names: The names of the parameters of modules, by key.
    """
    found: dict[str, str] = {}
    frame = sys._getframe() if len(names) < len(parameters.by_key) else None
    while frame is not None:
        if not frame.f_code.co_filename.startswith(_PACKAGES):
            for name, value in list(frame.f_locals.items()):
                if not isinstance(value, torch.Tensor):
                    continue
                key = parameters.find_key(value)
                if key is not None and key not in names:
                    found.setdefault(key, name)
        frame = frame.f_back
    return found


def _shorten(name: str) -> str:
    """Return the name of a module or parameter without the names of wrappers."""
    for wrapper in _WRAPPERS:
        name = name.replace(wrapper, "")
    return name
