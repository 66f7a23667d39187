"""The options of a run; each field is a flag and an entry in the record.

If only some choices read an option, its help begins with them ("replicated: ...").

Records and command lines of users contain the names of the fields: never rename one.
"""

import dataclasses

from rnn_scaling.config import presets, registry
from rnn_scaling.models.config import option
from rnn_scaling.models.workloads import option_readers


@dataclasses.dataclass(frozen=True)
class DeviceOptions:
    """Devices: their kind and number; each runs one tower."""

    device: str = option(
        "auto",
        "kind of device; auto uses gpu if one is visible",
        choices=("auto", "cpu", "gpu"),
    )
    num_devices: int = option(
        1,
        "number of devices, each with one tower (0: all GPUs, or as many CPU devices "
        "as the cores allow); if there are fewer real devices, logical devices share "
        "them",
        minimum=0,
        maximum=1_024,
    )
    cpu_cores_per_device: int = option(
        1,
        "cores per CPU device; the process is bound to --num_devices times this number "
        "of cores",
        minimum=1,
        maximum=1_024,
    )


@dataclasses.dataclass(frozen=True)
class FrameworkOptions:
    """Framework: TensorFlow, or the same network in PyTorch, JAX or Keras."""

    framework: str = option(
        "tensorflow",
        f"{registry.format_choices(registry.FRAMEWORKS)}; install torch, jax or keras "
        "with ./run.sh setup-frameworks NAME",
        choices=tuple(registry.FRAMEWORKS),
    )
    compile: bool = option(False, "torch: compile the network with torch.compile")
    keras_backend: str = option(
        "tensorflow",
        "keras: backend of Keras",
        choices=("tensorflow", "jax"),
    )
    malloc: str = option(
        "system",
        "memory allocation of glibc, for every framework: system (large arrays are "
        "returned to the system) or keep (the process keeps them, by "
        "MALLOC_TRIM_THRESHOLD_ and MALLOC_MMAP_THRESHOLD_)",
        choices=("system", "keep"),
    )


@dataclasses.dataclass(frozen=True)
class ClusterOptions:
    """Cluster: several worker processes, on one machine or more."""

    num_workers: int = option(
        1,
        "worker processes, each with --num_devices towers; default: the number that "
        "mpirun, srun, Kubernetes or TF_CONFIG started",
        minimum=1,
        maximum=65_536,
    )
    num_ps: int = option(
        1,
        "parameter servers: processes that hold the variables, in modes that use them",
        minimum=1,
        maximum=1_024,
    )
    cluster_timeout: float = option(
        60.0,
        "seconds within which all processes must join, and within which a failure ends "
        "the run",
        minimum=1.0,
        maximum=86_400.0,
    )
    cluster_heartbeat: float = option(
        10.0,
        "seconds without a heartbeat after which a process counts as lost; at most "
        "--cluster_timeout",
        minimum=0.1,
        maximum=3_600.0,
    )
    coordinator_address: str = option(
        "",
        "HOST:PORT at which rank 0 waits for the other ranks, if no launcher sets it",
    )


