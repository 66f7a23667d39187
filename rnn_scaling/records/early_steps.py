"""Describe steps that a program reported before its devices had finished them.

Reports and the Recorder share this wording. The Recorder needs only the standard
library, so it cannot use the templates of reports.
"""

from collections.abc import Mapping

from rnn_scaling.records.parts import EarlySteps, EarlyStepsKind

# Steps that waited for the devices never differ by this ratio. `analysis.stalls` finds
# early steps with it.
LONG_RATIO = 8.0
_TEMPLATES: Mapping[str, str] = {
    EarlyStepsKind.FAST_START: (
        "the first {steps} measured steps are more than {ratio:g} times "
        "as fast as the later ones; was step() called before the devices had "
        "finished?"
    ),
    EarlyStepsKind.FEW_LONG: (
        "{share:.0%} of the time is in {steps} of {total_steps} steps, "
        "and the others are {ratio:g} times as fast or more; was step() "
        "called before the devices had finished?"
    ),
    EarlyStepsKind.LONG_LAST: (
        "the last step takes {share:.0%} of the time, and the others are {ratio:g} "
        "times as fast or more; was step() called before the devices had finished?"
    ),
    EarlyStepsKind.LONG_END: (
        "{seconds:.3g} s passed after the last step, and all {total_steps} steps took "
        "{total_seconds:.3g} s; was step() called before the devices had finished?"
    ),
}
# A newer version of the program may have written a kind that is not in _TEMPLATES.
_UNKNOWN_KIND = (
    "the step times show that step() was called before the devices had finished"
)


def describe(early_steps: EarlySteps) -> str:
    """Return the evidence for early steps, as the first clause of a sentence."""
    return _TEMPLATES.get(early_steps.kind, _UNKNOWN_KIND).format(
        ratio=LONG_RATIO,
        steps=early_steps.steps,
        seconds=early_steps.seconds,
        share=early_steps.seconds / max(early_steps.total_seconds, 1e-9),
        total_steps=early_steps.total_steps,
        total_seconds=early_steps.total_seconds,
    )
