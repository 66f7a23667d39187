"""python -m rnn_scaling.links.worker REQUEST RESULT: measures one thing in a process of its own.

REQUEST is what `processes.run` wrote; RESULT is replaced whole whenever more is known, so that the parent has what was
measured before it had to end this process. How far it is goes to stderr, as "progress DONE TOTAL WHAT".
"""

import dataclasses
import json
import math
import os
import pickle
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rnn_scaling.links import series
from rnn_scaling.links.processes import WorkerOutcome
from rnn_scaling.system import entry
from rnn_scaling.system.files.output_files import write_bytes
from rnn_scaling.system.machine.cores import available_cores, bind_to_cores
from rnn_scaling.system.machine.gpus import DeviceError, prepare_cuda_order
from rnn_scaling.system.machine.load import NOTICEABLE, LoadMeter

Write = Callable[[WorkerOutcome], None]


def main(argv: Sequence[str]) -> int:
    request = json.loads(Path(argv[0]).read_text())
    result = Path(argv[1])
    prepare_cuda_order()
    measure = {
        "memory": _host_memory,
        "compute": _compute,
        "all_reduce": _all_reduce,
        "gpu_copies": _gpu_copies,
        "cpu_copies": _cpu_copies,
    }
    try:
        measure[request["what"]](
            request, lambda outcome: write_bytes(pickle.dumps(outcome), result)
        )
    except MemoryError as e:
        return entry.fail(f"out of memory ({entry.first_line(e)}); lower --max_bytes")
    except DeviceError as e:
        return entry.fail(str(e))
    return 0


def _host_memory(request: dict[str, Any], write: Write) -> None:
    from rnn_scaling.links import host_memory

    measured = host_memory.measure(
        request["sizes"], request["rounds"], available_cores(), _tell
    )
    write(WorkerOutcome(tuple(measured)))


def _gpu_copies(request: dict[str, Any], write: Write) -> None:
    from rnn_scaling.links import gpu_copies

    runtime = gpu_copies.Cuda(gpu_copies.find_library())
    devices = request["devices"]
    origin = request["origin"]
    measured = gpu_copies.measure(
        runtime, devices, request["sizes"], request["rounds"], _tell, origin
    )
    write(WorkerOutcome(tuple(measured)))


def _cpu_copies(request: dict[str, Any], write: Write) -> None:
    engine = _start(request)
    from rnn_scaling.links import cpu_copies

    measured = cpu_copies.measure(
        engine.devices, request["sizes"], request["rounds"], _tell
    )
    write(WorkerOutcome(tuple(measured)))


def _compute(request: dict[str, Any], write: Write) -> None:
    """Matrix products of every type, by all devices at once."""
    engine = _start(request)
    from rnn_scaling.links import compute
    from rnn_scaling.training.engines.local import uses_onednn

    cores = request["cores_per_device"]
    meter = LoadMeter(available_cores())
    products = compute.measure(
        engine.devices,
        [tuple(shape) for shape in request["shapes"]],
        request["dtypes"],
        request["rounds"],
        cores,
        cores > 0 and uses_onednn(),
        _tell,
    )
    load = meter.read()
    if cores and load is not None and load.others > NOTICEABLE:
        note = f"other processes used {load.others:.0%} of the cores: the rates are too low and not kept; measure again"
        products = [
            dataclasses.replace(product, notes=(*product.notes, note), disturbed=True)
            for product in products
        ]
    write(WorkerOutcome(products=tuple(products)))


def _all_reduce(request: dict[str, Any], write: Write) -> None:
    """One algorithm, or nothing exchanged where none is named."""
    engine = _start(request)
    from rnn_scaling.config import registry
    from rnn_scaling.links import reduce

    name = request["algorithm"]
    function = reduce.nothing
    if name:
        module = registry.load(registry.ALL_REDUCES, name.partition("#")[0])
        function = module.build(engine.devices, int(name.partition("#")[2] or 1))

    def keep(so_far: series.Series) -> None:
        write(WorkerOutcome((so_far,)))

    measured = reduce.measure(
        function,
        name or "nothing",
        engine.devices,
        request["sizes"],
        request["rounds"],
        _tell,
        keep,
        bool(name),
    )
    write(WorkerOutcome((measured,), gradient_bytes=() if name else gradient_bytes()))


def gradient_bytes() -> tuple[tuple[str, int], ...]:
    """Preset -> bytes of its gradients in float32, embeddings dense."""
    from rnn_scaling.config import presets
    from rnn_scaling.config import run_config as config
    from rnn_scaling.config.registry import workloads

    sizes = []
    for preset in presets.PRESETS:
        model = config.resolve({"preset": preset}, num_gpus=0, num_cores=1).model
        variables = workloads.load(model.model).build(model, "CPU").variables
        count = sum(math.prod(spec.shape) for spec in variables)
        sizes.append((preset, series.FLOAT32_BYTES * count))
    return tuple(sizes)


def _start(request: dict[str, Any]) -> Any:
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    if request["device"] == "cpu":
        bind_to_cores(request["num_devices"] * request.get("cores_per_device", 1))
    from rnn_scaling.training.engines import local

    threads = request["inter_op_threads"], request["intra_op_threads"]
    return local.start(
        local.Request(request["device"], request["num_devices"], *threads)
    )


def _tell(done: int, total: int, what: str) -> None:
    print(f"progress {done} {total} {what}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    entry.leave(lambda: main(sys.argv[1:]), at_once=True)