@dataclasses.dataclass(frozen=True)
class UpdateOptions:
    """Variable update: places of variables and exchange of gradients."""

    variable_update: str = option(
        "independent",
        registry.format_choices(registry.VARIABLE_UPDATES),
        choices=tuple(registry.VARIABLE_UPDATES),
    )
    independent_replica: bool = option(
        False, "with --variable_update=replicated: the same as independent"
    )
    param_server_device: str | None = option(
        None,
        "parameter_server and keras_slicing: keep variables in host memory (cpu) or "
        "balance them over the GPUs by size (gpu); default: gpu if the towers run on "
        "GPUs, otherwise cpu",
        choices=("cpu", "gpu"),
    )
    slice_on: str = option(
        "host",
        "keras_slicing: where the global batch is divided into slices; host: the host "
        "sends each device its slice; device: each device gets the complete batch",
        choices=("host", "device"),
    )
    partition_large_variables: bool = option(
        False,
        "parameter_server on GPUs or on several processes: split variables that are "
        "larger than the share of one GPU or process",
    )
    staged_vars: bool = option(
        False,
        "parameter_server: towers read a staged copy of the variables that is exactly "
        "one step old",
    )
    variable_consistency: str = option(
        "strong",
        "parameter_server and replicated: strong (gradients are applied in the same "
        "step) or relaxed (exactly one step later, so that the exchange overlaps the "
        "next step)",
        choices=("strong", "relaxed"),
    )
    all_reduce_spec: str = option(
        "auto",
        "replicated: alg[#shards][:limit:alg[#shards]...]; tensors up to limit (k, M, "
        "G: powers of 1024) use the "
        f"algorithm before it. alg: {', '.join(registry.ALL_REDUCES)}; auto: the best "
        "that the devices allow",
    )
    gradient_repacking: int = option(
        0,
        "replicated: concatenate the dense gradients and exchange them in this many "
        "equal pieces (0: off)",
        minimum=0,
        maximum=65_536,
    )
    agg_small_grads_max_bytes: int = option(
        0,
        "replicated: pack dense gradients of at most this many bytes before the "
        "exchange (0: off)",
        minimum=0,
    )
    agg_small_grads_max_group: int = option(
        10, "replicated: maximum number of small gradients per pack", minimum=1
    )
    sparse_gradients: str = option(
        "gather",
        "parameter_server, keras_slicing and replicated: exchange an embedding's "
        "gradient as the rows that the batch used (gather) or as a dense tensor "
        "(densify); the update is the same",
        choices=("gather", "densify"),
    )
    compress_gradients: str = option(
        "none",
        "replicated and collective_all_reduce: exchange gradients in half precision or "
        "as 8-bit numbers with a scale; int8 adds its rounding error to the next "
        "step's gradient; the update stays float32",
        choices=("none", "bfloat16", "float16", "int8"),
    )


@dataclasses.dataclass(frozen=True)
class TrainingOptions:
    """Training: batch size, optimizer, learning rate."""

    batch_size: int = option(
        32,
        "samples (sentence pairs, sentences, images) per tower and step: weak scaling, "
        "constant work per device",
        minimum=1,
        maximum=16_777_216,
    )
    global_batch_size: int = option(
        0,
        "samples of all towers per step, instead of --batch_size: strong scaling, "
        "constant total work; a remainder goes to the first towers (0: off)",
        minimum=0,
        maximum=16_777_216,
    )
    gradient_accumulation_steps: int = option(
        1,
        "micro-batches of --batch_size that each tower computes before one exchange "
        "and one update; the global batch is --batch_size times the towers times this "
        "number",
        minimum=1,
        maximum=1_024,
    )
    optimizer: str = option(
        "adam",
        "update rule; momentum uses 0.9; rmsprop uses decay 0.9, momentum 0.9 and "
        "epsilon 1.0",
        choices=("sgd", "momentum", "rmsprop", "adam"),
    )
    weight_decay: float = option(
        0.0,
        "weight decay of matrices, kernels and embeddings (0: off); sgd, momentum "
        "and rmsprop add this number times the weights to the gradient (L2), adam "
        "subtracts the learning rate times this product (AdamW)",
        minimum=0.0,
        maximum=1.0,
    )
    learning_rate: float = option(
        0.001,
        "learning rate; with piecewise, the first one; with inverse_sqrt, the "
        "highest one",
    )
    lr_schedule: str = option(
        "constant",
        "how the learning rate changes with the updates: constant, piecewise "
        "(--lr_steps) or inverse_sqrt (Vaswani et al. 2017); inverse_sqrt rises to "
        "--learning_rate over --lr_warmup_batches updates, then falls in proportion "
        "to 1 / sqrt(number of updates)",
        choices=("constant", "piecewise", "inverse_sqrt"),
    )
    lr_steps: str = option(
        "",
        "piecewise: UPDATE:RATE,... such as 100:0.01,200:0.001; each rate applies "
        "after that many updates, and --learning_rate before the first",
        whole=True,
        shown="N:X,...",
    )
    lr_scaling: str = option(
        "none",
        "linear: multiply the learning rate by the number of towers of all workers and "
        "by --gradient_accumulation_steps, as the global batch grows (Goyal et al. "
        "2017)",
        choices=("none", "linear"),
    )
    lr_warmup_batches: int = option(
        0,
        "lr_scaling: updates over which the learning rate rises linearly from "
        "--learning_rate to the scaled rate (0: no warm-up); inverse_sqrt: from 0 to "
        "the largest rate",
        minimum=0,
        maximum=1_000_000_000,
    )
    loss_scale: str = option(
        "dynamic",
        "float16: factor of the loss, a whole number or dynamic (halved after a "
        "gradient that is not finite, doubled after 2,000 finite ones); updates "
        "with a gradient that is not finite are skipped and counted",
        shown="dynamic|N",
    )
    max_gradient_norm: float = option(
        0.0,
        "scale the gradients of a step down to this global L2 norm (0: no clipping)",
        minimum=0.0,
    )
    seed: int = option(
        1,
        "seed of the initial weights, the random batches, the shuffling and dropout",
        minimum=0,
        maximum=2_147_483_647,
    )


