"""The network in PyTorch: nn.LSTM, fused optimizers, DistributedDataParallel.

Each device has a process. handoff.py lists the letters; docs/frameworks.md explains the
choices. `loop` calls `build`, `kernel` and `compile_s` in the framework's own Python,
so only `handoff` and `loop` of this suite may be imported.
"""

import datetime
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import distributed
from torch._dynamo import utils as compilation
from torch.nn.parallel import DistributedDataParallel
from torch.utils._python_dispatch import TorchDispatchMode

from rnn_scaling.frameworks import handoff, loop
from rnn_scaling.frameworks.handoff import Task

LOOPBACK = "127.0.0.1"
_JOIN_TIMEOUT = datetime.timedelta(seconds=300)
# Part of the name of an operator -> the implementation of the layers.
_IMPLEMENTATIONS = {
    "mkldnn_rnn_layer": "oneDNN mkldnn_rnn_layer",
    "_cudnn_rnn": "cuDNN",
}
# Operators that the recurrent layers of the newest network ran in their first call.
_operators: set[str] = set()


class _OperatorNames(TorchDispatchMode):
    """Notes the operators that run."""

    def __torch_dispatch__(
        self, function: Callable, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        _operators.add(str(function))
        return function(*args, **(kwargs or {}))


class Seq2Seq(torch.nn.Module):
    """The network; its output is the sum of the target words' losses."""

    def __init__(self, weights: Mapping[str, np.ndarray], forget_bias: float) -> None:
        super().__init__()
        _operators.clear()
        self.source = torch.nn.Embedding.from_pretrained(
            torch.tensor(weights["src_embedding"]), freeze=False
        )
        self.target = torch.nn.Embedding.from_pretrained(
            torch.tensor(weights["tgt_embedding"]), freeze=False
        )
        self.projection = torch.nn.Parameter(torch.tensor(weights["projection"]))
        self.encoder = _build_lstm(weights, "encoder/", forget_bias)
        self.decoder = _build_lstm(weights, "decoder/", forget_bias)

    def forward(
        self,
        source: torch.Tensor,
        target_input: torch.Tensor,
        target_output: torch.Tensor,
    ) -> torch.Tensor:
        _, state = self._run_layers("encoder", self.source(source))
        hidden, _ = self._run_layers("decoder", self.target(target_input), state)
        logits = hidden.flatten(0, 1) @ self.projection
        return torch.nn.functional.cross_entropy(
            logits.float(), target_output.flatten(), reduction="sum"
        )

    @torch.compiler.disable
    def _run_layers(self, name: str, inputs: torch.Tensor, state: Any = None) -> Any:
        """Run recurrent layers.

        `torch.compile` cannot compile an LSTM, and it skips the whole function that
        contains one.
        """
        layers = getattr(self, name)
        if _operators:
            return layers(inputs, state)
        with _OperatorNames():
            return layers(inputs, state)


def _build_lstm(
    weights: Mapping[str, np.ndarray], prefix: str, forget_bias: float
) -> torch.nn.LSTM:
    """Return the layers of the cells with this prefix.

    PyTorch has two biases per gate: one is trained, the other stays zero.
    """
    kernel_names = [
        name for name in weights if name.startswith(prefix) and name.endswith("/kernel")
    ]
    # The cells are ordered by layer, and within a layer by direction.
    num_directions = 2 if any("/backward/" in name for name in kernel_names) else 1
    num_rows, num_columns = weights[kernel_names[0]].shape
    units = num_columns // 4
    module = torch.nn.LSTM(
        num_rows - units,
        units,
        len(kernel_names) // num_directions,
        bidirectional=num_directions == 2,
    )
    for index, name in enumerate(kernel_names):
        layer, direction = divmod(index, num_directions)
        suffix = f"l{layer}" + ("_reverse" if direction else "")
        kernel, bias = handoff.make_reference_cell(
            weights, name.removesuffix("/kernel"), forget_bias, gates="ifjo"
        )
        with torch.no_grad():
            getattr(module, f"weight_ih_{suffix}").copy_(
                torch.tensor(kernel[:-units].T)
            )
            getattr(module, f"weight_hh_{suffix}").copy_(
                torch.tensor(kernel[-units:].T)
            )
            getattr(module, f"bias_ih_{suffix}").copy_(torch.tensor(bias))
            getattr(module, f"bias_hh_{suffix}").zero_().requires_grad_(False)
    return module


def build_optimizer(
    name: str, parameters: list[torch.nn.Parameter], learning_rate: float
) -> torch.optim.Optimizer:
    """Return PyTorch's optimizer; this suite's optimizers have the same formulas."""
    if name == "adam":
        return torch.optim.Adam(
            parameters,
            learning_rate,
            betas=(handoff.ADAM_BETA_1, handoff.ADAM_BETA_2),
            eps=handoff.ADAM_EPSILON,
            fused=True,
        )
    return torch.optim.SGD(
        parameters,
        learning_rate,
        momentum=handoff.MOMENTUM if name == "momentum" else 0.0,
        fused=True,
    )


def build(task: Task, rank: int) -> loop.Step:
    """Return the function of a step of one rank.

    It waits for the device and returns the mean loss per word of the rank's batch.
    """
    device = torch.device("cuda", rank) if task.uses_gpus else torch.device("cpu")
    _set_up(task, device)
    network: torch.nn.Module = Seq2Seq(
        task.weights, float(task.config["forget_bias"])
    ).to(device)
    parameters = [
        parameter for parameter in network.parameters() if parameter.requires_grad
    ]
    optimizer = build_optimizer(task.optimizer, parameters, task.learning_rate)
    if task.exchanges:
        network = DistributedDataParallel(
            network, gradient_as_bucket_view=True, static_graph=True
        )
    if task.config["compile"]:
        network = torch.compile(network)
    names = ("source", "target_input", "target_output")
    batch = [
        torch.tensor(task.batches[rank][name], dtype=torch.long, device=device)
        for name in names
    ]
    loss_items = task.loss_items[rank]
    # DistributedDataParallel computes the mean over ranks, this suite the mean over all
    # words.
    scale = 1 / loss_items
    if task.exchanges:
        scale = task.num_devices / sum(task.loss_items)

    def step() -> float:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(
            device.type, torch.bfloat16, enabled=task.dtype == "bfloat16"
        ):
            loss_sum = network(*batch)
        (loss_sum * scale).backward()
        optimizer.step()
        if task.uses_gpus:
            torch.cuda.synchronize()
        return float(loss_sum.detach()) / loss_items

    return step


def _set_up(task: Task, device: torch.device) -> None:
    torch.set_num_threads(task.threads)
    if device.type == "cuda":
        torch.cuda.set_device(device)
        # The check of the losses needs all digits of float32.
        allows_tf32 = task.config != task.as_reference().config
        torch.backends.cudnn.allow_tf32 = allows_tf32
        torch.backends.cuda.matmul.allow_tf32 = allows_tf32


class TorchGroup:
    """Joins the ranks at a port of rank 0 that the system chooses."""

    def __init__(self) -> None:
        self._store: distributed.TCPStore | None = None

    def create(self, num_ranks: int) -> str:
        self._store = distributed.TCPStore(
            LOOPBACK, 0, num_ranks, is_master=True, wait_for_workers=False
        )
        return str(self._store.port)

    def join(self, address: str, rank: int, task: Task) -> None:
        store = self._store or distributed.TCPStore(
            LOOPBACK, int(address), task.num_devices, timeout=_JOIN_TIMEOUT
        )
        backend = "nccl" if task.uses_gpus else "gloo"
        if task.uses_gpus:
            torch.cuda.set_device(rank)
        distributed.init_process_group(
            backend,
            store=store,
            rank=rank,
            world_size=task.num_devices,
            timeout=_JOIN_TIMEOUT,
        )


def kernel(task: Task) -> str:
    """Return the implementation of the layers that ran, such as oneDNN or "native".

    Raises:
      RuntimeError: If `torch.compile` compiled nothing.
    """
    names = ["torch.nn.LSTM"]
    if _operators:
        ran = " ".join(_operators)
        found = [name for part, name in _IMPLEMENTATIONS.items() if part in ran]
        names += found or ["native"]
    if task.config["compile"]:
        if _operators and not compilation.counters["stats"]["unique_graphs"]:
            raise RuntimeError("torch.compile compiled no part of the network")
        names.append("torch.compile")
    return ", ".join(names)


def compile_s() -> float | None:
    """Return the seconds of `torch.compile` so far; None if nothing is compiled."""
    return compilation.calculate_time_spent()["total_wall_time"] or None


if __name__ == "__main__":
    loop.start(
        loop.FrameworkTrainer(
            "torch", build=build, kernel=kernel, group=TorchGroup(), compile_s=compile_s
        )
    )
