"""Records what a PyTorch script does at each optimizer step, without changing it.

One JSON line per optimizer step: samples, learning rates, gradients, clipping, weights,
buffers, random state and losses. `settings` drives conditions: dropout off, another
bound of the gradient norm, prescribed samples, weights and learning rates.

`hooks.torch` starts it in the script's process. `verification.scripts` reads the lines:
a field that is renamed here must be renamed there.
"""

import functools
import gc
import json
import os
from collections.abc import Mapping
from typing import IO, Any

import torch
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from rnn_scaling.hooks import checkpoints, ranks
from rnn_scaling.hooks.draws import Draws
from rnn_scaling.hooks.exchanges import Exchanges, Moment
from rnn_scaling.hooks.libraries import Libraries
from rnn_scaling.hooks.loaders import Loaders
from rnn_scaling.hooks.schedules import Schedules
from rnn_scaling.hooks.sketches import digest, plain, row_digests, sketch

if torch.distributed.is_available():
    from torch.distributed.algorithms.join import Join

_CRITERIA = (
    "cross_entropy",
    "nll_loss",
    "mse_loss",
    "l1_loss",
    "smooth_l1_loss",
    "binary_cross_entropy_with_logits",
)
_GATHERS = ("all_gather", "all_gather_into_tensor")
_MAX_ROWS = 512  # rows of an input that are recognised
_WRAPPERS = ("module.", "_orig_mod.", "_fsdp_wrapped_module.")
_DROPOUTS = (
    "dropout",
    "alpha_dropout",
    "feature_alpha_dropout",
    "dropout1d",
    "dropout2d",
    "dropout3d",
)
ROUNDING = {torch.float64: 2**-52, torch.float32: 2**-23}
ROUNDING |= {torch.bfloat16: 2**-8, torch.float16: 2**-11}
_save = torch.save
_load = torch.load


