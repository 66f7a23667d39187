"""The certificates of a sweep: a short verification of each configuration.

A certificate is made before its configuration is timed, by the command verify, in a
subfolder of the sweep's folder, and resumes with the sweep. The record of every timed
run contains the verdict of its configuration.

A verification has the name of the timed run that it certifies; `attach` finds it by
this name. `sweep` calls `plan_jobs` before the timed runs and `attach` after them.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rnn_scaling.config import registry
from rnn_scaling.config import run_config as configs
from rnn_scaling.config.conditions import END_OPTIONS
from rnn_scaling.config.registry import WORKLOADS
from rnn_scaling.records import record
from rnn_scaling.records.record import RunRecord
from rnn_scaling.records.script_certificate import ScriptCertificate
from rnn_scaling.sweeps.cluster_options import DEFAULT_MODE, DEFAULT_WORKERS
from rnn_scaling.sweeps.folder import Job
from rnn_scaling.sweeps.plan import Run, repeat_runs
from rnn_scaling.sweeps.runs import AnyRun
from rnn_scaling.system.processes import process

FOLDER = "certificates"
VERIFIER = (*process.make_module_command("rnn_scaling"), "verify")
# Adam divides by the size of the gradient, which hides a wrong factor. A fault may
# begin at any batch.
_DEFAULTS: Mapping[str, Any] = {
    "optimizer": "sgd",
    "num_warmup_batches": 1,
    "num_batches": 11,
}
# The network unless the user describes one. It may be small, because nothing is timed.
# Odd sizes show errors at the ends of buckets, chunks and vectors. With few target
# words most of them occur several times in a batch.
SMALL: Mapping[str, int] = {
    "num_units": 31,
    "embedding_dim": 25,
    "src_vocab_size": 189,
    "tgt_vocab_size": 23,
    "src_max_len": 11,
    "tgt_max_len": 9,
    "batch_size": 7,
}
# Learning rate of asynchronous modes, whose gradients are compared with gradients at
# the first weights.
_ASYNCHRONOUS_RATE = 0.002
# Learning rates that move the weights visibly in a few batches.
LEARNING_RATES = {"sgd": 0.5, "momentum": 0.05, "rmsprop": 0.05, "adam": 0.001}
# Divisors of these rates for deep networks, with normalisation that bounds the
# activations and without it.
_DEEP_DIVISOR = 10
_UNBOUNDED_DIVISOR = 250
# A clipped step is at most rate x --max_gradient_norm. Below this norm the rate grows,
# so that rounding does not hide the step.
_MIN_NORM = 0.02
# Options that a verification refuses; they get their default values.
REFUSED_OPTIONS = (*END_OPTIONS, "trace_batches")
# Options of a timed run that its verification does not take over.
_MEASURING_OPTIONS = ("num_batches", "num_warmup_batches", *REFUSED_OPTIONS)


def choose_verification_defaults(
    user_options: Mapping[str, Any], has_launcher: bool = False
) -> dict[str, Any]:
    """Return the options of a verification that differ from the trainer's options.

    Args:
      user_options: The options that the user gives.
      has_launcher: Whether a launcher started several processes.
    """
    has_workers = has_launcher or user_options.get("num_workers", 1) > 1
    default_mode = DEFAULT_MODE if has_workers else "replicated"
    mode = user_options.get("variable_update", default_mode)
    is_distributed = registry.find_mode(mode).is_distributed
    defaults = _choose_training_defaults(user_options)
    if "preset" not in user_options:
        for name in _list_size_options(user_options):
            defaults[name] = _choose_small_size(name, user_options)
    defaults["progress"] = False
    defaults["variable_update"] = mode
    defaults["num_devices"] = 1 if is_distributed else 2
    if is_distributed and not has_launcher:
        defaults["num_workers"] = DEFAULT_WORKERS
    return defaults


def _choose_training_defaults(user_options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the default batches, learning rate and sentence lengths."""
    defaults = dict(_DEFAULTS)
    rate = _choose_learning_rate(user_options)
    if rate is not None:
        defaults["learning_rate"] = rate
    # Sentences of equal lengths hide which mean a mode computes.
    if _has_random_lengths(user_options):
        defaults["random_lengths"] = True
        # XLA compiles every shape, so batches of many lengths would take minutes.
        if user_options.get("random_lengths", True) and not user_options.get("xla"):
            defaults["ragged_batches"] = True
    return defaults


