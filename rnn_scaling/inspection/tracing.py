"""Runs some steps under TensorFlow's profiler and returns what it recorded (an XSpace).

Two kinds of trace, because the profiler's cost depends on what it records:

- every kernel, to count them. TensorFlow 2.21 ignores `ProfilerOptions.host_tracer_level`; its profiler stays at level
  2, at which the executor reports only the kernels that it thinks expensive, by a running mean of their cycles: one
  and the same step is 600 kernels at first and 30 after 150 steps. At level 3 all of them are reported, always. It is
  set where the recorder reads it: in `tsl::profiler::internal::g_trace_level`, which libtensorflow_framework exports.
- the expensive kernels only, which costs little: for durations.
"""

import contextlib
import ctypes
import functools
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import tensorflow as tf

from rnn_scaling.inspection.xplane import STEP_MARK, TraceError

EVERY_KERNEL = 3  # tsl::profiler::TraceMeLevel::kVerbose
LEVEL_SYMBOL = "_ZN3tsl8profiler8internal13g_trace_levelE"
SPACES = "plugins/profile/*/*.xplane.pb"  # where TensorFlow writes them, and TensorBoard looks for them


class Traced(NamedTuple):
    space: Any  # XSpace message
    file: str  # where the profiler wrote it; gone if nothing was to be kept
    step_s: list[float]  # seconds of each traced step
    start_s: float  # seconds to start the profiler
    stop_s: float  # and to stop it and write what it has


def trace(
    step: Callable[[], Any],
    num_steps: int,
    log_dir: str = "",
    every_kernel: bool = False,
) -> Traced:
    """Traces some steps: the expensive kernels, or every one. Raises TraceError if this TensorFlow cannot.

    log_dir: the folder that keeps the profiler's file; "": it is deleted again.
    """
    temporary = functools.partial(
        tempfile.TemporaryDirectory,
        prefix="rnn_scaling_trace_",
        ignore_cleanup_errors=True,
    )
    with contextlib.nullcontext(log_dir) if log_dir else temporary() as folder:
        return _trace(step, num_steps, folder, every_kernel)


def _trace(
    step: Callable[[], Any], num_steps: int, folder: str, every_kernel: bool
) -> Traced:
    before = set(Path(folder).glob(SPACES))
    step_s: list[float] = []
    begun = time.perf_counter()
    tf.profiler.experimental.start(folder)
    started = time.perf_counter()
    try:
        if every_kernel:
            _record_every_kernel()
        for number in range(num_steps):
            at = time.perf_counter()
            with tf.profiler.experimental.Trace(STEP_MARK, step_num=number, _r=1):
                step()
            step_s.append(time.perf_counter() - at)
        # An event is recorded when it ends, and those of a collective may end after the step that it belongs to.
        step()
    finally:
        stopping = time.perf_counter()
        tf.profiler.experimental.stop()
    written = sorted(set(Path(folder).glob(SPACES)) - before)
    if not written:
        raise TraceError(
            f"TensorFlow's profiler wrote no {SPACES} below {folder}; is the disk full?"
        )
    # Not among TensorFlow's public names; the wheel ships it, and TensorBoard's profile plugin reads the same file.
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    space = xplane_pb2.XSpace.FromString(written[-1].read_bytes())
    return Traced(
        space, str(written[-1]), step_s, started - begun, time.perf_counter() - stopping
    )


def _record_every_kernel() -> None:
    library = os.path.join(tf.sysconfig.get_lib(), "libtensorflow_framework.so.2")
    try:
        ctypes.c_int.in_dll(ctypes.CDLL(library), LEVEL_SYMBOL).value = EVERY_KERNEL
    except (OSError, ValueError) as e:
        raise TraceError(
            f"this TensorFlow does not let every kernel be recorded ({e}); expected 2.21"
        ) from None
