"""What a run depended on beside its options: how each fact is read from a record, and what it does to speed."""

from __future__ import annotations

import dataclasses
from typing import Any

from rnn_scaling.analysis.facts import readers

INCOMPARABLE, CAUTION = "incomparable", "caution"

DEVICES = ("device", "num_devices", "num_workers", "cpu_cores_per_device")


@dataclasses.dataclass(frozen=True)
class Fact:
    """One thing that a rate depends on.

    Attributes:
      what: its name in a report.
      read: record -> a value that can be compared; None if the record does not hold it.
      effect: what a difference usually does, and in which direction.
      severity: of a difference; `gpu_severity` where the towers are on GPUs, if another.
      follows: options that decide the value too: compared only between runs that have these in common.
      gpu_only: says something only about runs on GPUs.
      tolerance: relative difference of numbers that is none; None: values are the same or not.
      vital: not knowing it is as grave as a difference.
      unless: the fact that, when it differs already, makes this one follow from it.
      scales: may change along a series, because the number of devices does.
      machine: describes the machine, so that it is what `compare --across=machine` compares.
    """

    what: str
    read: readers.Read
    effect: str
    severity: str = CAUTION
    gpu_severity: str = ""
    follows: tuple[str, ...] = ()
    gpu_only: bool = False
    tolerance: float | None = None
    vital: bool = False
    unless: str = ""
    unit: str = ""
    scales: bool = False
    machine: bool = False

    def severity_on(self, gpu: bool) -> str:
        """The severity of a difference between runs on CPUs, or on GPUs."""
        return self.gpu_severity if gpu and self.gpu_severity else self.severity

    @property
    def is_by_count(self) -> bool:
        """Whether runs on other numbers of devices may differ in it and still be one series."""
        return self.scales or not {"num_devices", "num_workers"}.isdisjoint(self.follows)


ON_CPUS: dict[str, Any] = {"severity": INCOMPARABLE, "gpu_severity": CAUTION}  # GPUs leave little to the processor

PROCESSOR = [
    Fact(
        "CPU model",
        readers.environment("cpu"),
        "another processor: its clock and vector units change items/s on CPUs by tens of percent, either way",
        vital=True,
        **ON_CPUS,
    ),
    Fact(
        "CPU vector units",
        readers.cpu_vector_units,
        "kernels are chosen by them: matrix products without AVX-512 or AMX run at a fraction of the speed",
        unless="CPU model",
        **ON_CPUS,
    ),
    Fact(
        "CPU cores",
        readers.environment("cpu_cores"),
        "more cores share memory bandwidth and turbo otherwise, and leave more room for other processes",
        **ON_CPUS,
    ),
    Fact(
        "CPU topology",
        readers.cpu_topology,
        "two threads of one core give 1.0 to 1.3 times one thread, not 2; memory of another node is slower",
        **ON_CPUS,
    ),
    Fact(
        "CPU limit of control groups",
        readers.cpu_limit,
        "a limit below the cores used stops the process in every period: fewer items/s, in bursts",
        INCOMPARABLE,
    ),
    Fact(
        "cores bound to",
        readers.cores,
        "items/s on CPUs grow with the cores; speedups against a baseline with other cores mean nothing",
        INCOMPARABLE,
        follows=DEVICES,
    ),
    Fact(
        "which cores",
        readers.cores_by_number,
        "other cores may share a cache, a physical core or a memory node: a few percent, more with many devices",
        follows=DEVICES,
        unless="cores bound to",
    ),
    Fact(
        "oversubscribed",
        readers.oversubscribed,
        "devices that share cores take turns: items/s do not grow with their number",
        INCOMPARABLE,
        follows=DEVICES,
    ),
    Fact(
        "CPU governor",
        readers.environment("cpu_governor"),
        "powersave and ondemand clock up late or not at all: fewer items/s than performance, and more noise",
        **ON_CPUS,
    ),
    Fact("CPU turbo", readers.turbo, "turbo gives 10 to 40 % more items/s, less with more cores busy", **ON_CPUS),
    Fact(
        "CPU clock at the start",
        readers.highest_clock,
        "a lower clock gives fewer items/s, in proportion where memory is not the limit",
        tolerance=0.10,
        unit="MHz",
    ),
    Fact(
        "memory",
        readers.number("memory_bytes"),
        "no effect while everything fits; other modules may have another bandwidth",
        tolerance=0.05,
        unit="GiB",
    ),
    Fact(
        "huge pages", readers.huge_pages, "always saves page faults of large tensors: up to a few percent more items/s"
    ),
]