@dataclasses.dataclass(frozen=True)
class DataOptions:
    """Data: synthetic batches or files, and prefetching."""

    data_source: str = option(
        "device",
        registry.format_choices(registry.DATA_SOURCES),
        choices=tuple(registry.DATA_SOURCES),
    )
    use_synthetic_data: bool = option(False, "the same as --data_source=device")
    random_lengths: bool = option(
        False,
        "device, constant, host: random sentences have 1 to --src_max_len and 1 to "
        "--tgt_max_len words; the first one in a batch has the maximum",
    )
    ragged_batches: bool = option(
        False,
        "with random_lengths: a batch is only as long as its longest sentence, which "
        "may be shorter than the maximum; batches and towers then differ in positions",
    )
    src_max_len: int = option(
        30,
        f"{option_readers('src_max_len')}: maximum words of a source sentence; synthetic "
        "sentences have exactly this many",
        minimum=1,
        maximum=65_536,
    )
    tgt_max_len: int = option(
        30,
        f"{option_readers('tgt_max_len')}: maximum words of a target sentence, "
        "end-of-sentence word included; synthetic sentences have exactly this many",
        minimum=1,
        maximum=65_536,
    )
    pad_to: int = option(
        0,
        f"{option_readers('pad_to')}, with text or random_lengths: pad every sentence to "
        "this many words, so that all towers compute the same number of positions; 0: "
        "pad to the longest sentence of the batch",
        minimum=0,
        maximum=65_536,
    )
    src_file_name: str = option(
        "",
        f"{option_readers('src_file_name')}, text: source sentences, one per line, words "
        "separated by spaces, UTF-8",
    )
    tgt_file_name: str = option(
        "",
        f"{option_readers('tgt_file_name')}, text: target sentences; for translation, line "
        "n translates line n of src_file_name",
    )
    src_vocab_file: str = option(
        "",
        "nmt, nmt_attention, text: source vocabulary, one word per line; only the "
        "first src_vocab_size lines are used",
    )
    tgt_vocab_file: str = option(
        "",
        f"{option_readers('tgt_vocab_file')}, text: target vocabulary, one word per "
        "line; transformer uses it for both sides; only the first tgt_vocab_size lines "
        "are used",
    )
    bos: str = option(
        "<s>", "text: begin-of-sentence word, a line of the target vocabulary"
    )
    eos: str = option(
        "</s>", "text: end-of-sentence word, which must be a line of each vocabulary"
    )
    unk_id: int = option(
        0,
        "text: id of words that are not in the vocabulary",
        minimum=0,
        maximum=2_147_483_647,
    )
    num_buckets: int = option(
        5,
        "text: number of buckets; a batch contains sentences of similar length, from "
        "one bucket",
        minimum=1,
        maximum=65_536,
    )
    data_dir: str = option(
        "",
        "folder of the files; cifar10: data_batch_1.bin and so on; tfrecord: "
        "train-00000-of-01024 and so on",
    )
    disable_shuffle: bool = option(
        False, "text, cifar10 and tfrecord: keep the order of the files"
    )
    output_buffer_size: int = option(
        10_000,
        "text, cifar10 and tfrecord: samples in the shuffle buffer",
        minimum=1,
        maximum=1_000_000_000,
    )
    num_parallel_calls: int = option(
        2,
        "host, text, cifar10 and tfrecord: threads that prepare batches",
        minimum=1,
        maximum=1_024,
    )
    prefetch_data_to_device: bool | None = option(
        None,
        "host, text, cifar10 and tfrecord: copy batches to the devices ahead of the "
        "step (default: true); if this flag is given without --data_source, the source "
        "is host",
    )
    prefetch_buffer_size: int = option(
        2,
        "host, text, cifar10 and tfrecord: number of batches that are kept ready on "
        "each device",
        minimum=1,
        maximum=65_536,
    )

    @property
    def file_pattern(self) -> str:
        """Pattern of the files that the data source reads in `data_dir`, or ""."""
        return registry.DATA_SOURCES[self.data_source].files


