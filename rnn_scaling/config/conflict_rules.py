"""The conflicts that follow only from the options: a table of conditions and messages.

A message names the flag, its value, the rule and the remedy. It is a format string over
the values of all options and `Case.extras`. Conflicts that need a loop, the file system
or the machine are in conflicts.py.

`conflicts` applies the table. A new rule is one row of `RULES`.
"""

import dataclasses
import functools
import re
from collections.abc import Callable, Mapping
from typing import Any

from rnn_scaling.config import learning_rate
from rnn_scaling.config.conditions import STOP_OPTIONS, is_read
from rnn_scaling.config.registry import (
    DATA_SOURCES,
    KNOWN_ANSWERS,
    UpdateMode,
    join_with_or,
)
from rnn_scaling.config.run_config import RunConfig
from rnn_scaling.config.spelling import spell
from rnn_scaling.models.workloads import WORKLOADS, Entry


@dataclasses.dataclass(frozen=True)
class Case:
    """A configuration with the values that conditions and messages use."""

    config: RunConfig
    user_options: Mapping[str, Any]  # the options that the user set
    num_gpus: int  # GPUs of this machine

    def __getattr__(self, name: str) -> Any:
        """Return the value of an option."""
        return self.values[name]

    @functools.cached_property
    def values(self) -> Mapping[str, Any]:
        """The values for messages."""
        return {**self.config.flat(), **self.extras}

    @property
    def extras(self) -> dict[str, Any]:
        """The values for messages that are not options."""
        measure = self.config.measure
        num_workers = self.config.cluster.num_workers
        end_flags = [
            spell(name, getattr(measure, name))
            for name in STOP_OPTIONS
            if getattr(measure, name)
        ]
        presets = self.workload.batch_sizes
        return {
            "towers": self.config.num_towers,
            "min_batches": measure.num_warmup_batches + measure.num_batches,
            "times_workers": f" x --num_workers={num_workers}"
            if num_workers > 1
            else "",
            "sample": self.workload.samples.removesuffix("s"),
            "presets": join_with_or(presets) if presets else "",
            "direction_alias": self.user_options.get("encoder_type"),
            "end_flag": end_flags[0] if end_flags else "",
        }

    @property
    def mode(self) -> UpdateMode:
        """The update mode."""
        return self.config.mode

    @property
    def workload(self) -> Entry:
        """The workload."""
        return WORKLOADS[self.config.model.model]

    @property
    def has_workers(self) -> bool:
        """Whether there are several workers."""
        num_workers = self.config.cluster.num_workers
        return is_read(self.config, "num_workers") and num_workers > 1

    @property
    def starts_from_states(self) -> bool:
        """Whether decoder cells start from the states of encoder cells.

        The cells of gnmt_v2 start from 0.
        """
        architecture = self.config.model.attention_architecture
        return not is_read(self.config, "attention") or architecture != "gnmt_v2"

    @property
    def has_fitting_data(self) -> bool:
        """Whether the model can train on the content of the data source."""
        dataset = self.config.model.dataset
        content = DATA_SOURCES[self.config.data.data_source].holds
        is_supported = not dataset or dataset in self.workload.datasets
        return is_supported and content in ("", dataset or "text")

    @property
    def has_known_answer(self) -> bool:
        """Whether the data source contains texts with known translations."""
        source = self.config.data.data_source
        return source in KNOWN_ANSWERS and not self.config.model.dataset


@dataclasses.dataclass(frozen=True)
class ConflictRule:
    """One kind of conflict."""

    applies: Callable[[Case], bool]
    message: str
    reads: str = ""  # the rule applies only if this option is read


_COORDINATOR_SOURCES = ("device", *KNOWN_ANSWERS)
_SOURCES_TEXT = join_with_or(_COORDINATOR_SOURCES)
_TRANSLATING = join_with_or(
    name for name, workload in WORKLOADS.items() if "src_max_len" in workload.reads
)

