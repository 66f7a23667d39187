"""Records what a PyTorch script does at each optimizer step, without changing it.

One JSON line per optimizer step: samples, learning rates, gradients, clipping, weights,
buffers, random state and losses. `settings` drives conditions: dropout off, another
bound of the gradient norm, prescribed samples, weights and learning rates.

`hooks.torch` starts it in the script's process. `verification.scripts` reads the lines:
a field that is renamed here must be renamed there.
"""

import functools
import json
from collections.abc import Mapping, Sequence
from typing import IO, Any

import torch
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from rnn_scaling.hooks import checkpoints, ranks
from rnn_scaling.hooks.clipping import Clipping
from rnn_scaling.hooks.collectives import Collectives
from rnn_scaling.hooks.criteria import Criteria
from rnn_scaling.hooks.draws import Draws
from rnn_scaling.hooks.dropouts import Dropout
from rnn_scaling.hooks.libraries import Libraries
from rnn_scaling.hooks.loaders import Loaders
from rnn_scaling.hooks.model import Model, describe_tensors
from rnn_scaling.hooks.parameters import Parameters
from rnn_scaling.hooks.passes import BackwardPasses
from rnn_scaling.hooks.replacing import replace
from rnn_scaling.hooks.rounding import Rounding
from rnn_scaling.hooks.schedules import Schedules
from rnn_scaling.hooks.sketches import digest, plain, sketch


class OptimizerStep:
    """Records one step of an optimizer: rates, options, gradients and weights before.

    `Observer` creates it when the step begins, and writes its fields when it ends.

    Attributes:
      fields: Fields of the line of the step.
      depth: How many steps of optimizers are inside each other, with this one.
    """

    def __init__(
        self, optimizer: torch.optim.Optimizer, parameters: Parameters, scale: float
    ) -> None:
        """Record the learning rates and the other options.

        Args:
          optimizer: The optimizer.
          parameters: The parameters of all optimizers.
          scale: The factor by which the gradients are multiplied; 0 for none.
        """
        groups = optimizer.param_groups
        self.depth = 1
        self.fields: dict[str, Any] = {
            "kind": "step",
            "optimizer": parameters.optimizers.index(optimizer),
            "rates": [float(group.get("lr", 0.0)) for group in groups],
            "options": [_select_options(group) for group in groups],
        }
        self._optimizer = optimizer
        self._parameters = parameters
        self._scale = scale
        self._own_rates: list[Any] = []

    def prescribe_rates(self, rates: Sequence[float]) -> None:
        """Let the step use other learning rates, one per group of parameters."""
        for group, rate in zip(self._optimizer.param_groups, rates):
            self._own_rates.append(group["lr"])
            group["lr"] = rate

    def restore_rates(self) -> None:
        for group, rate in zip(self._optimizer.param_groups, self._own_rates):
            group["lr"] = rate

    def record_gradients(self) -> None:
        """Record all gradients that are about to be applied, and the optimizer's state.

        Only the first call of a step records them.
        """
        if "gradients" in self.fields:
            return
        gradients = {}
        before = {}
        num_states = 0
        for key, parameter in self._parameters.find(self._optimizer).items():
            before[key] = digest(parameter)
            num_states += bool(self._optimizer.state.get(parameter))
            if parameter.grad is not None:
                if self._scale:
                    parameter.grad.mul_(self._scale)
                gradients[key] = _describe_gradient(parameter.grad)
            known = self._parameters.by_key[key]
            self._parameters.has_flat |= known.numel() != parameter.numel()
        self.fields["has_flat_parameters"] = self._parameters.has_flat
        self.fields["num_states"] = num_states
        self.fields["before"] = before
        self.fields["gradients"] = gradients

    def note_loss(self, loss: Any) -> None:
        """Record a loss that a closure returned, if the optimizer does a line search."""
        groups = self._optimizer.param_groups
        searches = any(group.get("line_search_fn") for group in groups)
        if searches and loss is not None:
            value = loss.detach() if isinstance(loss, torch.Tensor) else loss
            self.fields["searched_losses"].append(float(value))


