"""The options of a run; each field is a flag and an entry in the record.

If only some choices read an option, its help ends with them ("only with --NAME=...").

Records and command lines of users contain the names of the fields: never rename one.
"""

import dataclasses

from rnn_scaling.config import presets, registry
from rnn_scaling.models.config import option
from rnn_scaling.models.workloads import name_readers


def _limit_to(option_name: str) -> str:
    """Return the flag that makes a run read an option, as "--data_source=text"."""
    mode_readers = registry.find_readers(registry.VARIABLE_UPDATES)
    if option_name in mode_readers:
        modes = registry.join_with_or(mode_readers[option_name])
        return f"--variable_update={modes}"
    source_readers = registry.find_readers(registry.DATA_SOURCES)
    return f"--data_source={registry.join_with_or(source_readers[option_name])}"


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
        "number of cores per CPU device; the process is bound to "
        "--num_devices times this number of cores",
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
    compile: bool = option(
        False, "compile the network with torch.compile; only with --framework=torch"
    )
    keras_backend: str = option(
        "tensorflow",
        "backend of Keras; only with --framework=keras",
        choices=("tensorflow", "jax"),
    )
    malloc: str = option(
        "system",
        "how glibc treats freed memory, in every framework: system (large "
        "arrays are returned to the system) or keep (the process reuses them: "
        "MALLOC_TRIM_THRESHOLD_ and MALLOC_MMAP_THRESHOLD_)",
        choices=("system", "keep"),
    )


