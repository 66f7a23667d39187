"""Entries of a history with known levels and scatter, and a git repository for them."""

from __future__ import annotations

import math
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rnn_scaling.records import history
from rnn_scaling.records.history import Entry

PROCESS, ENTRY = 0.015, 0.005  # standard deviations of log rates


def make_commit(number: int) -> str:
    return f"{number:08x}" * 5


def entry(
    number: int,
    rates: Sequence[float] = (1000.0,),
    commit: str | None = "",
    machine: str = "A",
    **changes: Any,
) -> Entry:
    """Return the entry of a day.

    Args:
      number: The day, from 0.
      rates: Rates of its processes.
      commit: Hash of its commit; None if it is unknown, "" for a new one.
      machine: Name of the machine.
      **changes: Other fields of the entry.
    """
    day = f"2026-{1 + number // 28:02}-{1 + number % 28:02}T00:00:00Z"
    options = {
        "device": "cpu",
        "encoder_type": "cudnn_lstm",
        "decoder_type": "cudnn_lstm",
    }
    part = history.Configuration(
        options=options, unit="words", num_devices=1, rates=tuple(rates)
    )
    known = (
        None
        if commit is None
        else history.Commit(
            hash=commit or make_commit(number), date=day, subject="change"
        )
    )
    fields = {
        "measured": day,
        "commit": known,
        "machine": history.Machine(name=machine),
        "configurations": (part,),
    }
    return Entry(**{**fields, **changes})


def scatter_rates(
    levels: Sequence[float], seed: int = 0, processes: int = 3
) -> list[tuple[float, ...]]:
    """Return rates of the processes of each entry around these levels."""
    generator = np.random.default_rng(seed)
    logs = np.log(levels)[:, None] + generator.normal(0, ENTRY, (len(levels), 1))
    return [
        tuple(map(math.exp, row))
        for row in logs + generator.normal(0, PROCESS, (len(levels), processes))
    ]


def entries(levels: Sequence[float], seed: int = 0, **changes: Any) -> list[Entry]:
    """Return entries whose processes scatter around these levels."""
    rates = scatter_rates(levels, seed)
    return [entry(number, each, **changes) for number, each in enumerate(rates)]


def write(folder: Path, levels: Sequence[float], **changes: Any) -> list[Entry]:
    written = entries(levels, **changes)
    for each in written:
        history.write(each, folder)
    return written


def repository(folder: Path, commits: int) -> list[str]:
    """Create a git repository; return the hashes of its commits, parents first.

    Later commits have earlier dates.
    """
    run_git(folder, "init", "-q")
    return [
        make_git_commit(folder, f"change {number}", 2_000_000_000 - number)
        for number in range(commits)
    ]


def make_git_commit(folder: Path, subject: str, seconds: int) -> str:
    author = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
    when = {
        "GIT_COMMITTER_DATE": f"{seconds} +0000",
        "GIT_AUTHOR_DATE": f"{seconds} +0000",
    }
    run_git(
        folder,
        *author,
        "commit",
        "-q",
        "--allow-empty",
        "-m",
        subject,
        environment=when,
    )
    return run_git(folder, "rev-parse", "HEAD").strip()


def run_git(
    folder: Path, *words: str, environment: dict[str, str] | None = None
) -> str:
    done = subprocess.run(
        ["git", *words],
        cwd=folder,
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, **(environment or {})},
    )
    return done.stdout
