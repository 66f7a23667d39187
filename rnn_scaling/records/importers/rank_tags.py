"""The tags of ranks that launchers and programs print before a line."""

import enum
import re
from collections import Counter
from collections.abc import Sequence


class Ranks(str, enum.Enum):
    """The ranks whose rates count if several ranks print one."""

    FIRST = "first"  # only the lowest rank: each rank prints the total
    SUM = "sum"  # the sum of all ranks: each rank prints its part


# Kubeflow's launcher.py.
_LOGGED = re.compile(r"\s{0,8}[A-Z]{4,8}\|[\d:T.-]{10,30}\|[^|]{1,80}\|\d{1,5}\| ")
# Open MPI "[1,0]<stdout>:", PRRTE "[prterun-host-7@1,0]<stdout>: ", and Horovod's
# Gloo "[0]<stdout>:".
_STREAM = (
    r"[^\[\]|]{0,40}?\[(?:[^\[\]]{0,60},)?(?P<stream>\d{1,7})\]"
    r"<std(?:out|err|diag)>:? ?"
)
# PyTorch "[rank0]:" and torchrun --tee "[default0]:"; programs print "[GPU 3] ",
# "Rank 3: " or "rank=3 step=9".
_WORD = (
    r"\s{0,6}(?i:\[(?:local[_ ]?)?(?:rank|default|trainer|worker|gpu)[ _:=-]?"
    r"(?P<word>\d{1,7})\]:? ?|rank[ _=]?(?P<bare>\d{1,7})(?:[:|,] ?| (?=[a-z\[])))"
)
# MPICH and Intel MPI "[0] ", and Slurm's srun --label "0: ".
_NUMBER = r"\[(?P<bracket>\d{1,7})\] |\s{0,6}(?P<label>\d{1,6}): "
_TAG = re.compile(f"{_STREAM}|{_WORD}|{_NUMBER}")
_CERTAIN = ("stream", "word", "bare")

# Least ratio of the lines of two ranks; the last lines of a rank may be missing.
_LEAST_SHARE = 0.5


def untag(text: str) -> tuple[int | None, str]:
    """Return the rank of a line and the line without its tag.

    The rank is None if the line has no tag.

    >>> untag("[1,3]<stdout>:total images/sec: 9.5")
    (3, 'total images/sec: 9.5')
    >>> untag("[rank1]: step 4")
    (1, 'step 4')
    """
    text = _strip_log_prefix(text)
    match = _match_tag(text)
    if match is None:
        return None, text
    return int(match[match.lastgroup or 0]), text[match.end() :]


def is_certain(text: str) -> bool:
    """Return whether the tag of a line can only be that of a rank.

    The numbers of "0: " and "[0] " may also be steps.
    """
    match = _match_tag(_strip_log_prefix(text))
    return match is not None and match.lastgroup in _CERTAIN


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
    is_even = min(counts.values()) >= _LEAST_SHARE * max(counts.values())
    return is_contiguous and is_even


def _strip_log_prefix(text: str) -> str:
    match = _LOGGED.match(text) if "|" in text[:120] else None
    return text[match.end() :] if match else text


def _match_tag(text: str) -> re.Match[str] | None:
    # Most lines have no tag, and the pattern is slow.
    start = text[:120]
    may_have_one = "[" in start or ": " in start or "ank" in start
    return _TAG.match(text) if may_have_one else None