GPU = [
    Fact(
        "GPUs",
        readers.gpus("name"),
        "other GPUs: items/s differ with their arithmetic and memory",
        INCOMPARABLE,
        vital=True,
    ),
    Fact(
        "which GPUs",
        readers.gpus("uuid"),
        "cards of one model differ by a few percent in clocks; other slots, or another order, in their links",
        unless="GPUs",
    ),
    Fact("GPU driver", readers.gpus("driver_version"), "usually below 2 %; launch costs and NCCL may change more"),
    Fact(
        "highest GPU clocks (SM and memory)",
        readers.gpus("clocks.max.sm", "clocks.max.mem"),
        "items/s follow the clocks: SM for large layers, memory for small ones and updates",
        INCOMPARABLE,
        unless="GPUs",
    ),
    Fact(
        "GPU power limit",
        readers.gpus("power.limit"),
        "a lower limit lowers the clocks under load: fewer items/s",
        INCOMPARABLE,
        unless="GPUs",
    ),
    Fact(
        "GPU SM clock before the run",
        readers.gpu_clock("clocks.sm", "gpus"),
        "idle cards clock down, busy ones do not: somebody may have used the card, or its clocks are fixed",
        tolerance=0.02,
        unit="MHz",
    ),
    Fact(
        "GPU SM clock after the run",
        readers.gpu_clock("clocks.sm", "gpus_after"),
        "items/s of large layers follow this clock",
        tolerance=0.02,
        unit="MHz",
    ),
    Fact(
        "GPU memory clock after the run",
        readers.gpu_clock("clocks.mem", "gpus_after"),
        "items/s of small layers, embeddings and updates follow this clock",
        tolerance=0.02,
        unit="MHz",
    ),
    Fact(
        "GPU topology",
        readers.gpu_topology,
        "NVLink, one PCIe switch, and a way through the CPU differ several times in bandwidth: exchange costs more",
        INCOMPARABLE,
        follows=("num_devices", "num_workers"),
    ),
]

GPU_STATE = [
    Fact(
        "GPU clocks slowed down by",
        readers.held_down(readers.SLOWED),
        "a card that protects itself halves its clocks or worse: fewer items/s on that side",
        INCOMPARABLE,
        scales=True,
    ),
    Fact(
        "GPU clocks limited by",
        readers.held_down(readers.LIMITED),
        "a limit that is reached lowers clocks by a few to 20 percent: fewer items/s on that side",
    ),
]

CLUSTER = [
    Fact(
        "hosts of the workers",
        readers.hosts,
        "workers of one host share its memory, caches and clock, and exchange over no network",
        INCOMPARABLE,
        follows=("variable_update", "num_workers"),
    ),
    Fact(
        "network between the workers",
        readers.link,
        "exchange goes over it: items/s differ with its rate and its delay",
        INCOMPARABLE,
        scales=True,
    ),
    Fact(
        "launcher",
        readers.launcher,
        "launchers bind processes to cores in their own ways: usually below 5 %, either way",
        follows=("variable_update",),
    ),
]


TRAINED_BY = ("framework", "compile", "keras_backend")
KERNELS = (
    *TRAINED_BY,
    "unit_type",
    "encoder_type",
    "decoder_type",
    "device",
    "xla",
    "dropout",
    "compute_dtype",
    "direction",
)
EXCHANGE = (*TRAINED_BY, "variable_update", "all_reduce_spec", "compress_gradients", *DEVICES)
POOLS = (
    *TRAINED_BY,
    *DEVICES,
    "variable_update",
    "inter_op_parallelism_threads",
    "intra_op_parallelism_threads",
    "data_source",
)