RULES = (
    # Devices and batches.
    ConflictRule(
        lambda c: bool(c.global_batch_size) and "batch_size" in c.user_options,
        "--global_batch_size={global_batch_size} and --batch_size={batch_size} "
        "contradict each other: "
        "choose strong or weak scaling and leave one out",
    ),
    ConflictRule(
        lambda c: (
            0 < c.global_batch_size < c.towers and "batch_size" not in c.user_options
        ),
        "--global_batch_size={global_batch_size} must be at least "
        "--num_devices={num_devices}{times_workers}: "
        "every tower needs a {sample}",
    ),
    ConflictRule(
        lambda c: c.gradient_accumulation_steps > 1 and bool(c.global_batch_size),
        "--gradient_accumulation_steps={gradient_accumulation_steps} multiplies the "
        "batch of a tower, but "
        "--global_batch_size={global_batch_size} fixes the batch of all towers; use "
        "--batch_size",
    ),
    ConflictRule(
        lambda c: (
            c.gradient_accumulation_steps > 1
            and (c.mode.has_coordinator or c.mode.cuts_global_batch)
        ),
        "--gradient_accumulation_steps={gradient_accumulation_steps}: with "
        "--variable_update={variable_update} a step "
        "has one batch; use a larger --batch_size or another mode",
    ),
    ConflictRule(
        lambda c: c.device == "gpu" and not c.num_gpus,
        "--device=gpu needs a visible NVIDIA GPU, found none; use --device=cpu (or "
        "check CUDA_VISIBLE_DEVICES)",
    ),
    # Several workers.
    ConflictRule(
        lambda c: (
            c.has_workers
            and c.mode.processes.one_tower_on_cpus
            and c.device == "cpu"
            and c.num_devices > 1
        ),
        "--num_devices={num_devices}: MultiWorkerMirroredStrategy has one tower per "
        "worker on CPUs; "
        "use --num_devices=1 and more workers, or collective_all_reduce",
    ),
    ConflictRule(
        lambda c: c.has_workers and bool(c.end_flag) and not c.mode.has_servers,
        "{end_flag} would let each of --num_workers={num_workers} end at a different "
        "batch, but all must end together; "
        "use --num_batches",
    ),
    ConflictRule(
        lambda c: (
            c.has_workers
            and c.mode.engine == "collective"
            and c.variable_consistency == "relaxed"
            and c.sparse_gradients == "gather"
        ),
        "--variable_consistency=relaxed over --num_workers={num_workers} needs "
        "--sparse_gradients=densify: "
        "TensorFlow's collective gather aborts the process if rows arrive a step late",
        reads="tgt_vocab_size",
    ),
    # A coordinator that hands each step to any free worker.
    ConflictRule(
        lambda c: c.mode.has_coordinator and c.num_devices > 1,
        "--num_devices={num_devices}: with --variable_update={variable_update} a step "
        "has one tower; "
        "use --num_devices=1 --num_workers={towers}",
    ),
    ConflictRule(
        lambda c: c.mode.has_coordinator and bool(c.global_batch_size % c.num_workers),
        "--global_batch_size={global_batch_size} must be a multiple of "
        "--num_workers={num_workers} "
        "with --variable_update={variable_update}: any worker may run any step",
    ),
    ConflictRule(
        lambda c: c.mode.has_coordinator and c.data_source not in _COORDINATOR_SOURCES,
        "--data_source={data_source}: with --variable_update={variable_update} a step "
        "draws its own batch on any "
        f"worker; use --data_source={_SOURCES_TEXT}",
    ),
    ConflictRule(
        lambda c: c.mode.has_coordinator and c.workload.has_moving,
        "--model={model}: its batch normalisation keeps moving averages on each tower, "
        "but with "
        "--variable_update={variable_update} any free worker runs the next step; "
        "use --variable_update=distributed_parameter_server",
    ),
    ConflictRule(
        lambda c: c.mode.has_coordinator and bool(c.trace_batches),
        "--trace_batches={trace_batches}: with --variable_update={variable_update} the "
        "profiler does not see the "
        "steps; trace --variable_update=distributed_parameter_server",
    ),
    ConflictRule(
        lambda c: (
            bool(c.checkpoint_dir)
            and c.mode.is_distributed
            and (c.mode.has_coordinator or not c.mode.trains_one_model)
        ),
        "--checkpoint_dir={checkpoint_dir}: the workers of "
        "--variable_update={variable_update} are at different "
        "batches; use another mode, such as --variable_update=collective_all_reduce, "
        "or leave out --checkpoint_dir",
    ),
    # The model.
    ConflictRule(
        lambda c: bool(c.workload.datasets) and c.preset not in c.workload.batch_sizes,
        "--preset={preset} is for text, but --model={model} trains on images; use "
        "--preset={presets}",
    ),
    ConflictRule(
        lambda c: (
            c.direction_alias in ("bi", "uni") and not is_read(c.config, "direction")
        ),
        "--encoder_type={direction_alias} names a direction, which --model={model} "
        "does not read; use --encoder_type=dynamic_rnn",
    ),
    ConflictRule(
        lambda c: (
            c.direction_alias in ("bi", "uni") and c.direction != c.direction_alias
        ),
        "--encoder_type={direction_alias} and --direction={direction} contradict each "
        "other; leave one out",
        reads="direction",
    ),
    ConflictRule(
        lambda c: (
            c.starts_from_states
            and c.direction == "bi"
            and bool(c.num_encoder_layers % 2)
        ),
        "--num_encoder_layers={num_encoder_layers} must be even with --direction=bi: "
        "a layer has two cells, one per direction",
        reads="direction",
    ),
    ConflictRule(
        lambda c: c.starts_from_states and c.num_encoder_layers != c.num_decoder_layers,
        "--num_decoder_layers={num_decoder_layers} must equal "
        "--num_encoder_layers={num_encoder_layers}: "
        "each decoder cell starts from the state of one encoder cell",
        reads="decoder_type",
    ),
    ConflictRule(
        lambda c: bool(c.num_units % c.num_heads),
        "--num_heads={num_heads} must divide --num_units={num_units}: each head has an "
        "equal part of the units",
        reads="num_heads",
    ),
    ConflictRule(
        lambda c: c.normalize_attention and c.attention != "bahdanau",
        "--normalize_attention=true needs --attention=bahdanau, got {attention}, whose "
        "scores have no "
        "vector to normalise; use --normalize_attention=false",
        reads="attention",
    ),
    ConflictRule(
        lambda c: c.biases_per_gate == 2 and c.unit_type != "lstm",
        "--biases_per_gate=2 needs --unit_type=lstm, got {unit_type}; use "
        "--biases_per_gate=1",
        reads="attention",
    ),
    ConflictRule(
        lambda c: c.share_embedding and c.src_vocab_size != c.tgt_vocab_size,
        "--share_embedding=true needs one vocabulary, got "
        "--src_vocab_size={src_vocab_size} and "
        "--tgt_vocab_size={tgt_vocab_size}; make them equal",
        reads="share_embedding",
    ),
    ConflictRule(
        lambda c: (
            c.share_embedding
            and is_read(c.config, "src_vocab_file")
            and c.src_vocab_file != c.tgt_vocab_file
        ),
        "--share_embedding=true needs one vocabulary, got "
        "--src_vocab_file={src_vocab_file} and "
        "--tgt_vocab_file={tgt_vocab_file}; use the same file for both",
        reads="share_embedding",
    ),
    # Inference.
    ConflictRule(
        lambda c: c.forward_only and c.decode,
        "--forward_only=true computes the loss and --decode=true translates: leave one "
        "out",
    ),
    ConflictRule(
        lambda c: c.beam_size > c.tgt_vocab_size,
        "--beam_size={beam_size} must be at most --tgt_vocab_size={tgt_vocab_size}: "
        "every hypothesis starts with a different word",
        reads="beam_size",
    ),
    # Updates and measurement.
    ConflictRule(
        lambda c: c.learning_rate <= 0,
        "--learning_rate={learning_rate} must be above 0",
    ),
    ConflictRule(
        lambda c: (
            c.lr_schedule == "piecewise"
            and not learning_rate.parse_steps(c.config.training)
        ),
        "--lr_steps={lr_steps}: --lr_schedule=piecewise needs rising numbers of "
        "updates, each with a rate above 0, "
        "such as --lr_steps=100:0.01,200:0.001",
    ),
    ConflictRule(
        lambda c: c.lr_schedule == "inverse_sqrt" and not c.lr_warmup_batches,
        "--lr_schedule=inverse_sqrt needs --lr_warmup_batches of at least 1: the "
        "updates before the rate reaches "
        "--learning_rate",
    ),
    ConflictRule(
        lambda c: not re.fullmatch(r"dynamic|[1-9]\d{0,8}", c.loss_scale),
        "--loss_scale={loss_scale} must be dynamic or a whole number of at most 9 "
        "digits, such as 128",
    ),
    ConflictRule(
        lambda c: (
            bool(c.user_options.get("independent_replica"))
            and c.user_options.get("variable_update", "replicated")
            not in ("replicated", "independent")
        ),
        "--independent_replica=true needs --variable_update=replicated, got "
        "{variable_update}; leave out --independent_replica",
    ),
    ConflictRule(
        lambda c: c.param_server_device == "gpu" and c.device == "cpu",
        "--param_server_device=gpu needs GPUs, got --device=cpu; use "
        "--param_server_device=cpu",
        reads="param_server_device",
    ),
    ConflictRule(
        lambda c: c.partition_large_variables and c.param_server_device == "cpu",
        "--partition_large_variables=true needs variables spread over GPUs; "
        "use --param_server_device=gpu, or leave out --partition_large_variables",
        reads="param_server_device",
    ),
    ConflictRule(
        lambda c: c.staged_vars and c.variable_consistency == "relaxed",
        "--staged_vars=true and --variable_consistency=relaxed each add one step of "
        "staleness; "
        "only one step is supported: leave one out",
        reads="param_server_device",
    ),
    ConflictRule(
        lambda c: bool(c.gradient_repacking and c.agg_small_grads_max_bytes),
        "--gradient_repacking={gradient_repacking} already concatenates every dense "
        "gradient; "
        "leave out --agg_small_grads_max_bytes={agg_small_grads_max_bytes}",
        reads="all_reduce_spec",
    ),
    ConflictRule(
        lambda c: c.until_steady and c.max_batches < c.min_batches,
        "--max_batches={max_batches} must be at least --num_warmup_batches + "
        "--num_batches = {min_batches}",
    ),
    ConflictRule(
        lambda c: (
            bool(c.num_epochs) and (c.until_steady or "num_batches" in c.user_options)
        ),
        "--num_epochs={num_epochs:g} determines the number of batches; leave out "
        "--num_batches and --until_steady",
    ),
    # Data.
    ConflictRule(
        lambda c: c.use_synthetic_data and c.data_source != "device",
        "--use_synthetic_data=true means --data_source=device, got {data_source}; "
        "leave one out",
    ),
    ConflictRule(
        lambda c: c.has_fitting_data and not c.data_dir,
        "--data_source={data_source} needs --data_dir, the folder of the files",
        reads="data_dir",
    ),
    ConflictRule(
        lambda c: (
            c.has_fitting_data
            and is_read(c.config, "src_vocab_size")
            and c.unk_id >= c.src_vocab_size
        ),
        "--unk_id={unk_id} must be below --src_vocab_size={src_vocab_size}",
        reads="tgt_file_name",
    ),
    ConflictRule(
        lambda c: (
            c.has_fitting_data
            and is_read(c.config, "tgt_vocab_size")
            and c.unk_id >= c.tgt_vocab_size
        ),
        "--unk_id={unk_id} must be below --tgt_vocab_size={tgt_vocab_size}",
        reads="tgt_file_name",
    ),
    ConflictRule(
        lambda c: c.has_fitting_data and c.tgt_max_len < 2,
        "--tgt_max_len={tgt_max_len} must be at least 2 for text: a word and the "
        "end-of-sentence word",
        reads="tgt_file_name",
    ),
    ConflictRule(
        lambda c: is_read(c.config, "src_max_len") and 0 < c.pad_to < c.src_max_len,
        "--pad_to={pad_to} must be at least --src_max_len={src_max_len}: padding never "
        "shortens a sentence",
        reads="pad_to",
    ),
    ConflictRule(
        lambda c: 0 < c.pad_to < c.tgt_max_len,
        "--pad_to={pad_to} must be at least --tgt_max_len={tgt_max_len}: padding never "
        "shortens a sentence",
        reads="pad_to",
    ),
    ConflictRule(
        lambda c: c.has_known_answer and not is_read(c.config, "src_max_len"),
        "--data_source={data_source} makes pairs of a sentence and its translation; "
        "use --model=" + _TRANSLATING,
    ),
    ConflictRule(
        lambda c: c.has_known_answer and c.src_max_len != c.tgt_max_len,
        "--data_source={data_source} has the same number of words on both sides, got "
        "--src_max_len={src_max_len} "
        "and --tgt_max_len={tgt_max_len}; make them equal",
        reads="src_max_len",
    ),
    ConflictRule(
        lambda c: c.has_known_answer and c.src_max_len == c.tgt_max_len < 2,
        "--data_source={data_source} needs --tgt_max_len of at least 2 for a word and "
        "the end-of-sentence word, "
        "got {tgt_max_len}",
        reads="src_max_len",
    ),
)


def find_broken_rules(
    config: RunConfig, user_options: Mapping[str, Any], num_gpus: int
) -> list[str]:
    """Return one line for each rule that a configuration breaks."""
    case = Case(config, user_options, num_gpus)
    lines = []
    for rule in RULES:
        is_relevant = not rule.reads or is_read(config, rule.reads)
        if is_relevant and rule.applies(case):
            lines.append(rule.message.format_map(case.values))
    return lines
