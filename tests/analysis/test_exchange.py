"""Bytes that a device exchanges in a step, by mode and options, against sums by hand."""

from __future__ import annotations

import pytest

from rnn_scaling.analysis.exchange import exchanged_bytes
from rnn_scaling.config import registry
from tests.support.records import changed, make_record

# 1,000 bytes of variables, 600 of them embeddings with rows of 20 bytes; a tower looks up 4 and 6 rows, 100 bytes.
WHOLE, DENSE, ROWS = 1000, 400, 100
PARAMETERS = {"trainable": 250, "bytes": WHOLE, "embedding_bytes": 600, "row_bytes": 20}
POSITIONS = [[99, 99], [4, 6], [6, 4]]  # the first batch is a warm-up


def run(mode="replicated", parameters=PARAMETERS, positions=POSITIONS, **options):
    batches = {"tower_positions": positions, "tower_items": [[1, 1]] * 3}
    config = {"variable_update": mode, "num_devices": 2, **options}
    made = make_record(
        config=config, seconds=[1, 1, 1], items=[2, 2, 2], warmup=1, batches=batches
    )
    return changed(made, parameters=parameters)


@pytest.mark.parametrize(
    "mode, options, two, four",
    [
        (
            "replicated",
            {},
            2 * DENSE + 2 * ROWS,
            2 * DENSE + 4 * ROWS,
        ),  # the sum comes back, and the rows of all others
        ("collective_all_reduce", {}, 2 * DENSE + 2 * ROWS, 2 * DENSE + 4 * ROWS),
        ("replicated", {"sparse_gradients": "densify"}, 2 * WHOLE, 2 * WHOLE),
        (
            "replicated",
            {"compress_gradients": "float16"},
            DENSE + ROWS,
            DENSE + 2 * ROWS,
        ),
        (
            "replicated",
            {"compress_gradients": "int8"},
            (DENSE + ROWS) / 2,
            DENSE + ROWS,
        ),
        ("parameter_server", {}, 2 * DENSE + 2 * ROWS, 2 * DENSE + 2 * ROWS),
        (
            "parameter_server",
            {"sparse_gradients": "densify"},
            WHOLE + DENSE + ROWS,
            WHOLE + DENSE + ROWS,
        ),
        (
            "parameter_server",
            {"staged_vars": True},
            DENSE + ROWS + WHOLE,
            DENSE + ROWS + WHOLE,
        ),
        ("independent", {}, 0, 0),
        (
            "keras_slicing",
            {},
            None,
            None,
        ),  # exchanges the outputs, which no record counts
    ],
)
def test_bytes_are_the_gradient_and_what_comes_back(mode, options, two, four):
    assert exchanged_bytes(run(mode, **options), 2) == two
    assert exchanged_bytes(run(mode, **options), 4) == four


def test_copies_on_one_device_exchange_nothing():
    for mode, row in registry.VARIABLE_UPDATES.items():
        alone = exchanged_bytes(run(mode), 1)
        assert alone == 0 if not row.has_one_copy else alone is None or alone > 0


def test_what_a_record_does_not_tell_is_not_known():
    older = {"trainable": 250, "bytes": WHOLE}
    dense = {**older, "embedding_bytes": 0, "row_bytes": 0}
    assert exchanged_bytes(run(parameters=older), 2) is None
    assert exchanged_bytes(run(parameters={}), 2) is None
    assert exchanged_bytes(run(positions=[]), 2) is None
    assert exchanged_bytes(run(parameters=dense, positions=[]), 2) == 2 * WHOLE
    assert exchanged_bytes(run(trainer="mine"), 2) is None
