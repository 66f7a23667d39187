"""What came of a verification -> the certificate: its verdict, its statements, its table."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

from rnn_scaling.analysis.statements import Statement
from rnn_scaling.files.markdown import markdown_table
from rnn_scaling.records.certificate import Certificate, CertifiedBatch, Check
from rnn_scaling.reports.wording import counted, sentences
from rnn_scaling.settings import learning_rate, scale
from rnn_scaling.settings.config import RunConfig
from rnn_scaling.verification.rule import Guarantee

CLOSEST = 1e-5  # nearer is not claimed
RESULTS = {True: "ok", False: "WRONG", None: "not run"}


@dataclasses.dataclass(frozen=True)
class CheckOutcome:
    """What came of all batches.

    Attributes:
      replicas: name of each, empty of one that all towers share.
      hidden: variables that moved too little to show a fault.
      variables: how many there are.
      has_clipped: whether a gradient was longer than --max_gradient_norm.
      loss_difference, weights_difference, weights_moved: as of `Certificate`.
      checks: what was compared, each with its largest difference.
    """

    config: RunConfig
    guarantee: Guarantee
    replicas: Sequence[str]
    batches: tuple[CertifiedBatch, ...]
    hidden: Sequence[str]
    variables: int
    loss_difference: float
    weights_difference: float
    weights_moved: float
    has_clipped: bool = True
    checks: tuple[Check, ...] = ()


def right(outcome: CheckOutcome) -> Certificate:
    """The certificate of a run in which nothing is wrong."""
    if 2 * len(outcome.hidden) > outcome.variables:
        values = {
            "moved": short(outcome.weights_moved),
            "variables": list(outcome.hidden),
            "rate": outcome.config.training.learning_rate,
        }
        return _certificate(outcome, "cannot tell", False, [Statement("verify-hardly-moved", values=values)])
    within = short(10.0 ** math.ceil(math.log10(max(CLOSEST, outcome.weights_difference)) - 1e-9))
    kind = "verify-equal" if outcome.replicas == [""] else "verify-equal-replicas"
    if not outcome.guarantee.shares_one_model:
        kind = "verify-equal-alone"
    verdict, statements = f"equal within {within}", []
    if outcome.guarantee.is_stale:
        verdict = "stale by 1 step"
        flag = "--staged_vars=true" if outcome.guarantee.staged else "--variable_consistency=relaxed"
        statements.append(Statement("verify-stale", values={"flag": flag}))
    statements.append(Statement(kind, values={"within": within, "batches": len(outcome.batches)}))
    statements.append(Statement("verify-moved", values={"moved": short(outcome.weights_moved)}))
    if outcome.hidden:
        statements.append(Statement("verify-not-moved", values={"variables": list(outcome.hidden)}))
    return _certificate(outcome, verdict, True, [*statements, *_limits(outcome), Statement("verify-not-covered")])


def right_by_steps(outcome: CheckOutcome, first: int) -> Certificate:
    """The certificate of a run whose weights leave those of serial training though each of its updates is right.

    Args:
      first: number of the first batch after which they are farther off than they may be.
    """
    values = {"batch": first, "difference": short(outcome.weights_difference)}
    statements = [Statement("verify-step-by-step", values=values), *_limits(outcome)]
    return _certificate(outcome, "right step by step", True, statements)


def wrong(outcome: CheckOutcome, faults: Sequence[Statement], first: int) -> Certificate:
    """The certificate of a run that does not do what its mode promises; the first fault's subject is the verdict."""
    statements = [Statement("verify-wrong", values={"batch": first}), *faults]
    optimizer = outcome.config.training.optimizer
    if optimizer != "sgd":
        statements.append(Statement("verify-try-sgd", values={"optimizer": optimizer}))
    return _certificate(outcome, faults[0].subject, False, statements)


def table(certificate: Certificate) -> str:
    """What was compared, check by check, and the verdict; the batches of a run that is wrong."""
    blocks = [certificate.compared + "\n"]
    if not certificate.holds and certificate.batches:
        head = ["Batch", "Loss, serial", "Loss, parallel", "Difference", "Largest difference of a weight"]
        rows = [[str(number), *_cells(batch)] for number, batch in enumerate(certificate.batches)]
        blocks.append(markdown_table(head, rows))
    if certificate.checks:
        head = ["Check", "Result", "Largest difference", "Tolerance", "What was compared"]
        rows = [
            [check.name, RESULTS[check.holds], _cell(check.difference), _cell(check.tolerance), check.text]
            for check in certificate.checks
        ]
        blocks.append(markdown_table(head, rows, padded=False))
    return "\n".join([*blocks, certificate.sentence]) + "\n"


def short(number: float) -> str:
    """A number of one digit: "6e-9", "0.02"."""
    if abs(number) >= 1:
        return f"{number:.0f}"
    return (f"{number:.0e}" if 0 < abs(number) < 1e-3 else f"{number:.1g}").replace("e-0", "e-")


def _cells(batch: CertifiedBatch) -> list[str]:
    losses = (batch.loss_serial, batch.loss_parallel)
    present = [loss for loss in losses if loss is not None]
    difference = short(abs(present[0] - present[1])) if len(present) == 2 else "n/a"
    return [*("n/a" if loss is None else f"{loss:.6f}" for loss in losses), difference, _cell(batch.weights_difference)]


def _cell(difference: float | None) -> str:
    return "n/a" if difference is None else short(difference)


def _certificate(outcome: CheckOutcome, verdict: str, holds: bool, statements: Sequence[Statement]) -> Certificate:
    return Certificate(
        verdict=verdict,
        holds=holds,
        sentence=sentences(statements),
        statements=tuple(statement.data() for statement in statements),
        compared=compared(outcome.config, len(outcome.batches)),
        replicas=len(outcome.replicas),
        tolerance=outcome.guarantee.share,
        loss_difference=finite(outcome.loss_difference),
        weights_difference=finite(outcome.weights_difference),
        weights_moved=finite(outcome.weights_moved),
        batches=outcome.batches,
        checks=outcome.checks,
    )


def compared(config: RunConfig, num_batches: int) -> str:
    """What was compared, in a line."""
    training = config.training
    clipped = f", gradients clipped to {training.max_gradient_norm:g}" if training.max_gradient_norm else ""
    rate = learning_rate.of(config)
    rates = f"{rate.last:g}" if rate.is_constant else f"{rate.first:g} to {rate.last:g} in {rate.ramp_updates} updates"
    where = scale.in_words(config.cluster.num_workers, config.devices.num_devices)
    return (
        f"{config.model.model}, {config.update.variable_update} on {where} against serial training: "
        f"{counted(num_batches, 'batch|batches')}, {training.optimizer}, learning rate {rates}{clipped}, "
        f"{config.model.compute_dtype}."
    )


def _limits(outcome: CheckOutcome) -> list[Statement]:
    """What could be wrong and would not show."""
    training = outcome.config.training
    hiding = ["--optimizer=adam"] if training.optimizer == "adam" else []
    if training.max_gradient_norm:
        hiding.append("--max_gradient_norm")
    statements = [Statement("verify-hides-factor", values={"hiding": hiding})] if hiding else []
    if training.max_gradient_norm and not outcome.has_clipped:
        statements.append(Statement("verify-not-clipped"))
    return statements


def finite(number: float) -> float | None:
    """The number, or None where a record cannot hold it."""
    return float(number) if math.isfinite(number) else None
