"""The Transformer in float64 NumPy, one sentence at a time without its padding: Vaswani et al., arXiv:1706.03762.

S, T: words of one sentence, B: sentences, D: width.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from rnn_scaling.verification.reference.cells import Array


def last_layer(config: Any, w: Mapping[str, Array], batch: Mapping[str, Array]) -> Array:
    """The decoder's outputs [T, B, D], zeros in the padding, of ids [T, B] and lengths [B]."""
    outputs = np.zeros((*batch["target_input"].shape, config.num_units))
    for b, (source, target) in enumerate(zip(batch["source_length"], batch["target_length"])):
        memory = _embedded(w["embedding"], batch["source"][:source, b])
        for n in range(config.num_encoder_layers):
            memory = _attended(config, w, f"encoder/layer_{n}/attention", memory, memory)
            memory = _fed_forward(w, f"encoder/layer_{n}/feed_forward", memory)
        x = _embedded(w["embedding"], batch["target_input"][:target, b])
        for n in range(config.num_decoder_layers):
            x = _attended(config, w, f"decoder/layer_{n}/attention", x, x, is_causal=True)
            x = _attended(config, w, f"decoder/layer_{n}/memory", x, memory)
            x = _fed_forward(w, f"decoder/layer_{n}/feed_forward", x)
        outputs[:target, b] = x
    return outputs


def _embedded(table: Array, ids: Array) -> Array:
    """Sections 3.4 and 3.5: rows times sqrt(D), plus sines in even and cosines in odd columns."""
    x = table[ids] * np.sqrt(table.shape[1])
    for column in range(x.shape[1]):
        angles = np.arange(len(ids)) / 10_000.0 ** (column // 2 * 2 / x.shape[1])
        x[:, column] += np.cos(angles) if column % 2 else np.sin(angles)
    return x


def _attended(
    config: Any, w: Mapping[str, Array], name: str, x: Array, memory: Array, is_causal: bool = False
) -> Array:
    """Section 3.2: x [T, D] attends to memory [S, D], head by head."""
    width, size = x.shape[1], x.shape[1] // config.num_heads
    query = w.get(f"{name}/query", w[f"{name}/input"][:, :width])
    keys, values = np.split(w[f"{name}/input"][:, -2 * width :], 2, axis=1)
    contexts = []
    for head in (slice(start, start + size) for start in range(0, width, size)):
        scores = (x @ query[:, head]) @ (memory @ keys[:, head]).T / np.sqrt(size)
        if is_causal:
            scores[np.triu_indices(len(x), 1)] = -np.inf
        shares = np.exp(scores - scores.max(axis=1, keepdims=True))
        contexts.append(shares / shares.sum(axis=1, keepdims=True) @ (memory @ values[:, head]))
    return _normed(w, name, x + np.concatenate(contexts, axis=1) @ w[f"{name}/output"])


def _fed_forward(w: Mapping[str, Array], name: str, x: Array) -> Array:
    """Section 3.3."""
    hidden = np.maximum(x @ w[f"{name}/inner"] + w[f"{name}/inner/bias"], 0.0)
    return _normed(w, name, x + hidden @ w[f"{name}/outer"] + w[f"{name}/outer/bias"])


def _normed(w: Mapping[str, Array], name: str, x: Array) -> Array:
    scaled = (x - x.mean(axis=1, keepdims=True)) / np.sqrt(x.var(axis=1, keepdims=True) + 1e-6)
    return scaled * w[f"{name}/norm/gain"] + w[f"{name}/norm/bias"]
