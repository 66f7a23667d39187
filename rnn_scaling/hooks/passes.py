"""The backward passes of a step, each with the forward pass before it.

`observer` creates `BackwardPasses`. Needs only torch.
"""

from typing import Any

import torch

from rnn_scaling.hooks.criteria import Criteria
from rnn_scaling.hooks.draws import Draws
from rnn_scaling.hooks.exchanges import Exchanges, Moment
from rnn_scaling.hooks.model import Model
from rnn_scaling.hooks.parameters import Parameters
from rnn_scaling.hooks.replacing import replace
from rnn_scaling.hooks.sketches import row_digests

_MAX_ROWS = 512  # rows of an input that are recognised


class ForwardPass:
    """Records the input of a forward pass and what its ranks exchange.

    Attributes:
      has_begun: Whether a module in training has been called.
      exchanges: The exchanges of this pass and of the backward pass after it.
    """

    def __init__(self) -> None:
        self.has_begun = False
        self.exchanges = Exchanges()
        self._rows: list[list[str]] = []
        self._length = 0  # of the second dimension of the input

    def begin(self) -> None:
        self.has_begun = True
        self._rows = []

    def note_input(self, args: Any) -> None:
        """Note the rows of the first positional tensor of the first module with one."""
        if self._rows:
            return
        for value in args:
            if isinstance(value, torch.Tensor) and value.dim():
                self._rows = row_digests(value[:_MAX_ROWS])
                self._length = value.shape[1] if value.dim() > 1 else 0
                break

    def end(self) -> dict[str, Any]:
        """Return fields of a backward pass; another forward pass may begin."""
        fields = {
            "rows": self._rows,
            "length": self._length,
            "exchanges": self.exchanges.has_lost_gradients,
            "shares_values": self.exchanges.changes_forward,
        }
        self.has_begun = False
        self._rows = []
        self.exchanges.start()
        return fields


class BackwardPasses:
    """Records each backward pass of a step as a micro-batch.

    The hooks of modules and of collective operations call it too, because they belong
    to a pass.

    Attributes:
      are_complete: Whether the optimizer has read the gradients of the step. A closure
        that is called again adds no micro-batch.
    """

    def __init__(
        self, parameters: Parameters, model: Model, draws: Draws, criteria: Criteria
    ) -> None:
        self._parameters = parameters
        self._model = model
        self._draws = draws
        self._criteria = criteria
        self._depth = 0
        # The last passes, and the optimizers that have used their gradients.
        self._shared_passes: list[dict[str, Any]] = []
        self._sharing: set[int] = set()
        self.start_step()

    def install(self) -> None:
        self._criteria.install()
        replace(torch.autograd, "backward", self._run)

    def start_step(self) -> None:
        self.are_complete = False
        self._passes: list[dict[str, Any]] = []
        self._forward = ForwardPass()
        self._criteria.start_pass()
        self._fields: dict[str, Any] = {
            "noise": None,
            "drawn": 0,
            "place": [0, 0],  # of the next draw after the last forward pass
            "buffers_before": {},
            "eval_modules": [],
        }

    def describe_step(self) -> dict[str, Any]:
        """Return fields of the line of a step, without its micro-batches."""
        return self._fields

    @property
    def have_begun(self) -> bool:
        """Whether the step has had a backward pass."""
        return bool(self._passes)

    def begin_forward(self, args: Any) -> None:
        """Note that a module is called; it may be the first one of a forward pass.

        Args:
          args: Its positional arguments.
        """
        if self._depth:
            return
        if not self._forward.has_begun:
            if not self._passes:
                self._fields["buffers_before"] = self._model.digest_buffers()
            self._forward.begin()
        self._forward.note_input(args)

    def note_exchange(self, tensor: torch.Tensor) -> None:
        """Note an exchange in a forward or backward pass."""
        exchanges = self._forward.exchanges
        if self._depth:
            exchanges.note(tensor, Moment.BACKWARD)
        elif self._forward.has_begun and torch.is_grad_enabled():
            exchanges.note(tensor, Moment.FORWARD)
        elif self._forward.has_begun:
            exchanges.note(tensor, Moment.FORWARD_WITHOUT_GRADIENTS)

    def take(self, optimizer: torch.optim.Optimizer) -> list[dict[str, Any]]:
        """Return the backward passes whose gradients an optimizer uses.

        Several optimizers may use the same passes, one after the other.
        """
        if self._passes:
            self._shared_passes = self._passes
            self._sharing = set()
        elif id(optimizer) in self._sharing:
            return []
        self._sharing.add(id(optimizer))
        own = self._parameters.find(optimizer).keys()
        passes = []
        for each in self._shared_passes:
            # The local gradients of sharded parameters are unknown.
            if not each["gradients"] or own & each["gradients"].keys():
                passes.append(each)
        return passes

    def _run(self, original: Any, tensors: Any, *args: Any, **options: Any) -> None:
        """Run a backward pass, and record it unless another one contains it."""
        is_outer = self._depth == 0
        if is_outer:
            self._parameters.start_sums()
            self._fields["noise"] = self._draws.describe()
            self._fields["drawn"] = self._draws.num_drawn
            self._fields["place"] = self._draws.place
        self._depth += 1
        gradients: dict[str, list[float]] = {}
        try:
            with self._draws.paused():
                original(tensors, *args, **options)
        finally:
            self._depth -= 1
            if is_outer:
                gradients = self._parameters.end_sums()
        if is_outer and not self.are_complete:
            root = tensors if isinstance(tensors, torch.Tensor) else tensors[0]
            self._record(float(root.detach().double().sum()), gradients)

    def _record(self, loss: float, gradients: dict[str, list[float]]) -> None:
        self._passes.append(
            {
                "loss": loss,
                "gradients": gradients,
                "criteria": self._criteria.take(),
                **self._forward.end(),
            }
        )
        self._fields["eval_modules"] = self._model.list_eval_modules()
