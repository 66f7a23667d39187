"""The certificate of a script, as `verify --trainer` writes it, in records of its runs.

verification/scripts/certificate.py writes the file. The keys that `read` looks up, and
RIGHT, WRONG and CANNOT_TELL, must equal what it writes.
"""

import dataclasses
from pathlib import Path
from typing import Any

from rnn_scaling.records.certificate import Certificate
from rnn_scaling.system.files import input_files

SCHEMA = "rnn_scaling.script_certificate/1"
_RIGHT = "right"
WRONG = "wrong"
CANNOT_TELL = "cannot tell"
_NO_DATE = "no date"  # older certificates


class ScriptCertificateError(ValueError):
    """A file is not the certificate of a script; the message says why."""


@dataclasses.dataclass(frozen=True)
class ScriptCertificate:
    """The verdict of a certificate.

    Attributes:
      command: The command that was verified, of one process.
      num_ranks: Number of processes that were compared with one process.
      date: Day of the verification in UTC, such as "2026-01-31".
      answer: RIGHT, WRONG or CANNOT_TELL.
      cause: Name of the fault; "" if nothing is wrong.
      step: First wrong step, from 1; 0 if nothing is wrong.
    """

    command: str
    num_ranks: int
    date: str
    answer: str
    cause: str = ""
    step: int = 0

    def for_run(self, num_devices: int) -> Certificate | None:
        """Return the certificate for the record of a run of the script.

        Returns:
          None if the verdict says nothing about the run: one device is the reference,
          so it is not wrong.
        """
        if self.answer == CANNOT_TELL:
            return None
        holds = self.answer == _RIGHT
        if not holds and num_devices == 1:
            return None
        values: dict[str, Any] = {
            "command": self.command,
            "ranks": self.num_ranks,
            "date": self.date,
        }
        if not holds:
            values |= {"cause": self.cause, "step": self.step}
        kind = f"script-certificate-{self.answer}"
        return Certificate(
            verdict=self.answer if holds else self.cause,
            holds=holds,
            statements=({"kind": kind, "subject": "", "values": values},),
            compared=f"{self.command}: one process and {self.num_ranks} processes",
        )


def read(path: Path) -> ScriptCertificate:
    """Return the verdict of a certificate. Its numbers are not judged again.

    Raises:
      OSError: If the file cannot be read.
      ScriptCertificateError: If it is not a certificate.
    """
    try:
        content = input_files.parse_json(input_files.read_text(path))
    except input_files.JsonError as e:
        raise ScriptCertificateError(f"not JSON: {e}") from None
    if not isinstance(content, dict) or content.get("schema") != SCHEMA:
        raise ScriptCertificateError(f"not a certificate of a script ({SCHEMA})")
    verdict = content.get("verdict")
    if not isinstance(verdict, dict):
        raise ScriptCertificateError("verdict is missing")
    answer = verdict.get("answer")
    if answer not in (_RIGHT, WRONG, CANNOT_TELL):
        raise ScriptCertificateError(f"verdict.answer is {answer!r}")
    certificate = ScriptCertificate(
        command=_require_field(content, "command", str),
        num_ranks=_require_field(content, "num_ranks", int),
        date=_require_field(content, "date", str) if "date" in content else _NO_DATE,
        answer=answer,
    )
    if answer != WRONG:
        return certificate
    return dataclasses.replace(
        certificate,
        cause=_require_field(verdict, "cause", str),
        step=_require_field(verdict, "step", int),
    )


def _require_field(content: dict[str, Any], name: str, kind: type) -> Any:
    """Return a value that a record may contain."""
    value = content.get(name)
    is_valid = type(value) is kind and bool(value)
    if isinstance(value, str) and not value.isprintable():
        is_valid = False
    if not is_valid:
        raise ScriptCertificateError(f"{name} is {value!r}")
    return value
