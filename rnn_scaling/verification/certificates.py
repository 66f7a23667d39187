"""What came of a verification -> the certificate: its word, its sentence, its table."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

from rnn_scaling.files.markdown import markdown_table
from rnn_scaling.records.certificate import Certificate, CertifiedBatch
from rnn_scaling.settings import learning_rate, scale
from rnn_scaling.settings.config import RunConfig
from rnn_scaling.verification.guarantees import Guarantee

CLOSEST = 1e-5  # nearer is not claimed
MOST_NAMED = 3
NOT_COVERED = (
    "Not covered: sizes, kernels and batches other than these, the content of text and image files, and image layers."
)
RESULTS = {True: "ok", False: "WRONG", None: "not run"}


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What came of all batches.

    Attributes:
      config: resolved options.
      guarantee: of the mode.
      replicas: name of each, empty of one that all towers share.
      batches: what was compared.
      blind: variables that moved too little to say anything of them.
      variables: how many there are.
      has_clipped: whether a gradient was longer than --max_gradient_norm.
      loss_difference, weights_difference, weights_moved: as of `Certificate`.
    """

    config: RunConfig
    guarantee: Guarantee
    replicas: Sequence[str]
    batches: tuple[CertifiedBatch, ...]
    blind: Sequence[str]
    variables: int
    loss_difference: float
    weights_difference: float
    weights_moved: float
    has_clipped: bool = True


def right(outcome: Outcome) -> Certificate:
    """The certificate of a run in which nothing is wrong."""
    if 2 * len(outcome.blind) > outcome.variables:
        sentence = (
            f"Cannot tell: the weights moved by {short(outcome.weights_moved)} at most, {_named(outcome.blind)} by too "
            f"little to show a fault; give a --learning_rate above {outcome.config.training.learning_rate:g}."
        )
        return _certificate(outcome, "cannot tell", False, sentence)
    within = short(10.0 ** math.ceil(math.log10(max(CLOSEST, outcome.weights_difference)) - 1e-9))
    word = "stale by 1 step" if outcome.guarantee.is_stale else f"equal within {within}"
    serial = "serial training on the same" if outcome.guarantee.shares_one_model else "serial training on its own"
    whose = "the variables are" if outcome.replicas == [""] else "each replica is"
    sentences = [
        f"Equal within {within}: {whose} what {serial} {_count(len(outcome.batches), 'batch')} gives.",
        f"Weights moved by up to {short(outcome.weights_moved)} and differ by {short(outcome.weights_difference)} at "
        f"most; the relative difference of the losses is {short(outcome.loss_difference)}.",
    ]
    if outcome.guarantee.is_stale:
        flag = "--staged_vars=true" if outcome.guarantee.staged else "--variable_consistency=relaxed"
        sentences[0] = f"Stale by 1 step, as {flag} promises. {sentences[0][:-1]} one step late."
    if outcome.blind:
        sentences.append(f"Nothing is said of {_named(outcome.blind)}, which hardly moved.")
    return _certificate(outcome, word, True, " ".join([*sentences, *_hidden(outcome), NOT_COVERED]))


def right_by_steps(outcome: Outcome, first: int) -> Certificate:
    """The certificate of a run whose weights leave those of serial training though each of its updates is right.

    Args:
      first: number of the first batch after which they are farther off than they may be.
    """
    sentence = (
        f"Right step by step: from batch {first} on weights differ by up to {short(outcome.weights_difference)} from "
        "serial training, and each update is what serial training makes at the run's own weights: roundings that grow."
    )
    return _certificate(outcome, "right step by step", True, " ".join([sentence, *_hidden(outcome)]))


def wrong(outcome: Outcome, word: str, text: str, first: int) -> Certificate:
    """The certificate of a run that does not do what its mode promises."""
    sentence = f"WRONG from batch {first} on: {text}."
    if outcome.config.training.optimizer != "sgd":
        sentence += f" --optimizer=sgd says more: {outcome.config.training.optimizer} mixes batches."
    return _certificate(outcome, word, False, sentence)


def table(certificate: Certificate) -> str:
    """What was compared, batch by batch, and the verdict."""
    head = ["Batch", "Loss, serial", "Loss, parallel", "Difference", "Largest difference of a weight"]
    lines = [[str(number), *_cells(batch)] for number, batch in enumerate(certificate.batches)]
    grid = f"{markdown_table(head, lines)}\n" if lines else ""
    checks = [[check.name, RESULTS[check.holds], check.text] for check in certificate.checks]
    if checks:
        grid += f"{markdown_table(['Check', 'Result', 'What was seen'], checks, padded=False)}\n"
    return f"{certificate.compared}\n\n{grid}{certificate.sentence}\n"


def short(number: float) -> str:
    """A number of one digit: "6e-9", "0.02"."""
    if abs(number) >= 1:
        return f"{number:.0f}"
    return (f"{number:.0e}" if 0 < abs(number) < 1e-3 else f"{number:.1g}").replace("e-0", "e-")


def _cells(batch: CertifiedBatch) -> list[str]:
    losses = (batch.loss_serial, batch.loss_parallel)
    known = [each for each in losses if each is not None]
    difference = short(abs(known[0] - known[1])) if len(known) == 2 else "n/a"
    weights = "n/a" if batch.weights_difference is None else short(batch.weights_difference)
    return [*("n/a" if each is None else f"{each:.6f}" for each in losses), difference, weights]


def _certificate(outcome: Outcome, word: str, holds: bool, sentence: str) -> Certificate:
    return Certificate(
        verdict=word,
        holds=holds,
        sentence=sentence,
        compared=compared(outcome.config, len(outcome.batches)),
        replicas=len(outcome.replicas),
        tolerance=outcome.guarantee.share,
        loss_difference=_finite(outcome.loss_difference),
        weights_difference=_finite(outcome.weights_difference),
        weights_moved=_finite(outcome.weights_moved),
        batches=outcome.batches,
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
        f"{_count(num_batches, 'batch')}, {training.optimizer}, learning rate {rates}{clipped}, "
        f"{config.model.compute_dtype}."
    )


def _hidden(outcome: Outcome) -> list[str]:
    """What could be wrong and would not show."""
    hiding = ["adam"] if outcome.config.training.optimizer == "adam" else []
    hiding += ["--max_gradient_norm"] if outcome.config.training.max_gradient_norm else []
    if not hiding:
        return []
    text = f"{' and '.join(hiding)} would hide a wrong factor of the whole gradient, such as sum for mean."
    if outcome.config.training.max_gradient_norm and not outcome.has_clipped:
        text += " No gradient is longer than --max_gradient_norm: clipping is not compared; give a smaller one."
    return [text]


def _named(names: Sequence[str]) -> str:
    more = len(names) - MOST_NAMED
    return f"{', '.join(names[:MOST_NAMED])}{f' and {more} more' if more > 0 else ''}"


def _finite(number: float) -> float | None:
    return number if math.isfinite(number) else None


def _count(number: int, noun: str) -> str:
    plural = f"{noun}es" if noun.endswith("ch") else f"{noun}s"
    return f"{number} {noun if number == 1 else plural}"
