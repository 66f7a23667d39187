"""Attention in float64 NumPy: scores, contexts, and the two decoders that use them.

S: source words, T: target words, B: sentences, D: width of the memory (the encoder's outputs), U: units, E: embedding.
"""

from collections.abc import Mapping, Sequence
from typing import Any

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
    config: Any,
    w: Mapping[str, Array],
    decoder: Sequence[Weights],
    words: Array,
    memory: Array,
    lengths: Array,
    states: Sequence[State],
) -> Array:
    """The decoder that goes word by word, [T, B, U], of embedded target words [T, B, E].

    luong feeds what it gave for the word before, tanh(W_c [context, h]), next to the word. bahdanau feeds the context
    of the top layer's last state, and gives tanh(W_c [context, h]) of the new one.
    """
    step, kind = cells.CELLS[config.unit_type][0], config.attention
    output, states = w["attention/output"], list(states)
    fed, results = np.zeros((words.shape[1], output.shape[1])), []
    for word in words:
        seen = fed if kind == "luong" else context(kind, states[-1][-1], memory, lengths, w)
        x = np.concatenate([word, seen], axis=1)
        for layer, weights in enumerate(decoder):
            states[layer] = step(x, states[layer], weights, config.forget_bias)
            x = states[layer][-1]
        if kind == "luong":
            seen = context(kind, x, memory, lengths, w)
        fed = np.tanh(np.concatenate([seen, x], axis=1) @ output)
        results.append(fed)
    return np.stack(results)


def gnmt_decoder(
    config: Any,
    w: Mapping[str, Array],
    decoder: Sequence[Weights],
    words: Array,
    memory: Array,
    lengths: tuple[Array, Array],
) -> Array:
    """The decoder whose first layer attends and whose other layers read [x, context], arXiv:1609.08144: [T, B, U]."""
    source, target = lengths
    queries, _ = cells.layers(config, words, target, [[decoder[0]]])
    contexts = np.stack([context(config.attention, query, memory, source, w) for query in queries])
    return residual(config, queries, target, decoder[1:], contexts)


def residual(
    config: Any, x: Array, lengths: Array, cells_of_layers: Sequence[Weights], context: Array | None = None
) -> Array:
    """The network's second layer and those above it, of one cell each, from the third on with their input added.

    x [T, B, U]: output of the first layer. context [T, B, D]: what each layer reads next to x, if anything.
    """
    for number, weights in enumerate(cells_of_layers, 1):
        read = x if context is None else np.concatenate([x, context], axis=2)
        y, _ = cells.layers(config, read, lengths, [[weights]])
        x = x + y if number >= 2 else y
    return x
