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
from rnn_scaling.sweeps.plan import Run
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
    **{
        "num_units": 32,
        "embedding_dim": 24,
        "src_vocab_size": 190,
        "tgt_vocab_size": 170,
    },
    **{"src_max_len": 10, "tgt_max_len": 9, "batch_size": 8},
}
FIRST_ORDER = 0.002  # rate of asynchronous modes, whose gradients are compared with those at the first weights
LEARNING_RATES = {"sgd": 0.5, "momentum": 0.05, "rmsprop": 0.05, "adam": 0.001}
# Divisors of these rates for deep networks: with and without normalisation to bound the activations.
DEEP, UNBOUNDED = 10, 250
# A clipped step is no longer than rate x --max_gradient_norm: for a smaller norm the rate grows, or rounding hides it.
SHORTEST = 0.02
TIMING = (  # options that a verification refuses
    *("until_steady", "target_ci", "max_batches"),
    *("stop_at_loss", "stop_at_accuracy", "num_epochs", "trace_batches"),
)
MEASURING = ("num_batches", "num_warmup_batches", *TIMING)


def defaults_of(given: Mapping[str, Any], has_launcher: bool = False) -> dict[str, Any]:
    is_several = has_launcher or given.get("num_workers", 1) > 1
    mode = given.get(
        "variable_update", ranks.DEFAULT_MODE if is_several else "replicated"
    )
    defaults = {
        **DEFAULTS,
        **_rate(given),
        **_random_lengths(given),
        **({} if "preset" in given else {name: SMALL[name] for name in _sizes(given)}),
        "progress": False,
        "variable_update": mode,
        "num_devices": 1 if registry.mode_of(mode).is_distributed else 2,
    }
    if registry.mode_of(mode).is_distributed and not has_launcher:
        defaults["num_workers"] = ranks.DEFAULT_WORKERS
    return defaults


def _sizes(given: Mapping[str, Any]) -> list[str]:
    """The sizes that this workload reads and that do not come from files; none for images."""
    workload = WORKLOADS.get(given.get("model", configs.OPTIONS["model"].default))
    is_text = given.get("data_source") == "text"
    if workload is None or workload.datasets:
        return []
    left_out = {"batch_size"} if given.get("global_batch_size") else set()
    left_out |= {name for name in SMALL if is_text and "vocab" in name}
    return [
        name
        for name in SMALL
        if name not in left_out and (name == "batch_size" or name in workload.reads)
    ]


def _random_lengths(given: Mapping[str, Any]) -> dict[str, bool]:
    """Sentences of unequal lengths, if the data source has them."""
    source = registry.DATA_SOURCES.get(given.get("data_source", "device"))
    workload = WORKLOADS.get(given.get("model", ""))
    has_images = workload is not None and bool(workload.datasets)
    is_read = source is not None and "random_lengths" in source.reads and not has_images
    return {"random_lengths": True} if is_read else {}


def _rate(given: Mapping[str, Any]) -> dict[str, float]:
    """The default learning rate; none for an unknown optimizer."""
    mode = registry.mode_of(given.get("variable_update"))
    optimizer, longest = (
        given.get("optimizer", DEFAULTS["optimizer"]),
        given.get("max_gradient_norm", 0.0),
    )
    growth = (
        SHORTEST / longest if 0.0 < longest < SHORTEST and optimizer != "adam" else 1.0
    )
    if mode.has_coordinator:
        return {"learning_rate": FIRST_ORDER * growth}
    if optimizer not in LEARNING_RATES:
        return {}
    workload, divisor = WORKLOADS.get(given.get("model", "")), 1
    if workload is not None and "unit_type" not in workload.reads:
        is_bounded = (
            workload.has_moving or not workload.datasets or optimizer == "adam"
        )  # Adam's steps are bounded
        divisor = DEEP if is_bounded else UNBOUNDED
    return {"learning_rate": LEARNING_RATES[optimizer] / divisor * growth}


def jobs(runs: Sequence[Run], out: Path) -> list[Job]:
    return [Job(_verification(run), out / FOLDER) for run in runs]


def attach(
    runs: Sequence[AnyRun], out: Path, certified: Mapping[str, RunRecord], repeats: int
) -> None:
    """Writes each configuration's certificate into the records of its timed runs."""
    for run in runs:
        certificate = certified[run.name].certificate if run.name in certified else None
        for repeat in range(1, repeats + 1):
            path = out / f"{dataclasses.replace(run, repeat=repeat).label}.json"
            timed = record.find(path)  # None: this round was not made
            if timed and certificate is not None and timed.certificate != certificate:
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
