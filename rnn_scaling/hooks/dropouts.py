"""Record that a script uses dropout, and turn it off if wanted.

`observer` creates a `Dropout`. Needs only torch.
"""

from typing import Any

import torch

from rnn_scaling.hooks.replacing import replace
from rnn_scaling.hooks.sketches import digest

_FUNCTIONS = (
    "dropout",
    "alpha_dropout",
    "feature_alpha_dropout",
    "dropout1d",
    "dropout2d",
    "dropout3d",
)


class Dropout:
    """Records the random state before the first dropout of a step."""

    def __init__(self, is_off: bool) -> None:
        """Record no dropout yet.

        Args:
          is_off: Whether the script trains without dropout.
        """
        self._is_off = is_off
        self.start_step()

    def install(self) -> None:
        functional = torch.nn.functional
        for name in _FUNCTIONS:
            replace(functional, name, self._drop)
        replace(functional, "scaled_dot_product_attention", self._attend)

    def start_step(self) -> None:
        self._first_state: str | None = None

    def describe_step(self) -> dict[str, Any]:
        """Return fields of the line of a step."""
        return {"dropout": self._first_state}

    def watch_module(self, module: torch.nn.Module) -> None:
        """Note the dropout inside a recurrent layer, which calls no function here."""
        if isinstance(module, torch.nn.RNNBase) and module.dropout:
            self._note()
            if self._is_off:
                module.dropout = 0.0

    def _note(self) -> None:
        if self._first_state is None:
            self._first_state = _read_random_state()

    def _drop(
        self,
        original: Any,
        input: Any,
        p: float = 0.5,
        training: bool = True,
        inplace: bool = False,
    ) -> Any:
        if training and p > 0 and torch.is_grad_enabled():
            self._note()
            if self._is_off:
                p = 0.0
        if p == 0:
            return input
        return original(input, p, training, inplace)

    def _attend(self, original: Any, *args: Any, **options: Any) -> Any:
        words = list(args)
        probability = words[4] if len(words) > 4 else options.get("dropout_p", 0.0)
        if probability > 0:
            self._note()
            if self._is_off and len(words) > 4:
                words[4] = 0.0
            elif self._is_off:
                options["dropout_p"] = 0.0
        return original(*words, **options)


def _read_random_state() -> str:
    state = digest(torch.get_rng_state())
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        state += digest(torch.cuda.get_rng_state())
    return state
