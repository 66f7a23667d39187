"""What a run depended on beside its options: how each fact is read from a record, and what it does to speed."""

import dataclasses

from rnn_scaling.analysis.facts import readers
from rnn_scaling.analysis.facts.readers import environment

# GPUs leave little to the processor, so that some facts are grave on CPUs alone.
INCOMPARABLE, CAUTION, GRAVE_ON_CPUS = "incomparable", "caution", "incomparable on CPUs"

DEVICES = ("device", "num_devices", "num_workers", "cpu_cores_per_device")
TRAINED_BY = ("framework", "compile", "keras_backend")
KERNELS = (
    *(*TRAINED_BY, "unit_type", "encoder_type", "decoder_type", "device"),
    *("xla", "dropout", "compute_dtype", "direction"),
)
EXCHANGE = (
    *TRAINED_BY,
    "variable_update",
    "all_reduce_spec",
    "compress_gradients",
    *DEVICES,
)
POOL_SIZES = ("inter_op_parallelism_threads", "intra_op_parallelism_threads")
POOLS = (*TRAINED_BY, *DEVICES, "variable_update", *POOL_SIZES, "data_source")


@dataclasses.dataclass(frozen=True)
class Fact:
    """One thing that a rate depends on."""

    what: str  # its name in a report
    read: (
        readers.Read
    )  # record -> a value that can be compared; None if the record does not hold it
    effect: str  # what a difference usually does, and in which direction
    severity: str = CAUTION  # of a difference
    # Options that decide the value too: compared only between runs that have these in common.
    follows: tuple[str, ...] = ()
    gpu_only: bool = False  # says something only about runs on GPUs
    tolerance: float | None = (
        None  # relative difference of numbers that is none; None: values are the same or not
    )
    vital: bool = False  # not knowing it is as grave as a difference
    unless: str = (
        ""  # the fact that, when it differs already, makes this one follow from it
    )
    unit: str = ""
    scales: bool = (
        False  # may change along a series, because the number of devices does
    )
    machine: bool = False  # describes the machine, so that it is what `compare --across=machine` compares

    def severity_on(self, gpu: bool) -> str:
        """The severity of a difference between runs on CPUs, or on GPUs."""
        if self.severity == GRAVE_ON_CPUS:
            return CAUTION if gpu else INCOMPARABLE
        return self.severity

    @property
    def is_by_count(self) -> bool:
        """Whether runs on other numbers of devices may differ in it and still be one series."""
        return self.scales or not {"num_devices", "num_workers"}.isdisjoint(
            self.follows
        )


TRAINING = [
    Fact(
        "certificate",
        readers.certificate,
        "only one side was compared with serial training (--certify)",
    ),
    Fact(
        "training",
        readers.training,
        "a mode that trains wrong does other work",
        INCOMPARABLE,
        scales=True,
    ),
]

PROCESSOR = [
    Fact(
        "CPU model",
        environment("cpu"),
        "items/s on CPUs change by tens of percent",
        GRAVE_ON_CPUS,
        vital=True,
    ),
    Fact(
        "CPU vector units",
        readers.cpu_vector_units,
        "matrix products without AVX-512 or AMX are several times slower",
        GRAVE_ON_CPUS,
        unless="CPU model",
    ),
    Fact(
        "CPU cores",
        environment("cpu_cores"),
        "more cores share memory bandwidth and turbo",
        GRAVE_ON_CPUS,
    ),
    Fact(
        "CPU topology",
        readers.cpu_topology,
        "two threads of one core give 1.0 to 1.3 times one thread",
        GRAVE_ON_CPUS,
    ),
    Fact(
        "CPU limit of control groups",
        readers.cpu_limit,
        "a low limit stops the process in bursts",
        INCOMPARABLE,
    ),
    Fact(
        "cores bound to",
        readers.cores,
        "items/s on CPUs grow with the cores",
        INCOMPARABLE,
        DEVICES,
    ),
    Fact(
        "which cores",
        readers.core_numbers,
        "a few percent",
        follows=DEVICES,
        unless="cores bound to",
    ),
    Fact(
        "oversubscribed",
        readers.oversubscribed,
        "devices that share cores take turns",
        INCOMPARABLE,
        DEVICES,
    ),
    Fact(
        "CPU governor",
        environment("cpu_governor"),
        "powersave raises the clock late or never",
        GRAVE_ON_CPUS,
    ),
    Fact(
        "CPU turbo",
        readers.turbo,
        "turbo gives 10 to 40 % more items/s, less with more cores busy",
        GRAVE_ON_CPUS,
    ),
    Fact(
        "CPU clock at the start",
        readers.highest_clock,
        "a lower clock gives fewer items/s",
        tolerance=0.10,
        unit="MHz",
    ),
    Fact(
        "memory", readers.memory, "no effect while it fits", tolerance=0.05, unit="GiB"
    ),
    Fact(
        "huge pages",
        readers.huge_pages,
        "always saves page faults of large tensors: a few percent more items/s",
    ),
]

