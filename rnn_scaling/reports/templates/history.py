"""A history over commits: what it holds, where the rate changed, and what was added."""

_STEP = "{subject}: {change:+.1f} % ({low:+.1f} to {high:+.1f} %)"
TEMPLATES = {
    "history-size": (
        "{entries:count entry|entries} of {commits:count commit} on {machines:count machine}, {first} to {last}: "
        "{steps:count step} in {curves:count configuration}."
    ),
    "history-step-one": f"{_STEP} since commit {{after}} ({{title}}).",
    "history-step-several": (
        f"{_STEP} between {{before}} and {{after}}, {{commits}} commits. Measure one in the middle to find which."
    ),
    "history-step-same": f"{_STEP} with the same commit {{after}}, so not from the code.",
    "history-step-unknown": f"{_STEP} between {{before}} and {{after}}; how many commits that is, is unknown.",
    "history-versions": "At the same time: {versions:list}.",
    "history-few": ("With fewer than {enough} entries, a step of 5 % is found late; the longest curve has {entries}."),
    "history-scatter": (
        "Processes of one entry differ by {process:share} (standard deviation), entries of one level by {entry:share} "
        "more."
    ),
    "history-test": (
        "Change and p: Student's t test of the latest entry against all entries since the last step of its curve, by "
        "the scatter of entries."
    ),
    "history-added": "Added {path}: {runs:count run} of {commit}.",
    "history-known": "Nothing to add: {path} already has these {runs:count run}.",
    "history-no-commit": (
        "No commit is recorded, so the entry is ordered by its date. --commit=HEAD (or a hash) names the commit."
    ),
}
