"""Describe the errors that end a run, in one line each.

`training.run` calls `describe_error` for an error of this rank, and
`may_come_from_another_rank` to find out whether to wait for the failure of another one.
An error that happens to users gets a line with a remedy here and needs no traceback.
"""

import re
from typing import NamedTuple

from rnn_scaling.cluster.failure import ClusterError
from rnn_scaling.config.conditions import is_read
from rnn_scaling.config.registry import join_with_or
from rnn_scaling.config.run_config import RunConfig
from rnn_scaling.data import corpus
from rnn_scaling.system import entry
from rnn_scaling.system.machine.gpus import DeviceError
from rnn_scaling.training.acceptance import NotFiniteError
from rnn_scaling.training.checkpoint_folder import CheckpointError

# TensorFlow's error for CPU operators without an NCHW kernel; oneDNN has such kernels.
_NHWC_ONLY_ERROR = re.compile("only supports (the )?NHWC")
# Errors of TensorFlow and Horovod at a rank that has lost another one.
_PEER_ERROR_TYPES = (
    "ClusterError",
    "UnavailableError",
    "AbortedError",
    "CancelledError",
    "DeadlineExceededError",
)
_PEER_ERROR_TEXTS = ("Collective ops is aborted", "Horovod has been shut down")
# Errors that their own message explains completely.
_EXPECTED_ERRORS = (
    NotFiniteError,
    DeviceError,
    OSError,
    ClusterError,
    CheckpointError,
    corpus.DataError,
)


def may_come_from_another_rank(error: Exception) -> bool:
    """Return whether a rank may have this error because another rank has ended."""
    if type(error).__name__ in _PEER_ERROR_TYPES:
        return True
    return any(text in str(error) for text in _PEER_ERROR_TEXTS)


class ErrorDescription(NamedTuple):
    """An error that ended a run.

    Attributes:
      kind: The name of its type, which the record contains.
      message: One line for a person.
      is_expected: Whether errors of this kind happen to users, so that no traceback is
        needed.
    """

    kind: str
    message: str
    is_expected: bool


def describe_error(error: Exception, config: RunConfig) -> ErrorDescription:
    """Describe the error that ended a run."""
    kind = type(error).__name__
    first_line = entry.find_first_line(error)
    if isinstance(error, ImportError) and (
        line := entry.explain_missing_package(error)
    ):
        return ErrorDescription(kind, line, is_expected=True)
    is_memory = kind in ("ResourceExhaustedError", "MemoryError")
    if is_memory and "No space left" not in str(error):
        line = f"out of memory: {_find_memory_remedy(config)} ({first_line[:200]})"
        return ErrorDescription(kind, line, is_expected=True)
    if line := _explain_data_format(error, config.model.data_format):
        return ErrorDescription(kind, line, is_expected=True)
    if isinstance(error, _EXPECTED_ERRORS):
        return ErrorDescription(kind, first_line, is_expected=True)
    message = f"{kind}: {first_line[:500]}"
    return ErrorDescription(kind, message, is_expected=False)


def _explain_data_format(error: Exception, data_format: str) -> str:
    """Return a line about an operator without a kernel for `data_format`, or ""."""
    if data_format == "NHWC":
        return ""
    for line in str(error).splitlines():
        if _NHWC_ONLY_ERROR.search(line):
            cause = line.strip()[:200].rstrip(".")
            return (
                f"--data_format={data_format} is not supported here ({cause}); use "
                "--data_format=NHWC, or float32 with oneDNN on "
                "(TF_ENABLE_ONEDNN_OPTS=1)"
            )
    return ""


def _find_memory_remedy(config: RunConfig) -> str:
    choices = [f"--batch_size={config.training.batch_size}"]
    for name in ("src_max_len", "tgt_max_len", "num_units"):
        if is_read(config, name):
            choices.append(f"--{name}")
    if is_read(config, "tgt_vocab_size"):
        choices.append("the vocabularies")
    return f"lower {join_with_or(choices)}, or use --compute_dtype=bfloat16"