@dataclasses.dataclass(frozen=True)
class MeasureOptions:
    """Measuring: number of batches, threads, steady state."""

    num_warmup_batches: int = option(
        10,
        "batches before the measurement; their items and seconds do not count",
        minimum=0,
        maximum=1_000_000_000,
    )
    num_batches: int = option(
        20, "batches to measure after the warm-up", minimum=1, maximum=1_000_000_000
    )
    until_steady: bool = option(
        False,
        "continue after --num_batches until the run is steady and the interval of its "
        "rate is within --target_ci",
    )
    target_ci: float = option(
        0.02,
        "until_steady: target for the relative half-width of the rate's 95 % interval "
        "(0.02: 2 %)",
        minimum=1e-4,
    )
    max_batches: int = option(
        2000,
        "until_steady: maximum number of batches, warm-up included",
        minimum=1,
        maximum=1_000_000_000,
    )
    stop_at_loss: float = option(
        0.0,
        "end the run when the mean loss of 10 batches stays at or below this for 10 "
        "more batches (0: off)",
        minimum=0.0,
    )
    stop_at_accuracy: float = option(
        0.0,
        "accuracy: end the run when the mean accuracy of 10 batches stays at or above "
        "this for 10 more batches (0.9: 90 %; 0: off)",
        minimum=0.0,
        maximum=1.0,
    )
    num_epochs: float = option(
        0.0,
        "text and cifar10: passes over the data, warm-up included, instead of "
        "--num_batches (0: off)",
        minimum=0.0,
    )
    inter_op_parallelism_threads: int = option(
        0,
        "threads that dispatch operators; 0: one per device, plus one if devices have "
        "several cores or there are several processes; with GPUs, one per device plus "
        "one, and at least the number of cores",
        minimum=0,
        maximum=4_096,
    )
    intra_op_parallelism_threads: int = option(
        0,
        "threads inside operators on the CPU; 0: one thread if each device has one "
        "core, else the cores of all devices; all cores with GPUs",
        minimum=0,
        maximum=4_096,
    )


@dataclasses.dataclass(frozen=True)
class OutputOptions:
    """Output: record, logs, checkpoints, traces, presets."""

    result_file: str = option(
        "", "write the run's record (JSON) to this file; a failed run writes one too"
    )
    mlperf_log: str = option(
        "",
        "write the run as the events of an MLPerf training log (:::MLLOG) to this "
        "file; a failed run writes one too",
    )
    log_dir: str = option(
        "",
        "write TensorBoard's graph, scalars and traces, and the record (run.json) "
        "to this folder",
    )
    checkpoint_dir: str = option(
        "",
        "save checkpoints in this folder every --save_every batches; the same "
        "command continues from the last one",
    )
    save_every: int = option(
        100,
        "checkpoint_dir: batches between two checkpoints",
        minimum=1,
        maximum=1_000_000_000,
    )
    trace_batches: int = option(
        0,
        "after the measured batches, profile this many more and count the kernels of "
        "another two; the record contains times and counts, --log_dir the traces (0: "
        "off)",
        minimum=0,
        maximum=1_000,
    )
    progress: bool = option(
        True,
        "show the rate and the time left on stderr during the run: a bar on a "
        "terminal, otherwise lines",
    )
    preset: str = option(
        "small",
        "defaults of the model, batch and lengths: small (8.2 M parameters, batch 32); "
        "large (95.7 M: vocabulary 50,000, embedding and units 512, 4 + 4 cells, bi, "
        "100 words, batch 384); gnmt_v2 (160.7 M: GNMT of NVIDIA and MLPerf, with "
        "--model=nmt_attention; vocabulary 32,320, units 1,024, 50 words, batch 128); "
        "transformer_base or transformer_big (60.5 M and 209.1 M: vocabulary 32,000, "
        "50 words, batch 128); for images "
        f"only the batch: {presets.describe_image_batches()}",
        choices=tuple(presets.PRESETS),
    )
