"""The facts that the speed of a run depends on, in addition to its options.

A new fact is one row here, and one reader in `readers` if it needs another value of the
record. The names of facts are words of reports and of --force_incomparable.
"""

import dataclasses

from rnn_scaling.analysis.facts import readers
from rnn_scaling.analysis.facts.readers import environment
from rnn_scaling.analysis.statements import Word
from rnn_scaling.config import scale
from rnn_scaling.records.record import RunRecord


class Severity(Word):
    """The effect of a difference on the speeds of two runs."""

    INCOMPARABLE = "incomparable"  # this reason is enough for different speeds
    CAUTION = "caution"  # the speeds may differ for this reason
    # Runs on GPUs leave little to the processor, so some facts matter less there.
    GRAVE_ON_CPUS = "incomparable on CPUs"


INCOMPARABLE, CAUTION, GRAVE_ON_CPUS = Severity

DEVICES = ("device", "num_devices", "num_workers", "cpu_cores_per_device")
_TRAINED_BY = ("framework", "compile", "keras_backend")
KERNELS = (
    *(*_TRAINED_BY, "unit_type", "encoder_type", "decoder_type", "device"),
    *("xla", "dropout", "compute_dtype", "direction"),
)
EXCHANGE = (
    *_TRAINED_BY,
    "variable_update",
    "all_reduce_spec",
    "compress_gradients",
    *DEVICES,
)
_POOL_SIZES = ("inter_op_parallelism_threads", "intra_op_parallelism_threads")
_POOLS = (*_TRAINED_BY, *DEVICES, "variable_update", *_POOL_SIZES, "data_source")


@dataclasses.dataclass(frozen=True)
class Fact:
    """One fact that a rate depends on.

    Attributes:
      name: The fact's name in a report.
      read: Returns a value that can be compared; None if the record does not contain
        it.
      severity: The importance of a difference.
      deciding_options: Options that also decide the value. It is compared only between
        runs that have these in common.
      is_gpu_only: Whether it matters only for runs on GPUs.
      tolerance: Relative difference of numbers that counts as none; None if values must
        be equal.
      is_vital: Whether an unknown value matters as much as a difference.
      implied_by: A fact whose difference implies a difference of this one.
      varies_along_series: Whether it may change with the number of devices.
      describes_machine: Whether `compare --across=machine` compares it.
      effect: Name of the effect, if it is not the name of the fact.
    """

    name: str
    read: readers.Read
    severity: Severity = CAUTION
    deciding_options: tuple[str, ...] = ()
    is_gpu_only: bool = False
    tolerance: float | None = None
    is_vital: bool = False
    implied_by: str = ""
    unit: str = ""
    varies_along_series: bool = False
    describes_machine: bool = False
    effect: str = ""

    def severity_on(self, gpu: bool) -> Severity:
        """Return the severity of a difference between runs on CPUs, or on GPUs."""
        if self.severity == GRAVE_ON_CPUS:
            return CAUTION if gpu else INCOMPARABLE
        return self.severity

    def text(self, record: RunRecord) -> str:
        """Return the fact of a run as text; "" if it is unknown or does not apply."""
        value = self.read(record)
        if value is None or isinstance(value, readers.Absent):
            return ""
        return f"{value:.4g} {self.unit}" if self.unit else str(value)

    @property
    def depends_on_device_count(self) -> bool:
        """Whether rows of one series may differ in it."""
        is_decided = not set(scale.AXES).isdisjoint(self.deciding_options)
        return self.varies_along_series or is_decided


TRAINING = [
    Fact("certificate", readers.certificate),
    Fact("training", readers.training, INCOMPARABLE, varies_along_series=True),
]

_PROCESSOR = [
    Fact("CPU model", environment("cpu"), GRAVE_ON_CPUS, is_vital=True),
    Fact(
        "CPU vector units",
        readers.cpu_vector_units,
        GRAVE_ON_CPUS,
        implied_by="CPU model",
    ),
    Fact("CPU cores", environment("cpu_cores"), GRAVE_ON_CPUS),
    Fact("CPU topology", readers.cpu_topology, GRAVE_ON_CPUS),
    Fact("CPU limit of control groups", readers.cpu_limit, INCOMPARABLE),
    Fact("cores bound to", readers.cores, INCOMPARABLE, DEVICES),
    Fact(
        "which cores",
        readers.core_numbers,
        deciding_options=DEVICES,
        implied_by="cores bound to",
    ),
    Fact("oversubscribed", readers.oversubscribed, INCOMPARABLE, DEVICES),
    Fact("CPU governor", environment("cpu_governor"), GRAVE_ON_CPUS),
    Fact("CPU turbo", readers.turbo, GRAVE_ON_CPUS),
    Fact("CPU clock at the start", readers.highest_clock, tolerance=0.10, unit="MHz"),
    Fact("memory", readers.memory, tolerance=0.05, unit="GiB"),
    Fact("huge pages", readers.huge_pages),
]

