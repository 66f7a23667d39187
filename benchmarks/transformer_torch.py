"""PyTorch's nn.Transformer with our variables: a peer that benchmarks/transformer.py starts.

    transformer_torch.py NPZ THREADS float32|bfloat16 DROPOUT LABEL_SMOOTHING

NPZ: the weights by their names in models/transformer.py, and the batch. The norm after each stack, which the paper does
not have, is left out, and one table is embedding and projection. The biases of the attention, which the paper does not
have, start from 0. Attention without masks of padding, which this batch does not need, takes PyTorch's fused path.
"""

from __future__ import annotations

import math
import sys

import numpy as np
import torch
from torch import nn

from benchmarks.peers import serve, timed


class Transformer(nn.Module):
    """Ids of both sides -> logits [B, T, V]."""

    def __init__(
        self, arrays: dict[str, np.ndarray], num_heads: int, dropout: float
    ) -> None:
        super().__init__()
        width, filters = arrays["encoder/layer_0/feed_forward/inner"].shape
        layers = [
            sum(f"{side}/layer_{n}/attention/input" in arrays for n in range(99))
            for side in ("encoder", "decoder")
        ]
        options = (width, num_heads, filters, dropout)
        encoder = nn.TransformerEncoderLayer(
            *options, layer_norm_eps=1e-6, batch_first=True
        )
        decoder = nn.TransformerDecoderLayer(
            *options, layer_norm_eps=1e-6, batch_first=True
        )
        self.network = nn.Transformer(
            width,
            num_heads,
            custom_encoder=nn.TransformerEncoder(
                encoder, layers[0], enable_nested_tensor=False
            ),
            custom_decoder=nn.TransformerDecoder(decoder, layers[1]),
            batch_first=True,
        )
        self.table, self.drop = (
            nn.Parameter(torch.tensor(arrays["embedding"])),
            nn.Dropout(dropout),
        )
        for side in ("encoder", "decoder"):
            for number, layer in enumerate(getattr(self.network, side).layers):
                load(
                    layer,
                    {
                        n.removeprefix(f"{side}/layer_{number}/"): a
                        for n, a in arrays.items()
                        if f"{side}/layer_{number}/" in n
                    },
                )

    def forward(
        self, source: torch.Tensor, target: torch.Tensor, positions: torch.Tensor
    ) -> torch.Tensor:
        def embedded(ids: torch.Tensor) -> torch.Tensor:
            return self.drop(
                nn.functional.embedding(ids, self.table)
                * math.sqrt(self.table.shape[1])
                + positions
            )

        mask = nn.Transformer.generate_square_subsequent_mask(target.shape[1])
        return (
            self.network(
                embedded(source), embedded(target), tgt_mask=mask, tgt_is_causal=True
            )
            @ self.table.T
        )


def load(layer: nn.Module, arrays: dict[str, np.ndarray]) -> None:
    """Gives a layer of either side our weights."""
    pairs = [
        (layer.linear1, "feed_forward/inner"),
        (layer.linear2, "feed_forward/outer"),
    ]
    is_decoder = "memory/query" in arrays
    attentions = {"attention": layer.self_attn} | (
        {"memory": layer.multihead_attn} if is_decoder else {}
    )
    norms = ["attention", *(["memory"] if is_decoder else []), "feed_forward"]
    with torch.no_grad():
        for linear, name in pairs:
            linear.weight.copy_(torch.tensor(arrays[name].T))
            linear.bias.zero_()
        for name, attention in attentions.items():
            parts = [
                arrays[f"{name}/{part}"]
                for part in ("query", "input")
                if f"{name}/{part}" in arrays
            ]
            attention.in_proj_weight.copy_(
                torch.tensor(np.concatenate(parts, axis=1).T)
            )
            attention.out_proj.weight.copy_(torch.tensor(arrays[f"{name}/output"].T))
    assert len(norms) == sum(
        isinstance(module, nn.LayerNorm) for module in layer.modules()
    )


def main() -> None:
    npz, threads, dtype, dropout, label_smoothing = sys.argv[1:]
    torch.set_num_threads(int(threads))
    with np.load(npz) as stored:
        arrays = dict(stored)
    source, target, labels = (
        torch.tensor(arrays.pop(n)) for n in ("source", "target_input", "target_output")
    )
    positions = torch.tensor(arrays.pop("positions"))
    model = Transformer(arrays, int(arrays.pop("num_heads")), float(dropout)).train()
    optimizer = torch.optim.Adam(
        model.parameters(), lr=1e-4, betas=(0.9, 0.999), eps=1e-7, fused=True
    )

    def step() -> float:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", torch.bfloat16, enabled=dtype == "bfloat16"):
            logits = model(source, target, positions)
        smoothing = float(label_smoothing)
        loss = nn.functional.cross_entropy(
            logits.flatten(0, 1).float(), labels.flatten(), label_smoothing=smoothing
        )
        loss.backward()
        optimizer.step()
        return float(loss.detach())

    serve(step(), timed(step))


if __name__ == "__main__":
    main()
