"""The loss in float64 NumPy: summed cross entropy of the words inside their sentences, or of images' classes.

T: words of the longest sentence, B: samples, V: vocabulary or classes.
"""

import numpy as np


def cross_entropy(logits: np.ndarray, labels: np.ndarray, label_smoothing: float = 0.0) -> np.ndarray:
    """-sum(target log softmax(logits)) of logits [..., V], the shape of `labels`.

    The target is (1 - e) onehot(label) + e / V, e the smoothing.
    """
    shifted = logits.astype(np.float64) - logits.max(axis=-1, keepdims=True)
    log_p = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    at_label = np.take_along_axis(log_p, labels[..., None], axis=-1)[..., 0]
    return -(1.0 - label_smoothing) * at_label - label_smoothing * log_p.mean(axis=-1)


def sentences(logits: np.ndarray, labels: np.ndarray, lengths: np.ndarray, label_smoothing: float = 0.0) -> float:
    """The sum over logits [T, B, V] and labels [T, B] of all words before their sentence's length."""
    inside = np.arange(len(labels))[:, None] < lengths
    return float(cross_entropy(logits, labels, label_smoothing)[inside].sum())
