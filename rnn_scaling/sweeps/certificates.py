"""The certificates of a sweep: a short verification of each configuration.

It is made before the configuration is timed, by the command verify, in a subfolder of
the sweep's folder, and resumes with the sweep. The record of every timed run contains
the verdict of its configuration.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rnn_scaling.config import registry
from rnn_scaling.config import run_config as configs
from rnn_scaling.config.registry import WORKLOADS
from rnn_scaling.records import record
from rnn_scaling.records.record import RunRecord
from rnn_scaling.sweeps.cluster_options import DEFAULT_MODE, DEFAULT_WORKERS
from rnn_scaling.sweeps.folder import Job
from rnn_scaling.sweeps.plan import Run, repeat_runs
from rnn_scaling.sweeps.runs import AnyRun
from rnn_scaling.system.processes import process

FOLDER = "certificates"
VERIFIER = (*process.our_module("rnn_scaling"), "verify")
# Adam divides by the size of the gradient, which hides a wrong factor. A fault may begin
# at any batch.
DEFAULTS: Mapping[str, Any] = {
    "optimizer": "sgd",
    "num_warmup_batches": 1,
    "num_batches": 11,
}
# The network unless the user describes one. It may be small, because nothing is timed.
SMALL: Mapping[str, int] = {
    "num_units": 32,
    "embedding_dim": 24,
    "src_vocab_size": 190,
    "tgt_vocab_size": 170,
    "src_max_len": 10,
    "tgt_max_len": 9,
    "batch_size": 8,
}
# Learning rate of asynchronous modes, whose gradients are compared with gradients at the
# first weights.
ASYNCHRONOUS_RATE = 0.002
# Learning rates that move the weights visibly in a few batches.
LEARNING_RATES = {"sgd": 0.5, "momentum": 0.05, "rmsprop": 0.05, "adam": 0.001}
# Divisors of these rates for deep networks, with normalisation that bounds the
# activations and without it.
DEEP_DIVISOR = 10
UNBOUNDED_DIVISOR = 250
# A clipped step is at most rate x --max_gradient_norm. Below this norm the rate grows, so
# that rounding does not hide the step.
MIN_NORM = 0.02
# Options that a verification refuses.
TIMING = (
    "until_steady",
    "target_ci",
    "max_batches",
    "stop_at_loss",
    "stop_at_accuracy",
    "num_epochs",
    "trace_batches",
)
MEASURING = ("num_batches", "num_warmup_batches", *TIMING)


def verification_defaults(
    user_options: Mapping[str, Any], has_launcher: bool = False
) -> dict[str, Any]:
    """Return the options of a verification that differ from those of the trainer.

    Args:
      user_options: The options that the user gives.
      has_launcher: Whether a launcher started several processes.
    """
    has_workers = has_launcher or user_options.get("num_workers", 1) > 1
    default_mode = DEFAULT_MODE if has_workers else "replicated"
    mode = user_options.get("variable_update", default_mode)
    is_distributed = registry.mode_of(mode).is_distributed
    defaults = _training_defaults(user_options)
    if "preset" not in user_options:
        for name in _size_options(user_options):
            defaults[name] = SMALL[name]
    defaults["progress"] = False
    defaults["variable_update"] = mode
    defaults["num_devices"] = 1 if is_distributed else 2
    if is_distributed and not has_launcher:
        defaults["num_workers"] = DEFAULT_WORKERS
    return defaults


def _training_defaults(user_options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the default batches, learning rate and sentence lengths."""
    defaults = dict(DEFAULTS)
    rate = _choose_learning_rate(user_options)
    if rate is not None:
        defaults["learning_rate"] = rate
    # Sentences of equal lengths hide which mean a mode computes.
    if _has_random_lengths(user_options):
        defaults["random_lengths"] = True
    return defaults


def _size_options(user_options: Mapping[str, Any]) -> list[str]:
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
    mode = registry.mode_of(user_options.get("variable_update"))
    optimizer = user_options.get("optimizer", DEFAULTS["optimizer"])
    max_norm = user_options.get("max_gradient_norm", 0.0)
    growth = 1.0
    if 0.0 < max_norm < MIN_NORM and optimizer != "adam":
        growth = MIN_NORM / max_norm
    if mode.has_coordinator:
        return ASYNCHRONOUS_RATE * growth
    if optimizer not in LEARNING_RATES:
        return None
    workload = WORKLOADS.get(user_options.get("model", ""))
    divisor = 1
    if workload is not None and "unit_type" not in workload.reads:
        # Adam's steps are bounded.
        has_norm = workload.has_moving or not workload.datasets
        is_bounded = has_norm or optimizer == "adam"
        divisor = DEEP_DIVISOR if is_bounded else UNBOUNDED_DIVISOR
    return LEARNING_RATES[optimizer] / divisor * growth


def plan_jobs(runs: Sequence[Run], out: Path) -> list[Job]:
    """Return the verification of each configuration."""
    return [Job(_plan_verification(run), out / FOLDER) for run in runs]


def attach(
    runs: Sequence[AnyRun], out: Path, certified: Mapping[str, RunRecord], repeats: int
) -> None:
    """Write each configuration's certificate into the records of its timed runs."""
    for run in repeat_runs(runs, repeats):
        verification = certified.get(run.name)
        certificate = verification and verification.certificate
        path = out / f"{run.label}.json"
        timed = record.find(path)  # None if this round was not made
        if timed and certificate and timed.certificate != certificate:
            record.write(dataclasses.replace(timed, certificate=certificate), path)


def _plan_verification(run: Run) -> Run:
    """Return the run of verify that certifies a timed run.

    It has the same flags except those of measuring. A learning rate without an optimizer
    is meant for Adam, so it is left out with SGD.
    """
    flags = dict(run.flags)
    for name in MEASURING:
        flags.pop(name, None)
    if "optimizer" not in run.flags:
        flags.pop("learning_rate", None)
    flat = run.config.flat()
    sizes = {name: flat[name] for name in _size_options(flags)}
    options = {**_training_defaults(flags), **sizes, **flags}
    timing = {name: configs.OPTIONS[name].default for name in TIMING}
    return Run(run.name, options, configs.from_flat({**flat, **timing, **options}))
