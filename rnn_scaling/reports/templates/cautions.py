"""What a reader must know before trusting the numbers: runs that need care, and the machine."""

_CORES = (
    "cores of one CPU: they share its caches, memory and clock, so this is not how separate machines or GPUs scale."
)
TEMPLATES = {
    "several-machines": "Runs of {machines:count machine}, which are not compared: {machines:list}.",
    "runs-going-on": "{files:count run} {files:is|are} still going on and not counted: {files:list}.",
    "failed-late": "The programs of these runs failed after they wrote their records: {files:list}.",
    "condition-of-runs": "{subject} ({first}): {effect}.",
    "condition-differs": "Not all runs had the same {subject} ({first}; {second}): {effect}.",
    "loss-grew": "The loss grew more than {times}-fold in {files:list}: {remedy}.",
    "loss-not-finite": "After some batches there is no finite loss in {files:list}: {remedy}.",
    "strong-scaling-by-hand": (
        "{subject}: {sizes:list} are the same total work ({total} {samples} per step), but each is a separate series "
        "without speedup; use --global_batch_size={total} to get one series of strong scaling."
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
    # The machine.
    "gpus-shared": (
        "In {runs:count run} of {total} several towers share one real GPU (logical devices): this shows the cost of "
        "the software, not how hardware scales."
    ),
    "cpu-devices-only": f"The devices are {_CORES}",
    "cpu-devices": "In {runs:count run} of {total} the devices are " + _CORES,
    "too-few-cores": "In {runs:count run} of {total} the devices needed more CPU cores than the machine has.",
    "gpus-throttled": "In {runs:count run} of {total} the driver reduced the GPUs' clocks.",
    "updates-skipped": (
        "In {runs:count run} of {total} up to {most:count update} {most:was|were} skipped, because a gradient was not "
        "finite in float16."
    ),
    "workers-on-one-host": (
        "In {runs:count run} of {total} several workers ran on one host: they share its memory, caches and clock and "
        "use no network, so this is not how separate machines scale."
    ),
    "network-simulated": "The network between the workers was made for the runs, on one machine: {subject}.",
    "window-off": (
        "In {runs:count run} of {total} the measured batches of all ranks take up to {most:.1%} more or less time than "
        "rank 0's clock shows: rates are no more accurate than that."
    ),
    "clocks": "In {runs:count run} of {total} (numbers of the first): {subject}.",
    "far-links": (
        "In {runs:count run} of {total} the GPUs {subject} exchanged, whose farthest link is {farthest}; the links of "
        "{devices} are nearer ({worst} at most). CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES={devices} should "
        "exchange faster."
    ),
}
