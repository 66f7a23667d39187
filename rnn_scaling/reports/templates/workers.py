"""The processes of a distributed run: lost workers, old gradients, the table of ranks."""

TEMPLATES = {
    "stale-gradients": (
        "{subject} does not train what a synchronous mode trains: its gradients were {mean:.1f} updates old on "
        "average, {most} at most."
    ),
    "gradients-age": "Gradients were {mean:.1f} updates old on average, {most} at most.",
    "workers-lost": (
        "{subject} lost workers in {lost} of {runs:count run} on {devices} ({first}), so its rate is not that of "
        "{workers:count worker}."
    ),
    "steps-not-waited-for": "{subject}, in {steps} of {runs:count run} on {devices}: {text}",
    "ranks-of-first-run": (
        "The ranks are those of the first of {runs:count run}; {same} of {others:count other run} {same:has|have} the "
        "same late ranks."
    ),
    "ranks-scatter": "sd is the standard deviation over {batches:count measured batch|measured batches}.",
    "ranks-folded": "Of {ranks:count rank}, the slowest, the median and the fastest are shown.",
    "rank-lost": "Lost: {subject}.",
    "rank-failed": "Failed: {subject}.",
    "common-window": "Common window: {subject}.",
}
