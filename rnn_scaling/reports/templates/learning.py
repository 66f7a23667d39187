"""Learning: whether several devices reach the target sooner than one device."""

TEMPLATES = {
    "target-not-recorded": (
        "{subject}: {runs:count run} on {devices} did not record {quantity}, or had fewer than {batches} batches."
    ),
    "target-missed": (
        "{subject}: {missed} of {runs:count run} on {devices} did not reach and hold {target}; the best was {best}."
    ),
    "target-reached": "{subject}: {devices} reach {target} in {seconds:interval 1} s, after {items:interval 0} {unit}.",
    "target-without-baseline": "{subject}: no run on one device to compare with.",
    "target-sooner": (
        "{subject}: {devices} reach {target} {sooner:interval 2} times as fast as one device, with {work:.2f} times "
        "the {unit} ({seconds:interval 1} s against {baseline_seconds:interval 1} s)."
    ),
    "target-later": (
        "{subject}: {devices} reach {target} later than one device, {sooner:interval 2} times as fast, with {work:.2f} "
        "times the {unit} ({seconds:interval 1} s against {baseline_seconds:interval 1} s)."
    ),
    "target-within-noise": (
        "{subject}: {devices} and one device reach {target} equally fast within the noise ({sooner:interval 2} times "
        "as fast, with {work:.2f} times the {unit})."
    ),
    "target-single-runs": "Numbers without ± come from one run each; use --repeats=3.",
    "target-highest": "{target} is the highest of a few levels that all runs reach.",
    "target-lowest": "{target} is the lowest of the levels tried.",
    "target-window": (
        "A run reaches the target when the mean over the last {windows:list} {per} meets it and keeps meeting it."
    ),
    "target-seconds": "Seconds are the {unit} to the target divided by the measured {unit}/s, without start-up.",
}