GPU = [
    Fact("GPUs", readers.gpus(["name"]), INCOMPARABLE, is_vital=True),
    Fact("which GPUs", readers.gpus(["uuid"]), implied_by="GPUs"),
    Fact("GPU driver", readers.gpus(["driver_version"])),
    Fact(
        "highest GPU clocks (SM and memory)",
        readers.gpus(["clocks.max.sm", "clocks.max.mem"]),
        INCOMPARABLE,
        implied_by="GPUs",
    ),
    Fact(
        "GPU power limit",
        readers.gpus(["power.limit"]),
        INCOMPARABLE,
        implied_by="GPUs",
    ),
    *(
        Fact(
            f"GPU {title}",
            readers.gpu_clock(clock, field),
            tolerance=0.02,
            unit="MHz",
        )
        for title, clock, field in (
            ("SM clock before the run", "clocks.sm", "gpus"),
            ("SM clock after the run", "clocks.sm", "gpus_after"),
            ("memory clock after the run", "clocks.mem", "gpus_after"),
        )
    ),
    Fact(
        "GPU topology",
        readers.gpu_topology,
        INCOMPARABLE,
        ("num_devices", "num_workers"),
    ),
]

_GPU_STATE = [
    Fact(
        "GPU clocks slowed down by",
        readers.throttling_reasons(readers.PROTECTION_REASONS),
        INCOMPARABLE,
        varies_along_series=True,
    ),
    Fact("GPU clocks limited by", readers.throttling_reasons(readers.LIMIT_REASONS)),
]

CLUSTER = [
    Fact(
        "hosts of the workers",
        readers.hosts,
        INCOMPARABLE,
        ("variable_update", "num_workers"),
    ),
    Fact(
        "network between the workers",
        readers.link,
        INCOMPARABLE,
        varies_along_series=True,
    ),
    Fact("launcher", readers.launcher, deciding_options=("variable_update",)),
]

PACKAGES = {
    "TensorFlow": ("tensorflow", "tensorflow-cpu"),
    **{name: (name,) for name in ("torch", "jax", "jaxlib")},
    "Keras": ("keras",),
    "numpy": ("numpy",),
}
CUDA = {"CUDA": "runtime", "cuBLAS": "cublas", "cuDNN": "cudnn", "NCCL": "nccl"}

_SOFTWARE = [
    Fact("device type", readers.resolved("device_type"), INCOMPARABLE, ("device",)),
    Fact(
        "oneDNN",
        readers.resolved("onednn"),
        GRAVE_ON_CPUS,
        implied_by="variable TF_ENABLE_ONEDNN_OPTS",
    ),
    Fact("CPU operators", readers.operators, GRAVE_ON_CPUS),
    *(
        Fact(name, readers.package(names), deciding_options=_TRAINED_BY)
        for name, names in PACKAGES.items()
    ),
    Fact("Python", environment("python")),
    Fact("kernel and C library", environment("platform"), describes_machine=True),
    *(Fact(name, readers.cuda(part), is_gpu_only=True) for name, part in CUDA.items()),
    *(
        Fact(
            f"{pool}-op threads",
            readers.resolved(option),
            severity,
            _POOLS,
            describes_machine=True,
        )
        for pool, option, severity in (
            ("inter", _POOL_SIZES[0], INCOMPARABLE),
            ("intra", _POOL_SIZES[1], GRAVE_ON_CPUS),
        )
    ),
    Fact(
        "encoder kernel that ran",
        readers.resolved("encoder_kernel"),
        INCOMPARABLE,
        KERNELS,
    ),
    Fact(
        "decoder kernel that ran",
        readers.resolved("decoder_kernel"),
        INCOMPARABLE,
        KERNELS,
    ),
    Fact("all-reduce that ran", readers.all_reduce, INCOMPARABLE, EXCHANGE),
    Fact("logical devices", readers.resolved("logical_devices"), INCOMPARABLE, DEVICES),
    Fact("commit", readers.commit),
]

FACTS: tuple[Fact, ...] = (
    *TRAINING,
    *(dataclasses.replace(fact, describes_machine=True) for fact in _PROCESSOR),
    *(
        dataclasses.replace(fact, is_gpu_only=True, describes_machine=True)
        for fact in GPU
    ),
    *(dataclasses.replace(fact, is_gpu_only=True) for fact in _GPU_STATE),
    *_SOFTWARE,
    *CLUSTER,
)
OF_MACHINES = tuple(fact.name for fact in FACTS if fact.describes_machine)
