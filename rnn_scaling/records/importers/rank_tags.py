"""The tags of ranks that launchers and programs put in front of a line."""

import enum
import re
from collections import Counter
from collections.abc import Sequence


class Ranks(str, enum.Enum):
    """The rate of a run if several ranks print one."""

    FIRST = "first"  # the lowest rank's rate: each rank prints the total
    SUM = "sum"  # the sum of all: each rank prints only its own part


# Kubeflow's launcher.py.
_LOGGED = re.compile(r"\s{0,8}[A-Z]{4,8}\|[\d:T.-]{10,30}\|[^|]{1,80}\|\d{1,5}\| ")
# Open MPI "[1,0]<stdout>:", PRRTE "[prterun-host-7@1,0]<stdout>: ", and Horovod's
# Gloo "[0]<stdout>:".
_STREAM = (
    r"[^\[\]|]{0,40}?\[(?:[^\[\]]{0,60},)?(?P<stream>\d{1,7})\]"
    r"<std(?:out|err|diag)>:? ?"
)
# PyTorch "[rank0]:", torchrun --tee "[default0]:", and "[GPU 3] ", "Rank 3: " or
# "rank=3 step=9" of a program's own.
_WORD = (
    r"\s{0,6}(?i:\[(?:local[_ ]?)?(?:rank|default|trainer|worker|gpu)[ _:=-]?"
    r"(?P<word>\d{1,7})\]:? ?|rank[ _=]?(?P<bare>\d{1,7})(?:[:|,] ?| (?=[a-z\[])))"
)
# MPICH and Intel MPI "[0] ", and Slurm's srun --label "0: ".
_NUMBER = r"\[(?P<bracket>\d{1,7})\] |\s{0,6}(?P<label>\d{1,6}): "
_TAG = re.compile(f"{_STREAM}|{_WORD}|{_NUMBER}")
_CERTAIN = ("stream", "word", "bare")

# The rank that prints least has at least this share of the lines of the one that
# prints most; the rest may be missing at the end of a log.
_LEAST_SHARE = 0.5


def untag(text: str) -> tuple[int | None, str]:
    """Return a line's rank and the line without the tag in front of it.

    The rank is None without a tag or number.

    >>> untag("[1,3]<stdout>:total images/sec: 9.5")
    (3, 'total images/sec: 9.5')
    >>> untag("[rank1]: step 4")
    (1, 'step 4')
    """
    text = _without_log_prefix(text)
    match = _tag(text)
    if match is None:
        return None, text
    return int(match[match.lastgroup or 0]), text[match.end() :]


def is_certain(text: str) -> bool:
    """Return whether a line has a tag that can only be a rank's.

    The numbers of "0: " and "[0] " may also be those of steps.
    """
    match = _tag(_without_log_prefix(text))
    return match is not None and match.lastgroup in _CERTAIN


def are_ranks(numbers: Sequence[int | None], num_devices: int) -> bool:
    """Return whether numbers in front of lines can be ranks, rather than steps.

    Args:
      numbers: The number in front of each line; None for a line without one.
      num_devices: Devices of the run; lower numbers than this may be ranks.
    """
    counts = Counter(numbers)
    if None in counts or max(counts.values(), default=0) < 2:
        return False
    if all(number is not None and number < num_devices for number in counts):
        return True
    is_contiguous = set(counts) == set(range(len(counts)))
    is_even = min(counts.values()) >= _LEAST_SHARE * max(counts.values())
    return is_contiguous and is_even


def _without_log_prefix(text: str) -> str:
    match = _LOGGED.match(text) if "|" in text[:120] else None
    return text[match.end() :] if match else text


def _tag(text: str) -> re.Match[str] | None:
    start = text[:120]
    may_have_one = "[" in start or ": " in start or "ank" in start
    return _TAG.match(text) if may_have_one else None
