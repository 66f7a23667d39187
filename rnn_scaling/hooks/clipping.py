"""Record how a script clips its gradients, and clip them to another norm if wanted.

`observer` creates a `Clipping`. Needs only torch.
"""

from typing import Any

import torch

from rnn_scaling.hooks.replacing import replace
from rnn_scaling.hooks.sketches import plain


class Clipping:
    """Records the norm and the bound of each clipping in a step."""

    def __init__(self, bound: float | None) -> None:
        """Record no clipping yet.

        Args:
          bound: The norm to which gradients are clipped; None for the script's own.
        """
        self._bound = bound
        self._is_clipping = False
        self.start_step()

    def install(self) -> None:
        for owner in (torch.nn.utils, torch.nn.utils.clip_grad):
            replace(owner, "clip_grad_norm_", self.clip)
        replace(torch.nn.utils, "clip_grads_with_norm_", self._clip_with_norm)

    def start_step(self) -> None:
        self._clips: list[dict[str, float]] = []

    def describe_step(self) -> dict[str, Any]:
        """Return fields of the line of a step."""
        return {"clips": self._clips}

    def clip(
        self,
        original: Any,
        parameters: Any,
        max_norm: float,
        *args: Any,
        **options: Any,
    ) -> Any:
        """Call `clip_grad_norm_` of torch or of another library."""
        if not isinstance(parameters, torch.Tensor):
            parameters = list(parameters)
        self._is_clipping = True
        norm = original(parameters, self._choose_bound(max_norm), *args, **options)
        self._is_clipping = False
        self._record(norm, max_norm)
        return norm

    def _clip_with_norm(
        self,
        original: Any,
        parameters: Any,
        max_norm: float,
        total_norm: Any,
        *args: Any,
    ) -> None:
        """Call `clip_grads_with_norm_`, which `clip_grad_norm_` may call too."""
        if self._is_clipping:
            original(parameters, max_norm, total_norm, *args)
            return
        original(parameters, self._choose_bound(max_norm), total_norm, *args)
        self._record(total_norm, max_norm)

    def _choose_bound(self, max_norm: float) -> float:
        return float(max_norm) if self._bound is None else self._bound

    def _record(self, norm: Any, max_norm: float) -> None:
        self._clips.append(
            {
                "norm": float(plain(norm)),
                "bound": self._choose_bound(max_norm),
                "own": float(max_norm),
            }
        )
