"""Prepare a process before TensorFlow loads.

TensorFlow sizes its thread pools by the cores and reads the environment when it loads.
Therefore nothing here may import TensorFlow. `training.run` calls `prepare_process` and
loads TensorFlow inside of `speed_up_loading`.
"""

import contextlib
import gc
import os
import sys
from collections.abc import Iterator, Sequence
from importlib import util
from importlib.machinery import ModuleSpec, PathFinder

from rnn_scaling.analysis.statements import Statement
from rnn_scaling.cluster.launch import Launch
from rnn_scaling.config.run_config import RunConfig, choose_pool_sizes
from rnn_scaling.models.workloads import WORKLOADS
from rnn_scaling.system.machine.cores import (
    bind_to_cores,
    list_available_cores,
    share_a_core,
)
from rnn_scaling.system.machine.environment import list_cpu_vector_units
from rnn_scaling.system.machine.gpus import count_visible_gpus, prepare_cuda_order
from rnn_scaling.system.machine.onednn import ONEDNN_VARIABLE, turn_on_onednn
from rnn_scaling.system.machine.system import read_text
from rnn_scaling.training.state import RunState

# Modules that only contain names of other modules' contents, such as tf.data.
_API = "tensorflow._api.v2."
# If they loaded late, packages with the same names would replace them; compat.v1
# replaces itself.
_EAGER_API = (f"{_API}distribute", f"{_API}lite", f"{_API}compat.")


class _LazyApi(PathFinder):
    """Loads TensorFlow's API modules at their first use; a run uses few of them."""

    @classmethod
    def find_spec(
        cls, fullname: str, path: Sequence[str] | None = None, target: object = None
    ) -> ModuleSpec | None:
        is_lazy = fullname.startswith(_API) and not fullname.startswith(_EAGER_API)
        spec = super().find_spec(fullname, path) if is_lazy else None
        if spec is not None and spec.loader is not None:
            spec.loader = util.LazyLoader(spec.loader)
        return spec


@contextlib.contextmanager
def speed_up_loading() -> Iterator[None]:
    """Speed up the loading of TensorFlow: load API modules late, collect no garbage."""
    gc.disable()
    sys.meta_path.insert(0, _LazyApi)
    try:
        yield
    finally:
        sys.meta_path.remove(_LazyApi)
        gc.freeze()  # later collections skip the loaded modules
        gc.enable()


def prepare_process(
    config: RunConfig, state: RunState, launch: Launch | None
) -> Iterator[Statement]:
    """Choose cores and thread pools, before TensorFlow sizes itself by them.

    Args:
      config: The options.
      state: Receives the choices.
      launch: This process among several, or None for a single process.

    Yields:
      What a person should know about these choices.
    """
    devices = config.devices
    measure = config.measure
    resolved = state.resolved
    resolved["cpu_affinity"] = list_available_cores()
    if devices.device == "cpu":
        yield from _bind_to_cores(config, state, launch.local_rank if launch else 0)
    num_cores = len(resolved["cpu_affinity"])
    inter, intra = choose_pool_sizes(config, num_cores)
    if not measure.num_warmup_batches:
        yield Statement("warn-no-warm-up")
    if measure.inter_op_parallelism_threads and inter < devices.num_devices:
        values = {"threads": inter, "devices": devices.num_devices}
        yield Statement("warn-few-threads", values=values)
    resolved.update(
        inter_op_parallelism_threads=inter, intra_op_parallelism_threads=intra
    )
    workers = config.cluster.num_workers
    num_physical = count_visible_gpus() if devices.device == "gpu" else 1
    logical = "logical " if devices.num_devices > num_physical else ""
    yield Statement(
        "run-workers" if workers > 1 else "run-devices",
        values={
            "workers": workers,
            "devices": devices.num_devices,
            "kind": f"{logical}{devices.device.upper()}",
            "cores": num_cores,
            "inter": inter,
            "intra": intra,
        },
    )
    yield from _prepare_libraries(config)


def _bind_to_cores(
    config: RunConfig, state: RunState, local_rank: int
) -> Iterator[Statement]:
    """Bind this process to the cores of its CPU devices; warn if they have too few."""
    devices = config.devices
    cores = state.resolved["cpu_affinity"]
    num_cores = devices.num_devices * devices.cpu_cores_per_device
    state.resolved["oversubscribed"] = num_cores > len(cores)
    if state.resolved["oversubscribed"]:
        yield Statement(
            "warn-few-cores",
            values={
                "devices": devices.num_devices,
                "each": devices.cpu_cores_per_device,
                "wanted": num_cores,
                "cores": len(cores),
            },
        )
    state.resolved["cpu_affinity"] = bind_to_cores(num_cores, local_rank)
    if share_a_core(state.resolved["cpu_affinity"]):
        yield Statement("warn-hyper-threads")


def _prepare_libraries(config: RunConfig) -> Iterator[Statement]:
    """Choose what TensorFlow and its libraries read from the environment."""
    prepare_cuda_order()
    workload = WORKLOADS[config.model.model]
    if config.devices.device == "cpu" and not workload.image_sizes:
        vector_units = list_cpu_vector_units(read_text("/proc/cpuinfo"))
        if turn_on_onednn(vector_units or ()):
            yield Statement("run-with-onednn", values={"variable": ONEDNN_VARIABLE})
    if workload.needs_keras:
        # It overrides the backend in the user's configuration of Keras.
        os.environ["KERAS_BACKEND"] = "tensorflow"
    else:
        # TensorFlow imports Keras, which imports matplotlib: a third of the import time
        # for code that never runs. With None the import of Keras fails, which
        # TensorFlow allows.
        sys.modules.setdefault("keras", None)  # type: ignore[arg-type]
    if config.model.xla:
        # Auto-clustering leaves the CPU out by default.
        xla_flags = os.environ.get("TF_XLA_FLAGS", "")
        os.environ["TF_XLA_FLAGS"] = f"{xla_flags} --tf_xla_cpu_global_jit".strip()
