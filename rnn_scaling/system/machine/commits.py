"""Facts about commits from git: order, dates, subjects, the number between two, and their web address.

Facts are unknown without git or a repository, or if the commit is missing, for example after a rebase.
"""

import dataclasses
import datetime
import functools
import re
from collections.abc import Mapping, Sequence

from rnn_scaling.system.machine.system import run_command

_HASH = re.compile(r"[0-9a-f]{7,64}")
# Addresses of remotes: git@host:owner/name.git, https://user:password@host/owner/name, ssh://git@host:22/owner/name.
_REMOTE = re.compile(
    r"(?:\w+://)?(?:[^@/]*@)?([\w.-]+)(?::\d+(?=/))?[:/](.+?)(?:\.git)?/?"
)
_PAGES = {"github": "commit", "gitlab": "-/commit"}


@dataclasses.dataclass(frozen=True)
class Known:
    """A commit of the repository; place: its index in the git history, parents first."""

    date: str  # in UTC, as 2026-01-31T12:00:00Z
    subject: str
    place: int


def known(hashes: Sequence[str]) -> Mapping[str, Known]:
    """Facts about those commits that the repository of the current folder has."""
    hashes = [name for name in dict.fromkeys(hashes) if _HASH.fullmatch(name)]
    if not hashes:
        return {}
    text = _git(
        "rev-list",
        "--no-walk=unsorted",
        "--ignore-missing",
        "--format=%H %ct %s",
        *hashes,
    )
    facts = dict(
        line.split(" ", 1)
        for line in text.splitlines()
        if not line.startswith("commit ")
    )
    base = _git("merge-base", "--octopus", *facts).split() if facts else []
    walked = (
        _git(
            "rev-list",
            "--topo-order",
            "--reverse",
            *facts,
            *(f"^{name}" for name in base),
        )
        if facts
        else ""
    )
    places = {name: place for place, name in enumerate([*base, *walked.split()])}
    found = {}
    for name, fact in facts.items():
        seconds, _, subject = fact.partition(" ")
        date = datetime.datetime.fromtimestamp(int(seconds), datetime.timezone.utc)
        found[name] = Known(f"{date:%Y-%m-%dT%H:%M:%SZ}", subject, places.get(name, 0))
    return found


@functools.cache
def between(before: str, after: str) -> int | None:
    """The number of commits in before..after; None if the repository lacks one of them."""
    if not (_HASH.fullmatch(before) and _HASH.fullmatch(after)):
        return None
    count = _git("rev-list", "--count", f"{before}..{after}").strip()
    return int(count) if count else None


def resolved(name: str) -> str | None:
    """The hash of a commit, a branch or a tag; None if it does not exist."""
    return (
        _git(
            "rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}"
        ).strip()
        or None
    )


def page() -> str:
    """URL of commits on the site of the git remote, without the hash; "" if unknown."""
    found = _REMOTE.fullmatch(_git("remote", "get-url", "origin").strip())
    site = next(
        (part for name, part in _PAGES.items() if found and name in found[1]), ""
    )
    return f"https://{found[1]}/{found[2]}/{site}/" if found and site else ""


def _git(*words: str) -> str:
    return run_command("git", *words) or ""