class Observer:
    """Watches one rank of a script."""

    def __init__(self, settings: Mapping[str, Any], file: IO[str]) -> None:
        self._settings = settings
        self._file = file
        self._draws = Draws(settings.get("fixed_noise"))
        self._loaders = Loaders(settings, lambda: self._libraries.watch(), self._draws)
        self._schedules = Schedules(self._replace)
        self._exchanges = Exchanges()
        self._libraries = Libraries(
            {
                "read_ahead": self._loaders.iterate_ahead,
                "dispatch": self._loaders.iterate_ahead,
                "step_by_samples": self._schedules.step_by_samples,
                "clip": self._clip,
            }
        )
        self._optimizers: list[torch.optim.Optimizer] = []
        self._keys: dict[int, str] = {}
        self._parameters: dict[str, torch.Tensor] = {}
        self._has_begun = False
        self._num_steps = 0
        self._step_depth = 0
        self._backward_depth = 0
        self._rounding = 2**-52
        self._gradients: dict[str, list[float]] = {}
        self._record: dict[str, Any] = {}
        self._own_rates: list[Any] = []
        self._buffers: dict[str, torch.Tensor] = {}
        self._modules: dict[str, torch.nn.Module] = {}
        self._forward_state = ""
        self._is_clipping = False
        # The last backward passes, and the optimizers that have used their gradients.
        self._shared_micro: list[dict[str, Any]] = []
        self._sharing: set[int] = set()
        self._has_flat_parameters = False
        self._start_step()

    def install(self) -> None:
        """Replace the functions of torch that the script is going to call."""
        self._loaders.install()
        self._draws.install(self._replace)
        register_optimizer_step_pre_hook(self._before_step)
        register_optimizer_step_post_hook(self._after_step)
        register_module_forward_pre_hook(self._before_forward)
        functional = torch.nn.functional
        for name in _DROPOUTS:
            self._replace(functional, name, self._dropout)
        self._replace(
            functional, "scaled_dot_product_attention", self._scaled_attention
        )
        self._replace(torch.optim.Optimizer, "__init__", self._create_optimizer)
        self._replace(torch.optim.Optimizer, "zero_grad", self._zero_grad)
        self._replace(torch.autograd, "backward", self._backward)
        for owner in (torch.nn.utils, torch.nn.utils.clip_grad):
            self._replace(owner, "clip_grad_norm_", self._clip)
        self._replace(torch.nn.utils, "clip_grads_with_norm_", self._clip_with_norm)
        for name in _CRITERIA:
            self._replace(functional, name, self._criterion)
        if torch.distributed.is_available():
            self._replace(torch.distributed, "all_reduce", self._all_reduce)
            self._replace(torch.distributed, "broadcast", self._broadcast)
            self._replace(Join, "__exit__", self._leave_join)
            for name in _GATHERS:
                self._replace(torch.distributed, name, self._gather)
        self._schedules.install()

    def finish(self, reason: str) -> None:
        """Write the last line and wait for the other ranks."""
        self._write(
            {
                "kind": "end",
                "reason": reason,
                "loaders": self._loaders.describe(),
                "rounding": self._rounding,
                "probes": self._loaders.probes,
                "num_samples": self._loaders.num_samples,
            }
        )
        self._file.close()
        if reason != "failed":
            ranks.wait_for_all(self._settings["folder"])

    def _replace(self, owner: Any, name: str, replacement: Any) -> None:
        """Replace a function or method; the replacement gets the original first."""
        original = getattr(owner, name, None)
        if original is None:  # an older torch
            return

        @functools.wraps(original)
        def wrapper(*args: Any, **options: Any) -> Any:
            return replacement(original, *args, **options)

        setattr(owner, name, wrapper)

    def _write(self, record: Mapping[str, Any]) -> None:
        self._file.write(json.dumps(record) + "\n")
        self._file.flush()

    def _start_step(self) -> None:
        """Forget what belongs to the step that has ended."""
        self._micro: list[dict[str, Any]] = []
        self._clips: list[dict[str, float]] = []
        self._schedules.start_step()
        self._dropout_state: str | None = None
        self._noise: dict[str, Any] | None = None
        self._num_drawn = 0
        self._place = [0, 0]  # of the next draw after the last forward pass
        self._draws.start()
        self._forward_state = ""
        self._buffers_before: dict[str, str] = {}
        self._rows: list[list[str]] = []
        self._length = 0  # of the second dimension of the input
        self._exchanges.start()
        self._criteria: list[dict[str, Any]] = []
        self._criterion_depth = 0
        self._eval_modules: list[str] = []
        # Elements reduced by each operation, such as "SUM".
        self._reduced: dict[str, int] = {}

    # Optimizers.

    def _create_optimizer(
        self, original: Any, optimizer: Any, *args: Any, **options: Any
    ) -> None:
        """Number a new optimizer and its parameters; their numbers are their keys."""
        original(optimizer, *args, **options)
        self._libraries.watch()
        self._draws.start()  # What was drawn before are weights and data.
        self._optimizers.append(optimizer)
        self._add_all(optimizer)

    def _add_all(self, optimizer: Any) -> dict[str, torch.Tensor]:
        """Return all parameters of an optimizer by key, and watch new ones."""
        number = self._optimizers.index(optimizer)
        parameters = {}
        for group_number, group in enumerate(optimizer.param_groups):
            for place, parameter in enumerate(group["params"]):
                key = self._add(parameter, f"{number}.{group_number}.{place}")
                parameters[key] = parameter
        return parameters

    def _add(self, parameter: torch.Tensor, key: str) -> str:
        """Return the key of a parameter, and watch it if it is new."""
        key = self._keys.setdefault(id(parameter), key)
        if key not in self._parameters:
            self._parameters[key] = parameter
            if self._has_begun:
                self._watch_gradient(key, parameter)
        return key

    def _watch_gradient(self, key: str, parameter: torch.Tensor) -> None:
        """Sum the sketches of the gradients that backward passes add to a parameter."""

        def keep(gradient: torch.Tensor) -> None:
            if self._backward_depth:
                values = sketch(gradient)
                known = self._gradients.get(key)
                if known:
                    values = [a + b for a, b in zip(known, values)]
                self._gradients[key] = values

        # The local gradient of a sharded parameter is not seen here.
        if parameter.requires_grad and not hasattr(parameter, "full_tensor"):
            parameter.register_hook(keep)

    def _zero_grad(
        self, original: Any, optimizer: Any, *args: Any, **options: Any
    ) -> Any:
        self._begin()
        return original(optimizer, *args, **options)

    def _begin(self) -> None:
        """Set and record the initial weights, once."""
        if self._has_begun or not self._parameters:
            return
        self._libraries.watch()
        self._has_begun = True
        self._draws.fix()
        with self._draws.paused():
            self._set_weights()
            self._write(self._start_record())

    def _set_weights(self) -> None:
        """Load, change, save and watch the initial weights."""
        weights_file = self._settings.get("load_weights")
        weights = _load(weights_file) if weights_file else {}
        with torch.no_grad():
            for key in weights.keys() & self._parameters.keys():
                parameter = self._parameters[key]
                if weights[key].shape == parameter.shape:
                    parameter.copy_(_sharded_like(weights[key], parameter))
                else:
                    self._has_flat_parameters = True
        if self._settings.get("perturb"):
            self._perturb(self._settings["perturb"])
        if self._settings.get("save_weights"):
            weights = {key: plain(value) for key, value in self._parameters.items()}
            if os.environ.get("RANK", "0") == "0":
                _save(weights, self._settings["save_weights"])
        for key, parameter in self._parameters.items():
            self._watch_gradient(key, parameter)

    def _perturb(self, perturbation: Mapping[str, Any]) -> None:
        """Change each weight by a relative `size`, up or down by chance."""
        generator = torch.Generator().manual_seed(perturbation["seed"])
        for parameter in self._parameters.values():
            if not parameter.is_floating_point():
                continue
            signs = torch.randint(2, parameter.shape, generator=generator) * 2 - 1
            factor = 1 + signs.double() * perturbation["size"]
            with torch.no_grad():
                parameter.mul_(_sharded_like(factor.to(parameter.device), parameter))

    def _start_record(self) -> dict[str, Any]:
        """Return the first line: names, layers, weights and buffers."""
        roots = _root_modules()
        names = {}
        frozen: dict[str, list[str]] = {}
        layers: dict[str, int] = {}
        for root in roots:
            for name, parameter in root.named_parameters():
                key = self._keys.get(id(parameter))
                if key is not None:
                    names[key] = _short_name(name)
                elif not parameter.requires_grad:
                    same_name = frozen.setdefault(_short_name(name), [])
                    same_name.append(digest(parameter))
            for name, buffer in root.named_buffers():
                if buffer.is_floating_point():
                    self._buffers[_short_name(name)] = buffer
            is_trained = any(id(p) in self._keys for p in root.parameters())
            for path, module in root.named_modules():
                name = type(module).__name__
                layers[name] = layers.get(name, 0) + 1
                if is_trained and not any(module.children()):
                    self._modules[_short_name(path) or name] = module
        return {
            "kind": "start",
            "broadcasts_buffers": any(
                getattr(root, "broadcast_buffers", False) for root in roots
            ),
            "torch": torch.__version__,
            "names": names,
            "layers": layers,
            "weights": self._describe_all(self._parameters),
            "frozen": frozen,
            "buffers": self._describe_all(self._buffers),
            "optimizers": [type(o).__name__ for o in self._optimizers],
        }

    @staticmethod
    def _describe_all(tensors: Mapping[str, torch.Tensor]) -> dict[str, Any]:
        return {
            name: {"digest": digest(value), "sketch": sketch(value)}
            for name, value in tensors.items()
        }

    def _before_step(self, optimizer: Any, args: Any, options: Any) -> Any:
        """Record rates and gradients; return arguments whose closure does the latter.

        A closure computes the gradients inside the step, as Lightning does.
        """
        self._step_depth += 1
        if self._step_depth > 1:
            return None
        self._begin()
        self._record = {
            "kind": "step",
            "optimizer": self._optimizers.index(optimizer),
            "rates": [float(group.get("lr", 0.0)) for group in optimizer.param_groups],
            "options": [_numbers(group) for group in optimizer.param_groups],
            "lost": checkpoints.lost_state(optimizer, self._schedules.newest),
        }
        prescribed = self._settings.get("rates") or []
        self._own_rates = []
        if self._num_steps < len(prescribed):
            for group, rate in zip(optimizer.param_groups, prescribed[self._num_steps]):
                self._own_rates.append(group["lr"])
                group["lr"] = rate
        closure = args[1] if len(args) > 1 else options.get("closure")
        if closure is None:
            self._record_gradients(optimizer)
            return None
        recorded_closure = self._recorded(optimizer, closure)
        if len(args) > 1:
            return (args[0], recorded_closure, *args[2:]), options
        return args, {**options, "closure": recorded_closure}

    def _recorded(self, optimizer: Any, closure: Any) -> Any:
        """Return a closure that also records its gradients and, for a search, losses."""
        searches = any(group.get("line_search_fn") for group in optimizer.param_groups)
        self._record["searched_losses"] = []

        @functools.wraps(closure)
        def run_closure() -> Any:
            result = closure()
            if searches and result is not None:
                self._record["searched_losses"].append(float(result))
            if "gradients" not in self._record:
                self._record_gradients(optimizer)
            return result

        return run_closure

    def _record_gradients(self, optimizer: Any) -> None:
        """Record all gradients that the optimizer is about to apply, and its state."""
        gradients = {}
        before = {}
        num_states = 0
        for key, parameter in self._add_all(optimizer).items():
            before[key] = digest(parameter)
            num_states += bool(optimizer.state.get(parameter))
            if parameter.grad is not None:
                if self._settings.get("scale"):
                    parameter.grad.mul_(self._settings["scale"])
                gradients[key] = _describe_gradient(parameter.grad)
            known = self._parameters[key]
            self._has_flat_parameters |= known.numel() != parameter.numel()
        self._record["has_flat_parameters"] = self._has_flat_parameters
        self._record["num_states"] = num_states
        self._record["before"] = before
        self._record["gradients"] = gradients

    def _after_step(self, optimizer: Any, args: Any, options: Any) -> None:
        """Write the line of a step, and end the process after the last one."""
        self._step_depth -= 1
        if self._step_depth:
            return
        if "gradients" not in self._record:  # The optimizer ignored its closure.
            self._record_gradients(optimizer)
        for group, rate in zip(optimizer.param_groups, self._own_rates):
            group["lr"] = rate
        self._write(
            {
                **self._record,
                "reads": self._loaders.take_reads(),
                "accesses": self._loaders.take_accesses(),
                "micro": self._take_micro(optimizer),
                "clips": self._clips,
                "eval_modules": self._eval_modules,
                "reduced": self._reduced,
                "scheduler_calls": self._schedules.num_calls,
                "steps_by_samples": self._schedules.by_samples,
                "dropout": self._dropout_state,
                "noise": self._noise,
                "drawn": self._num_drawn,
                "place": self._place,
                "weights": self._describe_all(self._add_all(optimizer)),
                "buffers": self._describe_all(self._buffers),
                "buffers_before": self._buffers_before,
            }
        )
        self._start_step()
        self._num_steps += 1
        if self._num_steps >= self._settings["num_steps"]:
            self.finish("steps")
            ranks.end_after_last_step()

    def _take_micro(self, optimizer: Any) -> list[dict[str, Any]]:
        """Return the backward passes whose gradients an optimizer uses.

        Several optimizers may use the same passes, one after the other.
        """
        if self._micro:
            self._shared_micro = self._micro
            self._sharing = set()
        elif id(optimizer) in self._sharing:
            return []
        self._sharing.add(id(optimizer))
        own = self._add_all(optimizer).keys()
        passes = []
        for micro in self._shared_micro:
            # The local gradients of sharded parameters are unknown.
            if not micro["gradients"] or own & micro["gradients"].keys():
                passes.append(micro)
        return passes

    # Between the steps.

    def _backward(
        self, original: Any, tensors: Any, *args: Any, **options: Any
    ) -> None:
        """Record one backward pass as a micro-batch."""
        if self._backward_depth == 0:
            self._gradients = {}
            self._noise = self._draws.describe()
            self._num_drawn = self._draws.num_drawn
            self._place = self._draws.place
        self._backward_depth += 1
        try:
            with self._draws.paused():
                original(tensors, *args, **options)
        finally:
            self._backward_depth -= 1
        # A closure that is called again adds no micro-batch.
        is_repeated = self._step_depth > 0 and "gradients" in self._record
        if self._backward_depth == 0 and not is_repeated:
            root = tensors if isinstance(tensors, torch.Tensor) else tensors[0]
            loss = float(root.detach().double().sum())
            self._micro.append(
                {
                    "loss": loss,
                    "gradients": self._gradients,
                    "rows": self._rows,
                    "length": self._length,
                    "criteria": self._criteria,
                    "exchanges": self._exchanges.has_lost_gradients,
                    "shares_values": self._exchanges.changes_forward,
                }
            )
            self._forward_state = ""
            self._rows = []
            self._exchanges.start()
            self._criteria = []
            modules = self._modules.items()
            self._eval_modules = [name for name, m in modules if not m.training]

    def _before_forward(self, module: torch.nn.Module, args: Any) -> None:
        """Note the input, rounding and dropout of a module in training."""
        if not module.training or not torch.is_grad_enabled():
            return
        self._begin()
        if self._backward_depth == 0 and not self._forward_state:
            if not self._micro:
                self._buffers_before = _digests(self._buffers)
            self._forward_state = _random_state()
            self._rows = []
        if self._backward_depth == 0 and not self._rows:
            # The first module with a positional input; others take keywords.
            for value in args:
                if isinstance(value, torch.Tensor) and value.dim():
                    self._rows = row_digests(value[:_MAX_ROWS])
                    self._length = value.shape[1] if value.dim() > 1 else 0
                    break
        for kind in ("cpu", "cuda"):
            if torch.is_autocast_enabled(kind):
                self._note_rounding(torch.get_autocast_dtype(kind))
        for parameter in module._parameters.values():
            if parameter is not None:
                self._note_rounding(parameter.dtype)
        if isinstance(module, torch.nn.RNNBase) and module.dropout:
            self._note_dropout()
            if self._settings["dropout_off"]:
                module.dropout = 0.0

    def _note_rounding(self, dtype: torch.dtype) -> None:
        self._rounding = max(self._rounding, ROUNDING.get(dtype, 0.0))

    def _all_reduce(
        self, original: Any, tensor: torch.Tensor, *args: Any, **options: Any
    ) -> Any:
        self._note_rounding(tensor.dtype)
        operation = str(args[0] if args else options.get("op", "SUM"))
        name = operation.rpartition(".")[2]
        self._reduced[name] = self._reduced.get(name, 0) + tensor.numel()
        self._note_exchange(tensor)
        return original(tensor, *args, **options)

    def _broadcast(
        self, original: Any, tensor: torch.Tensor, *args: Any, **options: Any
    ) -> Any:
        """Note that a rank without optimizer steps may get weights after its first pass."""
        if self._micro and not self._num_steps and tensor.is_floating_point():
            self._write({"kind": "follows"})
        return original(tensor, *args, **options)

    def _leave_join(self, original: Any, *args: Any) -> Any:
        """Note how many steps this rank has inputs for; others may have more."""
        self._write({"kind": "joined", "steps": self._num_steps})
        ranks.mark_end(self._settings["folder"])
        return original(*args)

    def _gather(self, original: Any, *args: Any, **options: Any) -> Any:
        for value in (*args, *options.values()):
            if isinstance(value, torch.Tensor):
                self._note_exchange(value)
        return original(*args, **options)

    def _note_exchange(self, tensor: torch.Tensor) -> None:
        """Note an exchange in a forward or backward pass."""
        if self._backward_depth:
            self._exchanges.note(tensor, Moment.BACKWARD)
        elif self._forward_state:
            with_gradients = torch.is_grad_enabled()
            inside = Moment.FORWARD_WITHOUT_GRADIENTS
            self._exchanges.note(tensor, Moment.FORWARD if with_gradients else inside)

    def _note_dropout(self) -> None:
        if self._dropout_state is None:
            self._dropout_state = _random_state()

    def _dropout(
        self,
        original: Any,
        input: Any,
        p: float = 0.5,
        training: bool = True,
        inplace: bool = False,
    ) -> Any:
        if training and p > 0 and torch.is_grad_enabled():
            self._note_dropout()
            if self._settings["dropout_off"]:
                p = 0.0
        if p == 0:
            return input
        return original(input, p, training, inplace)

    def _scaled_attention(self, original: Any, *args: Any, **options: Any) -> Any:
        words = list(args)
        probability = words[4] if len(words) > 4 else options.get("dropout_p", 0.0)
        if probability > 0:
            self._note_dropout()
            if self._settings["dropout_off"]:
                if len(words) > 4:
                    words[4] = 0.0
                else:
                    options["dropout_p"] = 0.0
        return original(*words, **options)

    def _criterion(
        self, original: Any, input: Any, target: Any, *args: Any, **options: Any
    ) -> Any:
        """Record the sum of a loss over its targets, and the factor of its gradient."""
        self._criterion_depth += 1
        try:
            value = original(input, target, *args, **options)
        finally:
            self._criterion_depth -= 1
        is_outer = self._criterion_depth == 0 and torch.is_grad_enabled()
        if not is_outer or not value.requires_grad:
            return value
        ignored = options.get("ignore_index", args[2] if len(args) > 2 else -100)
        is_counted = target.reshape(-1) != ignored
        count = int(is_counted.sum())
        reduction = options.get("reduction", "mean")
        total = value.detach().double().sum()
        record = {
            "count": count,
            "positions": target.numel(),
            "sum": float(total),
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
        self._criteria.append(record)
        return value

    def _clip_with_norm(
        self,
        original: Any,
        parameters: Any,
        max_norm: float,
        total_norm: Any,
        *args: Any,
    ) -> None:
        if self._is_clipping:
            original(parameters, max_norm, total_norm, *args)
            return
        bound = self._settings.get("clip")
        bound = float(max_norm) if bound is None else bound
        original(parameters, bound, total_norm, *args)
        norm = float(plain(total_norm))
        self._clips.append({"norm": norm, "bound": bound, "own": float(max_norm)})

    def _clip(
        self,
        original: Any,
        parameters: Any,
        max_norm: float,
        *args: Any,
        **options: Any,
    ) -> Any:
        if not isinstance(parameters, torch.Tensor):
            parameters = list(parameters)
        bound = self._settings.get("clip")
        bound = float(max_norm) if bound is None else bound
        self._is_clipping = True
        norm = original(parameters, bound, *args, **options)
        self._is_clipping = False
        own_bound = float(max_norm)
        self._clips.append(
            {"norm": float(plain(norm)), "bound": bound, "own": own_bound}
        )
        return norm


def _root_modules() -> list[torch.nn.Module]:
    """Return the modules that no other module contains."""
    modules = [o for o in gc.get_objects() if issubclass(type(o), torch.nn.Module)]
    inner: set[int] = set()
    for module in modules:
        inner.update(id(child) for child in module.children())
    return [module for module in modules if id(module) not in inner]


def _digests(tensors: Mapping[str, torch.Tensor]) -> dict[str, str]:
    return {name: digest(tensor) for name, tensor in tensors.items()}


def _describe_gradient(gradient: torch.Tensor) -> dict[str, Any]:
    values = plain(gradient)
    return {
        "sketch": sketch(values),
        "norm": float(values.double().norm()),
        "peak": float(values.abs().max()) if values.numel() else 0.0,
        "digest": digest(values),
        "is_sparse": gradient.layout != torch.strided,
    }


def _sharded_like(tensor: torch.Tensor, parameter: torch.Tensor) -> torch.Tensor:
    """Return a whole tensor, with the shards of a parameter if it is a DTensor."""
    if not hasattr(parameter, "full_tensor"):
        return tensor
    from torch.distributed.tensor import distribute_tensor

    mesh = parameter.device_mesh
    return distribute_tensor(tensor, mesh, parameter.placements)


def _numbers(group: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a group of parameters, without its learning rates."""
    options = {}
    for name, value in group.items():
        if "lr" not in name and isinstance(value, (bool, int, float, tuple)):
            options[name] = value
    return options


def _short_name(name: str) -> str:
    for wrapper in _WRAPPERS:
        name = name.replace(wrapper, "")
    return name


def _random_state() -> str:
    state = digest(torch.get_rng_state())
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        state += digest(torch.cuda.get_rng_state())
    return state
