"""The token of a job: a secret with which its ranks prove that they belong to it.

The launcher or the user puts it into the environment of each rank, and no rank ever
sends it. Without a token it is empty, and the proofs prove nothing.

A rank sends its hello to rank 0 with a proof of the hello's fields; among them is a new
nonce. Rank 0 answers with a proof of the nonce; other programs cannot make it. Both
sides sign the fields as JSON, so the receiver must check exactly the fields that the
sender signed.
"""

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
_MIN_CHARACTERS = 16
_MAX_CHARACTERS = 4096


def generate_token() -> str:
    """Return a new token. All ranks of a job get it in their environment."""
    return secrets.token_hex(16)


def read_token(environ: Mapping[str, str]) -> str:
    """Return the token of this process's job, or "" without one.

    VARIABLE is read before FILE_VARIABLE.

    Raises:
      ValueError: If the token cannot be read, other users can read it, or it is too
        short. The message does not contain the token.
    """
    name = VARIABLE
    token = environ.get(VARIABLE)
    path = environ.get(FILE_VARIABLE)
    if token is None and path is not None:
        name = f"{FILE_VARIABLE}={path}"
        token = _read_file(path)
    if token is None:
        return ""
    # A Secret of Kubernetes that was made from a pipe ends with a line break.
    token = token.strip()
    if len(token) < _MIN_CHARACTERS:
        raise ValueError(
            f"{name}: a token needs at least {_MIN_CHARACTERS} characters; "
            "make one with: openssl rand -hex 16"
        )
    return token


def _read_file(path: str) -> str:
    """Return the text of a token file, which must not keep a rank waiting.

    Raises:
      ValueError: If it cannot be read, is not a regular file, or every user can read
        it.
    """
    try:
        with input_files.open_regular(path, input_files.UNLIMITED) as file:
            is_open_to_all = os.fstat(file.fileno()).st_mode & stat.S_IROTH
            token = file.read(_MAX_CHARACTERS).decode("utf-8", "replace")
    except OSError as e:
        raise ValueError(f"{FILE_VARIABLE}={path}: {e.strerror or e}") from None
    if is_open_to_all:
        raise ValueError(
            f"{FILE_VARIABLE}={path}: other users can read this file; run "
            f"chmod 600 {path}"
        )
    return token


def make_proof(token: str, fields: Mapping[str, Any]) -> str:
    """Return the proof that the sender of these fields has the token.

    Args:
      token: The token of this job.
      fields: JSON data, with a nonce so that the proof cannot be used again.
    """
    text = json.dumps(dict(fields), sort_keys=True)
    key = token.encode("utf-8", "surrogateescape")
    return hmac.new(key, text.encode(), "sha256").hexdigest()


def is_proof(token: str, sent_proof: object, fields: Mapping[str, Any]) -> bool:
    """Return whether a received value is the proof of these fields.

    The comparison takes equally long for every wrong value.

    Args:
      token: The token of this job.
      sent_proof: Any value that another program sent.
      fields: The fields that the sender must have signed.
    """
    sent_bytes = (
        sent_proof.encode("utf-8", "replace") if isinstance(sent_proof, str) else b""
    )
    return hmac.compare_digest(make_proof(token, fields).encode(), sent_bytes)
