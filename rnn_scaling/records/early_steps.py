"""Describe steps that a program reported before its devices had finished them.

Reports and the Recorder share this wording. The Recorder needs only the standard
library, so it cannot use the templates of reports.
"""

from collections.abc import Mapping

from rnn_scaling.records.parts import EarlySteps, EarlyStepsKind

_QUESTION = "was step() called before the devices had finished?"
_FASTER_STEPS = "the others are 8 times as fast or more"
_TEMPLATES: Mapping[str, str] = {
    EarlyStepsKind.FAST_START: (
        "the first {steps} measured steps are more than 8 times as fast as the later "
        f"ones; {_QUESTION}"
    ),
    EarlyStepsKind.FEW_LONG: (
        "{steps} of {total_steps} steps have {share:.0%} of the time, and "
        f"{_FASTER_STEPS}; {_QUESTION}"
    ),
    EarlyStepsKind.LONG_LAST: (
        f"the last step has {{share:.0%}} of the time, and {_FASTER_STEPS}; {_QUESTION}"
    ),
    EarlyStepsKind.LONG_END: (
        "{seconds:.3g} s passed after the last step, and all {total_steps} steps took "
        f"{{total_seconds:.3g}} s; {_QUESTION}"
    ),
}
# A newer version may have written another kind.
_UNKNOWN_KIND = (
    "the step times show that step() was called before the devices had finished"
)


def describe(early_steps: EarlySteps) -> str:
    """Return the sign of early steps as the beginning of a sentence."""
    return _TEMPLATES.get(early_steps.kind, _UNKNOWN_KIND).format(
        steps=early_steps.steps,
        seconds=early_steps.seconds,
        share=early_steps.seconds / max(early_steps.total_seconds, 1e-9),
        total_steps=early_steps.total_steps,
        total_seconds=early_steps.total_seconds,
    )
