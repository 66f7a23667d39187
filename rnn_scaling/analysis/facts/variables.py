"""Environment variables that a rate depends on: what each does, and how grave a difference is."""

from __future__ import annotations

from rnn_scaling.analysis.facts.table import CAUTION, INCOMPARABLE

# Variables by the start of their names: what they do, and how grave a difference is.
VARIABLES = {
    "TF_ENABLE_ONEDNN_OPTS": ("with oneDNN's kernels a CPU gave 1.2 to 1.8 times the items/s", INCOMPARABLE),
    "XLA_FLAGS": ("changes what XLA compiles; some settings trade speed for exact results", INCOMPARABLE),
    "TF_XLA_FLAGS": ("compiles parts of the step with XLA: items/s move by tens of percent", INCOMPARABLE),
    "NVIDIA_TF32_OVERRIDE": ("without TF32 matrix products on GPUs run at a fraction of the speed", INCOMPARABLE),
    "TF_DETERMINISTIC_OPS": ("deterministic kernels are slower, some by several times", INCOMPARABLE),
    "TF_CUDNN_DETERMINISTIC": ("deterministic kernels are slower, some by several times", INCOMPARABLE),
    "CUDA_LAUNCH_BLOCKING": ("waits after every kernel: fewer items/s, by several times on small steps", INCOMPARABLE),
    "CUDA_VISIBLE_DEVICES": (
        "other cards, or the same in another order: neighbours in a ring change, and with them the cost of exchange",
        CAUTION,
    ),
    "OMP_": ("thread pools beside TensorFlow's: too many threads take cores from the devices", CAUTION),
    "KMP_": ("thread pools beside TensorFlow's: spinning threads take cores from the devices", CAUTION),
    "MALLOC_": ("memory that goes back to the system is faulted in again: up to tens of percent on CPUs", CAUTION),
    "GLIBC_TUNABLES": ("the allocator and huge pages: some percent on CPUs", CAUTION),
    "LD_PRELOAD": ("another allocator or a profiler in the process: items/s move either way", CAUTION),
    "NCCL_": ("rings, protocols and links of the exchange between GPUs", CAUTION),
    "": ("may change kernels, threads or memory", CAUTION),
}
WITHOUT_EFFECT = {"TF_CPP_MIN_LOG_LEVEL"}
