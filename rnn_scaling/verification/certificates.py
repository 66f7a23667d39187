"""Write the certificate of a verification: verdict, statements and table.

Certifiers make a `Conclusion`. Verdicts are stored in records: never change one.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

from rnn_scaling.analysis.statements import Statement
from rnn_scaling.config import learning_rate, scale
from rnn_scaling.config.run_config import RunConfig
from rnn_scaling.config.run_options import TrainingOptions
from rnn_scaling.records.certificate import Certificate, CertifiedBatch
from rnn_scaling.reports.certificates import format_certificate
from rnn_scaling.system.files.markdown import format_table
from rnn_scaling.system.files.terminal import format_count
from rnn_scaling.verification.rule import Guarantee

_MIN_BOUND = 1e-5  # certificates claim no smaller difference
_RESULTS = {True: "ok", False: "WRONG", None: "not run"}


@dataclasses.dataclass(frozen=True)
class Conclusion:
    """The conclusion of a verification.

    Attributes:
      verdict: The verdict of the certificate.
      holds: Whether the run keeps the guarantee of its mode.
      statements: The reasons.
    """

    verdict: str
    holds: bool
    statements: Sequence[Statement]


def certificate(conclusion: Conclusion, **fields: Any) -> Certificate:
    """Return the certificate of a conclusion with its other fields."""
    return Certificate(
        verdict=conclusion.verdict,
        holds=conclusion.holds,
        statements=tuple(statement.data() for statement in conclusion.statements),
        **fields,
    )


def equal(
    guarantee: Guarantee, num_batches: int, difference: float, has_replicas: bool
) -> Conclusion:
    """Return the conclusion on a run without a fault.

    Args:
      guarantee: The guarantee of the mode.
      num_batches: Number of compared batches.
      difference: Largest difference of a weight.
      has_replicas: Whether the run has several copies of the variables.
    """
    bound_text = short(
        10.0 ** math.ceil(math.log10(max(_MIN_BOUND, difference)) - 1e-9)
    )
    kind = "verify-equal-replicas" if has_replicas else "verify-equal"
    if not guarantee.shares_one_model:
        kind = "verify-equal-alone"
    verdict = f"equal within {bound_text}"
    statements = []
    if guarantee.is_stale:
        verdict = "stale by 1 step"
        flag = "--variable_consistency=relaxed"
        if guarantee.staged:
            flag = "--staged_vars=true"
        statements.append(Statement("verify-stale", values={"flag": flag}))
    statements.append(
        Statement(kind, values={"within": bound_text, "batches": num_batches})
    )
    return Conclusion(verdict, True, statements)


def wrong(faults: Sequence[Statement], batch: int, optimizer: str) -> Conclusion:
    """Return the conclusion on a run that is wrong from a batch on.

    The verdict is the subject of the first fault.
    """
    statements = [Statement("verify-wrong", values={"batch": batch}), *faults]
    if optimizer != "sgd":
        statements.append(Statement("verify-try-sgd", values={"optimizer": optimizer}))
    return Conclusion(faults[0].subject, False, statements)


def table(certificate: Certificate) -> str:
    """Return the text of a certificate: checks and verdict, and batches if wrong."""
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
            [str(number), *_batch_cells(batch)]
            for number, batch in enumerate(certificate.batches)
        ]
        blocks.append(format_table(head, rows))
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
            result = _RESULTS[check.holds]
            difference = _difference_cell(check.difference)
            tolerance = _difference_cell(check.tolerance)
            rows.append([check.name, result, difference, tolerance, check.text])
        blocks.append(format_table(head, rows, padded=False))
    return "\n".join([*blocks, format_certificate(certificate)]) + "\n"


def short(number: float) -> str:
    """Format a number with one significant digit, such as "6e-9" or "0.02"."""
    if abs(number) >= 1:
        return f"{number:.0f}"
    if 0 < abs(number) < 1e-3:
        return f"{number:.0e}".replace("e-0", "e-")
    return f"{number:.1g}"


def _batch_cells(batch: CertifiedBatch) -> list[str]:
    """Return a line of the table: both losses and their differences."""
    serial = batch.loss_serial
    parallel = batch.loss_parallel
    difference = None
    if serial is not None and parallel is not None:
        difference = abs(serial - parallel)
    return [
        "n/a" if serial is None else f"{serial:.6f}",
        "n/a" if parallel is None else f"{parallel:.6f}",
        _difference_cell(difference),
        _difference_cell(batch.weights_difference),
    ]


def _difference_cell(difference: float | None) -> str:
    return "n/a" if difference is None else short(difference)


def describe_comparison(config: RunConfig, num_batches: int) -> str:
    """Describe the run and the options that its certificate covers."""
    training = config.training
    batches = format_count(num_batches, "batch|batches")
    if training.gradient_accumulation_steps > 1:
        batches += f" of {training.gradient_accumulation_steps} micro-batches"
    optimizer = training.optimizer
    if training.weight_decay:
        optimizer += f" with weight decay {training.weight_decay:g}"
    clipping = ""
    if training.max_gradient_norm:
        clipping = f", gradients clipped to {training.max_gradient_norm:g}"
    devices = scale.describe(config.cluster.num_workers, config.devices.num_devices)
    return (
        f"{config.model.model}, {config.update.variable_update} on {devices} "
        f"against serial training: {batches}, {optimizer}, "
        f"learning rate {_rates_text(config)}{clipping}, {config.model.compute_dtype}."
    )


def _rates_text(config: RunConfig) -> str:
    rate = learning_rate.from_config(config)
    if rate.schedule != "constant":
        return f"{rate.last:g} ({rate.schedule})"
    if rate.is_constant:
        return f"{rate.last:g}"
    return f"{rate.first:g} to {rate.last:g} in {rate.ramp_updates} updates"


def limits(training: TrainingOptions, has_clipped: bool) -> list[Statement]:
    """Return statements about faults that would not be found.

    Args:
      training: The options of the training.
      has_clipped: Whether any gradient was clipped.
    """
    hiding_flags = []
    if training.optimizer == "adam":
        hiding_flags.append("--optimizer=adam")
    if training.max_gradient_norm:
        hiding_flags.append("--max_gradient_norm")
    statements = []
    if hiding_flags:
        values = {"hiding": hiding_flags}
        statements.append(Statement("verify-hides-factor", values=values))
    if training.max_gradient_norm and not has_clipped:
        statements.append(Statement("verify-not-clipped"))
    return statements


def finite_or_none(number: float) -> float | None:
    """Return the number, or None if JSON cannot represent it."""
    return float(number) if math.isfinite(number) else None
