"""What came of a verification -> the certificate: its verdict, its statements, its table."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

from rnn_scaling.analysis.statements import Statement
from rnn_scaling.config import learning_rate, scale
from rnn_scaling.config.run_config import RunConfig
from rnn_scaling.config.run_options import TrainingOptions
from rnn_scaling.records.certificate import Certificate, CertifiedBatch
from rnn_scaling.reports.certificates import certificate_text
from rnn_scaling.system.files.markdown import markdown_table
from rnn_scaling.system.files.terminal import counted
from rnn_scaling.verification.rule import Guarantee

CLOSEST = 1e-5  # nearer is not claimed
RESULTS = {True: "ok", False: "WRONG", None: "not run"}


@dataclasses.dataclass(frozen=True)
class Conclusion:
    """The conclusion of a verification: the word for it, whether the mode keeps its promise, and why."""

    word: str
    holds: bool
    statements: Sequence[Statement]


def certificate(conclusion: Conclusion, **parts: Any) -> Certificate:
    """The certificate of a conclusion; `parts` are its other fields."""
    return Certificate(
        verdict=conclusion.word,
        holds=conclusion.holds,
        statements=tuple(statement.data() for statement in conclusion.statements),
        **parts,
    )


def equal(
    guarantee: Guarantee, num_batches: int, difference: float, has_replicas: bool
) -> Conclusion:
    """The verdict on a run in which nothing is wrong; `has_replicas`: there are several copies of the variables."""
    within = short(10.0 ** math.ceil(math.log10(max(CLOSEST, difference)) - 1e-9))
    kind = "verify-equal-replicas" if has_replicas else "verify-equal"
    if not guarantee.shares_one_model:
        kind = "verify-equal-alone"
    word = f"equal within {within}"
    statements = []
    if guarantee.is_stale:
        word = "stale by 1 step"
        flag = (
            "--staged_vars=true"
            if guarantee.staged
            else "--variable_consistency=relaxed"
        )
        statements.append(Statement("verify-stale", values={"flag": flag}))
    statements.append(
        Statement(kind, values={"within": within, "batches": num_batches})
    )
    return Conclusion(word, True, statements)


def wrong(faults: Sequence[Statement], batch: int, optimizer: str) -> Conclusion:
    """The verdict on a run that breaks the promise of its mode from a batch on; its word is the first fault's."""
    statements = [Statement("verify-wrong", values={"batch": batch}), *faults]
    if optimizer != "sgd":
        statements.append(Statement("verify-try-sgd", values={"optimizer": optimizer}))
    return Conclusion(faults[0].subject, False, statements)


def table(certificate: Certificate) -> str:
    """What was compared, check by check, and the verdict; the batches of a run that is wrong."""
    blocks = [certificate.compared + "\n"]
    if not certificate.holds and certificate.batches:
        head = [
            "Batch",
            "Loss, serial",
            "Loss, parallel",
            "Difference",
            "Largest difference of a weight",
        ]
        rows = [
            [str(number), *_cells(batch)]
            for number, batch in enumerate(certificate.batches)
        ]
        blocks.append(markdown_table(head, rows))
    if certificate.checks:
        head = [
            "Check",
            "Result",
            "Largest difference",
            "Tolerance",
            "What was compared",
        ]
        rows = []
        for check in certificate.checks:
            numbers = (_cell(check.difference), _cell(check.tolerance))
            rows.append([check.name, RESULTS[check.holds], *numbers, check.text])
        blocks.append(markdown_table(head, rows, padded=False))
    return "\n".join([*blocks, certificate_text(certificate)]) + "\n"


def short(number: float) -> str:
    """A number of one digit: "6e-9", "0.02"."""
    if abs(number) >= 1:
        return f"{number:.0f}"
    return (f"{number:.0e}" if 0 < abs(number) < 1e-3 else f"{number:.1g}").replace(
        "e-0", "e-"
    )


def _cells(batch: CertifiedBatch) -> list[str]:
    losses = (batch.loss_serial, batch.loss_parallel)
    present = [loss for loss in losses if loss is not None]
    difference = short(abs(present[0] - present[1])) if len(present) == 2 else "n/a"
    return [
        *("n/a" if loss is None else f"{loss:.6f}" for loss in losses),
        difference,
        _cell(batch.weights_difference),
    ]


def _cell(difference: float | None) -> str:
    return "n/a" if difference is None else short(difference)


def compared(config: RunConfig, num_batches: int) -> str:
    training = config.training
    clipped = (
        f", gradients clipped to {training.max_gradient_norm:g}"
        if training.max_gradient_norm
        else ""
    )
    rate = learning_rate.of(config)
    rates = (
        f"{rate.last:g}"
        if rate.is_constant
        else f"{rate.first:g} to {rate.last:g} in {rate.ramp_updates} updates"
    )
    rates = rates if rate.schedule == "constant" else f"{rate.last:g} ({rate.schedule})"
    repeats = training.gradient_accumulation_steps
    decay = training.weight_decay
    repeated = f" of {repeats} micro-batches" if repeats > 1 else ""
    optimizer = (
        f"{training.optimizer} with weight decay {decay:g}"
        if decay
        else training.optimizer
    )
    where = scale.in_words(config.cluster.num_workers, config.devices.num_devices)
    return (
        f"{config.model.model}, {config.update.variable_update} on {where} against serial training: "
        f"{counted(num_batches, 'batch|batches')}{repeated}, {optimizer}, learning rate {rates}{clipped}, "
        f"{config.model.compute_dtype}."
    )


def limits(training: TrainingOptions, has_clipped: bool) -> list[Statement]:
    """What could be wrong and would not show; `has_clipped`: whether any gradient was long enough to be clipped."""
    hiding = ["--optimizer=adam"] if training.optimizer == "adam" else []
    if training.max_gradient_norm:
        hiding.append("--max_gradient_norm")
    statements = (
        [Statement("verify-hides-factor", values={"hiding": hiding})] if hiding else []
    )
    if training.max_gradient_norm and not has_clipped:
        statements.append(Statement("verify-not-clipped"))
    return statements


def finite(number: float) -> float | None:
    """The number, or None where a record cannot hold it."""
    return float(number) if math.isfinite(number) else None
