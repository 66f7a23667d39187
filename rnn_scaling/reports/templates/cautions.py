"""Runs that need care: machines, unfinished runs, logs, losses, hand-made strong scaling."""

TEMPLATES = {
    "several-machines": "Runs of {machines:count machine}, which are not compared: {machines:list}.",
    "runs-going-on": "{files:count run} {files:is|are} still going on and not counted: {files:list}.",
    "failed-late": "The programs of these runs failed after they wrote their records: {files:list}.",
    "condition-of-runs": "{subject} ({first}): {effect}.",
    "condition-differs": "Not all runs had the same {subject} ({first}; {second}): {effect}.",
    "loss-grew": "The loss grew more than {times}-fold in {files:list}: {remedy}.",
    "loss-not-finite": "After some batches there is no finite loss in {files:list}: {remedy}.",
    "strong-scaling-by-hand": (
        "{subject}: {sizes:list} is strong scaling made by hand ({total} {samples} a step), so each is a series of its "
        "own without speedup; --global_batch_size={total} makes them one."
    ),
    "rates-from-logs": (
        "The rates of {logs} of {runs:count run} are from logs, which do not show single batches: whether these runs "
        "were steady is unknown. Repeats give intervals over runs."
    ),
    "log-formats": "Log formats: {formats:list}.",
    "log-rates-alike": (
        "Runs that printed the same rate have intervals of 0: differences below its last digit are unknown."
    ),
    "log-digits": (
        "The digits or the clock of the logs give rates to ±{rounding:share} at best; intervals include that, and "
        "smaller differences are not judged."
    ),
    "geometric-means": "Rates, ratios and seconds of several runs are their geometric means.",
    "kernel-on-cpus": "On CPUs, {subject} is {kernel}, which is a fused kernel as well.",
}
