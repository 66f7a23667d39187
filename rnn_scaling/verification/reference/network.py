"""The networks of text in float64 NumPy: from a batch and the variables to the loss.

S, T: words of the longest sentences, B: sentences, E: embedding, D: width of the memory (the encoder's outputs), U:
units, V: vocabulary or classes of images.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rnn_scaling.verification.reference import cells
from rnn_scaling.verification.reference.cells import Array, Weights

Batch = Mapping[str, Array]


def loss_sum(config: Any, weights: Weights, batch: Batch) -> float:
    """The summed loss of a batch without dropout, of ids [T, B] and lengths [B], by a `ModelConfig`."""
    w = {name: np.asarray(value, np.float64) for name, value in weights.items()}
    hidden = LAST_LAYERS[config.model](config, w, batch)
    logits = hidden @ w.get("projection", w.get("embedding", hidden).T) + w.get(
        "projection/bias", 0.0
    )
    return sentences_loss(
        logits, batch["target_output"], batch["target_length"], config.label_smoothing
    )


def cross_entropy(logits: Array, labels: Array, label_smoothing: float = 0.0) -> Array:
    """-sum(target log softmax(logits)) of logits [..., V], the shape of `labels`.

    The target is (1 - e) onehot(label) + e / V, e the smoothing.
    """
    shifted = logits.astype(np.float64) - logits.max(axis=-1, keepdims=True)
    log_p = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    at_label = np.take_along_axis(log_p, labels[..., None], axis=-1)[..., 0]
    return -(1.0 - label_smoothing) * at_label - label_smoothing * log_p.mean(axis=-1)


def sentences_loss(
    logits: Array, labels: Array, lengths: Array, label_smoothing: float = 0.0
) -> float:
    """The sum over logits [T, B, V] and labels [T, B] of all words before their sentence's length."""
    inside = np.arange(len(labels))[:, None] < lengths
    return float(cross_entropy(logits, labels, label_smoothing)[inside].sum())


def _cell(w: Weights, name: str) -> Weights:
    prefix = f"{name}/"
    return {
        key.removeprefix(prefix): value
        for key, value in w.items()
        if key.startswith(prefix)
    }


def _language_model(config: Any, w: Weights, batch: Batch) -> Array:
    stack = [[_cell(w, f"layer_{n}")] for n in range(config.num_encoder_layers)]
    words = w["embedding"][batch["target_input"]]
    return cells.layers(config, words, batch["target_length"], stack)[0]


def _embedded(w: Weights, batch: Batch) -> tuple[Array, Array]:
    shared = w.get("embedding")
    source, target = (
        (w["src_embedding"], w["tgt_embedding"]) if shared is None else (shared, shared)
    )
    return source[batch["source"]], target[batch["target_input"]]


def _encoder_layer(config: Any, w: Weights, number: int) -> list[Weights]:
    names = ("forward", "backward") if config.direction == "bi" else ("forward",)
    return [_cell(w, f"encoder/layer_{number}/{name}") for name in names]


def _encoded(config: Any, w: Weights, batch: Batch) -> tuple[Array, list[cells.State]]:
    num_layers = config.num_encoder_layers // (2 if config.direction == "bi" else 1)
    stack = [_encoder_layer(config, w, number) for number in range(num_layers)]
    return cells.layers(config, _embedded(w, batch)[0], batch["source_length"], stack)


def _decoder(config: Any, w: Weights) -> list[Weights]:
    return [_cell(w, f"decoder/layer_{n}") for n in range(config.num_decoder_layers)]


def _translation(config: Any, w: Weights, batch: Batch) -> Array:
    """The decoder's cells start from the encoder's last states, in the order of its cells."""
    _, states = _encoded(config, w, batch)
    stack = [[cell] for cell in _decoder(config, w)]
    words = _embedded(w, batch)[1]
    return cells.layers(config, words, batch["target_length"], stack, states)[0]


