"""The secret of a job: its ranks prove to each other that they have it, and never send it."""

import hmac
import json
import os
import secrets
import stat
from collections.abc import Mapping
from typing import Any

from rnn_scaling.system.files import input_files

VARIABLE = "RNN_SCALING_JOB_TOKEN"
FILE_VARIABLE = "RNN_SCALING_JOB_TOKEN_FILE"
# Lengths in characters.
SHORTEST = 16
LONGEST = 4096


def generate() -> str:
    return secrets.token_hex(16)


def read(environ: Mapping[str, str]) -> str:
    """The token of this process's job; "" without one. The variable with the token comes first.

    Raises ValueError, without the token, if it cannot be read, others can read it, or it can be guessed.
    """
    name = VARIABLE
    token = environ.get(VARIABLE)
    path = environ.get(FILE_VARIABLE)
    if token is None and path is not None:
        name = f"{FILE_VARIABLE}={path}"
        token = _read_file(path)
    token = (
        token and token.strip()
    )  # a Secret of Kubernetes that was made from a pipe ends with a line's end
    if token is not None and len(token) < SHORTEST:
        raise ValueError(
            f"{name}: a token has at least {SHORTEST} characters; make one: openssl rand -hex 16"
        )
    return token or ""


def _read_file(path: str) -> str:
    """Return the text of a token file, which must not keep a rank waiting.

    Raises:
      ValueError: If it cannot be read, is not a regular file, or every user can read it.
    """
    try:
        with input_files.open_regular(path, input_files.UNLIMITED) as file:
            is_open_to_all = os.fstat(file.fileno()).st_mode & stat.S_IROTH
            token = file.read(LONGEST).decode("utf-8", "replace")
    except OSError as e:
        raise ValueError(f"{FILE_VARIABLE}={path}: {e.strerror or e}") from None
    if is_open_to_all:
        raise ValueError(
            f"{FILE_VARIABLE}={path}: every user can read it; chmod 600 {path}"
        )
    return token


def proof(token: str, fields: Mapping[str, Any]) -> str:
    """What only somebody with the token can say of these fields of a message."""
    text = json.dumps(dict(fields), sort_keys=True)
    return hmac.new(
        token.encode("utf-8", "surrogateescape"), text.encode(), "sha256"
    ).hexdigest()


def proves(token: str, given: object, fields: Mapping[str, Any]) -> bool:
    """Whether something is the proof of these fields; takes as long for any text."""
    sent = given.encode("utf-8", "replace") if isinstance(given, str) else b""
    return hmac.compare_digest(proof(token, fields).encode(), sent)
