"""The sections of the page: what a series keeps constant, steady states, what pictures show."""

TEMPLATES = {
    "strong-scaling": "Strong scaling: all devices together process {size} {samples} per step, so each has less to do.",
    "weak-scaling": "Weak scaling: every device processes {size} {samples} per step, so n devices do n times the work.",
    "scaling-unknown": "Treated as weak scaling: the records do not contain the batch size.",
    "steady-runs": "{steady} of {runs:count run} became steady.",
    "steady-move": "Counted from there, no rate would move by more than {move:.1f} %.",
    "steady-too-short": "{short:count run} {short:was|were} too short to judge.",
    "steady-run": (
        "{subject}, steady from batch {start}. The headline, which skips {warmup:count batch|batches}, would move by "
        "{move:+.1f} %."
    ),
    "loss-interval": "± is half of the 95 % confidence interval: {subject}.",
    "picture-of-loss": (
        "Ideal {ideal} {unit}/s; points of efficiency lost: {parts}; measured {measured} {unit}/s, {share:.1f} % of "
        "the ideal. {frame}"
    ),
    "picture-of-batches": (
        "{subject}: {batches} batches of {least:,.1f} to {most:,.1f} ms, median {median:,.1f} ms; {state}"
    ),
    "picture-of-parts": "The parts of each tower's mean step, in milliseconds. {concurrency}",
    "picture-of-step": "Traced step {step} of {steps} from its start to its end, a bar for each tower.",
}
