"""A process before its framework loads, which sizes itself by its cores and reads its environment then."""

import contextlib
import gc
import os
import sys
from collections.abc import Iterator, Sequence
from importlib import util
from importlib.machinery import ModuleSpec, PathFinder

from rnn_scaling.analysis.statements import Statement
from rnn_scaling.cluster.launch import Launch
from rnn_scaling.config.run_config import RunConfig, pool_sizes
from rnn_scaling.models.workloads import WORKLOADS
from rnn_scaling.system.machine.cores import (
    available_cores,
    bind_to_cores,
    share_a_core,
)
from rnn_scaling.system.machine.gpus import prepare_cuda_order, visible_gpus
from rnn_scaling.training.state import RunState

API = "tensorflow._api.v2."  # the modules that only give names to what others define: tf.data, tf.lite, ...
# Packages of the same names would take their places when they load late, and compat.v1 replaces itself.
AT_ONCE = (f"{API}distribute", f"{API}lite", f"{API}compat.")


class _LazyApi(PathFinder):
    """Finds TensorFlow's modules of names; each loads when a name is looked up, because a run needs few of them."""

    @classmethod
    def find_spec(
        cls, fullname: str, path: Sequence[str] | None = None, target: object = None
    ) -> ModuleSpec | None:
        waits = fullname.startswith(API) and not fullname.startswith(AT_ONCE)
        spec = super().find_spec(fullname, path) if waits else None
        if spec is not None and spec.loader is not None:
            spec.loader = util.LazyLoader(spec.loader)
        return spec


@contextlib.contextmanager
def loading() -> Iterator[None]:
    """While TensorFlow loads: its names wait until they are used, and no garbage is collected."""
    gc.disable()
    sys.meta_path.insert(0, _LazyApi)
    try:
        yield
    finally:
        sys.meta_path.remove(_LazyApi)
        gc.freeze()  # later collections do not search what was loaded
        gc.enable()


def prepare_process(
    config: RunConfig, state: RunState, launch: Launch | None
) -> Iterator[Statement]:
    """Choose cores and thread pools, before TensorFlow sizes itself by them.

    Args:
      config: The options.
      state: Receives what was chosen.
      launch: This process among several, or None for a single process.

    Yields:
      What a person should know about these choices.
    """
    cores = available_cores()
    devices = config.devices
    measure = config.measure
    resolved = state.resolved
    if devices.device == "cpu":
        wanted = devices.num_devices * devices.cpu_cores_per_device
        resolved["oversubscribed"] = wanted > len(cores)
        if resolved["oversubscribed"]:
            yield Statement(
                "warn-few-cores",
                values={
                    "devices": devices.num_devices,
                    "each": devices.cpu_cores_per_device,
                    "wanted": wanted,
                    "cores": len(cores),
                },
            )
        cores = bind_to_cores(wanted, launch.local_rank if launch else 0)
        if share_a_core(cores):
            yield Statement("warn-hyper-threads")
    resolved["cpu_affinity"] = cores
    inter, intra = pool_sizes(config, len(cores))
    if not measure.num_warmup_batches:
        yield Statement("warn-no-warm-up")
    if measure.inter_op_parallelism_threads and inter < devices.num_devices:
        values = {"threads": inter, "devices": devices.num_devices}
        yield Statement("warn-few-threads", values=values)
    resolved.update(
        inter_op_parallelism_threads=inter, intra_op_parallelism_threads=intra
    )
    workers = config.cluster.num_workers
    num_physical = visible_gpus() if devices.device == "gpu" else 1
    logical = "logical " if devices.num_devices > num_physical else ""
    yield Statement(
        "run-workers" if workers > 1 else "run-devices",
        values={
            "workers": workers,
            "devices": devices.num_devices,
            "kind": f"{logical}{devices.device.upper()}",
            "cores": len(cores),
            "inter": inter,
            "intra": intra,
        },
    )
    prepare_cuda_order()
    if WORKLOADS[config.model.model].needs_keras:
        os.environ["KERAS_BACKEND"] = (
            "tensorflow"  # whatever the user's own Keras runs on
        )
    else:
        # TensorFlow loads Keras with itself, and that loads matplotlib: a third of its import, for nothing that runs.
        sys.modules.setdefault("keras", None)  # type: ignore[arg-type]  # its import fails, which TensorFlow allows
    if config.model.xla:
        # Auto-clustering leaves the CPU out by default.
        xla_flags = os.environ.get("TF_XLA_FLAGS", "")
        os.environ["TF_XLA_FLAGS"] = f"{xla_flags} --tf_xla_cpu_global_jit".strip()
