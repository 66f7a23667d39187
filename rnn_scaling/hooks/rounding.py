"""The coarsest rounding of a watched script's computations. Needs only torch."""

import torch

_EPSILONS = {
    torch.float64: 2**-52,
    torch.float32: 2**-23,
    torch.bfloat16: 2**-8,
    torch.float16: 2**-11,
}


class Rounding:
    """Finds the coarsest data type of parameters, of autocast and of exchanges.

    Attributes:
      epsilon: The relative distance of neighbouring numbers of that type.
    """

    def __init__(self) -> None:
        self.epsilon = 2**-52

    def note(self, dtype: torch.dtype) -> None:
        self.epsilon = max(self.epsilon, _EPSILONS.get(dtype, 0.0))

    def note_module(self, module: torch.nn.Module) -> None:
        """Note the types with which a module computes now."""
        for kind in ("cpu", "cuda"):
            if torch.is_autocast_enabled(kind):
                self.note(torch.get_autocast_dtype(kind))
        for parameter in module._parameters.values():
            if parameter is not None:
                self.note(parameter.dtype)
