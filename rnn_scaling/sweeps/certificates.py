"""The certificates of a sweep: a short verification of each configuration before it is timed.

They are runs of the command verify in a folder inside the sweep's, and resume with it. The record of every timed run
contains the verdict of its configuration.
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
from rnn_scaling.sweeps import ranks
from rnn_scaling.sweeps.folder import Job
from rnn_scaling.sweeps.plan import Run, repeated
from rnn_scaling.sweeps.runs import AnyRun
from rnn_scaling.system.processes import process

FOLDER = "certificates"
VERIFIER = (*process.our_module("rnn_scaling"), "verify")
# Adam divides by the gradient's size, which hides a wrong factor. The rates move weights visibly in a few batches.
# A fault may begin at any batch, and equal sentences hide which mean was taken.
DEFAULTS: Mapping[str, Any] = {
    "optimizer": "sgd",
    "num_warmup_batches": 1,
    "num_batches": 11,
}
# The network unless the user describes one: everything is compared, and nothing is timed.
SMALL: Mapping[str, int] = {
    "num_units": 32,
    "embedding_dim": 24,
    "src_vocab_size": 190,
    "tgt_vocab_size": 170,
    "src_max_len": 10,
    "tgt_max_len": 9,
    "batch_size": 8,
}
# Rate of asynchronous modes, whose gradients are compared with those at the first weights.
FIRST_ORDER = 0.002
LEARNING_RATES = {"sgd": 0.5, "momentum": 0.05, "rmsprop": 0.05, "adam": 0.001}
# Divisors of these rates for deep networks: with and without normalisation to bound the activations.
DEEP = 10
UNBOUNDED = 250
# A clipped step is no longer than rate x --max_gradient_norm: for a smaller norm the rate grows, or rounding hides it.
SHORTEST = 0.02
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


def defaults_of(given: Mapping[str, Any], has_launcher: bool = False) -> dict[str, Any]:
    """Return the options of a verification that differ from those of the trainer.

    Args:
      given: The options of the user.
      has_launcher: Whether a launcher started several processes.
    """
    is_several = has_launcher or given.get("num_workers", 1) > 1
    default_mode = ranks.DEFAULT_MODE if is_several else "replicated"
    mode = given.get("variable_update", default_mode)
    is_distributed = registry.mode_of(mode).is_distributed
    sizes = {} if "preset" in given else {name: SMALL[name] for name in _sizes(given)}
    defaults = {
        **DEFAULTS,
        **_rate(given),
        **_random_lengths(given),
        **sizes,
        "progress": False,
        "variable_update": mode,
        "num_devices": 1 if is_distributed else 2,
    }
    if is_distributed and not has_launcher:
        defaults["num_workers"] = ranks.DEFAULT_WORKERS
    return defaults


def _sizes(given: Mapping[str, Any]) -> list[str]:
    """Return the sizes that this workload reads and that do not come from files; none for images."""
    workload = WORKLOADS.get(given.get("model", configs.OPTIONS["model"].default))
    if workload is None or workload.datasets:
        return []
    names = [name for name in SMALL if name in (*workload.reads, "batch_size")]
    if given.get("global_batch_size"):
        names.remove("batch_size")
    if given.get("data_source") == "text":
        names = [name for name in names if "vocab" not in name]
    return names


def _random_lengths(given: Mapping[str, Any]) -> dict[str, bool]:
    """Return the option for sentences of unequal lengths, if the data source has them."""
    source = registry.DATA_SOURCES.get(given.get("data_source", "device"))
    workload = WORKLOADS.get(given.get("model", ""))
    has_images = workload is not None and bool(workload.datasets)
    if source is None or has_images or "random_lengths" not in source.reads:
        return {}
    return {"random_lengths": True}


def _rate(given: Mapping[str, Any]) -> dict[str, float]:
    """Return the default learning rate; nothing for an unknown optimizer."""
    mode = registry.mode_of(given.get("variable_update"))
    optimizer = given.get("optimizer", DEFAULTS["optimizer"])
    longest = given.get("max_gradient_norm", 0.0)
    growth = 1.0
    if 0.0 < longest < SHORTEST and optimizer != "adam":
        growth = SHORTEST / longest
    if mode.has_coordinator:
        return {"learning_rate": FIRST_ORDER * growth}
    if optimizer not in LEARNING_RATES:
        return {}
    workload = WORKLOADS.get(given.get("model", ""))
    divisor = 1
    if workload is not None and "unit_type" not in workload.reads:
        # Adam's steps are bounded.
        has_norm = workload.has_moving or not workload.datasets
        divisor = DEEP if has_norm or optimizer == "adam" else UNBOUNDED
    return {"learning_rate": LEARNING_RATES[optimizer] / divisor * growth}


def jobs(runs: Sequence[Run], out: Path) -> list[Job]:
    """Return the verification of each configuration."""
    return [Job(_verification(run), out / FOLDER) for run in runs]


def attach(
    runs: Sequence[AnyRun], out: Path, certified: Mapping[str, RunRecord], repeats: int
) -> None:
    """Write each configuration's certificate into the records of its timed runs."""
    for run in repeated(runs, repeats):
        verified = certified.get(run.name)
        certificate = verified and verified.certificate
        path = out / f"{run.label}.json"
        timed = record.find(path)  # None if this round was not made
        if timed and certificate and timed.certificate != certificate:
            record.write(dataclasses.replace(timed, certificate=certificate), path)


def _verification(run: Run) -> Run:
    """The run of verify that certifies a timed run: the same flags without those of measuring.

    A learning rate without an optimizer is meant for Adam, so it is left out with SGD.
    """
    left_out = {*MEASURING, *(() if "optimizer" in run.flags else ("learning_rate",))}
    kept = {name: value for name, value in run.flags.items() if name not in left_out}
    flat = run.config.flat()
    sizes = {name: flat[name] for name in _sizes(kept)}
    given = {**DEFAULTS, **_rate(kept), **_random_lengths(kept), **sizes, **kept}
    timing = {name: configs.OPTIONS[name].default for name in TIMING}
    return Run(run.name, given, configs.from_flat({**flat, **timing, **given}))
