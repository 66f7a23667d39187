"""Watch the collective operations of a script.

`observer` creates `Collectives`. Needs only torch.
"""

from collections.abc import Callable, Mapping
from typing import Any

import torch

from rnn_scaling.hooks import ranks
from rnn_scaling.hooks.passes import BackwardPasses
from rnn_scaling.hooks.replacing import replace
from rnn_scaling.hooks.rounding import Rounding

if torch.distributed.is_available():
    from torch.distributed.algorithms.join import Join

_GATHERS = ("all_gather", "all_gather_into_tensor")


class Collectives:
    """Counts the elements that all-reduces sum, and notes each exchange of a pass.

    Some operations show how this rank trains with the others; they get own lines.
    """

    def __init__(
        self,
        passes: BackwardPasses,
        rounding: Rounding,
        write: Callable[[Mapping[str, Any]], None],
        folder: str,
    ) -> None:
        """Count nothing yet.

        Args:
          passes: The backward passes, to which the exchanges belong.
          rounding: The coarsest data type.
          write: Writes a line.
          folder: The folder where the ranks mark their ends.
        """
        self._passes = passes
        self._rounding = rounding
        self._write = write
        self._folder = folder
        self._num_steps = -1
        self.start_step()

    def install(self) -> None:
        if torch.distributed.is_available():
            replace(torch.distributed, "all_reduce", self._all_reduce)
            replace(torch.distributed, "broadcast", self._broadcast)
            replace(Join, "__exit__", self._leave_join)
            for name in _GATHERS:
                replace(torch.distributed, name, self._gather)

    def start_step(self) -> None:
        self._num_steps += 1
        # Elements reduced by each operation, such as "SUM".
        self._reduced: dict[str, int] = {}

    def describe_step(self) -> dict[str, Any]:
        """Return fields of the line of a step."""
        return {"reduced": self._reduced}

    def _all_reduce(
        self, original: Any, tensor: torch.Tensor, *args: Any, **options: Any
    ) -> Any:
        self._rounding.note(tensor.dtype)
        operation = str(args[0] if args else options.get("op", "SUM"))
        name = operation.rpartition(".")[2]
        self._reduced[name] = self._reduced.get(name, 0) + tensor.numel()
        self._passes.note_exchange(tensor)
        return original(tensor, *args, **options)

    def _broadcast(
        self, original: Any, tensor: torch.Tensor, *args: Any, **options: Any
    ) -> Any:
        """Note that a rank without optimizer steps may get weights after its first pass."""
        is_late = self._passes.have_begun and not self._num_steps
        if is_late and tensor.is_floating_point():
            self._write({"kind": "follows"})
        return original(tensor, *args, **options)

    def _leave_join(self, original: Any, *args: Any) -> Any:
        """Note how many steps this rank has inputs for; others may have more."""
        self._write({"kind": "joined", "steps": self._num_steps})
        ranks.mark_end(self._folder)
        return original(*args)

    def _gather(self, original: Any, *args: Any, **options: Any) -> Any:
        for value in (*args, *options.values()):
            if isinstance(value, torch.Tensor):
                self._passes.note_exchange(value)
        return original(*args, **options)