def _attention(config: Any, w: Weights, batch: Batch) -> Array:
    """The decoder that goes word by word, or GNMT's.

    luong feeds what it gave for the word before, tanh(W_c [context, h]), next to the word. bahdanau feeds the context
    of the top layer's last state, and gives tanh(W_c [context, h]) of the new one.
    """
    if config.attention_architecture == "gnmt_v2":
        return _gnmt(config, w, batch)
    memory, states = _encoded(config, w, batch)
    step = cells.CELLS[config.unit_type][0]
    is_luong = config.attention == "luong"
    lengths = batch["source_length"]
    output = w["attention/output"]
    decoder = _decoder(config, w)
    words = _embedded(w, batch)[1]
    fed = np.zeros((words.shape[1], output.shape[1]))
    results = []
    for word in words:
        seen = fed if is_luong else _context(config, states[-1][-1], memory, lengths, w)
        x = np.concatenate([word, seen], axis=1)
        for layer, weights in enumerate(decoder):
            states[layer] = step(x, states[layer], weights, config.forget_bias)
            x = states[layer][-1]
        if is_luong:
            seen = _context(config, x, memory, lengths, w)
        fed = np.tanh(np.concatenate([seen, x], axis=1) @ output)
        results.append(fed)
    return np.stack(results)


def _context(
    config: Any, query: Array, memory: Array, lengths: Array, w: Weights
) -> Array:
    """[B, D]: the memory [S, B, D] weighed by the softmax of each sentence's scores, by query [B, U] and lengths [B].

    luong: query' W m, arXiv:1508.04025, section 3.1, "general". bahdanau: v' tanh(Q query + W m), arXiv:1409.0473,
    appendix A.1.2; normalised g v' / |v| tanh(Q query + W m + b), arXiv:1602.07868.
    """
    keys = memory @ w["attention/memory"]  # [S, B, U]
    if config.attention == "luong":
        scores = np.einsum("bu,sbu->sb", query, keys)
    else:
        v = w["attention/v"]
        if "attention/g" in w:
            v = w["attention/g"] * v / np.sqrt((v * v).sum())
        scores = (
            np.tanh(query @ w["attention/query"] + keys + w.get("attention/bias", 0.0))
            @ v
        )
    scores = np.where(np.arange(len(memory))[:, None] < lengths, scores, -np.inf)
    weights = np.exp(scores - scores.max(axis=0))
    return np.einsum("sb,sbd->bd", weights / weights.sum(axis=0), memory)


def _gnmt(config: Any, w: Weights, batch: Batch) -> Array:
    """arXiv:1609.08144: the decoder's first layer attends, and its other layers read [x, context].

    The encoder's first layer has the directions that the options say, the others go forward.
    """
    (source, target), lengths = _embedded(w, batch), batch["source_length"]
    memory, _ = cells.layers(config, source, lengths, [_encoder_layer(config, w, 0)])
    upper = [
        _cell(w, f"encoder/layer_{n}/forward")
        for n in range(1, config.num_encoder_layers)
    ]
    memory = _residual(config, memory, lengths, upper)
    first, *others = _decoder(config, w)
    queries, _ = cells.layers(config, target, batch["target_length"], [[first]])
    contexts = np.stack(
        [_context(config, query, memory, lengths, w) for query in queries]
    )
    return _residual(config, queries, batch["target_length"], others, contexts)


def _residual(
    config: Any,
    x: Array,
    lengths: Array,
    stack: Sequence[Weights],
    context: Array | None = None,
) -> Array:
    """The network's second layer and those above it, of one cell each, from the third on with their input added.

    x [T, B, U]: output of the first layer. context [T, B, D]: what each layer reads next to x, if anything.
    """
    for number, weights in enumerate(stack, 1):
        read = x if context is None else np.concatenate([x, context], axis=2)
        y, _ = cells.layers(config, read, lengths, [[weights]])
        x = x + y if number >= 2 else y
    return x


