"""Attention in float64 NumPy: scores, contexts, and the two decoders that use them.

S: source words, T: target words, B: sentences, D: width of the memory (the encoder's outputs), U: units, E: embedding.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from rnn_scaling.verification.reference import cells
from rnn_scaling.verification.reference.cells import Array, State, Weights


def context(kind: str, query: Array, memory: Array, lengths: Array, w: Mapping[str, Array]) -> Array:
    """[B, D]: the memory [S, B, D] weighed by the softmax of each sentence's scores, by query [B, U] and lengths [B].

    luong: query' W m, arXiv:1508.04025, section 3.1, "general". bahdanau: v' tanh(Q query + W m), arXiv:1409.0473,
    appendix A.1.2; normalised g v' / |v| tanh(Q query + W m + b), arXiv:1602.07868.
    """
    keys = memory @ w["attention/memory"]  # [S, B, U]
    if kind == "luong":
        scores = np.einsum("bu,sbu->sb", query, keys)
    else:
        v = w["attention/v"]
        if "attention/g" in w:
            v = w["attention/g"] * v / np.sqrt((v * v).sum())
        scores = np.tanh(query @ w["attention/query"] + keys + w.get("attention/bias", 0.0)) @ v
    scores = np.where(np.arange(len(memory))[:, None] < lengths, scores, -np.inf)
    weights = np.exp(scores - scores.max(axis=0))
    return np.einsum("sb,sbd->bd", weights / weights.sum(axis=0), memory)


def step_wise(
    kind: str,
    unit_type: str,
    words: Array,
    memory: Array,
    lengths: Array,
    states: Sequence[State],
    decoder: Sequence[Weights],
    w: Mapping[str, Array],
    forget_bias: float,
) -> Array:
    """The decoder that goes word by word, [T, B, U], of embedded target words [T, B, E].

    luong feeds what it gave for the word before, tanh(W_c [context, h]), next to the word. bahdanau feeds the context
    of the top layer's last state, and gives tanh(W_c [context, h]) of the new one.
    """
    step = cells.CELLS[unit_type][0]
    output, states = w["attention/output"], list(states)
    fed, results = np.zeros((words.shape[1], output.shape[1])), []
    for word in words:
        seen = fed if kind == "luong" else context(kind, states[-1][-1], memory, lengths, w)
        x = np.concatenate([word, seen], axis=1)
        for layer, weights in enumerate(decoder):
            states[layer] = step(x, states[layer], weights, forget_bias)
            x = states[layer][-1]
        if kind == "luong":
            seen = context(kind, x, memory, lengths, w)
        fed = np.tanh(np.concatenate([seen, x], axis=1) @ output)
        results.append(fed)
    return np.stack(results)


def gnmt_decoder(
    kind: str,
    unit_type: str,
    words: Array,
    memory: Array,
    lengths: tuple[Array, Array],
    decoder: Sequence[Weights],
    w: Mapping[str, Array],
    forget_bias: float,
) -> Array:
    """The decoder whose first layer attends and whose other layers read [x, context], arXiv:1609.08144: [T, B, U]."""
    source, target = lengths
    queries, _ = cells.layers(unit_type, words, target, [[decoder[0]]], forget_bias)
    contexts = np.stack([context(kind, query, memory, source, w) for query in queries])
    return residual(unit_type, queries, target, decoder[1:], forget_bias, first=1, context=contexts)


def residual(
    unit_type: str,
    x: Array,
    lengths: Array,
    cells_of_layers: Sequence[Weights],
    forget_bias: float,
    first: int,
    context: Array | None = None,
) -> Array:
    """Layers of one cell, from the network's third on with their input added: [T, B, U].

    Args:
      x: [T, B, U], what the layer below gave.
      first: number of the first of these layers in the network, from 0.
      context: [T, B, D] that each layer reads next to x; None: none.
    """
    for number, weights in enumerate(cells_of_layers, first):
        read = x if context is None else np.concatenate([x, context], axis=2)
        y, _ = cells.layers(unit_type, read, lengths, [[weights]], forget_bias)
        x = x + y if number >= 2 else y
    return x
