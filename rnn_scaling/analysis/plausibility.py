"""Find reasons to doubt the rates that a program printed.

Reports and sweeps over programs of users ask; a new reason is a new `Doubt`.
"""

import enum

from rnn_scaling.records.parts import LogFindingKind, PrintedOutput
from rnn_scaling.records.record import RunRecord

_AT_ONCE_S = 0.01  # lines that arrive within it were printed at once
_MIN_LINES = 3  # fewer lines may come at once by chance
_MIN_RATIO = 2.0  # smallest ratio of two rates in one line that is reported
_MIN_SPREAD = 10.0  # highest / lowest rate of one run that noise does not explain
# Findings that explain why the lines of a log differ, with their rates.
_SPREAD_EXPLAINED = {
    LogFindingKind.TWO_CLUSTERS.value,
    LogFindingKind.RUNNING_AVERAGE.value,
    LogFindingKind.RISING.value,
}


class Doubt(enum.Enum):
    """A reason to doubt a printed rate."""

    LINES_AT_ONCE = enum.auto()  # the wall time does not fit the rates
    LONGER_THAN_PROCESS = enum.auto()  # printed times exceed the duration of the run
    OTHER_RATE = enum.auto()  # the lines contain another rate that differs much
    SPREAD = enum.auto()  # the rates of one run differ by a large factor


def find_doubts(run: RunRecord) -> list[Doubt]:
    """Return the reasons to doubt the printed rate of a run, the most serious first.

    The list is empty if the run did not print its rate.
    """
    output = run.output
    if output is None:
        return []
    doubts = []
    if exceeds_process(output):
        doubts.append(Doubt.LONGER_THAN_PROCESS)
    has_rates = output.printed_s is None and output.lines >= _MIN_LINES
    if has_rates and _comes_at_once(output):
        doubts.append(Doubt.LINES_AT_ONCE)
    kinds = {finding.kind for finding in run.log_findings or ()}
    if compute_rate_spread(output) >= _MIN_SPREAD and not kinds & _SPREAD_EXPLAINED:
        doubts.append(Doubt.SPREAD)
    ratio = output.other_rate_ratio
    if ratio is not None and max(ratio, 1 / ratio) >= _MIN_RATIO:
        doubts.append(Doubt.OTHER_RATE)
    return doubts


def _comes_at_once(output: PrintedOutput) -> bool:
    """Return whether all rate lines arrived at once although the run took longer."""
    if output.span_s is None or output.process_s is None:
        return False
    return output.span_s < min(_AT_ONCE_S, output.process_s / 2)


def exceeds_process(output: PrintedOutput) -> bool:
    """Return whether the printed seconds cannot have passed in the program's run.

    The program then only shows a log of another run.
    """
    if output.printed_s is None or output.process_s is None:
        return False
    is_longer = output.printed_s > output.process_s
    return is_longer and output.lines > 1 and _comes_at_once(output)


def compute_rate_spread(output: PrintedOutput) -> float:
    """Return the highest rate of a run divided by its lowest one; 1 without rates."""
    if output.highest_rate is None or output.lowest_rate is None:
        return 1.0
    return output.highest_rate / output.lowest_rate
