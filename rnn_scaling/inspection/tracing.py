"""Run some steps under TensorFlow's profiler.

The profiler's cost depends on the number of recorded kernels, so there are two kinds of
traces:

- Every kernel, to count them. TensorFlow 2.21 ignores
  `ProfilerOptions.host_tracer_level` and stays at level 2. There, the executor only
  reports kernels that are expensive by a running mean of their cycles: the same step
  has 600 kernels at first and 30 after 150 steps. Level 3 always reports all kernels.
  It is set in the recorder's variable, `tsl::profiler::internal::g_trace_level`, which
  libtensorflow_framework exports.
- Only expensive kernels, at little cost, for durations.

`observe` and `step_checks` call `trace`. Nothing else starts TensorFlow's profiler.
"""

import ctypes
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import tensorflow as tf

from rnn_scaling.inspection.xplane import STEP_MARK, TraceError

_EVERY_KERNEL = 3  # tsl::profiler::TraceMeLevel::kVerbose
_LEVEL_SYMBOL = "_ZN3tsl8profiler8internal13g_trace_levelE"
# The files that TensorFlow writes and TensorBoard reads.
_SPACES = "plugins/profile/*/*.xplane.pb"


class Traced(NamedTuple):
    """Traced steps.

    Attributes:
      space: The profiler's XSpace message.
      file: The profiler's file, which is deleted if no folder was given.
      step_s: Seconds of each traced step.
      start_s: Seconds to start the profiler.
      stop_s: Seconds to stop the profiler and write its file.
    """

    space: Any
    file: str
    step_s: list[float]
    start_s: float
    stop_s: float


def trace(
    step: Callable[[], Any],
    num_steps: int,
    log_dir: str = "",
    every_kernel: bool = False,
) -> Traced:
    """Trace some steps.

    Args:
      step: Runs one step.
      num_steps: Number of steps.
      log_dir: Folder that keeps the profiler's file; "" to delete the file.
      every_kernel: Whether to record all kernels or only the expensive ones.

    Raises:
      TraceError: If this TensorFlow version cannot record them.
    """
    if log_dir:
        return _trace(step, num_steps, log_dir, every_kernel)
    with tempfile.TemporaryDirectory(
        prefix="rnn_scaling_trace_", ignore_cleanup_errors=True
    ) as folder:
        return _trace(step, num_steps, folder, every_kernel)


def _trace(
    step: Callable[[], Any], num_steps: int, folder: str, every_kernel: bool
) -> Traced:
    """Run the steps under the profiler, and time its start and its end."""
    old_files = set(Path(folder).glob(_SPACES))
    step_s: list[float] = []
    start_begin_s = time.perf_counter()
    tf.profiler.experimental.start(folder)
    start_s = time.perf_counter() - start_begin_s
    try:
        if every_kernel:
            _record_every_kernel()
        for number in range(num_steps):
            step_begin_s = time.perf_counter()
            with tf.profiler.experimental.Trace(STEP_MARK, step_num=number, _r=1):
                step()
            step_s.append(time.perf_counter() - step_begin_s)
        # Events are recorded when they end. A collective may end after its step.
        step()
    finally:
        stop_begin_s = time.perf_counter()
        tf.profiler.experimental.stop()
    new_files = sorted(set(Path(folder).glob(_SPACES)) - old_files)
    if not new_files:
        raise TraceError(
            f"TensorFlow's profiler wrote no {_SPACES} below {folder}; is the disk "
            "full?"
        )
    # The wheel contains this module, but it is not public. TensorBoard's profile plugin
    # reads the same messages.
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    space = xplane_pb2.XSpace.FromString(new_files[-1].read_bytes())
    stop_s = time.perf_counter() - stop_begin_s
    return Traced(
        space, file=str(new_files[-1]), step_s=step_s, start_s=start_s, stop_s=stop_s
    )


def _record_every_kernel() -> None:
    library = os.path.join(tf.sysconfig.get_lib(), "libtensorflow_framework.so.2")
    try:
        ctypes.c_int.in_dll(ctypes.CDLL(library), _LEVEL_SYMBOL).value = _EVERY_KERNEL
    except (OSError, ValueError) as e:
        raise TraceError(
            f"this TensorFlow version cannot record every kernel ({e}); "
            "install TensorFlow 2.21"
        ) from None
