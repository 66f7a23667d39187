"""How many bytes a device exchanges in a step, from what a record says of its variables, its batches and its options.

Counted is what crosses a device's edge: the gradient that leaves it, and the sum, or the variables, that it gets back.
An all-reduce may move more, or less with many devices (docs/modes.md).
"""

from rnn_scaling.config.naming import TRAINER
from rnn_scaling.config.registry import VARIABLE_UPDATES
from rnn_scaling.records.record import RunRecord

GATHERED = (
    "int8"  # each tower gets the numbers of every other one, and adds them itself
)
SHARES = {
    "bfloat16": 0.5,
    "float16": 0.5,
    GATHERED: 0.25,
}  # of float32, by --compress_gradients


def exchanged_bytes(run: RunRecord, num_devices: int) -> float | None:
    """Bytes that leave and reach one of all workers' devices in a step, on average; None where it is not recorded."""
    mode = VARIABLE_UPDATES.get(str(run.options["variable_update"]))
    counted = run.parameters
    if mode is None or TRAINER in run.options:
        return None
    if not mode.trains_one_model or (num_devices == 1 and not mode.has_one_copy):
        return 0.0
    if mode.cuts_global_batch or counted is None or counted.embedding_bytes is None:
        return None  # one loss over the outputs of all towers, which no record counts, or an older record
    rows = _touched_rows(run) if counted.row_bytes else 0.0
    if rows is None:
        return None
    dense = counted.bytes - counted.embedding_bytes
    touched = rows * (counted.row_bytes or 0)
    summed = float(dense)
    gathered = touched
    if run.options["sparse_gradients"] == "densify":
        summed = float(counted.bytes)
        gathered = 0.0
    if mode.has_one_copy:
        return (
            summed
            + gathered
            + (counted.bytes if run.options["staged_vars"] else dense + touched)
        )
    compression = str(run.options["compress_gradients"])
    if compression == GATHERED:
        summed, gathered = 0.0, summed + gathered
    return SHARES.get(compression, 1.0) * (2 * summed + num_devices * gathered)


def _touched_rows(run: RunRecord) -> float | None:
    """Rows of embeddings that a tower looks up in a step, on average: one at each position, padding included."""
    batches = [
        positions
        for positions in run.batches.tower_positions[run.batches.warmup :]
        if positions
    ]
    return (
        sum(sum(positions) / len(positions) for positions in batches) / len(batches)
        if batches
        else None
    )
