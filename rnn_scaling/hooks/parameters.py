"""The parameters of a script's optimizers: their keys, gradients and first weights.

`observer` creates `Parameters`. Needs only torch.
"""

import os
from collections.abc import Mapping
from typing import Any

import torch

from rnn_scaling.hooks.sketches import plain, sketch

_save = torch.save
_load = torch.load


class Parameters:
    """Gives each parameter a key, and sums the gradients of a backward pass.

    Attributes:
      by_key: The parameters of all optimizers. A key has the numbers of the optimizer,
        of the group and of the parameter in it.
      optimizers: The optimizers in the order of their creation.
      are_watched: Whether gradients are watched; training has begun.
      has_flat: Whether parameters have other shapes in this process than the weights
        of the script's model.
    """

    def __init__(self) -> None:
        self.by_key: dict[str, torch.Tensor] = {}
        self.optimizers: list[torch.optim.Optimizer] = []
        self.are_watched = False
        self.has_flat = False
        self._keys: dict[int, str] = {}
        self._gradients: dict[str, list[float]] | None = None

    def add_optimizer(self, optimizer: torch.optim.Optimizer) -> None:
        self.optimizers.append(optimizer)
        self.find(optimizer)

    def find(self, optimizer: torch.optim.Optimizer) -> dict[str, torch.Tensor]:
        """Return all parameters of an optimizer by key, and watch new ones."""
        number = self.optimizers.index(optimizer)
        parameters = {}
        for group_number, group in enumerate(optimizer.param_groups):
            for place, parameter in enumerate(group["params"]):
                key = self._add(parameter, f"{number}.{group_number}.{place}")
                parameters[key] = parameter
        return parameters

    def find_key(self, parameter: torch.Tensor) -> str | None:
        """Return the key of a parameter; None if no optimizer has it."""
        return self._keys.get(id(parameter))

    def watch(self) -> None:
        """Watch the gradients of all parameters; training begins."""
        self.are_watched = True
        for key, parameter in self.by_key.items():
            self._watch_gradient(key, parameter)

    def start_sums(self) -> None:
        """Sum the gradients from now on; a backward pass begins."""
        self._gradients = {}

    def end_sums(self) -> dict[str, list[float]]:
        """Return the sketch of each gradient of the backward pass that ends."""
        gradients = self._gradients or {}
        self._gradients = None
        return gradients

    def set_weights(self, settings: Mapping[str, Any]) -> None:
        """Load, change and save the initial weights, as the conditions say."""
        if settings.get("load_weights"):
            self._load_weights(_load(settings["load_weights"]))
        if settings.get("perturb"):
            self._perturb(**settings["perturb"])
        if settings.get("save_weights"):
            weights = {key: plain(value) for key, value in self.by_key.items()}
            if os.environ.get("RANK", "0") == "0":
                _save(weights, settings["save_weights"])

    def _add(self, parameter: torch.Tensor, key: str) -> str:
        """Return the key of a parameter, and watch it if it is new."""
        key = self._keys.setdefault(id(parameter), key)
        if key not in self.by_key:
            self.by_key[key] = parameter
            if self.are_watched:
                self._watch_gradient(key, parameter)
        return key

    def _watch_gradient(self, key: str, parameter: torch.Tensor) -> None:
        """Sum the sketches of the gradients that backward passes add to a parameter."""

        def keep(gradient: torch.Tensor) -> None:
            if self._gradients is not None:
                values = sketch(gradient)
                known = self._gradients.get(key)
                if known:
                    values = [a + b for a, b in zip(known, values)]
                self._gradients[key] = values

        # The local gradient of a sharded parameter is not seen here.
        if parameter.requires_grad and not hasattr(parameter, "full_tensor"):
            parameter.register_hook(keep)

    def _load_weights(self, weights: Mapping[str, torch.Tensor]) -> None:
        with torch.no_grad():
            for key in weights.keys() & self.by_key.keys():
                parameter = self.by_key[key]
                if weights[key].shape == parameter.shape:
                    parameter.copy_(_shard_like(weights[key], parameter))
                else:
                    self.has_flat = True

    def _perturb(self, seed: int, size: float) -> None:
        """Change each weight by a relative `size`, up or down by chance."""
        generator = torch.Generator().manual_seed(seed)
        for parameter in self.by_key.values():
            if not parameter.is_floating_point():
                continue
            signs = torch.randint(2, parameter.shape, generator=generator) * 2 - 1
            factor = 1 + signs.double() * size
            with torch.no_grad():
                parameter.mul_(_shard_like(factor.to(parameter.device), parameter))


def _shard_like(tensor: torch.Tensor, parameter: torch.Tensor) -> torch.Tensor:
    """Return a whole tensor, with the shards of a parameter if it is a DTensor."""
    if not hasattr(parameter, "full_tensor"):
        return tensor
    from torch.distributed.tensor import distribute_tensor

    mesh = parameter.device_mesh
    return distribute_tensor(tensor, mesh, parameter.placements)
