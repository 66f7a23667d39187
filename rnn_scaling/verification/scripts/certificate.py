"""The certificate of a script: a JSON file from which anybody can repeat the verdict.

`session` writes and checks the file. Its keys are read by `records.script_certificate`.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

from rnn_scaling.analysis.statements import Statement
from rnn_scaling.records.script_certificate import SCHEMA
from rnn_scaling.reports.wording import write_sentence
from rnn_scaling.system.files.input_files import format_json
from rnn_scaling.system.files.markdown import format_table
from rnn_scaling.verification.scripts.judge import judge
from rnn_scaling.verification.scripts.verdict import Answer, Check, Verdict

COLUMNS = ("Evidence", "Result", "Step", "Difference / tolerance", "What was compared")


class CertificateError(ValueError):
    """A file is not a certificate of a script; the message gives the reason."""


def to_json(
    verdict: Verdict, runs: Mapping[str, Any], facts: Mapping[str, Any]
) -> dict[str, Any]:
    """Return a certificate.

    Args:
      verdict: The verdict.
      runs: The records from which it was made.
      facts: The command, versions and sizes.
    """
    return {
        "schema": SCHEMA,
        **facts,
        "verdict": _verdict_data(verdict),
        "runs": dict(runs),
    }


def _verdict_data(verdict: Verdict) -> dict[str, Any]:
    """Return the verdict as JSON data, with the values of enums."""
    fault = verdict.fault
    # Enums become their values.
    return dict(
        json.loads(
            format_json(
                {
                    "answer": verdict.answer,
                    "cause": fault.cause if fault else None,
                    "step": fault.step if fault else None,
                    "reason": verdict.reason,
                    "values": dict(verdict.values),
                    "checks": [dataclasses.asdict(c) for c in verdict.checks],
                    "not_covered": verdict.not_covered,
                }
            )
        )
    )


def check(certificate: Any) -> tuple[Verdict, bool]:
    """Repeat the verdict of a certificate.

    Returns:
      The verdict that its records give, and whether it is the one in the certificate.

    Raises:
      CertificateError: If it is not a certificate.
    """
    if not isinstance(certificate, dict) or certificate.get("schema") != SCHEMA:
        raise CertificateError(f"not a certificate of a script ({SCHEMA})")
    try:
        verdict = judge(certificate["runs"])
        stored = certificate["verdict"]
        names = ("answer", "cause", "step")
        repeated = _verdict_data(verdict)
        is_same = all(repeated[name] == stored[name] for name in names)
    except (KeyError, TypeError, IndexError, AttributeError, ValueError) as e:
        raise CertificateError(
            f"its records are incomplete: {type(e).__name__}: {e}"
        ) from None
    return verdict, is_same


def text(verdict: Verdict, num_ranks: int, num_steps: int) -> str:
    """Return the answer, the evidence, and the gaps as text."""
    parts = [f"{answer_line(verdict, num_ranks, num_steps)}\n"]
    if verdict.checks:
        rows = [_row(check) for check in verdict.checks]
        parts.append(format_table(COLUMNS, rows, padded=False))
    if verdict.answer is not Answer.CANNOT_TELL:
        gaps = [*verdict.not_covered, "always"]
        listed = "; ".join(_template("gap", gap, {}) for gap in gaps)
        parts.append(f"Not covered: {listed}.\n")
    return "\n".join(parts)


def answer_line(verdict: Verdict, num_ranks: int, num_steps: int) -> str:
    """Return the answer in one line."""
    values: dict[str, Any] = {"ranks": num_ranks, "steps": num_steps, **verdict.values}
    fault = verdict.fault
    if verdict.answer is Answer.CANNOT_TELL:
        values["reason"] = _template("reason", verdict.reason, values)
        return write_sentence(Statement("script-cannot-tell", values=values))
    if fault is None:
        is_by_parts = "by-parts" in verdict.not_covered
        kind = "script-right-by-parts" if is_by_parts else "script-right"
        return write_sentence(Statement(kind, values=values))
    assert fault.cause is not None
    values["step"] = fault.step
    values["cause"] = _template("cause", fault.cause.value, fault.values)
    return write_sentence(Statement("script-wrong", values=values))


def _row(check: Check) -> tuple[Any, ...]:
    description = _template("evidence", check.kind, check.values)
    ratio = "" if check.ratio is None else f"{check.ratio:.3g}"
    step = "" if check.step is None else str(check.step)
    return check.subject.value, check.result.value, step, ratio, description


def _template(group: str, kind: str, values: Mapping[str, Any]) -> str:
    return write_sentence(Statement(f"script-{group}-{kind}", values=values))
