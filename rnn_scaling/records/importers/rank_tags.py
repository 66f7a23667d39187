"""The tags of ranks that launchers and programs print before a line.

Readers of logs call `untag` for each line; no format handles tags itself.
"""

import enum
import re
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple


class Ranks(str, enum.Enum):
    """The ranks whose rates count if several ranks print one."""

    FIRST = "first"  # only the lowest rank: each rank prints the total
    SUM = "sum"  # the sum of all ranks: each rank prints its part


# The prefix that Kubeflow's launcher.py puts in front of the tag.
_LOG_PREFIX = re.compile(r"\s{0,8}[A-Z]{4,8}\|[\d:T.-]{10,30}\|[^|]{1,80}\|\d{1,5}\| ")
# Open MPI "[1,0]<stdout>:", PRRTE "[prterun-host-7@1,0]<stdout>: ", and Horovod's
# Gloo "[0]<stdout>:".
_STREAM_TAG = (
    r"[^\[\]|]{0,40}?\[(?:[^\[\]]{0,60},)?(?P<stream>\d{1,7})\]"
    r"<std(?:out|err|diag)>:? ?"
)
# PyTorch "[rank0]:" and torchrun --tee "[default0]:"; programs print "[GPU 3] ",
# "Rank 3: " or "rank=3 step=9".
_WORD_TAG = (
    r"\s{0,6}(?i:\[(?:local[_ ]?)?(?:rank|default|trainer|worker|gpu)[ _:=-]?"
    r"(?P<word>\d{1,7})\]:? ?|rank[ _=]?(?P<bare>\d{1,7})(?:[:|,] ?| (?=[a-z\[])))"
)
# MPICH and Intel MPI "[0] ", and Slurm's srun --label "0: ".
_NUMBER_TAG = r"\[(?P<bracket>\d{1,7})\] |\s{0,6}(?P<label>\d{1,6}): "
_TAG = re.compile(f"{_STREAM_TAG}|{_WORD_TAG}|{_NUMBER_TAG}")
# Groups of the pattern whose numbers can only be ranks.
_CERTAIN_GROUPS = ("stream", "word", "bare")

# Least ratio of the lines of two ranks; the last lines of a rank may be missing.
_MIN_LINES_RATIO = 0.5
# A tag begins and ends within this many letters.
_MAX_TAG_LETTERS = 120


class UntaggedLine(NamedTuple):
    """A line of a log without the tag of its rank."""

    rank: int | None  # None if the line has no tag
    text: str


def untag(text: str) -> UntaggedLine:
    """Return the rank of a line and the line without its tag.

    >>> untag("[1,3]<stdout>:total images/sec: 9.5")
    UntaggedLine(rank=3, text='total images/sec: 9.5')
    >>> untag("[rank1]: step 4")
    UntaggedLine(rank=1, text='step 4')
    """
    text = _strip_log_prefix(text)
    match = _match_tag(text)
    if match is None:
        return UntaggedLine(None, text)
    return UntaggedLine(int(match[match.lastgroup or 0]), text[match.end() :])


def is_certain(text: str) -> bool:
    """Return whether the tag of a line can only be that of a rank.

    The numbers of "0: " and "[0] " may also be steps.
    """
    match = _match_tag(_strip_log_prefix(text))
    return match is not None and match.lastgroup in _CERTAIN_GROUPS


def are_ranks(numbers: Sequence[int | None], num_devices: int) -> bool:
    """Return whether the numbers before lines can be ranks instead of steps.

    Args:
      numbers: The number before each line; None for a line without one.
      num_devices: Devices of the run; numbers below it may be ranks.
    """
    counts = Counter(numbers)
    if None in counts or max(counts.values(), default=0) < 2:
        return False
    if all(number is not None and number < num_devices for number in counts):
        return True
    is_contiguous = set(counts) == set(range(len(counts)))
    is_even = min(counts.values()) >= _MIN_LINES_RATIO * max(counts.values())
    return is_contiguous and is_even


def _strip_log_prefix(text: str) -> str:
    """Return a line without the prefix of Kubeflow's launcher."""
    match = _LOG_PREFIX.match(text) if "|" in text[:_MAX_TAG_LETTERS] else None
    return text[match.end() :] if match else text


def _match_tag(text: str) -> re.Match[str] | None:
    """Match the tag at the beginning of a line."""
    # Most lines have no tag, and the pattern is slow.
    start = text[:_MAX_TAG_LETTERS]
    may_have_tag = "[" in start or ": " in start or "ank" in start
    return _TAG.match(text) if may_have_tag else None