def _choose_small_size(name: str, user_options: Mapping[str, Any]) -> int:
    """Return a size of the small network that fits the other options."""
    if name == "num_units":
        workload = WORKLOADS.get(user_options.get("model", ""))
        if workload is not None and "num_heads" in workload.reads:
            heads = user_options.get("num_heads", configs.OPTIONS["num_heads"].default)
            # An odd number of units per head.
            return int(heads * (SMALL[name] // heads | 1))
    if name == "tgt_vocab_size" and user_options.get("share_embedding"):
        return SMALL["src_vocab_size"]
    return SMALL[name]


def _list_size_options(user_options: Mapping[str, Any]) -> list[str]:
    """Return the sizes that this workload reads and that do not come from files.

    A workload with images has no such sizes.
    """
    model = user_options.get("model", configs.OPTIONS["model"].default)
    workload = WORKLOADS.get(model)
    if workload is None or workload.datasets:
        return []
    names = [name for name in SMALL if name in (*workload.reads, "batch_size")]
    if user_options.get("global_batch_size"):
        names.remove("batch_size")
    if user_options.get("data_source") == "text":
        names = [name for name in names if "vocab" not in name]
    return names


def _has_random_lengths(user_options: Mapping[str, Any]) -> bool:
    """Return whether the data source can make sentences of unequal lengths."""
    source = registry.DATA_SOURCES.get(user_options.get("data_source", "device"))
    if source is None or "random_lengths" not in source.reads:
        return False
    workload = WORKLOADS.get(user_options.get("model", ""))
    return workload is None or not workload.datasets


def _choose_learning_rate(user_options: Mapping[str, Any]) -> float | None:
    """Return the default learning rate; None for an unknown optimizer."""
    mode = registry.find_mode(user_options.get("variable_update"))
    optimizer = user_options.get("optimizer", _DEFAULTS["optimizer"])
    max_norm = user_options.get("max_gradient_norm", 0.0)
    growth = 1.0
    if 0.0 < max_norm < _MIN_NORM and optimizer != "adam":
        growth = _MIN_NORM / max_norm
    if mode.has_coordinator:
        return _ASYNCHRONOUS_RATE * growth
    if optimizer not in LEARNING_RATES:
        return None
    workload = WORKLOADS.get(user_options.get("model", ""))
    divisor = 1
    # Networks without recurrent units are deep.
    if workload is not None and "unit_type" not in workload.reads:
        # Adam's steps are bounded.
        has_norm = workload.has_moving or not workload.datasets
        is_bounded = has_norm or optimizer == "adam"
        divisor = _DEEP_DIVISOR if is_bounded else _UNBOUNDED_DIVISOR
    return LEARNING_RATES[optimizer] / divisor * growth


def plan_jobs(runs: Sequence[Run], out: Path) -> list[Job]:
    """Return the verification of each configuration."""
    return [Job(_plan_verification(run), out / FOLDER) for run in runs]


def attach(
    runs: Sequence[AnyRun],
    out: Path,
    verifications: Mapping[str, RunRecord],
    repeats: int,
) -> None:
    """Write each configuration's certificate into the records of its timed runs.

    Args:
      runs: The timed runs, one per configuration.
      out: The folder of the sweep, with the records of the timed runs.
      verifications: The records of the verifications, by the name of the timed run.
      repeats: Number of timed runs of each configuration.
    """
    for run in repeat_runs(runs, repeats):
        verification = verifications.get(run.name)
        certificate = verification and verification.certificate
        path = out / f"{run.label}.json"
        timed_record = record.find(path)  # None if this round was not made
        if timed_record and certificate and timed_record.certificate != certificate:
            record.write(
                dataclasses.replace(timed_record, certificate=certificate), path
            )


def attach_script(
    runs: Sequence[AnyRun], out: Path, verdict: ScriptCertificate, repeats: int
) -> None:
    """Write the verdict on a user's program into the records of its timed runs.

    Runs whose processes train separate models are left out.

    Args:
      runs: The timed runs, one per configuration.
      out: The folder of the sweep.
      verdict: The verdict.
      repeats: Number of timed runs of each configuration.
    """
    for run in repeat_runs(runs, repeats):
        path = out / f"{run.label}.json"
        timed_record = record.find(path)  # None if this round was not made
        if timed_record is None or timed_record.status != "ok":
            continue
        mode = registry.find_mode(timed_record.options["variable_update"])
        if not mode.trains_one_model:
            continue
        certificate = verdict.for_run(timed_record.options["num_devices"])
        if timed_record.certificate != certificate:
            record.write(
                dataclasses.replace(timed_record, certificate=certificate), path
            )


def _plan_verification(run: Run) -> Run:
    """Return the run of verify that certifies a timed run.

    It has the same flags except the flags for measuring. A learning rate without an
    optimizer is meant for Adam, so it is left out with SGD.
    """
    flags = dict(run.flags)
    for name in _MEASURING_OPTIONS:
        flags.pop(name, None)
    if "optimizer" not in run.flags:
        flags.pop("learning_rate", None)
    flat = run.config.flat()
    sizes = {name: flat[name] for name in _list_size_options(flags)}
    options = {**_choose_training_defaults(flags), **sizes, **flags}
    refused = {name: configs.OPTIONS[name].default for name in REFUSED_OPTIONS}
    config = configs.from_flat({**flat, **refused, **options})
    return Run(run.name, options, config)
