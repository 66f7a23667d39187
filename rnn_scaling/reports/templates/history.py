"""A history over commits: its size, where the rate changed, and what was added."""

_STEP = "{subject}: {change:+.1f} % ({low:+.1f} to {high:+.1f} %)"
TEMPLATES = {
    "history-size": (
        "{entries:count entry|entries} of {commits:count commit} on {machines:count machine}, {first} to {last}: "
        "{steps:count step} in {curves:count configuration}."
    ),
    "history-step-one": f"{_STEP} since commit {{after}} ({{title}}).",
    "history-step-several": (
        f"{_STEP} between {{before}} and {{after}} ({{commits}} commits). Measure one in the middle to narrow it down."
    ),
    "history-step-same": f"{_STEP} between two entries of commit {{after}}, so the code is not the cause.",
    "history-step-unknown": f"{_STEP} between {{before}} and {{after}}; the number of commits between them is unknown.",
    "history-versions": "Versions that changed at this step: {versions:list}.",
    "history-few": (
        "With fewer than {enough} entries, steps of 5 % are found late; the longest curve has "
        "{entries:count entry|entries}."
    ),
    "history-scatter": (
        "Standard deviation of {subject}: {process:share} between processes of one entry, and {entry:share} more "
        "between entries of one level."
    ),
    "history-test": (
        "Change and p: Student's t test of the latest entry against all entries since the last step, with the standard "
        "deviation of entries."
    ),
    "history-added": "Added {path}: {runs:count run} of {commit}.",
    "history-known": "Nothing to add to {path}: it already has {runs:count run} of {commit}.",
    "history-no-commit": (
        "The records contain no commit, so the entry is ordered by date. --commit=HEAD, or a hash, names the commit."
    ),
}
