"""The loss in float64 NumPy: summed cross entropy of the words inside their sentences, or of images' classes.

T: words of the longest sentence, B: samples, V: vocabulary or classes.
"""

import numpy as np


def cross_entropy(logits: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """-log softmax(logits)[label] = log(sum(exp(logits))) - logits[label], the shape of `labels`.

    Args:
      logits: [..., V].
      labels: [...], each below V.
    """
    shifted = logits.astype(np.float64) - logits.max(axis=-1, keepdims=True)
    at_label = np.take_along_axis(shifted, labels[..., None], axis=-1)[..., 0]
    return np.log(np.exp(shifted).sum(axis=-1)) - at_label


def sentences(logits: np.ndarray, labels: np.ndarray, lengths: np.ndarray) -> float:
    """The sum over all words before their sentence's length: padding counts nothing.

    Args:
      logits: [T, B, V].
      labels: [T, B].
      lengths: [B].
    """
    inside = np.arange(len(labels))[:, None] < lengths
    return float(cross_entropy(logits, labels)[inside].sum())
