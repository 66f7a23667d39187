"""Record the losses that a script computes: their sums, and the factors of gradients.

`observer` creates `Criteria`. Needs only torch.
"""

from typing import Any

import torch

from rnn_scaling.hooks.replacing import replace

_FUNCTIONS = (
    "cross_entropy",
    "nll_loss",
    "mse_loss",
    "l1_loss",
    "smooth_l1_loss",
    "binary_cross_entropy_with_logits",
)


class Criteria:
    """Records each loss function that a script calls before a backward pass."""

    def __init__(self) -> None:
        self._depth = 0
        self.start_pass()

    def install(self) -> None:
        for name in _FUNCTIONS:
            replace(torch.nn.functional, name, self._compute)

    def start_pass(self) -> None:
        """Forget all losses; a forward pass begins."""
        self._records: list[dict[str, Any]] = []

    def take(self) -> list[dict[str, Any]]:
        """Return the losses of the pass that ends, and forget them."""
        records = self._records
        self.start_pass()
        return records

    def _compute(
        self, original: Any, input: Any, target: Any, *args: Any, **options: Any
    ) -> Any:
        """Call a loss function, and record it unless another one has called it."""
        self._depth += 1
        try:
            value = original(input, target, *args, **options)
        finally:
            self._depth -= 1
        is_outer = self._depth == 0 and torch.is_grad_enabled()
        if is_outer and value.requires_grad:
            ignored = options.get("ignore_index", args[2] if len(args) > 2 else -100)
            reduction = options.get("reduction", "mean")
            self._record(value, target.reshape(-1) != ignored, reduction)
        return value

    def _record(
        self, value: torch.Tensor, is_counted: torch.Tensor, reduction: str
    ) -> None:
        """Record the sum of a loss over its targets, and the factor of its gradient.

        Args:
          value: The loss.
          is_counted: Whether each target counts.
          reduction: "mean", "sum" or "none".
        """
        count = int(is_counted.sum())
        record = {
            "count": count,
            "positions": is_counted.numel(),
            "sum": float(value.detach().double().sum()),
            "scale": 0.0,
        }
        if reduction == "mean":
            record["sum"] *= count

        def keep(gradient: torch.Tensor) -> None:
            scale = gradient.detach().double()
            if reduction == "none":
                scale = scale.reshape(-1)[is_counted]
                record["scale"] = float(scale.sum()) / max(count, 1)
            else:
                divisor = max(count, 1) if reduction == "mean" else 1
                record["scale"] = float(scale) / divisor

        value.register_hook(keep)
        self._records.append(record)
