"""What an update mode promises of its training, and how closely a serial run must be met. No TensorFlow."""

from __future__ import annotations

import dataclasses

from rnn_scaling import registry
from rnn_scaling.settings.config import RunConfig

# Of a variable's way: thousands of roundings of float32 (2**-24). Both sides compute a tower's gradient with the same
# kernels from the same weights, so what is left is the order of sums over towers and one rounding an update.
FLOAT32_SHARE = 2.0**-10
# One rounding of a number: what a gradient may differ by where a weight's last bit turns a rounding of the network.
UNITS = {"float32": 2.0**-24, "bfloat16": 2.0**-8, "float16": 2.0**-11}
# Adam divides an element by its own size: where gradients are nearly zero, rounding decides. It is a few elements.
ADAM_SHARE = 2.0**-5
FLOAT32_LOSS = 1e-5
# An exchange in fewer bits rounds each tower's gradient and, adding in them, each sum; int8: by a step of 127.
COMPRESSED = {"none": 0.0, "bfloat16": 2.0**-8, "float16": 2.0**-11, "int8": 1 / 127}


@dataclasses.dataclass(frozen=True)
class Guarantee:
    """What serial training the towers' must equal.

    Attributes:
      shares_one_model: one training on the towers' batches together; else one for each tower's own.
      late: each gradient is applied one batch after its own.
      staged: each gradient is computed at the weights of one batch before.
      share: of a variable's way by which it may differ, as Euclidean norms.
      lost: of a tower's gradient, what its exchange in fewer bits holds back for later batches, per element of its
        largest one; 0: nothing.
      loss: by which share of itself a loss may differ.
    """

    shares_one_model: bool
    late: bool = False
    staged: bool = False
    share: float = FLOAT32_SHARE
    lost: float = 0.0
    loss: float = FLOAT32_LOSS

    @property
    def is_stale(self) -> bool:
        """Whether gradients are one step old, one way or the other."""
        return self.late or self.staged


def guarantee_of(config: RunConfig) -> Guarantee:
    """What the mode of a configuration promises."""
    update, dtype = config.update, config.model.compute_dtype
    share = max(FLOAT32_SHARE, UNITS[dtype], ADAM_SHARE if config.training.optimizer == "adam" else 0.0)
    lost = COMPRESSED[update.compress_gradients]
    if update.compress_gradients in ("bfloat16", "float16"):
        share = max(share, lost * config.num_towers)
    return Guarantee(
        shares_one_model=registry.trains_one_model(update.variable_update),
        late=update.variable_consistency == "relaxed",
        staged=update.staged_vars,
        share=share,
        lost=lost if update.compress_gradients == "int8" else 0.0,
        loss=max(FLOAT32_LOSS, UNITS[dtype], 10 * lost),
    )
