"""The network in PyTorch: nn.LSTM, fused optimizers, DistributedDataParallel with a process for each device.

Letters as in handoff.py. docs/frameworks.md has a line for each choice.
"""

import datetime
from collections.abc import Callable, Mapping

import numpy as np
import torch
from torch import distributed
from torch.nn.parallel import DistributedDataParallel

from rnn_scaling.frameworks import handoff, loop
from rnn_scaling.frameworks.handoff import Work

LOOPBACK = "127.0.0.1"
JOIN_TIMEOUT = datetime.timedelta(seconds=300)


class Seq2Seq(torch.nn.Module):
    """Embeddings, nn.LSTM encoder and decoder, projection -> the sum of the target words' losses."""

    def __init__(self, weights: Mapping[str, np.ndarray], forget_bias: float) -> None:
        super().__init__()
        self.source = torch.nn.Embedding.from_pretrained(
            torch.tensor(weights["src_embedding"]), freeze=False
        )
        self.target = torch.nn.Embedding.from_pretrained(
            torch.tensor(weights["tgt_embedding"]), freeze=False
        )
        self.projection = torch.nn.Parameter(torch.tensor(weights["projection"]))
        self.encoder = _lstm(weights, "encoder/", forget_bias)
        self.decoder = _lstm(weights, "decoder/", forget_bias)

    def forward(
        self,
        source: torch.Tensor,
        target_input: torch.Tensor,
        target_output: torch.Tensor,
    ) -> torch.Tensor:
        _, state = self.encoder(self.source(source))
        hidden, _ = self.decoder(self.target(target_input), state)
        logits = hidden.flatten(0, 1) @ self.projection
        return torch.nn.functional.cross_entropy(
            logits.float(), target_output.flatten(), reduction="sum"
        )


def _lstm(
    weights: Mapping[str, np.ndarray], part: str, forget_bias: float
) -> torch.nn.LSTM:
    """The layers of `part`. PyTorch has two biases per gate: one is trained, the other stays zero."""
    kernels = [
        name for name in weights if name.startswith(part) and name.endswith("/kernel")
    ]
    is_bidirectional = any("/backward/" in name for name in kernels)
    units = weights[kernels[0]].shape[1] // 4
    num_layers = len(kernels) // (2 if is_bidirectional else 1)
    module = torch.nn.LSTM(
        weights[kernels[0]].shape[0] - units,
        units,
        num_layers,
        bidirectional=is_bidirectional,
    )
    for index, name in enumerate(kernels):
        layer, direction = divmod(index, 2) if is_bidirectional else (index, 0)
        suffix = f"l{layer}" + ("_reverse" if direction else "")
        kernel, bias = handoff.cell(
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


def optimizer_of(
    name: str, parameters: list[torch.nn.Parameter], learning_rate: float
) -> torch.optim.Optimizer:
    if name == "adam":
        return torch.optim.Adam(
            parameters, learning_rate, betas=(0.9, 0.999), eps=1e-7, fused=True
        )
    return torch.optim.SGD(
        parameters,
        learning_rate,
        momentum=0.9 if name == "momentum" else 0.0,
        fused=True,
    )


def build(work: Work, rank: int) -> loop.Step:
    device = torch.device("cuda", rank) if work.on_gpus else torch.device("cpu")
    _set_up(work, device)
    network: torch.nn.Module = Seq2Seq(
        work.weights, float(work.config["forget_bias"])
    ).to(device)
    parameters = [
        parameter for parameter in network.parameters() if parameter.requires_grad
    ]
    optimizer = optimizer_of(work.optimizer, parameters, work.learning_rate)
    if work.exchanges:
        network = DistributedDataParallel(
            network, gradient_as_bucket_view=True, static_graph=True
        )
    if work.config["compile"]:
        network = torch.compile(network)
    names = ("source", "target_input", "target_output")
    batch = [
        torch.tensor(work.batches[rank][name], dtype=torch.long, device=device)
        for name in names
    ]
    loss_items = work.loss_items[rank]
    # DistributedDataParallel takes the mean over ranks, and we the mean over the words of all.
    scale = (
        work.num_devices / sum(work.loss_items) if work.exchanges else 1 / loss_items
    )
    wait: Callable[[], object] = (
        torch.cuda.synchronize if work.on_gpus else lambda: None
    )

    def step() -> float:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(
            device.type, torch.bfloat16, enabled=work.dtype == "bfloat16"
        ):
            loss_sum = network(*batch)
        (loss_sum * scale).backward()
        optimizer.step()
        wait()
        return float(loss_sum.detach()) / loss_items

    return step


def _set_up(work: Work, device: torch.device) -> None:
    torch.set_num_threads(work.threads)
    if device.type == "cuda":
        torch.cuda.set_device(device)
        is_reference = work.config == work.as_reference().config
        torch.backends.cudnn.allow_tf32 = (
            torch.backends.cuda.matmul.allow_tf32
        ) = not is_reference


class TorchGroup:
    """Ranks meet at a port of rank 0 that the system chooses."""

    def __init__(self) -> None:
        self._store: distributed.TCPStore | None = None

    def host(self, num_ranks: int) -> str:
        self._store = distributed.TCPStore(
            LOOPBACK, 0, num_ranks, is_master=True, wait_for_workers=False
        )
        return str(self._store.port)

    def join(self, address: str, rank: int, work: Work) -> None:
        store = self._store or distributed.TCPStore(
            LOOPBACK, int(address), work.num_devices, timeout=JOIN_TIMEOUT
        )
        backend = "nccl" if work.on_gpus else "gloo"
        if work.on_gpus:
            torch.cuda.set_device(rank)
        distributed.init_process_group(
            backend,
            store=store,
            rank=rank,
            world_size=work.num_devices,
            timeout=JOIN_TIMEOUT,
        )


def kernel(work: Work) -> str:
    """ "torch.nn.LSTM", by cuDNN on GPUs, and whether what is around it is compiled."""
    parts = [
        "torch.nn.LSTM",
        *["cuDNN"] * work.on_gpus,
        *["torch.compile"] * bool(work.config["compile"]),
    ]
    return ", ".join(parts)


if __name__ == "__main__":
    loop.start(loop.FrameworkTrainer("torch", build, kernel, TorchGroup()))
