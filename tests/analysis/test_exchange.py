"""Test exchanged bytes against sums by hand, for each mode."""

import pytest

from rnn_scaling.analysis.exchange import count_exchanged_bytes
from rnn_scaling.config import registry
from tests.support.records import change_record, make_record

WHOLE = 1000  # bytes of all variables
# 600 of these bytes are embeddings with rows of 20 bytes. A tower looks up 4 or 6 rows.
PARAMETERS = {"trainable": 250, "bytes": WHOLE, "embedding_bytes": 600, "row_bytes": 20}
POSITIONS = [[99, 99], [4, 6], [6, 4]]  # the first batch is a warm-up


def run(mode="replicated", parameters=PARAMETERS, positions=POSITIONS, **options):
    batches = {"tower_positions": positions, "tower_items": [[1, 1]] * 3}
    config = {"variable_update": mode, "num_devices": 2, **options}
    made = make_record(
        config=config, seconds=[1, 1, 1], items=[2, 2, 2], warmup=1, batches=batches
    )
    return change_record(made, parameters=parameters)


@pytest.mark.parametrize(
    "mode, options, two, four",
    [
        # The sum comes back, and the rows of all others.
        ("replicated", {}, 1000, 1200),
        ("replicated", {"sparse_gradients": "densify"}, 2000, 2000),
        ("replicated", {"compress_gradients": "float16"}, 500, 600),
        ("replicated", {"compress_gradients": "int8"}, 250, 500),
        ("parameter_server", {"staged_vars": True}, 1500, 1500),
        # Its outputs are exchanged, which records do not count.
        ("keras_slicing", {}, None, None),
    ],
)
def test_bytes_are_the_gradient_and_its_answer(mode, options, two, four):
    assert count_exchanged_bytes(run(mode, **options), 2) == two
    assert count_exchanged_bytes(run(mode, **options), 4) == four


@pytest.mark.parametrize("mode", registry.VARIABLE_UPDATES)
def test_one_device_exchanges_only_with_a_single_copy(mode):
    num_bytes = count_exchanged_bytes(run(mode), 1)
    if registry.VARIABLE_UPDATES[mode].has_one_copy:
        assert num_bytes is None or num_bytes > 0
    else:
        assert num_bytes == 0


def test_bytes_are_unknown_without_recorded_sizes():
    older = {"trainable": 250, "bytes": WHOLE}
    dense = {**older, "embedding_bytes": 0, "row_bytes": 0}
    assert count_exchanged_bytes(run(parameters=older), 2) is None
    assert count_exchanged_bytes(run(parameters={}), 2) is None
    assert count_exchanged_bytes(run(positions=[]), 2) is None
    assert count_exchanged_bytes(run(parameters=dense, positions=[]), 2) == 2 * WHOLE
    assert count_exchanged_bytes(run(trainer="mine"), 2) is None
