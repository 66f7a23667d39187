"""python -m rnn_scaling.links.worker REQUEST RESULT: make one measurement.

REQUEST is a file of `processes.run`. RESULT is replaced in one step whenever there are
new results, so that the parent keeps them if it must end this process. The progress is
printed on stderr as "progress DONE TOTAL TITLE".
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
from rnn_scaling.system.machine.cores import bind_to_cores, list_available_cores
from rnn_scaling.system.machine.environment import list_cpu_vector_units
from rnn_scaling.system.machine.gpus import DeviceError, prepare_cuda_order
from rnn_scaling.system.machine.load import NOTICEABLE_LOAD, LoadMeter
from rnn_scaling.system.machine.onednn import turn_on_onednn
from rnn_scaling.system.machine.system import read_text

Write = Callable[[WorkerOutcome], None]


def main(argv: Sequence[str]) -> int:
    """Make the measurement of a request; return the exit status."""
    request = json.loads(Path(argv[0]).read_text())
    result = Path(argv[1])
    prepare_cuda_order()
    measure = {
        "memory": _measure_host_memory,
        "compute": _measure_products,
        "all_reduce": _measure_all_reduce,
        "gpu_copies": _measure_gpu_copies,
        "cpu_copies": _measure_cpu_copies,
    }
    try:
        measure[request["what"]](
            request, lambda outcome: write_bytes(pickle.dumps(outcome), result)
        )
    except MemoryError as e:
        return entry.fail(
            f"out of memory ({entry.find_first_line(e)}); lower --max_bytes"
        )
    except DeviceError as e:
        return entry.fail(str(e))
    return 0


def _measure_host_memory(request: dict[str, Any], write: Write) -> None:
    from rnn_scaling.links import host_memory

    measured_series = host_memory.measure(
        request["sizes"], request["rounds"], list_available_cores(), _report
    )
    write(WorkerOutcome(tuple(measured_series)))


def _measure_gpu_copies(request: dict[str, Any], write: Write) -> None:
    from rnn_scaling.links import gpu_copies

    runtime = gpu_copies.Cuda(gpu_copies.find_library())
    devices = request["devices"]
    origin = request["origin"]
    measured_series = gpu_copies.measure(
        runtime,
        devices=devices,
        sizes=request["sizes"],
        repeats=request["rounds"],
        report=_report,
        origin=origin,
    )
    write(WorkerOutcome(tuple(measured_series)))


def _measure_cpu_copies(request: dict[str, Any], write: Write) -> None:
    engine = _start(request)
    from rnn_scaling.links import cpu_copies

    measured_series = cpu_copies.measure(
        engine.devices, request["sizes"], request["rounds"], _report
    )
    write(WorkerOutcome(tuple(measured_series)))


def _measure_products(request: dict[str, Any], write: Write) -> None:
    """Measure matrix products of every type on all devices at once."""
    if request["device"] == "cpu":
        # Like the runs of text models, which look for these rates.
        turn_on_onednn(list_cpu_vector_units(read_text("/proc/cpuinfo")) or ())
    engine = _start(request)
    from rnn_scaling.links import compute
    from rnn_scaling.training.engines.local import uses_onednn

    cores = request["cores_per_device"]
    meter = LoadMeter(list_available_cores())
    products = compute.measure(
        engine.devices,
        shapes=[tuple(shape) for shape in request["shapes"]],
        dtypes=request["dtypes"],
        repeats=request["rounds"],
        cores_per_device=cores,
        onednn=cores > 0 and uses_onednn(),
        report=_report,
    )
    load = meter.read()
    if cores and load is not None and load.others > NOTICEABLE_LOAD:
        note = (
            f"other processes used {load.others:.0%} of the cores: the rates are too "
            "low and were not kept; measure again"
        )
        for number, product in enumerate(products):
            products[number] = dataclasses.replace(
                product, notes=(*product.notes, note), disturbed=True
            )
    write(WorkerOutcome(products=tuple(products)))


def _measure_all_reduce(request: dict[str, Any], write: Write) -> None:
    """Measure one algorithm, or a call that exchanges nothing without a name."""
    engine = _start(request)
    from rnn_scaling.config import registry
    from rnn_scaling.links import reduce

    name = request["algorithm"]
    function = reduce.exchange_nothing
    if name:
        module = registry.load(registry.ALL_REDUCES, name.partition("#")[0])
        function = module.build(engine.devices, int(name.partition("#")[2] or 1))

    def keep(partial_series: series.Series) -> None:
        write(WorkerOutcome((partial_series,)))

    measured_series = reduce.measure(
        function,
        name=name or "nothing",
        devices=engine.devices,
        sizes=request["sizes"],
        repeats=request["rounds"],
        report=_report,
        keep=keep,
        compare=bool(name),
    )
    write(
        WorkerOutcome(
            (measured_series,), gradient_bytes=() if name else _list_gradient_bytes()
        )
    )


def _list_gradient_bytes() -> tuple[tuple[str, int], ...]:
    """Return the bytes of each preset's gradients in float32, with dense embeddings."""
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
    """Bind to the cores of the devices, and start TensorFlow on them."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    if request["device"] == "cpu":
        bind_to_cores(request["num_devices"] * request.get("cores_per_device", 1))
    from rnn_scaling.training.engines import local

    return local.start(
        local.Request(
            request["device"],
            request["num_devices"],
            request["inter_op_threads"],
            request["intra_op_threads"],
        )
    )


def _report(done: int, total: int, title: str) -> None:
    print(f"progress {done} {total} {title}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    entry.leave(lambda: main(sys.argv[1:]), at_once=True)
