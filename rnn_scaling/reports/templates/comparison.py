"""Two sets of runs: the verdict, what it rests on, and which of two settings is faster."""

_ONE_RUN = (
    "shows no change: memory layout, placement and load differ between processes, which the batches of one "
    "run do not show."
)
_STEP_TIME = "in {subject}, although {metric} is within the noise."
_RATIO = "{subject}, {after} is {ratio:.2f} ({low:.2f} to {high:.2f}) times as fast as {before}"
TEMPLATES = {
    "regression": "Regression beyond {limit:g} %: {change:+.1f} % in {subject}.",
    "regressions": (
        "Regression beyond {limit:g} % in {slower} of {total} configurations, worst {change:+.1f} % in {subject}."
    ),
    "no-regression": "No regression beyond {limit:g} % in {total:count configuration}.",
    "step-time-grew": (
        "From {before} to {after}, p{percentile} of the {time} grew by {change:.1f} % ({low:.1f} to {high:.1f} %) "
        f"{_STEP_TIME}"
    ),
    "step-time-shrank": (
        "From {before} to {after}, p{percentile} of the {time} fell by {change:.1f} % ({low:.1f} to {high:.1f} %) "
        f"{_STEP_TIME}"
    ),
    "batches-needed": "n/a: p95 of the {subject} needs {p95} measured batches per run, and p99 needs {p99}.",
    "two-sittings": "The sides ran at different times, so the interval does not include drift between them.",
    "not-judged": "Cannot judge: {reasons:list}.",
    "some-not-judged": "Cannot judge {unjudged} of {total} configurations: {reasons:list}.",
    "compare-machines-instead": "To compare two machines, add --across=machine.",
    # Two machines.
    "machine-faster": f"{_RATIO}.",
    "machine-slower": "{subject}, {after} is {ratio:.3g} ({low:.3g} to {high:.3g}) times as fast as {before}.",
    "machine-tie": f"{_RATIO}, which is within the noise.",
    "machine-unknown": "{subject}, the machines cannot be compared: {reason}.",
    "machine-faster-series": (
        "{subject}, {after} is faster in {series} of {total} series ({low:.2f} to {high:.2f} times)."
    ),
    "machine-slower-series": (
        "{subject}, {after} is slower in {series} of {total} series ({low:.3g} to {high:.3g} times)."
    ),
    "machine-tie-series": "{subject}, the difference is within the noise in {series} of {total} series.",
    "machine-unknown-series": "{subject}, {series} of {total} series cannot be judged.",
    # What machines cost.
    "machines-series": "The answer is about the fastest of {series} series, {subject}.",
    "machines-series-differ": "For {others} of {series} series, another machine is the cheapest.",
    "machines-without-interval": "One run on a machine cannot show which is cheapest; repeat the runs (--repeats=5).",
    "machines-cheapest": (
        "{subject} is the cheapest: a billion {unit} cost {cost:interval 2} {currency}, and "
        "{second_cost:interval 2} {currency} on {second}."
    ),
    "machines-break-even": (
        "{subject} stays cheaper than {second} as long as it costs less than {price:interval 3} {currency} per hour."
    ),
    "machines-cheapest-unclear": "No clear winner in cost: {tied:list} are within the noise of each other.",
    "machines-fastest": "{subject} is the fastest: {rate:interval 1} {unit}/s, {ratio:interval 2} times {second}.",
    "machines-fastest-unclear": "No clear winner in speed: {tied:list} are within the noise of each other.",
    # What it rests on.
    "interval-kind": "±: {subject}.",
    "paired-test": "Change and p: Student's t test of the logarithm over pairs of runs; each run is a process.",
    "unpaired-test": (
        "Change and p: Welch's t test of the logarithm over the configuration's runs; each run is a process."
    ),
    "step-time-intervals": (
        "Change of the {subject}: ratio of percentiles. The interval covers the variation between runs and between "
        "blocks of batches."
    ),
    "drift-in-interval": "Intervals are no narrower than the drift of the runs over time makes them.",
    "corrected-p": (
        "{configurations} configurations are tested: with Holm's correction of p, the chance of any false alarm is at "
        "most 5 %. The intervals are not corrected."
    ),
    "sittings-drift": "`ab` runs both sides in turns, so that drift of the machine does not look like a change.",
    "all-devices-of-runs": "All devices: the most that a side's runs use, which may be fewer than its machine has.",
    "independent-sides": (
        "The sides count as independent: a machine that changed between them looks like a change. `ab` runs both in "
        "turns."
    ),
    "one-run-a-side": f"One run per side {_ONE_RUN}",
    "one-run-on-one-side": f"One run on one side {_ONE_RUN}",
    "runs-needed": (
        "Runs per side that show a slow-down of {limit:g} % in 80 of 100 cases, by the standard deviation between "
        "runs: {runs:list}."
    ),
    # Two settings.
    "ab-faster": "{subject} is {ratio:interval 2} times as fast as {other}.",
    "ab-tie": "No difference is shown: B is {low} to {high} times as fast as A (95 % confidence interval).",
    "ab-wide": "No difference is shown: the pairs differ too much.",
    "ab-one-pair": "B is {ratio:interval 2} times as fast as A in one pair; --repeats=5 gives a confidence interval.",
    "ab-other-work": "A and B are not compared, because they do different work: {options:list}.",
    "ab-unlike": "A and B are not compared, because their runs differ in more: {facts:list}.",
    "ab-no-answer": "A and B are not compared: {reasons:list}.",
}
