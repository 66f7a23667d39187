"""Ask git about commits: their order, dates, subjects, distance and web address.

Histories order their entries with the answers. An answer is unknown without git or a
repository, or if the commit is missing, for example after a rebase.
"""

import dataclasses
import datetime
import functools
import re
from collections.abc import Mapping, Sequence

from rnn_scaling.system.machine.system import run_command

_HASH = re.compile(r"[0-9a-f]{7,64}")
# Addresses of remotes: git@host:owner/name.git, https://user:password@host/owner/name,
# ssh://git@host:22/owner/name.
_REMOTE = re.compile(
    r"(?:\w+://)?(?:[^@/]*@)?([\w.-]+)(?::\d+(?=/))?[:/](.+?)(?:\.git)?/?"
)
_PAGES = {"github": "commit", "gitlab": "-/commit"}


@dataclasses.dataclass(frozen=True)
class Commit:
    """A commit of the repository; `place` is its index in the history, parents first."""

    date: str  # in UTC, such as 2026-01-31T12:00:00Z
    subject: str
    place: int


def find(hashes: Sequence[str]) -> Mapping[str, Commit]:
    """Return facts about the commits that are in the repository of this folder."""
    hashes = [name for name in dict.fromkeys(hashes) if _HASH.fullmatch(name)]
    if not hashes:
        return {}
    text = _run_git(
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
    base = _run_git("merge-base", "--octopus", *facts).split() if facts else []
    excluded = [f"^{name}" for name in base]
    later = []
    if facts:
        order = _run_git("rev-list", "--topo-order", "--reverse", *facts, *excluded)
        later = order.split()
    places = {name: place for place, name in enumerate([*base, *later])}
    commits = {}
    for name, fact in facts.items():
        seconds, _, subject = fact.partition(" ")
        date = datetime.datetime.fromtimestamp(int(seconds), datetime.timezone.utc)
        commits[name] = Commit(
            f"{date:%Y-%m-%dT%H:%M:%SZ}", subject, places.get(name, 0)
        )
    return commits


@functools.cache
def count_commits(first: str, last: str) -> int | None:
    """Count the commits in first..last; None if one of them is missing."""
    if not (_HASH.fullmatch(first) and _HASH.fullmatch(last)):
        return None
    count = _run_git("rev-list", "--count", f"{first}..{last}").strip()
    return int(count) if count else None


def resolve(name: str) -> str | None:
    """Return the hash of a commit, a branch or a tag; None if it does not exist."""
    options = ("--verify", "--quiet", "--end-of-options")
    return _run_git("rev-parse", *options, f"{name}^{{commit}}").strip() or None


def find_commit_page() -> str:
    """Return the URL of commits at the git remote, without the hash; "" if unknown."""
    remote = _REMOTE.fullmatch(_run_git("remote", "get-url", "origin").strip())
    if not remote:
        return ""
    for site, folder in _PAGES.items():
        if site in remote[1]:
            return f"https://{remote[1]}/{remote[2]}/{folder}/"
    return ""


def _run_git(*words: str) -> str:
    return run_command("git", *words) or ""