def _transformer(config: Any, w: Weights, batch: Batch) -> Array:
    """arXiv:1706.03762, one sentence at a time: [T, B, D], zeros in the padding. Below, T and S words of D columns."""
    outputs = np.zeros((*batch["target_input"].shape, config.num_units))
    for b, (source, target) in enumerate(
        zip(batch["source_length"], batch["target_length"])
    ):
        memory = _with_positions(w["embedding"], batch["source"][:source, b])
        for n in range(config.num_encoder_layers):
            memory = _attended(
                config, w, f"encoder/layer_{n}/attention", memory, memory
            )
            memory = _fed_forward(w, f"encoder/layer_{n}/feed_forward", memory)
        x = _with_positions(w["embedding"], batch["target_input"][:target, b])
        for n in range(config.num_decoder_layers):
            x = _attended(
                config, w, f"decoder/layer_{n}/attention", x, x, is_causal=True
            )
            x = _attended(config, w, f"decoder/layer_{n}/memory", x, memory)
            x = _fed_forward(w, f"decoder/layer_{n}/feed_forward", x)
        outputs[:target, b] = x
    return outputs


def _with_positions(table: Array, ids: Array) -> Array:
    """Sections 3.4 and 3.5: rows times sqrt(D), plus sines in even and cosines in odd columns."""
    x = table[ids] * np.sqrt(table.shape[1])
    for column in range(x.shape[1]):
        angles = np.arange(len(ids)) / 10_000.0 ** (column // 2 * 2 / x.shape[1])
        x[:, column] += np.cos(angles) if column % 2 else np.sin(angles)
    return x


def _attended(
    config: Any, w: Weights, name: str, x: Array, memory: Array, is_causal: bool = False
) -> Array:
    """Section 3.2: x [T, D] attends to memory [S, D], head by head."""
    width = x.shape[1]
    size = x.shape[1] // config.num_heads
    query = w.get(f"{name}/query", w[f"{name}/input"][:, :width])
    keys, values = np.split(w[f"{name}/input"][:, -2 * width :], 2, axis=1)
    contexts = []
    for head in (slice(start, start + size) for start in range(0, width, size)):
        scores = (x @ query[:, head]) @ (memory @ keys[:, head]).T / np.sqrt(size)
        if is_causal:
            scores[np.triu_indices(len(x), 1)] = -np.inf
        shares = np.exp(scores - scores.max(axis=1, keepdims=True))
        contexts.append(
            shares / shares.sum(axis=1, keepdims=True) @ (memory @ values[:, head])
        )
    return _normed(w, name, x + np.concatenate(contexts, axis=1) @ w[f"{name}/output"])


def _fed_forward(w: Weights, name: str, x: Array) -> Array:
    """Section 3.3."""
    hidden = np.maximum(x @ w[f"{name}/inner"] + w[f"{name}/inner/bias"], 0.0)
    return _normed(w, name, x + hidden @ w[f"{name}/outer"] + w[f"{name}/outer/bias"])


def _normed(w: Weights, name: str, x: Array) -> Array:
    scaled = (x - x.mean(axis=1, keepdims=True)) / np.sqrt(
        x.var(axis=1, keepdims=True) + 1e-6
    )
    return scaled * w[f"{name}/norm/gain"] + w[f"{name}/norm/bias"]


def part_around_cells(config: Any) -> str:
    """What stands around the cells of a workload, for a fault's name."""
    return "attention" if LAST_LAYERS[config.model] is _attention else "network"


def directions(config: Any) -> int:
    """Directions of the encoder's layers, or of a language model's, which reads forward alone; 0 without cells."""
    if LAST_LAYERS[config.model] is _transformer:
        return 0
    return (
        2
        if config.direction == "bi" and LAST_LAYERS[config.model] is not _language_model
        else 1
    )


LAST_LAYERS = {  # workload -> its last layer, [T, B, U]
    "nmt": _translation,
    "nmt_attention": _attention,
    "transformer": _transformer,
    "lm": _language_model,
}
