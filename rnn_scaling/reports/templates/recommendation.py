"""What recommend found."""

TEMPLATES = {
    "recommend": "Use {subject}: {rate:interval 0} {unit}/s.",
    "recommend-nothing": "No run measured anything, so there is no recommendation.",
    "recommend-equal": "{names:list} {names:is|are} equally fast (within {within:share}).",
    "recommend-open": "It may differ from {names:list} by up to {within:share} either way: use either.",
    "recommend-noisy": "The runs vary too much to compare it with {names:list}: stop other processes, or use either.",
    "recommend-one-round": "One round cannot separate it from {names:list}: use either.",
    "recommend-next": "Next is {subject} with {share:interval 0} % of this rate.",
    "recommend-failed": "Failed: {names:list}.",
    "recommend-left-out": "Not measured for lack of time: {names:list}. Raise --minutes to continue.",
    "recommend-load": "Other processes used up to {share:share} of the cores during {runs:count run}.",
    "batch-fits": "{batch_size:,} {samples} per device fit in memory.",
    "batch-fits-peak": "{batch_size:,} {samples} per device fit in memory: {peak_gib:.3g} GiB.",
    "batch-fits-limit": "{batch_size:,} {samples} per device fit in memory: {peak_gib:.3g} of {limit_gib:.3g} GiB.",
    "batch-too-large": "{batch_size:,} {samples} do not fit: {reason}.",
    "batch-none": "Not even {batch_size:,} {samples} per device fit in memory.",
    "batch-untried": "No batch was tried.",
    "batch-failed": "A batch of {batch_size:,} failed for a reason other than memory: {reason}",
    "batch-unfinished": "The search did not end in time: run the same command with more --minutes.",
}
