"""Note when the ranks exchange tensors, from which a verdict may follow.

`passes` creates `Exchanges`; `collectives` calls them. Needs only torch.
"""

import enum

import torch


class Moment(enum.Enum):
    """When an exchange takes place."""

    FORWARD = enum.auto()
    FORWARD_WITHOUT_GRADIENTS = enum.auto()  # such as in an autograd function
    BACKWARD = enum.auto()


class Exchanges:
    """Notes the exchanges of one backward pass and of the forward pass before it."""

    def __init__(self) -> None:
        self.start()

    def start(self) -> None:
        """Forget all exchanges; a forward pass begins."""
        self._moments: set[Moment] = set()

    def note(self, tensor: torch.Tensor, moment: Moment) -> None:
        """Note an exchange. Single numbers, such as numbers of tokens, do not count."""
        if tensor.is_floating_point() and tensor.numel() != 1:
            self._moments.add(moment)

    @property
    def changes_forward(self) -> bool:
        """Whether the forward pass may use values of other ranks."""
        return bool(self._moments - {Moment.BACKWARD})

    @property
    def has_lost_gradients(self) -> bool:
        """Whether the loss depends on values of other ranks that get no gradient.

        A function with a gradient of its own must also exchange in the backward pass.
        """
        if Moment.FORWARD in self._moments:
            return True
        is_inside = Moment.FORWARD_WITHOUT_GRADIENTS in self._moments
        return is_inside and Moment.BACKWARD not in self._moments