GPU = [
    Fact(
        "GPUs",
        readers.gpus(["name"]),
        "arithmetic and memory of GPUs decide items/s",
        INCOMPARABLE,
        vital=True,
    ),
    Fact(
        "which GPUs",
        readers.gpus(["uuid"]),
        "cards of one model differ by a few percent",
        unless="GPUs",
    ),
    Fact(
        "GPU driver",
        readers.gpus(["driver_version"]),
        "usually below 2 %; launch costs and NCCL may change more",
    ),
    Fact(
        "highest GPU clocks (SM and memory)",
        readers.gpus(["clocks.max.sm", "clocks.max.mem"]),
        "items/s follow the clocks",
        INCOMPARABLE,
        unless="GPUs",
    ),
    Fact(
        "GPU power limit",
        readers.gpus(["power.limit"]),
        "it limits the clocks",
        INCOMPARABLE,
        unless="GPUs",
    ),
    *(
        Fact(
            f"GPU {title}",
            readers.gpu_clock(field, when),
            effect,
            tolerance=0.02,
            unit="MHz",
        )
        for title, field, when, effect in (
            (
                "SM clock before the run",
                "clocks.sm",
                "gpus",
                "idle cards lower their clocks, busy ones do not",
            ),
            (
                "SM clock after the run",
                "clocks.sm",
                "gpus_after",
                "items/s of large layers follow this clock",
            ),
            (
                "memory clock after the run",
                "clocks.mem",
                "gpus_after",
                "items/s of small layers follow this clock",
            ),
        )
    ),
    Fact(
        "GPU topology",
        readers.gpu_topology,
        "NVLink, a PCIe switch and the CPU differ several times in bandwidth",
        INCOMPARABLE,
        ("num_devices", "num_workers"),
    ),
]

GPU_STATE = [
    Fact(
        "GPU clocks slowed down by",
        readers.held_down(readers.SLOWED),
        "a card that protects itself halves its clocks or worse",
        INCOMPARABLE,
        scales=True,
    ),
    Fact(
        "GPU clocks limited by",
        readers.held_down(readers.LIMITED),
        "a limit lowers clocks by a few to 20 percent",
    ),
]

CLUSTER = [
    Fact(
        "hosts of the workers",
        readers.hosts,
        "workers of one host use no network, and share its memory and clock",
        INCOMPARABLE,
        ("variable_update", "num_workers"),
    ),
    Fact(
        "network between the workers",
        readers.link,
        "it limits the exchange",
        INCOMPARABLE,
        scales=True,
    ),
    Fact(
        "launcher",
        readers.launcher,
        "it binds processes to cores: usually below 5 %",
        follows=("variable_update",),
    ),
]

FUSED = (
    "a fused kernel is 1.3 times as fast as a loop on CPUs, and several times on GPUs"
)
PACKAGES = {
    "TensorFlow": (
        ("tensorflow", "tensorflow-cpu"),
        "kernels change between releases: usually below 10 %",
    ),
    **{
        name: ((name,), "kernels and dispatch change between releases")
        for name in ("torch", "jax", "jaxlib")
    },
    "Keras": (("keras",), "no effect on the step, which does not use its layers"),
    "numpy": (("numpy",), "affects data_source=host and text alone, a little"),
}
CUDA = {
    "CUDA": ("runtime", "usually below 5 %; libraries choose other kernels"),
    "cuBLAS": ("cublas", "another choice of matrix kernels: some percent, either way"),
    "cuDNN": (
        "cudnn",
        "other kernels: some percent with cudnn_lstm and cudnn_gru, either way",
    ),
    "NCCL": (
        "nccl",
        "another choice of rings and protocols: changes the exchange alone",
    ),
}

SOFTWARE = [
    Fact(
        "device type",
        readers.resolved("device_type"),
        "many times faster or slower",
        INCOMPARABLE,
        ("device",),
    ),
    Fact(
        "oneDNN",
        readers.resolved("onednn"),
        "oneDNN gave 1.2 to 1.8 times the items/s on a CPU",
        GRAVE_ON_CPUS,
        unless="variable TF_ENABLE_ONEDNN_OPTS",
    ),
    Fact(
        "CPU operators",
        readers.operators,
        "LSTM and GRU layers take 0.8 of the time with those of this project",
        GRAVE_ON_CPUS,
    ),
    *(
        Fact(name, readers.package(names), effect, follows=TRAINED_BY)
        for name, (names, effect) in PACKAGES.items()
    ),
    Fact(
        "Python",
        environment("python"),
        "affects the work between steps: below 2 %, more in short steps",
    ),
    Fact(
        "kernel and C library",
        environment("platform"),
        "usually below 5 %, either way",
        machine=True,
    ),
    *(
        Fact(name, readers.cuda(part), effect, gpu_only=True)
        for name, (part, effect) in CUDA.items()
    ),
    *(
        Fact(
            f"{pool}-op threads",
            readers.resolved(option),
            effect,
            severity,
            POOLS,
            machine=True,
        )
        for pool, option, effect, severity in (
            (
                "inter",
                POOL_SIZES[0],
                "with fewer threads than devices, devices take turns",
                INCOMPARABLE,
            ),
            (
                "intra",
                POOL_SIZES[1],
                "more threads help on CPUs until all cores are busy",
                GRAVE_ON_CPUS,
            ),
        )
    ),
    Fact(
        "encoder kernel that ran",
        readers.resolved("encoder_kernel"),
        FUSED,
        INCOMPARABLE,
        KERNELS,
    ),
    Fact(
        "decoder kernel that ran",
        readers.resolved("decoder_kernel"),
        FUSED,
        INCOMPARABLE,
        KERNELS,
    ),
    Fact(
        "all-reduce that ran",
        readers.all_reduce,
        "exchange may cost several times more",
        INCOMPARABLE,
        EXCHANGE,
    ),
    Fact(
        "logical devices",
        readers.resolved("logical_devices"),
        "towers share one device",
        INCOMPARABLE,
        DEVICES,
    ),
    Fact("commit", readers.commit, "the suite changed, which may be the cause"),
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
