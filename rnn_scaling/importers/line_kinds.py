"""Find the lines of a log that are not training steps, by their words or values."""

import math
import os
import re
import statistics
from collections.abc import Sequence
from typing import NamedTuple

_EVALUATION = re.compile(
    r"(?<![A-Za-z])(?i:valid(?:ation|ating|ate)?|val|eval(?:uation|uating|uate)?|"
    r"test(?:ing)?|inference)(?![A-Za-z_.])"
)
# "val loss 2.1" or "test 0.91": the latest result of an evaluation in another line.
_RESULT = re.compile(
    r"\W{0,3}(?:(?i:loss|acc|ppl|perplexity|bleu|err|f1|score)|\d*\.\d)"
)
_TRAINING = re.compile(r"(?<![A-Za-z])(?i:train(?:ing)?)(?![A-Za-z_.])")

FACTOR = 3.0  # smallest ratio of the medians of the two kinds of lines
GAP = 2.0  # smallest ratio of the two values around the gap between the kinds
FEWEST_LINES = 3  # lines that each kind must have
FEWEST_PLACES = 2  # stretches of the rarer kind; one alone may be a disturbance


class Clusters(NamedTuple):
    """Two kinds of lines: indices of the kind that trains, and of the other."""

    training: list[int]
    others: list[int]


def evaluations(texts: Sequence[str]) -> list[int]:
    """Return the indices of the lines whose words say that they evaluate.

    Args:
      texts: Each line up to the number that is read.

    Returns:
      Nothing if all lines say so, since the rate of an evaluation may be wanted.
    """
    found = [index for index, text in enumerate(texts) if _evaluates(text)]
    if len(found) == len(texts):  # the name of the run may say so, as "[test-run]"
        same = len(os.path.commonprefix(list(texts)))
        found = [index for index, text in enumerate(texts) if _evaluates(text[same:])]
    return found if len(found) < len(texts) else []


def _evaluates(text: str) -> bool:
    if _TRAINING.search(text):
        return False
    head = re.match(r"\D*", text)
    if head is not None and _EVALUATION.search(head[0]):
        return True
    return any(
        not _RESULT.match(text, match.end()) for match in _EVALUATION.finditer(text)
    )


def clusters(costs: Sequence[float]) -> Clusters | None:
    """Return the two kinds of lines that alternate in a log, None if it has one.

    They differ by at least `FACTOR`, each is narrow, and both come back. The kind with
    more lines is training; if both have as many, the one of the first line.

    Args:
      costs: Seconds per item, or per step, of each line.
    """
    whole = _split(costs)
    if whole is not None or len(costs) < 2:
        return whole
    without_first = _split(costs[1:])  # the first line may contain the start
    if without_first is None:
        return None
    training = [0, *(index + 1 for index in without_first.training)]
    return Clusters(training, [index + 1 for index in without_first.others])


def _split(costs: Sequence[float]) -> Clusters | None:
    logs = [math.log(cost) for cost in costs]
    ordered = sorted(logs)
    gaps = [above - below for below, above in zip(ordered, ordered[1:])]
    if not gaps or max(gaps) < math.log(GAP):
        return None
    limit = ordered[gaps.index(max(gaps))]
    low = [index for index, value in enumerate(logs) if value <= limit]
    high = [index for index, value in enumerate(logs) if value > limit]
    low_logs = [logs[index] for index in low]
    high_logs = [logs[index] for index in high]
    distance = statistics.median(high_logs) - statistics.median(low_logs)
    if distance < math.log(FACTOR) or min(len(low), len(high)) < FEWEST_LINES:
        return None
    if max(_width(low_logs), _width(high_logs)) > distance / 2:
        return None
    larger, smaller = sorted(
        (low, high), key=lambda members: (-len(members), members[0])
    )
    if _places(smaller) < FEWEST_PLACES:
        return None
    return Clusters(larger, smaller)


def _width(values: Sequence[float]) -> float:
    """Return the distance of the ends without a tenth of the values at each."""
    ordered = sorted(values)
    left_out = len(ordered) // 10
    return ordered[len(ordered) - 1 - left_out] - ordered[left_out]


def _places(indices: Sequence[int]) -> int:
    """Return the number of stretches of consecutive indices."""
    breaks = sum(after > before + 1 for before, after in zip(indices, indices[1:]))
    return breaks + 1
