"""Where the efficiency goes; "points" are percentage points of the ideal."""

TEMPLATES = {
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
    "few-digits": "The logs print too few digits to tell.",
    "repeats-would-show-spread": "--repeats={repeats} would show how much runs differ.",
    "repeats-would-show-parts": "--repeats={repeats} would show parts of {points} points.",
    "quiet-machine": "The same runs on a quiet machine would tell.",
}
