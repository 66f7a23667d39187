"""JAX, if it is installed: `.venv-jax/bin/python -m pytest -n0 tests/frameworks/test_jax.py`."""

import numpy as np
import pytest

jax = pytest.importorskip(
    "jax",
    reason="needs JAX, which ./run.sh setup-frameworks jax installs beside the suite",
)

from rnn_scaling.frameworks import jax as trainer  # noqa: E402


def make_layers(num_layers, num_directions, units, generator):
    """Random cells, kernel and bias of each direction of each layer."""
    widths = [3, *[units * num_directions] * (num_layers - 1)]
    return [
        [
            tuple(
                generator.normal(size=shape).astype(np.float32)
                for shape in ((width + units, 4 * units), 4 * units)
            )
            for _ in range(num_directions)
        ]
        for width in widths
    ]


@pytest.mark.parametrize("num_layers, num_directions", [(2, 1), (1, 2), (2, 2)])
def test_weights_for_cudnn_mean_what_the_scans_compute(
    monkeypatch, num_layers, num_directions
):
    """JAX has a plain function that reads cuDNN's layout, so that no GPU is needed."""
    from jax.experimental import rnn

    def plain(
        x, h, c, flat, lengths, width, units, layers, dropout, bidirectional, precision
    ):
        parts = rnn.unpack_lstm_weights(flat, width, units, layers, bidirectional)
        return rnn.lstm_ref(
            x, h, c, *parts, lengths, width, units, layers, dropout, bidirectional
        )

    monkeypatch.setattr(trainer.rnn, "lstm", plain)
    generator, units, cells = np.random.default_rng(1), 4, num_layers * num_directions
    layers = make_layers(num_layers, num_directions, units, generator)
    x = generator.normal(size=(5, 2, 3)).astype(np.float32)
    states = [
        tuple(generator.normal(size=(2, units)).astype(np.float32) for _ in "ch")
        for _ in range(cells)
    ]
    with jax.default_matmul_precision("highest"):
        ours, cudnn = (
            run(layers, jax.numpy.asarray(x), states)
            for run in (trainer.with_scans, trainer.with_cudnn)
        )
    jax.tree.map(
        lambda one, other: np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6),
        ours,
        cudnn,
    )
