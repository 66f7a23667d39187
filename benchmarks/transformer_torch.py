"""PyTorch's nn.Transformer with our variables: a peer of benchmarks/transformer.py.

    transformer_torch.py NPZ THREADS float32|bfloat16 DROPOUT LABEL_SMOOTHING

NPZ contains the weights by their names in models/transformer.py, and the batch. Unlike
PyTorch's default, there is no norm after each stack, as in the paper, and one table is
embedding and projection. The biases of the attention, which the paper does not have,
start from 0. This batch needs no masks of padding; without them, attention takes
PyTorch's fused path.
"""

from __future__ import annotations

import math
import sys

import numpy as np
import torch
from torch import nn

from benchmarks.peers import serve, time_each

Arrays = dict[str, np.ndarray]


class Transformer(nn.Module):
    """Ids of both sides [B, T] -> logits [B, T, V]."""

    def __init__(self, arrays: Arrays, num_heads: int, dropout: float) -> None:
        super().__init__()
        width, filters = arrays["encoder/layer_0/feed_forward/inner"].shape
        layer_options = {
            "d_model": width,
            "nhead": num_heads,
            "dim_feedforward": filters,
            "dropout": dropout,
            "layer_norm_eps": 1e-6,
            "batch_first": True,
        }
        encoder = nn.TransformerEncoder(
            nn.TransformerEncoderLayer(**layer_options),
            count_layers(arrays, "encoder"),
            enable_nested_tensor=False,
        )
        decoder = nn.TransformerDecoder(
            nn.TransformerDecoderLayer(**layer_options),
            count_layers(arrays, "decoder"),
        )
        self.network = nn.Transformer(
            width,
            num_heads,
            custom_encoder=encoder,
            custom_decoder=decoder,
            batch_first=True,
        )
        self.table = nn.Parameter(torch.tensor(arrays["embedding"]))
        self.drop = nn.Dropout(dropout)
        load_stack(encoder, arrays, "encoder")
        load_stack(decoder, arrays, "decoder")

    def forward(
        self, source: torch.Tensor, target: torch.Tensor, positions: torch.Tensor
    ) -> torch.Tensor:
        outputs = self.network(
            self.embed(source, positions),
            self.embed(target, positions),
            tgt_mask=nn.Transformer.generate_square_subsequent_mask(target.shape[1]),
            tgt_is_causal=True,
        )
        return outputs @ self.table.T

    def embed(self, ids: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """Return the inputs [B, T, D] of a stack."""
        width = self.table.shape[1]
        rows = nn.functional.embedding(ids, self.table) * math.sqrt(width)
        return self.drop(rows + positions)


def count_layers(arrays: Arrays, stack: str) -> int:
    """Return the number of layers of a stack, "encoder" or "decoder"."""
    number = 0
    while f"{stack}/layer_{number}/attention/input" in arrays:
        number += 1
    return number


def load_stack(stack: nn.Module, arrays: Arrays, name: str) -> None:
    """Set the weights of all layers of a stack."""
    for number, layer in enumerate(stack.layers):
        prefix = f"{name}/layer_{number}/"
        layer_arrays = {}
        for key, array in arrays.items():
            if key.startswith(prefix):
                layer_arrays[key.removeprefix(prefix)] = array
        load_layer(layer, layer_arrays)


def load_layer(layer: nn.Module, arrays: Arrays) -> None:
    """Set the weights of a layer of the encoder or the decoder."""
    is_decoder = "memory/query" in arrays
    load_linear(layer.linear1, arrays["feed_forward/inner"])
    load_linear(layer.linear2, arrays["feed_forward/outer"])
    load_attention(layer.self_attn, [arrays["attention/input"]], arrays, "attention")
    if is_decoder:
        inputs = [arrays["memory/query"], arrays["memory/input"]]
        load_attention(layer.multihead_attn, inputs, arrays, "memory")
    num_norms = sum(isinstance(module, nn.LayerNorm) for module in layer.modules())
    assert num_norms == (3 if is_decoder else 2)


@torch.no_grad()
def load_linear(linear: nn.Linear, weight: np.ndarray) -> None:
    """Set the weight [inputs, outputs] of a linear layer, and a bias of 0."""
    linear.weight.copy_(torch.tensor(weight.T))
    linear.bias.zero_()


@torch.no_grad()
def load_attention(
    attention: nn.MultiheadAttention,
    inputs: list[np.ndarray],
    arrays: Arrays,
    name: str,
) -> None:
    """Set the weights of an attention.

    Args:
      inputs: Weights [D, outputs] of queries, keys and values, in this order.
    """
    projection = np.concatenate(inputs, axis=1)
    attention.in_proj_weight.copy_(torch.tensor(projection.T))
    attention.out_proj.weight.copy_(torch.tensor(arrays[f"{name}/output"].T))


def main() -> None:
    npz, threads, dtype, dropout, label_smoothing = sys.argv[1:]
    torch.set_num_threads(int(threads))
    with np.load(npz) as stored:
        arrays = dict(stored)
    source = torch.tensor(arrays.pop("source"))
    target = torch.tensor(arrays.pop("target_input"))
    labels = torch.tensor(arrays.pop("target_output"))
    positions = torch.tensor(arrays.pop("positions"))
    num_heads = int(arrays.pop("num_heads"))
    model = Transformer(arrays, num_heads, float(dropout)).train()
    optimizer = torch.optim.Adam(
        model.parameters(), lr=1e-4, betas=(0.9, 0.999), eps=1e-7, fused=True
    )

    def step() -> float:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", torch.bfloat16, enabled=dtype == "bfloat16"):
            logits = model(source, target, positions)
        loss = nn.functional.cross_entropy(
            logits.flatten(0, 1).float(),
            labels.flatten(),
            label_smoothing=float(label_smoothing),
        )
        loss.backward()
        optimizer.step()
        return float(loss.detach())

    serve(step(), time_each(step))


if __name__ == "__main__":
    main()
