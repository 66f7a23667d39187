"""Traced steps: scatter, concurrency, the tower or rank that others wait for, the cost of tracing, start-up."""

_LAST = "No straggler: tower {tower} is last in every step, by {late} ms,"
TEMPLATES = {
    "one-traced-step": "One traced step: its scatter is unknown.",
    "traced-steps": "sd is the standard deviation over {steps:count traced step} of {runs:count run}.",
    "one-tower": "One tower: nothing overlaps with the compute of another tower.",
    "concurrency-unknown-clusters": "How many towers compute at once is unknown: XLA's clusters name no tower.",
    "concurrency-none": "No tower computes in the trace.",
    "concurrency": "While any tower computes, {at_once:.2f} of {towers} compute at once (1: one after the other).",
    "tracing-ratio": "A traced step took {ratio:.2f} times an untraced step ({steps:count step}).",
    "tracing-ratio-interval": (
        "A traced step took {ratio:.2f} times an untraced step (95 % confidence interval {low:.2f} to {high:.2f}, "
        "{steps:count step})."
    ),
    "tracing-faster": "Tracing cannot shorten a step: the speed changed in between, so its cost is unknown.",
    "tracing-no-cost": "The cost of tracing is within the noise.",
    "tracing-seconds": (
        "A step that records every kernel took {counted:.2f} times an untraced step. Starting the profiler took "
        "{start_s:.2f} s, stopping it {stop_s:.2f} s, both after the measured batches."
    ),
    "coverage": (
        "The trace times {timed:,.0f} of {kernels:,.0f} kernels per step. TensorFlow does not time kernels of a few "
        "microseconds: they count as waiting or idle ({idle:share} of a step is idle)."
    ),
    "xla-clusters": (
        "XLA's clusters (--xla) hold operators of several phases. Their time is in \"other, all towers'\". On a CPU, a "
        "cluster counts as the kernels _XlaCompile and _XlaRun."
    ),
    # The tower that others wait for.
    "straggler": (
        "Straggler: tower {tower} is last in every step, by {late} ms ({late_share:share} of a step). It computes "
        "forward and backward {compute} ms longer."
    ),
    "straggler-changes": "No straggler: a different tower is last from step to step ({towers:list}).",
    "straggler-within-scatter": f"{_LAST} which is within the scatter of the steps.",
    "straggler-starts-late": (
        "No straggler: tower {tower} is last in every step, by {late} ms, but only because it starts later: from its "
        "first kernel it takes {took} ms longer, which is within the scatter."
    ),
    "straggler-held-up": (
        "No straggler: tower {tower} is last in every step, by {late} ms, but its compute is not longer "
        "({compute} ms is within the scatter). A barrier or the launch of its kernels may delay it."
    ),
    "straggler-negligible": _LAST + " only {late_share:.2%} of a step.",
    "straggler-scatters": f"{_LAST} but that differs as much between steps.",
    "straggler-no-steps": "The straggler is unknown: no step was traced.",
    "straggler-one-tower": "No straggler: there is one tower.",
    "straggler-no-exchange": "No straggler: no gradients are exchanged within a step, so no tower waits for another.",
    "straggler-clusters": "The straggler is unknown: XLA's clusters (--xla) name no tower.",
    "straggler-few-steps": (
        "The straggler is unknown: {steps:count traced step} cannot show scatter; use --trace_batches={least}."
    ),
    "straggler-unseen": "The straggler is unknown: the trace has no forward or no backward kernel of {towers:list}.",
    "straggler-idle": "The straggler is unknown: no timed kernel runs in {idle:share} of a step.",
    "straggler-serial": (
        "The straggler is unknown: the towers run one after the other (concurrency {concurrency:.2f}), so their order "
        "of arrival shows nothing."
    ),
    # The ranks that others wait for.
    "ranks-late": (
        "Late ranks: {ranks:list}. The other ranks have their gradients {behind} ms earlier, "
        "{behind_share:share} of a batch, in {batches} of {measured} batches."
    ),
    "ranks-slower": (
        "Slower ranks: {ranks:list}. A batch takes {behind} ms longer than on the slowest other rank, "
        "{behind_share:share}, in {batches} of {measured} batches."
    ),
    "ranks-not-late": (
        "No rank is late: rank {rank} is last most often, in {batches} of {measured} batches, which is within chance."
    ),
    "ranks-not-timed": "Late ranks are unknown: the record has no times at which gradients were ready.",
    "ranks-few-batches": "Late ranks are unknown: that needs {least} measured batches or more.",
    # Start-up against training.
    "start-up-speedups": (
        "On {devices}, initialisation (start, cluster, build) is {initialisation:.1f} of {whole:.1f} s and the first "
        "batch {first_batch:.1f} s. So {unit}/s grow {by_rate:interval 2} times, training is {by_training:.2f} times "
        "as fast as on one device, and the whole run {by_whole:.2f} times. The three converge in longer training."
    ),
}