@dataclasses.dataclass(frozen=True)
class ClusterOptions:
    """Cluster: several worker processes, on one machine or more."""

    num_workers: int = option(
        1,
        "number of worker processes, each with --num_devices towers; default: "
        "the number that mpirun, srun, Kubernetes or TF_CONFIG started",
        minimum=1,
        maximum=65_536,
    )
    num_ps: int = option(
        1,
        "number of parameter servers: processes that hold the variables in "
        "distributed_parameter_server and async_parameter_server",
        minimum=1,
        maximum=1_024,
    )
    cluster_timeout: float = option(
        60.0,
        "time limit in seconds for all processes to join, and for a failure to end the "
        "run",
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
        "HOST:PORT at which rank 0 waits for the other ranks; needed only if "
        "the launcher does not set it",
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
        False,
        "with --variable_update=replicated: train independent replicas "
        "instead, like --variable_update=independent",
    )
    param_server_device: str | None = option(
        None,
        "place of the variables: the host's memory (cpu), or the GPUs, "
        "balanced by size (gpu); default: gpu if the towers run on GPUs, "
        f"otherwise cpu; only with {_limit_to('param_server_device')}",
        choices=("cpu", "gpu"),
    )
    slice_on: str = option(
        "host",
        "place where the global batch is divided into slices: host (the host "
        "sends each device its slice) or device (each device gets the "
        f"complete batch); only with {_limit_to('slice_on')}",
        choices=("host", "device"),
    )
    partition_large_variables: bool = option(
        False,
        "split variables that are larger than the share of one GPU or server "
        f"process; only with {_limit_to('partition_large_variables')}",
    )
    staged_vars: bool = option(
        False,
        "let towers read a staged copy of the variables that is exactly one "
        f"step old; only with {_limit_to('staged_vars')}",
    )
    variable_consistency: str = option(
        "strong",
        "step in which gradients are applied: strong (the same step) or "
        "relaxed (exactly one step later, so that the exchange overlaps the "
        f"next step); only with {_limit_to('variable_consistency')}",
        choices=("strong", "relaxed"),
    )
    all_reduce_spec: str = option(
        "auto",
        "all-reduce algorithms by size: alg[#shards][:limit:alg[#shards]...]; "
        "tensors of up to limit bytes (k, M, G: powers of 1024) use the "
        f"algorithm before it. alg: {', '.join(registry.ALL_REDUCES)}; auto: "
        "the best that the devices allow. Only with "
        f"{_limit_to('all_reduce_spec')}",
    )
    gradient_repacking: int = option(
        0,
        "concatenate the dense gradients and exchange them in this many equal "
        f"pieces (0: off); only with {_limit_to('gradient_repacking')}",
        minimum=0,
        maximum=65_536,
    )
    agg_small_grads_max_bytes: int = option(
        0,
        "pack dense gradients of at most this many bytes before the exchange "
        f"(0: off); only with {_limit_to('agg_small_grads_max_bytes')}",
        minimum=0,
    )
    agg_small_grads_max_group: int = option(
        10,
        "maximum number of gradients per pack of --agg_small_grads_max_bytes",
        minimum=1,
    )
    sparse_gradients: str = option(
        "gather",
        "form in which an embedding's gradient is exchanged: the rows that "
        "the batch used (gather) or a dense tensor (densify); the update is "
        "the same",
        choices=("gather", "densify"),
    )
    compress_gradients: str = option(
        "none",
        "exchange gradients in half precision, or as 8-bit numbers with a "
        "scale (int8), which adds its rounding error to the next step's "
        "gradient; the update stays float32; only with "
        f"{_limit_to('compress_gradients')}",
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
        "number of micro-batches of --batch_size that each tower computes "
        "before one exchange and one update; the global batch is --batch_size "
        "times the towers times this number",
        minimum=1,
        maximum=1_024,
    )
    optimizer: str = option(
        "adam",
        "update rule: sgd, momentum (0.9), rmsprop (decay 0.9, momentum 0.9, "
        "epsilon 1.0) or adam",
        choices=("sgd", "momentum", "rmsprop", "adam"),
    )
    weight_decay: float = option(
        0.0,
        "weight decay of matrices, kernels and embeddings (0: off): sgd, "
        "momentum and rmsprop add this number times the weights to the "
        "gradient (L2); adam subtracts the learning rate times this product "
        "(AdamW)",
        minimum=0.0,
        maximum=1.0,
    )
    learning_rate: float = option(
        0.001,
        "learning rate; with --lr_schedule=piecewise the first one, with "
        "inverse_sqrt the highest one",
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
        "rates of --lr_schedule=piecewise as UPDATE:RATE,... such as "
        "100:0.01,200:0.001; each rate applies after that many updates, and "
        "--learning_rate before the first",
        whole=True,
        shown="N:X,...",
    )
    lr_scaling: str = option(
        "none",
        "whether the learning rate grows with the global batch: none, or "
        "linear (the rate is multiplied by the number of towers of all "
        "workers and by --gradient_accumulation_steps; Goyal et al. 2017)",
        choices=("none", "linear"),
    )
    lr_warmup_batches: int = option(
        0,
        "number of updates over which the learning rate rises linearly: with "
        "--lr_scaling=linear from --learning_rate to the scaled rate (0: no "
        "warm-up), with --lr_schedule=inverse_sqrt from 0 to the largest rate",
        minimum=0,
        maximum=1_000_000_000,
    )
    loss_scale: str = option(
        "dynamic",
        "factor of the loss with --compute_dtype=float16: a whole number, or "
        "dynamic (halved after a gradient that is not finite, doubled after "
        "2,000 finite ones); updates with a gradient that is not finite are "
        "skipped and counted",
        shown="dynamic|N",
    )
    max_gradient_norm: float = option(
        0.0,
        "clip the gradients of a step: scale them down to this global L2 norm "
        "if it is larger (0: no clipping)",
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
        "give random sentences 1 to --src_max_len and 1 to --tgt_max_len "
        "words; the first one in a batch has the maximum; only with "
        f"{_limit_to('random_lengths')}",
    )
    ragged_batches: bool = option(
        False,
        "with --random_lengths: make a batch only as long as its longest "
        "sentence, which may be shorter than the maximum; batches and towers "
        "then differ in positions",
    )
    src_max_len: int = option(
        30,
        "maximum number of words in a source sentence; synthetic sentences "
        f"have exactly this many; only for {name_readers('src_max_len')}",
        minimum=1,
        maximum=65_536,
    )
    tgt_max_len: int = option(
        30,
        "maximum number of words in a target sentence, including the "
        "end-of-sentence word; synthetic sentences have exactly this many; "
        f"only for {name_readers('tgt_max_len')}",
        minimum=1,
        maximum=65_536,
    )
    pad_to: int = option(
        0,
        "pad every sentence to this many words, so that all towers compute "
        "the same number of positions; 0: pad to the longest sentence of the "
        "batch; only with --data_source=text or --random_lengths, for "
        f"{name_readers('pad_to')}",
        minimum=0,
        maximum=65_536,
    )
    src_file_name: str = option(
        "",
        "file of source sentences for --data_source=text: UTF-8, one sentence "
        "per line, words separated by spaces; only for "
        f"{name_readers('src_file_name')}",
    )
    tgt_file_name: str = option(
        "",
        "file of target sentences for --data_source=text, like "
        "--src_file_name; for translation, line n translates line n of the "
        f"source; only for {name_readers('tgt_file_name')}",
    )
    src_vocab_file: str = option(
        "",
        "file of the source vocabulary for --data_source=text, one word per "
        "line; only the first --src_vocab_size lines are used; only for "
        f"{name_readers('src_vocab_file')}",
    )
    tgt_vocab_file: str = option(
        "",
        "file of the target vocabulary for --data_source=text, one word per "
        "line; transformer uses it for both sides; only the first "
        "--tgt_vocab_size lines are used; only for "
        f"{name_readers('tgt_vocab_file')}",
    )
    bos: str = option(
        "<s>",
        "begin-of-sentence word for --data_source=text, which must be a line "
        "of the target vocabulary",
    )
    eos: str = option(
        "</s>",
        "end-of-sentence word for --data_source=text, which must be a line of "
        "each vocabulary",
    )
    unk_id: int = option(
        0,
        "id of words that are not in the vocabulary, with --data_source=text",
        minimum=0,
        maximum=2_147_483_647,
    )
    num_buckets: int = option(
        5,
        "number of buckets by length, with --data_source=text; a batch "
        "contains sentences of one bucket, which have similar lengths",
        minimum=1,
        maximum=65_536,
    )
    data_dir: str = option(
        "",
        "folder of the images: data_batch_1.bin and so on for "
        "--data_source=cifar10, train-00000-of-01024 and so on for "
        "--data_source=tfrecord",
    )
    disable_shuffle: bool = option(
        False,
        "keep the order of the samples in the files; only with "
        f"{_limit_to('disable_shuffle')}",
    )
    output_buffer_size: int = option(
        10_000,
        "number of samples in the shuffle buffer; more samples mix better and "
        f"take more memory; only with {_limit_to('output_buffer_size')}",
        minimum=1,
        maximum=1_000_000_000,
    )
    num_parallel_calls: int = option(
        2,
        "number of threads that prepare batches; only with "
        f"{_limit_to('num_parallel_calls')}",
        minimum=1,
        maximum=1_024,
    )
    prefetch_data_to_device: bool | None = option(
        None,
        "copy batches to the devices ahead of the step (default: true); only "
        f"with {_limit_to('prefetch_data_to_device')}; if this flag is given "
        "without --data_source, the source is host",
    )
    prefetch_buffer_size: int = option(
        2,
        "number of batches that --prefetch_data_to_device keeps ready on each device",
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
        "number of batches before the measurement; their items and seconds do "
        "not count",
        minimum=0,
        maximum=1_000_000_000,
    )
    num_batches: int = option(
        20,
        "number of batches to measure after the warm-up",
        minimum=1,
        maximum=1_000_000_000,
    )
    until_steady: bool = option(
        False,
        "continue after --num_batches until the run is steady and the interval of its "
        "rate is within --target_ci",
    )
    target_ci: float = option(
        0.02,
        "goal of --until_steady for the half-width of the rate's 95 % "
        "interval, relative to the rate (0.02: 2 %)",
        minimum=1e-4,
    )
    max_batches: int = option(
        2000,
        "maximum number of batches with --until_steady, including the warm-up",
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
        "with --accuracy: end the run when the mean accuracy of 10 batches "
        "stays at or above this for 10 more batches (0.9: 90 %; 0: off)",
        minimum=0.0,
        maximum=1.0,
    )
    num_epochs: float = option(
        0.0,
        "number of passes over the data, including the warm-up, instead of "
        f"--num_batches (0: off); only with {_limit_to('num_epochs')}",
        minimum=0.0,
    )
    inter_op_parallelism_threads: int = option(
        0,
        "number of threads that dispatch operators; 0: one per device, and one more "
        "if devices have several cores or the run has several processes; on GPUs, one "
        "per core, and at least one more than devices",
        minimum=0,
        maximum=4_096,
    )
    intra_op_parallelism_threads: int = option(
        0,
        "number of threads inside operators on the CPU; 0: one if each device "
        "has one core, else the number of cores of all devices; on GPUs, "
        "the number of cores",
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
        "number of batches between two checkpoints in --checkpoint_dir",
        minimum=1,
        maximum=1_000_000_000,
    )
    trace_batches: int = option(
        0,
        "number of batches that are profiled after the measured ones (0: "
        "off); the kernels of two more batches are counted; the record "
        "contains times and counts, and --log_dir gets the traces",
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
        "sizes of the model, batch size and lengths, unless other flags set "
        "them: small (8.2 M parameters, batch 32); large (95.7 M: vocabulary "
        "50,000, embedding and units 512, 4 + 4 cells, bi, 100 words, batch "
        "384); gnmt_v2 (160.7 M: GNMT of NVIDIA and MLPerf, with "
        "--model=nmt_attention; vocabulary 32,320, units 1,024, 50 words, "
        "batch 128); transformer_base or transformer_big (60.5 M and 209.1 M: "
        "vocabulary 32,000, 50 words, batch 128); for images only the batch: "
        f"{presets.describe_image_batches()}",
        choices=tuple(presets.PRESETS),
    )
