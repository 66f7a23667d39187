"""The networks of text in float64 NumPy: from a batch and the variables to the loss.

S, T: words of the longest sentences, B: sentences, E: embedding, V: vocabulary.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from rnn_scaling.verification.reference import attention, cells, loss, transformer
from rnn_scaling.verification.reference.cells import Array, Weights


def loss_sum(config: Any, weights: Mapping[str, Array], batch: Mapping[str, Array]) -> float:
    """The summed loss of a batch without dropout, of ids [T, B] and lengths [B], by a `ModelConfig`."""
    w = {name: np.asarray(value, np.float64) for name, value in weights.items()}
    hidden = LAST_LAYERS[config.model](config, w, batch)
    logits = hidden @ w.get("projection", w.get("embedding", hidden).T) + w.get("projection/bias", 0.0)
    return loss.sentences(logits, batch["target_output"], batch["target_length"], config.label_smoothing)


def _cell(w: Mapping[str, Array], name: str) -> Weights:
    prefix = f"{name}/"
    return {key.removeprefix(prefix): value for key, value in w.items() if key.startswith(prefix)}


def _language_model(config: Any, w: Mapping[str, Array], batch: Mapping[str, Array]) -> Array:
    stack = [[_cell(w, f"layer_{n}")] for n in range(config.num_encoder_layers)]
    words = w["embedding"][batch["target_input"]]
    return cells.layers(config, words, batch["target_length"], stack)[0]


def _embedded(w: Mapping[str, Array], batch: Mapping[str, Array]) -> tuple[Array, Array]:
    shared = w.get("embedding")
    source, target = (w["src_embedding"], w["tgt_embedding"]) if shared is None else (shared, shared)
    return source[batch["source"]], target[batch["target_input"]]


def _encoded(config: Any, w: Mapping[str, Array], batch: Mapping[str, Array]) -> tuple[Array, list[cells.State]]:
    names = ("forward", "backward") if config.direction == "bi" else ("forward",)
    num_layers = config.num_encoder_layers // len(names)
    stack = [[_cell(w, f"encoder/layer_{n}/{name}") for name in names] for n in range(num_layers)]
    return cells.layers(config, _embedded(w, batch)[0], batch["source_length"], stack)


def _decoder(config: Any, w: Mapping[str, Array]) -> list[Weights]:
    return [_cell(w, f"decoder/layer_{n}") for n in range(config.num_decoder_layers)]


def _translation(config: Any, w: Mapping[str, Array], batch: Mapping[str, Array]) -> Array:
    """The decoder's cells start from the encoder's last states, in the order of its cells."""
    _, states = _encoded(config, w, batch)
    stack, words = [[cell] for cell in _decoder(config, w)], _embedded(w, batch)[1]
    return cells.layers(config, words, batch["target_length"], stack, states)[0]


def _attention(config: Any, w: Mapping[str, Array], batch: Mapping[str, Array]) -> Array:
    if config.attention_architecture == "gnmt_v2":
        return _gnmt(config, w, batch)
    memory, states = _encoded(config, w, batch)
    words, lengths = _embedded(w, batch)[1], batch["source_length"]
    return attention.step_wise(config, w, _decoder(config, w), words, memory, lengths, states)


def _gnmt(config: Any, w: Mapping[str, Array], batch: Mapping[str, Array]) -> Array:
    """arXiv:1609.08144: the encoder's first layer has the directions that the options say, the others go forward."""
    names = ("forward", "backward") if config.direction == "bi" else ("forward",)
    (source, target), lengths = _embedded(w, batch), (batch["source_length"], batch["target_length"])
    first = [[_cell(w, f"encoder/layer_0/{name}") for name in names]]
    memory, _ = cells.layers(config, source, lengths[0], first)
    upper = [_cell(w, f"encoder/layer_{n}/forward") for n in range(1, config.num_encoder_layers)]
    memory = attention.residual(config, memory, lengths[0], upper)
    return attention.gnmt_decoder(config, w, _decoder(config, w), target, memory, lengths)


def part_around_cells(config: Any) -> str:
    """What stands around the cells of a workload, for a fault's name."""
    return "attention" if LAST_LAYERS[config.model] is _attention else "network"


def directions(config: Any) -> int:
    """Directions of the encoder's layers, or of a language model's, which reads forward alone; 0 without cells."""
    if LAST_LAYERS[config.model] is transformer.last_layer:
        return 0
    return 2 if config.direction == "bi" and LAST_LAYERS[config.model] is not _language_model else 1


LAST_LAYERS = {  # workload -> its last layer, [T, B, U]
    "nmt": _translation,
    "nmt_attention": _attention,
    "transformer": transformer.last_layer,
    "lm": _language_model,
}
