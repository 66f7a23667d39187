"""The sections of the page: what a series keeps constant, steady states, what pictures show."""

TEMPLATES = {
    "strong-scaling": "Strong scaling: all devices together process {size} {samples} per step, so each has less to do.",
    "weak-scaling": "Weak scaling: every device processes {size} {samples} per step, so n devices do n times the work.",
    "scaling-unknown": "Treated as weak scaling: the records do not contain the batch size.",
    "steady-runs": "{steady} of {runs:count run} became steady.",
    "steady-move": "Counted from there, no rate would move by more than {move:.1f} %.",
    "steady-too-short": "{short:count run} {short:was|were} too short to judge.",
    "picture-of-parts": "The parts of each tower's mean step, in milliseconds. {concurrency}",
    "picture-of-step": "Traced step {step} of {steps} from its start to its end, a bar for each tower.",
    "pictures-show-some": "The pictures show {shown} {subject}; the tables have {more} more.",
    # What the pictures and tables of a section are.
    "page-intervals": "± is half of the 95 % confidence interval: {subject}.",
    "page-mixed": "Weak and strong scaling answer different questions; this page never compares them.",
    "reading-of-losses": (
        "Each bar is the efficiency that one series loses on its largest number of devices, divided into parts. The "
        "parts and “the rest” sum to the total loss; the rest is within {noise}. Gains are left of 0."
    ),
    "reading-of-rates": (
        "{subject}/s is the number of {subject} in the measured batches, divided by the seconds of the same batches."
    ),
    "reading-of-speedup": (
        "Speedup is {subject}/s on n devices over {subject}/s on one; efficiency is speedup over n. Both need a run of "
        "the same configuration on one device; otherwise they are n/a."
    ),
    "reading-of-intervals": (
        "± is half of a 95 % confidence interval over processes (Student's t of the logarithms). Clearly asymmetric "
        "intervals are printed as [low, high]. Rows on the same number of devices share the standard deviation of "
        "their runs. Without repeated runs there is no interval."
    ),
    "reading-of-parts": (
        "A part whose interval contains 0 is within the noise. A part that needs a missing run is left out."
    ),
    "reading-of-files": "table.csv and report.json, next to this page, have all digits of the numbers.",
    "reading-of-steps": (
        "From a trace of a few steps after the measured steps. At each instant a tower is in exactly one part, the "
        "first in this list that applies, so the parts sum to the step."
    ),
    "reading-of-counts": "Counted in the graphs that run and in a trace of every kernel.",
    "reading-of-padding": (
        "Padding is computed but contains no {unit}. A step ends when the tower with the most positions ends."
    ),
    "steady-unjudged": (
        "This report judges {judged:,} runs, those on the most devices first; it did not judge {unjudged:count run}."
    ),
    "runs-comparable": "The runs are comparable: no difference between them affects the numbers.",
}
