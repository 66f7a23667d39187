"""How far one series scales, and where its efficiency goes."""

_REACHED = "{efficiency:interval 1} % of the ideal on {devices}, {speedup:interval 2} times the speed of one."
TEMPLATES = {
    "series-failed": "{subject}: no run succeeded.",
    "rate": "{subject}: {rate:interval 1} {unit}/s on {devices}.",
    "fastest-on-fewer": "{subject} is fastest on {devices}: {rate:interval 1} {unit}/s.",
    "fastest-on-fewer-scaled": (
        "{subject} is fastest on {devices}: {rate:interval 1} {unit}/s, {speedup:interval 2} times the speed of one."
    ),
    "reaches": "{subject} reaches " + _REACHED,
    "reaches-about": "{subject} reaches about " + _REACHED,
    "not-run-on-more-devices": "It was not run on more devices.",
    "needs-run-on-one-device": "Its run on 1 device is missing, so its scaling is unknown.",
    "single-runs": "These are single runs.",
    "single-run-on": "There is a single run on {devices}.",
    "interval-unknown": "The uncertainty is unknown.",
    "efficiency-unknown": "{subject}: how it scales on {devices} is unknown ({low:.0f} to {high:.0f} % of the ideal).",
    "efficiency-unknown-spread": "{subject}: how it scales on {devices} is unknown (runs differ {spread:.2f} times).",
    "runs-vary": "The runs vary too much to judge: use more --repeats.",
    "above-ideal": "That is more than the ideal: check load and clocks of the runs on 1 device and repeat both.",
    "near-ideal": "The difference from the ideal is within the noise.",
    "repeats-would-show-loss": "--repeats={repeats} would show a loss of {points} points.",
    "other-load": "Other processes used up to {share:share} of the cores during {loaded} of {runs:count run}.",
    "shared-cores": "{devices} share {cores:count core}.",
    "shared-cores-alone": "{devices} share {cores:count core}; one device alone had {alone}.",
    "shared-cores-bound": "They can reach at most {share:share} of the ideal.",
    "failed-above": "{subject}: no run succeeded on {devices:list}.",
    "diverged": "{subject}: the loss diverged in {diverged} of {runs:count run}.",
    # Where the efficiency goes; "points" are percentage points of the ideal.
    "part": "{points:interval 1} points are {subject}.",
    "part-gains": "{points:interval 1} points are gained from {subject}.",
    "points-not-split": "{points:interval 1} points are not split.",
    "parts-need-runs": "Runs for {parts:list} are missing.",
    "parts-hidden-by-load": "{parts:List} may be the load of other processes, up to {share:share} of the cores.",
    "parts-within-noise": "{parts:List} {parts:is|are} within the noise.",
    "rest-not-separated": "{points:interval 1} more points are {parts:list}, which these runs do not separate.",
    "rest-within-noise": "{parts:List} {parts:is|are} within the noise ({points:interval 1} points).",
    "rest-within-noise-or-load": (
        "{parts:List} {parts:is|are} within the noise or the load of other processes ({points:interval 1} points)."
    ),
    "few-digits": "The logs print too few digits to judge.",
    "repeats-would-show-spread": "--repeats={repeats} would show how much runs differ.",
    "repeats-would-show-parts": "--repeats={repeats} would show parts of {points} points.",
    "quiet-machine": "Repeat the runs on a quiet machine.",
}
