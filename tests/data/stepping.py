"""Run a data source inside one tf.function, like the training step."""

from __future__ import annotations

from typing import Any

import numpy as np

from rnn_scaling.models.batch import Batch


def run_steps(
    tf: Any, source: Any, num_steps: int, first_step: int = 0
) -> list[list[Batch]]:
    """Return `[step][tower]` batches of NumPy arrays."""

    @tf.function(autograph=False)
    def step_function(step: Any) -> list[Batch]:
        return source.next_batches(step)

    steps = range(first_step, first_step + num_steps)
    return [
        [
            type(batch)(*(tensor.numpy() for tensor in batch))
            for batch in step_function(tf.constant(step, tf.int64))
        ]
        for step in steps
    ]


def flat(steps: list[list[Batch]]) -> list[Batch]:
    """Return all batches in one list."""
    return [batch for step in steps for batch in step]


def assert_equal(left: list[list[Batch]], right: list[list[Batch]]) -> None:
    """Assert that all batches are equal."""
    assert len(left) == len(right)
    for left_step, right_step in zip(left, right):
        assert len(left_step) == len(right_step)
        for left_batch, right_batch in zip(left_step, right_step):
            for name, a, b in zip(
                left_batch._fields, left_batch, right_batch, strict=True
            ):
                np.testing.assert_array_equal(a, b, err_msg=name)


def ids_of(batches: list[Batch]) -> list[bytes]:
    """Return one value per batch that identifies it."""
    return [
        b"".join(np.ascontiguousarray(array).tobytes() for array in batch)
        for batch in batches
    ]
