"""The loss of the networks of text in float64 NumPy.

S, T: words of the longest sentences, B: sentences, D: width of the memory (the
encoder's outputs), U: units, V: vocabulary or classes of images.

`network_check` is the only caller. Like `cells`, it uses no code of `models`.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rnn_scaling.verification.reference import cells
from rnn_scaling.verification.reference.cells import Array, Weights

Batch = Mapping[str, Array]


def loss_sum(config: Any, weights: Weights, batch: Batch) -> float:
    """Return the summed loss of a batch without dropout.

    Args:
      config: A `ModelConfig`.
      weights: The variables.
      batch: Ids [T, B] and lengths [B].
    """
    w = {name: np.asarray(value, np.float64) for name, value in weights.items()}
    hidden = LAST_LAYERS[config.model](config, w, batch)
    projection = w["projection"] if "projection" in w else w["embedding"].T
    logits = hidden @ projection + w.get("projection/bias", 0.0)
    return sentences_loss(
        logits, batch["target_output"], batch["target_length"], config.label_smoothing
    )


def cross_entropy(logits: Array, labels: Array, label_smoothing: float = 0.0) -> Array:
    """Return -sum(target log softmax(logits)) over the last axis of logits [..., V].

    The target is (1 - e) onehot(label) + e / V with the smoothing e.
    """
    shifted = logits.astype(np.float64) - logits.max(axis=-1, keepdims=True)
    log_p = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    label_log_p = np.take_along_axis(log_p, labels[..., None], axis=-1)[..., 0]
    smoothed = label_smoothing * log_p.mean(axis=-1)
    return -(1.0 - label_smoothing) * label_log_p - smoothed


def sentences_loss(
    logits: Array, labels: Array, lengths: Array, label_smoothing: float = 0.0
) -> float:
    """Return the summed loss of logits [T, B, V] and labels [T, B] without padding."""
    is_word = np.arange(len(labels))[:, None] < lengths
    return float(cross_entropy(logits, labels, label_smoothing)[is_word].sum())


def _cell_weights(w: Weights, name: str) -> Weights:
    prefix = f"{name}/"
    return {
        key.removeprefix(prefix): value
        for key, value in w.items()
        if key.startswith(prefix)
    }


def _run_language_model(config: Any, w: Weights, batch: Batch) -> Array:
    stack = [[_cell_weights(w, f"layer_{n}")] for n in range(config.num_encoder_layers)]
    words = w["embedding"][batch["target_input"]]
    return cells.run_layers(config, words, batch["target_length"], stack)[0]


def _embed_words(w: Weights, batch: Batch) -> tuple[Array, Array]:
    """Return the embedded source and target words."""
    source = w["embedding" if "embedding" in w else "src_embedding"]
    target = w["embedding" if "embedding" in w else "tgt_embedding"]
    return source[batch["source"]], target[batch["target_input"]]


def _encoder_layer_weights(config: Any, w: Weights, number: int) -> list[Weights]:
    names = ("forward", "backward") if config.direction == "bi" else ("forward",)
    return [_cell_weights(w, f"encoder/layer_{number}/{name}") for name in names]


def _run_encoder(
    config: Any, w: Weights, batch: Batch
) -> tuple[Array, list[cells.State]]:
    num_layers = config.num_encoder_layers // (2 if config.direction == "bi" else 1)
    stack = [_encoder_layer_weights(config, w, number) for number in range(num_layers)]
    return cells.run_layers(
        config, _embed_words(w, batch)[0], batch["source_length"], stack
    )


def _decoder_weights(config: Any, w: Weights) -> list[Weights]:
    return [
        _cell_weights(w, f"decoder/layer_{n}") for n in range(config.num_decoder_layers)
    ]


def _run_translation(config: Any, w: Weights, batch: Batch) -> Array:
    """Return the decoder's outputs; its cells start from the encoder's last states."""
    _, states = _run_encoder(config, w, batch)
    stack = [[cell] for cell in _decoder_weights(config, w)]
    words = _embed_words(w, batch)[1]
    return cells.run_layers(config, words, batch["target_length"], stack, states)[0]


def _run_attention(config: Any, w: Weights, batch: Batch) -> Array:
    """Return the outputs of a decoder with attention, word by word.

    The output is tanh(W_c [context, h]). luong feeds it to the next word, next to the
    word's embedding. bahdanau feeds the context of the top layer's last state.
    """
    if config.attention_architecture == "gnmt_v2":
        return _run_gnmt(config, w, batch)
    memory, states = _run_encoder(config, w, batch)
    step = cells.CELLS[config.unit_type][0]
    is_luong = config.attention == "luong"
    lengths = batch["source_length"]
    output = w["attention/output"]
    decoder = _decoder_weights(config, w)
    words = _embed_words(w, batch)[1]
    attended = np.zeros((words.shape[1], output.shape[1]))
    results = []
    for word in words:
        context = attended
        if not is_luong:
            context = _attend_to_memory(config, states[-1][-1], memory, lengths, w)
        x = np.concatenate([word, context], axis=1)
        for layer, weights in enumerate(decoder):
            states[layer] = step(x, states[layer], weights, config.forget_bias)
            x = states[layer][-1]
        if is_luong:
            context = _attend_to_memory(config, x, memory, lengths, w)
        attended = np.tanh(np.concatenate([context, x], axis=1) @ output)
        results.append(attended)
    return np.stack(results)


def _attend_to_memory(
    config: Any, query: Array, memory: Array, lengths: Array, w: Weights
) -> Array:
    """Return the context [B, D]: the mean of the memory, weighed by attention.

    The weights are the softmax of each sentence's scores of a word m of the memory:
    luong: query' W m (arXiv:1508.04025, section 3.1, "general"); bahdanau:
    v' tanh(Q query + W m) (arXiv:1409.0473, appendix A.1.2), normalised
    g v' / |v| tanh(Q query + W m + b) (arXiv:1602.07868).

    Args:
      config: A `ModelConfig`.
      query: State [B, U] of the decoder.
      memory: Outputs [S, B, D] of the encoder.
      lengths: Lengths [B] of the source sentences.
      w: The variables.
    """
    keys = memory @ w["attention/memory"]  # [S, B, U]
    if config.attention == "luong":
        scores = np.einsum("bu,sbu->sb", query, keys)
    else:
        v = w["attention/v"]
        if "attention/g" in w:
            v = w["attention/g"] * v / np.sqrt((v * v).sum())
        bias = w.get("attention/bias", 0.0)
        scores = np.tanh(query @ w["attention/query"] + keys + bias) @ v
    scores = np.where(np.arange(len(memory))[:, None] < lengths, scores, -np.inf)
    weights = np.exp(scores - scores.max(axis=0))
    return np.einsum("sb,sbd->bd", weights / weights.sum(axis=0), memory)


def _run_gnmt(config: Any, w: Weights, batch: Batch) -> Array:
    """Return the outputs of GNMT's decoder.

    The decoder's first layer attends; its other layers read [x, context]. Only the
    encoder's first layer may be bidirectional.

    Source: arXiv:1609.08144.
    """
    source, target = _embed_words(w, batch)
    lengths = batch["source_length"]
    memory, _ = cells.run_layers(
        config, source, lengths, [_encoder_layer_weights(config, w, 0)]
    )
    upper = [
        _cell_weights(w, f"encoder/layer_{n}/forward")
        for n in range(1, config.num_encoder_layers)
    ]
    memory = _run_residual_layers(config, memory, lengths, upper)
    first, *upper = _decoder_weights(config, w)
    queries, _ = cells.run_layers(config, target, batch["target_length"], [[first]])
    contexts = np.stack(
        [_attend_to_memory(config, query, memory, lengths, w) for query in queries]
    )
    return _run_residual_layers(
        config, queries, batch["target_length"], upper, contexts
    )


def _run_residual_layers(
    config: Any,
    x: Array,
    lengths: Array,
    stack: Sequence[Weights],
    context: Array | None = None,
) -> Array:
    """Compute the layers after the first, with residual connections from the third on.

    Args:
      config: A `ModelConfig`.
      x: Outputs [T, B, U] of the first layer.
      lengths: Lengths [B].
      stack: The weights of one cell per layer.
      context: Additional inputs [T, B, D] of every layer, or None.
    """
    for number, weights in enumerate(stack, 1):
        inputs = x if context is None else np.concatenate([x, context], axis=2)
        y, _ = cells.run_layers(config, inputs, lengths, [[weights]])
        x = x + y if number >= 2 else y
    return x


def _run_transformer(config: Any, w: Weights, batch: Batch) -> Array:
    """Return the Transformer's outputs [T, B, D], zero in the padding.

    Sentences are computed one at a time. In the functions below, T and S are the words
    of one sentence, and D is the width of every layer.

    Source: arXiv:1706.03762.
    """
    outputs = np.zeros((*batch["target_input"].shape, config.num_units))
    for b, (source, target) in enumerate(
        zip(batch["source_length"], batch["target_length"])
    ):
        memory = _embed_with_positions(w["embedding"], batch["source"][:source, b])
        for n in range(config.num_encoder_layers):
            memory = _attend(config, w, f"encoder/layer_{n}/attention", memory, memory)
            memory = _feed_forward(w, f"encoder/layer_{n}/feed_forward", memory)
        x = _embed_with_positions(w["embedding"], batch["target_input"][:target, b])
        for n in range(config.num_decoder_layers):
            x = _attend(config, w, f"decoder/layer_{n}/attention", x, x, is_causal=True)
            x = _attend(config, w, f"decoder/layer_{n}/memory", x, memory)
            x = _feed_forward(w, f"decoder/layer_{n}/feed_forward", x)
        outputs[:target, b] = x
    return outputs


def _embed_with_positions(table: Array, ids: Array) -> Array:
    """Return embedding rows times sqrt(D), plus positions (sections 3.4 and 3.5).

    Positions are sines in even columns and cosines in odd ones.
    """
    x = table[ids] * np.sqrt(table.shape[1])
    for column in range(x.shape[1]):
        angles = np.arange(len(ids)) / 10_000.0 ** (column // 2 * 2 / x.shape[1])
        x[:, column] += np.cos(angles) if column % 2 else np.sin(angles)
    return x


def _attend(
    config: Any, w: Weights, name: str, x: Array, memory: Array, is_causal: bool = False
) -> Array:
    """Let x [T, D] attend to memory [S, D], head by head (section 3.2)."""
    width = x.shape[1]
    size = x.shape[1] // config.num_heads
    query = w.get(f"{name}/query", w[f"{name}/input"][:, :width])
    keys, values = np.split(w[f"{name}/input"][:, -2 * width :], 2, axis=1)
    contexts = []
    for start in range(0, width, size):
        head = slice(start, start + size)
        scores = (x @ query[:, head]) @ (memory @ keys[:, head]).T / np.sqrt(size)
        if is_causal:
            scores[np.triu_indices(len(x), 1)] = -np.inf
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))
        weights = weights / weights.sum(axis=1, keepdims=True)
        contexts.append(weights @ (memory @ values[:, head]))
    return _normalize(
        w, name, x + np.concatenate(contexts, axis=1) @ w[f"{name}/output"]
    )


def _feed_forward(w: Weights, name: str, x: Array) -> Array:
    """Apply the position-wise feed-forward network (section 3.3)."""
    hidden = np.maximum(x @ w[f"{name}/inner"] + w[f"{name}/inner/bias"], 0.0)
    return _normalize(
        w, name, x + hidden @ w[f"{name}/outer"] + w[f"{name}/outer/bias"]
    )


def _normalize(w: Weights, name: str, x: Array) -> Array:
    deviation = np.sqrt(x.var(axis=1, keepdims=True) + 1e-6)
    standardized = (x - x.mean(axis=1, keepdims=True)) / deviation
    return standardized * w[f"{name}/norm/gain"] + w[f"{name}/norm/bias"]


def part_around_cells(config: Any) -> str:
    """Return the name of a workload's part outside its cells."""
    return "attention" if LAST_LAYERS[config.model] is _run_attention else "network"