SOFTWARE = [
    Fact(
        "device type",
        readers.resolved("device_type"),
        "another kind of device: many times faster or slower",
        INCOMPARABLE,
        follows=("device",),
    ),
    Fact(
        "oneDNN",
        readers.resolved("onednn"),
        "oneDNN's kernels and fused products gave 1.2 to 1.8 times the items/s on a CPU, and other counts of kernels",
        unless="variable TF_ENABLE_ONEDNN_OPTS",
        **ON_CPUS,
    ),
    Fact(
        "operators of setup-kernels",
        readers.resolved("own_operators"),
        "LSTM layers and their loss took 0.92 of the time with them in float32, 0.82 in bfloat16",
        **ON_CPUS,
    ),
    Fact(
        "TensorFlow",
        readers.package("tensorflow", "tensorflow-cpu"),
        "kernels and dispatch change between releases: usually below 10 %, either way",
        follows=TRAINED_BY,
    ),
    *(
        Fact(name, readers.package(name), "kernels and dispatch change between its releases", follows=TRAINED_BY)
        for name in ("torch", "jax", "jaxlib")
    ),
    Fact(
        "Keras",
        readers.package("keras"),
        "no effect on the step, which does not use its layers",
        follows=TRAINED_BY,
    ),
    Fact("numpy", readers.package("numpy"), "affects data_source=host and text alone, a little", follows=TRAINED_BY),
    Fact(
        "Python",
        readers.environment("python"),
        "affects the work between two steps: below 2 %, more if steps are very short",
    ),
    Fact(
        "kernel and C library",
        readers.environment("platform"),
        "scheduling, memory allocation and mitigations of processor faults: usually below 5 %, either way",
        machine=True,
    ),
    Fact("CUDA", readers.cuda("runtime"), "usually below 5 %; libraries choose other kernels", gpu_only=True),
    Fact("cuBLAS", readers.cuda("cublas"), "another choice of matrix kernels: some percent, either way", gpu_only=True),
    Fact(
        "cuDNN",
        readers.cuda("cudnn"),
        "other kernels: some percent with cudnn_lstm and cudnn_gru, either way",
        gpu_only=True,
    ),
    Fact("NCCL", readers.cuda("nccl"), "another choice of rings and protocols: changes exchange alone", gpu_only=True),
    Fact(
        "inter-op threads",
        readers.resolved("inter_op_parallelism_threads"),
        "fewer threads than devices run the devices one after the other: items/s down to those of one device",
        INCOMPARABLE,
        follows=POOLS,
        machine=True,
    ),
    Fact(
        "intra-op threads",
        readers.resolved("intra_op_parallelism_threads"),
        "more threads an operator give more items/s on CPUs until the cores are used up, then fewer",
        INCOMPARABLE,
        gpu_severity=CAUTION,
        follows=POOLS,
        machine=True,
    ),
    Fact(
        "encoder kernel that ran",
        readers.resolved("encoder_kernel"),
        "a fused kernel and a loop differ by 1.3 times on CPUs and several times on GPUs",
        INCOMPARABLE,
        follows=KERNELS,
    ),
    Fact(
        "decoder kernel that ran",
        readers.resolved("decoder_kernel"),
        "a fused kernel and a loop differ by 1.3 times on CPUs and several times on GPUs",
        INCOMPARABLE,
        follows=KERNELS,
    ),
    Fact(
        "all-reduce that ran",
        readers.all_reduce,
        "another algorithm: exchange may cost several times more or less",
        INCOMPARABLE,
        follows=EXCHANGE,
    ),
    Fact(
        "logical devices",
        readers.resolved("logical_devices"),
        "towers that share one real device compete for it: items/s do not grow with their number",
        INCOMPARABLE,
        follows=DEVICES,
    ),
    Fact(
        "commit",
        readers.commit,
        "the suite itself is another: what changed in it may be what you compare, and may be the cause",
    ),
]


TRAINING = [
    Fact(
        "certificate",
        readers.certificate,
        "one side was compared with serial training (--certify); the other may be fast because it trains wrong",
    ),
    Fact(
        "training",
        readers.training,
        "a mode that does not train as it promises does other work: its speed says nothing of the promised one",
        INCOMPARABLE,
        scales=True,
    ),
]


FACTS: tuple[Fact, ...] = (
    *TRAINING,
    *(dataclasses.replace(fact, machine=True) for fact in PROCESSOR),
    *(dataclasses.replace(fact, gpu_only=True, machine=True) for fact in GPU),
    *(dataclasses.replace(fact, gpu_only=True) for fact in GPU_STATE),
    *SOFTWARE,
    *CLUSTER,
)
OF_MACHINES = tuple(fact.what for fact in FACTS if fact.machine)