class Observer:
    """Watches one rank of a script, and writes a line per optimizer step.

    `hooks.torch` creates it before the script starts. Each of its parts watches one
    kind of call; the line of a step contains what all parts describe.
    """

    def __init__(self, settings: Mapping[str, Any], file: IO[str]) -> None:
        """Create the parts; `install` makes the script call them.

        Args:
          settings: The conditions of the run.
          file: The file of the lines; `finish` closes it.
        """
        self._settings = settings
        self._file = file
        self._draws = Draws(settings.get("fixed_noise"))
        self._loaders = Loaders(settings, lambda: self._libraries.watch(), self._draws)
        self._schedules = Schedules()
        self._parameters = Parameters()
        self._model = Model()
        self._rounding = Rounding()
        self._dropout = Dropout(settings["dropout_off"])
        clipping = Clipping(settings.get("clip"))
        self._passes = BackwardPasses(
            self._parameters, self._model, self._draws, Criteria()
        )
        collectives = Collectives(
            self._passes, self._rounding, self._write, settings["folder"]
        )
        self._parts = (
            self._schedules,
            self._dropout,
            clipping,
            self._passes,
            collectives,
        )
        self._libraries = Libraries(
            {
                "read_ahead": self._loaders.iterate_ahead,
                "dispatch": self._loaders.iterate_ahead,
                "step_by_samples": self._schedules.step_by_samples,
                "clip": clipping.clip,
            }
        )
        self._num_steps = 0
        self._step: OptimizerStep | None = None
        self._draws.start()

    def install(self) -> None:
        """Replace the functions of torch that the script is going to call."""
        self._loaders.install()
        self._draws.install(replace)
        register_optimizer_step_pre_hook(self._before_step)
        register_optimizer_step_post_hook(self._after_step)
        register_module_forward_pre_hook(self._before_forward)
        replace(torch.optim.Optimizer, "__init__", self._create_optimizer)
        replace(torch.optim.Optimizer, "zero_grad", self._zero_grad)
        for part in self._parts:
            part.install()

    def finish(self, reason: str) -> None:
        """Write the last line; wait for the other ranks unless this one has failed."""
        self._write(
            {
                "kind": "end",
                "reason": reason,
                "loaders": self._loaders.describe(),
                "rounding": self._rounding.epsilon,
                "probes": self._loaders.probes,
                "num_samples": self._loaders.num_samples,
            }
        )
        self._file.close()
        if reason != "failed":
            ranks.wait_for_all(self._settings["folder"])

    def _write(self, fields: Mapping[str, Any]) -> None:
        self._file.write(json.dumps(fields) + "\n")
        self._file.flush()

    def _create_optimizer(
        self, original: Any, optimizer: Any, *args: Any, **options: Any
    ) -> None:
        """Number a new optimizer and its parameters; their numbers are their keys."""
        original(optimizer, *args, **options)
        self._libraries.watch()
        self._draws.start()  # What was drawn before are weights and data.
        self._parameters.add_optimizer(optimizer)

    def _zero_grad(
        self, original: Any, optimizer: Any, *args: Any, **options: Any
    ) -> Any:
        self._begin()
        return original(optimizer, *args, **options)

    def _before_forward(self, module: torch.nn.Module, args: Any) -> None:
        """Note the input, rounding and dropout of a module in training."""
        if not module.training or not torch.is_grad_enabled():
            return
        self._begin()
        self._passes.begin_forward(args)
        self._rounding.note_module(module)
        self._dropout.watch_module(module)

    def _begin(self) -> None:
        """Set and record the initial weights, once."""
        if self._parameters.are_watched or not self._parameters.by_key:
            return
        self._libraries.watch()
        self._draws.fix()
        with self._draws.paused():
            self._parameters.set_weights(self._settings)
            self._parameters.watch()
            names = [type(each).__name__ for each in self._parameters.optimizers]
            self._write(
                {
                    "kind": "start",
                    "torch": torch.__version__,
                    "weights": describe_tensors(self._parameters.by_key),
                    "optimizers": names,
                    **self._model.find(self._parameters),
                }
            )

    def _before_step(self, optimizer: Any, args: Any, options: Any) -> Any:
        """Record rates and gradients; return arguments whose closure does the latter.

        A closure computes the gradients inside the step, as Lightning does.
        """
        if self._step is not None:
            self._step.depth += 1
            return None
        self._begin()
        scale = self._settings.get("scale") or 0.0
        step = OptimizerStep(optimizer, self._parameters, scale)
        step.fields["lost"] = checkpoints.lost_state(optimizer, self._schedules.newest)
        self._step = step
        prescribed = self._settings.get("rates") or []
        if self._num_steps < len(prescribed):
            step.prescribe_rates(prescribed[self._num_steps])
        closure = args[1] if len(args) > 1 else options.get("closure")
        if closure is None:
            self._record_gradients(step)
            return None
        recorded_closure = self._make_recorded(step, closure)
        if len(args) > 1:
            return (args[0], recorded_closure, *args[2:]), options
        return args, {**options, "closure": recorded_closure}

    def _make_recorded(self, step: OptimizerStep, closure: Any) -> Any:
        """Return a closure that also records its gradients and, for a search, losses."""
        step.fields["searched_losses"] = []

        @functools.wraps(closure)
        def run_closure() -> Any:
            result = closure()
            step.note_loss(result)
            self._record_gradients(step)
            return result

        return run_closure

    def _record_gradients(self, step: OptimizerStep) -> None:
        step.record_gradients()
        self._passes.are_complete = True

    def _after_step(self, optimizer: Any, args: Any, options: Any) -> None:
        """Write the line of a step, and end the process after the last one."""
        step = self._step
        if step is None:
            return
        step.depth -= 1
        if step.depth:
            return
        self._record_gradients(step)  # if the optimizer has ignored its closure
        step.restore_rates()
        fields = {
            **step.fields,
            "reads": self._loaders.take_reads(),
            "accesses": self._loaders.take_accesses(),
            "micro": self._passes.take(optimizer),
            "weights": describe_tensors(self._parameters.find(optimizer)),
            "buffers": self._model.describe_buffers(),
        }
        for part in self._parts:
            fields.update(part.describe_step())
        self._write(fields)
        for part in self._parts:
            part.start_step()
        self._draws.start()
        self._step = None
        self._num_steps += 1
        if self._num_steps >= self._settings["num_steps"]:
            self.finish("steps")
            ranks.end_after_last_step()


def _describe_gradient(gradient: torch.Tensor) -> dict[str, Any]:
    values = plain(gradient)
    return {
        "sketch": sketch(values),
        "norm": float(values.double().norm()),
        "peak": float(values.abs().max()) if values.numel() else 0.0,
        "digest": digest(values),
        "is_sparse": gradient.layout != torch.strided,
    }


def _select_options(group: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a group of parameters, without its learning rates."""
    options = {}
    for name, value in group.items():
        if "lr" not in name and isinstance(value, (bool, int, float, tuple)):
            options[name] = value
    return options
