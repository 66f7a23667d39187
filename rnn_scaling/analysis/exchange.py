"""Compute how many bytes one device exchanges per step.

Bytes count if they cross a device's edge: the gradient that leaves it, and the sum, or
the variables, that it gets back. An all-reduce may move more bytes, or fewer with many
devices (docs/modes.md).

`metrics` and `prediction` share this definition of exchanged bytes.
"""

from rnn_scaling.config.naming import TRAINER
from rnn_scaling.config.registry import VARIABLE_UPDATES
from rnn_scaling.records.record import RunRecord

# Each tower gets the gradients of all others, and adds them itself.
GATHERED = "int8"
# Value of --compress_gradients -> share of the bytes of float32.
_COMPRESSED_SHARES = {"bfloat16": 0.5, "float16": 0.5, GATHERED: 0.25}


def count_exchanged_bytes(run: RunRecord, num_devices: int) -> float | None:
    """Return the mean bytes that leave and reach one device in a step.

    Args:
      run: The run, of which only this suite's records count bytes.
      num_devices: Devices of all workers.

    Returns:
      None if the record does not have the sizes.
    """
    sizes = exchange_sizes(run, num_devices)
    return sizes and 2 * sizes[0] + num_devices * sizes[1]


def exchange_sizes(run: RunRecord, num_devices: int) -> tuple[float, float] | None:
    """Return the bytes that all devices sum in a step, and that each sends to all.

    A device of n exchanges twice the former, and n times the latter.

    Returns:
      None if the record does not have the sizes.
    """
    mode = VARIABLE_UPDATES.get(str(run.options["variable_update"]))
    sizes = run.parameters
    if mode is None or TRAINER in run.options:
        return None
    # A mode without an exchange has 0 bytes even if the sizes are unknown.
    if not mode.trains_one_model or (num_devices == 1 and not mode.has_one_copy):
        return 0.0, 0.0
    # Modes that cut the global batch exchange the outputs of all towers, which records
    # do not count. Older records do not have embedding_bytes.
    if mode.cuts_global_batch or sizes is None or sizes.embedding_bytes is None:
        return None
    rows = _compute_mean_looked_up_rows(run) if sizes.row_bytes else 0.0
    if rows is None:
        return None
    touched = rows * (sizes.row_bytes or 0)
    dense = float(sizes.bytes - sizes.embedding_bytes)
    summed = dense
    gathered = touched
    if run.options["sparse_gradients"] == "densify":
        summed = float(sizes.bytes)
        gathered = 0.0
    if mode.has_one_copy:
        received = sizes.bytes if run.options["staged_vars"] else dense + touched
        return (summed + gathered + received) / 2, 0.0
    compression = str(run.options["compress_gradients"])
    if compression == GATHERED:
        gathered += summed
        summed = 0.0
    share = _COMPRESSED_SHARES.get(compression, 1.0)
    return share * summed, share * gathered


def _compute_mean_looked_up_rows(run: RunRecord) -> float | None:
    """Return the mean rows of embeddings that a tower looks up in a step.

    These are one per position, padding included.

    Returns:
      None if the record does not have positions.
    """
    batches = run.batches.tower_positions[run.batches.warmup :]
    means = [sum(positions) / len(positions) for positions in batches if positions]
    return sum(means) / len(means) if means else None
