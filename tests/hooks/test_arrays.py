"""Sketches of NumPy arrays are linear, and keep lengths approximately."""

from __future__ import annotations

import numpy as np

from rnn_scaling.hooks import arrays


def test_sketches_are_linear():
    first, second = np.random.default_rng(0).normal(size=(2, 30, 7))
    combined = np.array(arrays.sketch(2 * first - second))
    parts = 2 * np.array(arrays.sketch(first)) - np.array(arrays.sketch(second))
    np.testing.assert_allclose(combined, parts, atol=1e-6)


def test_sketches_have_the_length_of_the_array_on_average():
    values = np.random.default_rng(1).normal(size=(200, 500))
    lengths = [np.linalg.norm(arrays.sketch(row)) for row in values]
    ratio = np.mean(np.square(lengths)) / np.mean(np.square(values).sum(axis=1))
    assert 0.9 < ratio < 1.1


def test_each_sample_has_a_digest_of_its_own():
    rows = np.array([[1, 2, 0], [1, 2, 3], [1, 2, 0]])
    first, second, third = arrays.row_digests(rows)
    assert first == third != second


def test_a_perturbed_weight_is_one_rounding_away_and_not_always_up():
    weights = np.ones(100, np.float32)
    changed = arrays.perturbed(weights, 2.0**-23, 0) - weights
    assert set(np.unique(np.abs(changed))) <= {2.0**-23, 2.0**-24}
    assert changed.min() < 0 < changed.max()
