"""What recommend found."""

TEMPLATES = {
    "recommend": "Use {subject}: {rate:interval 0} {unit}/s.",
    "recommend-nothing": "No run measured anything, so there is no recommendation.",
    "recommend-equal": "{names:list} {names:is|are} equally fast (within {within:share}).",
    "recommend-open": "It may differ from {names:list} by up to {within:share} either way: use either.",
    "recommend-noisy": "The runs vary too much to compare it with {names:list}: stop other processes, or use either.",
    "recommend-one-round": "One round cannot separate it from {names:list}: use either.",
    "recommend-failed": "Failed: {names:list}.",
    "recommend-left-out": "Not measured for lack of time: {names:list}. Raise --minutes to continue.",
    "recommend-load": "Other processes used up to {share:share} of the cores during {runs:count run}.",
}
