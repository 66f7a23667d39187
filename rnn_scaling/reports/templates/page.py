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
    "pictures-show-some": "The pictures show the first {subject}; the tables have {more} more.",
    # What the pictures and tables of a section are.
    "reading-of-losses": (
        "From n times the speed of one device down to the speed of n devices. The number of each part is its loss in "
        "points of efficiency. The parts and “the rest” add up to the whole loss; the rest is within {noise}."
    ),
    "reading-of-steps": (
        "From a trace of a few steps after the measured steps. At each instant a tower is in exactly one part, the "
        "first in this list that applies, so the parts sum to the step."
    ),
    "reading-of-counts": "Counted in the graphs that run and in a trace of every kernel.",
    "reading-of-times": (
        "Every dot is a batch. The headline skips the batches left of the dashed line. The shaded part is steady, "
        "judged by the times themselves. Triangles are batches above the frame."
    ),
    "reading-of-padding": (
        "Padding is computed but contains no {unit}. A step ends when the tower with the most positions ends."
    ),
    "steady-unjudged": (
        "This report judges {judged:,} runs, those on the most devices first; it did not judge {unjudged:count run}."
    ),
    "runs-comparable": "The runs are comparable: no difference between them affects the numbers.",
}