def num_directions(config: Any) -> int:
    """Return the number of directions of the encoder's layers; 0 without cells.

    A language model only reads forward.
    """
    last_layer = LAST_LAYERS[config.model]
    if last_layer is _run_transformer:
        return 0
    if last_layer is _run_language_model:
        return 1
    return 2 if config.direction == "bi" else 1


# Workload -> the function that computes its last layer [T, B, U].
LAST_LAYERS = {
    "nmt": _run_translation,
    "nmt_attention": _run_attention,
    "transformer": _run_transformer,
    "lm": _run_language_model,
}


def count_dropout_places(config: Any) -> int:
    """Return how many arrays of a network drop elements, by their definitions.

    Recurrent layers drop their inputs. A Transformer drops its two embeddings and the
    result of every sublayer (arXiv:1706.03762, section 5.4).
    """
    num_encoder_layers = config.num_encoder_layers
    num_decoder_layers = config.num_decoder_layers
    if config.model == "transformer":
        return 2 + 2 * num_encoder_layers + 3 * num_decoder_layers
    if config.model == "lm":
        return num_encoder_layers
    is_gnmt = config.attention_architecture == "gnmt_v2"
    if config.model == "nmt_attention" and is_gnmt:
        return num_encoder_layers + num_decoder_layers
    # With two directions, a layer of the encoder counts twice.
    num_places = num_encoder_layers // num_directions(config)
    num_places += num_decoder_layers
    # The first layer of the decoder also drops the attention that it is fed.
    return num_places + (config.model == "nmt_attention")
